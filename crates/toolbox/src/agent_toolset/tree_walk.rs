//! Lists the files beneath a directory of the sandbox, without following links, and without `.git`.

use std::collections::VecDeque;

use conjure_sandbox::{CallOptions, EntryKind, Executor, Listing, SandboxError, SandboxErrorKind};
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;

/// The maximum number of files that are listed.
const MAX_FILES: usize = 100_000;

/// The maximum number of directories that are listed one by one.
const MAX_DIRECTORIES: usize = 5_000;

/// How many directories are listed at once.
const CONCURRENCY: usize = 8;

/// The maximum number of levels and of entries in one request.
const DEPTH: u32 = 64;
const ENTRIES: u32 = 50_000;

/// A regular file beneath the root of a walk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FoundFile {
    /// The path relative to the root. It is empty if the root itself is a file.
    pub(super) path: String,
    pub(super) size: u64,
    pub(super) modified_ns: i64,
}

/// The files beneath a root, by path.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct FileTree {
    pub(super) files: Vec<FoundFile>,
    /// Whether there are more files than were listed.
    pub(super) is_cut: bool,
    /// Directories that could not be listed.
    pub(super) unreadable: usize,
}

impl FileTree {
    /// Lists the files beneath `root`.
    ///
    /// # Errors
    /// When the root cannot be listed; `TimedOut`, `Cancelled` and `Lost`.
    pub(super) async fn list(
        executor: &dyn Executor,
        root: &str,
        options: &CallOptions,
    ) -> Result<Self, SandboxError> {
        let whole = executor.list(root, DEPTH, ENTRIES, options.clone()).await?;
        let mut tree = Self::default();
        if whole.truncated {
            tree.list_each(executor, root, options).await?;
        } else {
            // One request has listed all directories.
            tree.add("", whole);
        }
        tree.files.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(tree)
    }

    /// Lists each directory by itself, for a tree that does not fit into one reply.
    async fn list_each(
        &mut self,
        executor: &dyn Executor,
        root: &str,
        options: &CallOptions,
    ) -> Result<(), SandboxError> {
        let list = |directory: String| async move {
            let path = join(root, &directory);
            (executor.list(&path, 1, ENTRIES, options.clone()).await, directory)
        };
        let (mut pending, mut running) = (VecDeque::from([String::new()]), FuturesUnordered::new());
        let mut count = 0;
        loop {
            while running.len() < CONCURRENCY
                && let Some(directory) = pending.pop_front()
            {
                count += 1;
                running.push(list(directory));
            }
            let Some((listed, directory)) = running.next().await else { return Ok(()) };
            match listed {
                Ok(listing) => {
                    self.is_cut |= listing.truncated;
                    pending.extend(self.add(&directory, listing));
                }
                Err(error) if is_of_call(&error) => return Err(error),
                Err(_) => self.unreadable += 1,
            }
            if self.files.len() >= MAX_FILES || count + pending.len() > MAX_DIRECTORIES {
                self.is_cut = true;
                self.files.truncate(MAX_FILES);
                return Ok(());
            }
        }
    }

    /// Adds the files of a listing, and returns its directories.
    fn add(&mut self, directory: &str, listing: Listing) -> Vec<String> {
        let mut directories = Vec::new();
        for entry in listing.entries {
            let path = join(directory, &entry.path);
            if path.split('/').any(|name| name == ".git") {
                continue;
            }
            match entry.kind {
                EntryKind::File => {
                    self.files.push(FoundFile { path, size: entry.size, modified_ns: entry.modified_ns })
                }
                EntryKind::Directory => directories.push(path),
                EntryKind::Symlink | EntryKind::Other => {}
            }
        }
        directories
    }

    /// The notice for the model about an incomplete list.
    pub(super) fn notice(&self) -> Option<String> {
        let cut = self.is_cut.then(|| {
            "there are more files than can be listed, and not all were searched; give a `path` beneath"
                .to_owned()
        });
        let unreadable =
            (self.unreadable > 0).then(|| format!("{} directories could not be read", self.unreadable));
        cut.into_iter().chain(unreadable).reduce(|a, b| format!("{a}; {b}"))
    }
}

/// Whether an error ends the whole call.
pub(super) fn is_of_call(error: &SandboxError) -> bool {
    matches!(
        error.kind(),
        SandboxErrorKind::TimedOut
            | SandboxErrorKind::Cancelled
            | SandboxErrorKind::Lost
            | SandboxErrorKind::Unavailable
            | SandboxErrorKind::Unsupported
    )
}

/// Joins a directory and a path beneath it. An empty path gives the directory itself.
pub(super) fn join(directory: &str, path: &str) -> String {
    match (directory, path) {
        ("" | ".", path) => path.to_owned(),
        (directory, "") => directory.to_owned(),
        (directory, path) => format!("{}/{path}", directory.trim_end_matches('/')),
    }
}

#[cfg(test)]
mod tests {
    use super::join;

    #[test]
    fn paths_are_joined_as_a_model_writes_them() {
        for (directory, path, joined) in [
            ("", "a", "a"),
            (".", "a/b", "a/b"),
            ("/", "a", "/a"),
            ("src/", "a", "src/a"),
            ("/work", "a b", "/work/a b"),
            ("src", "", "src"),
        ] {
            assert_eq!(join(directory, path), joined);
        }
    }
}
