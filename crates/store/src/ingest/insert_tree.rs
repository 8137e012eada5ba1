//! Insertion of a whole directory.
//!
//! The traversal opens each directory relative to the handle of its parent. So it stays in the tree, even if a
//! directory is replaced meanwhile. The kernel resolves symbolic links beneath the root's handle. A link that stays
//! beneath it is replaced by its target.
//!
//! State: staged files of contents that are not in the store yet, at most [`MAX_PENDING`]. Dropping the inserter removes them.

use std::ffi::{OsStr, OsString};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt as _;
use std::path::Path;

use conjure_base::Digest;
use conjure_fs::{Links, file_size, fingerprint, open_beneath};
use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

use crate::error::StoreError;
use crate::file_mode::FileMode;
use crate::ingest::source_file::{NEVER_CANCELLED, SourceFile};
use crate::ingest::staged_file::StagedFile;
use crate::store::{Durability, GcGuard, Store};
use crate::tree::{SkipReason, SkippedEntry, Tree, TreeFile, TreeOptions};

/// The maximum number of new contents that are synced to disk together.
const MAX_PENDING: usize = 64;

/// With fewer new contents than this, each is synced by itself. Syncing the whole file system also waits for the
/// writes of other programs.
const MIN_JOINT_SYNC: usize = 8;

/// The maximum depth, whatever the options allow: each level needs an open descriptor.
const MAX_DEPTH: u32 = 128;

const OPEN_DIR: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
const OPEN_FILE: OFlags = OFlags::RDONLY.union(OFlags::NONBLOCK).union(OFlags::NOCTTY).union(OFlags::CLOEXEC);

impl Store {
    /// Inserts every file beneath the directory at `path`.
    ///
    /// A symbolic link that stays beneath the directory is replaced by its target. Other links, devices, pipes and sockets are
    /// skipped and listed in [`Tree::skipped`]. Files that were read before and have not changed are not opened again. The
    /// directory may change meanwhile: each file is inserted as it was at one point in time, or the insertion fails.
    ///
    /// # Errors
    /// `LimitExceeded` beyond the limits of the options; `Changed` when a file changes while it is read; `NotFound` and
    /// `PermissionDenied` for a file that cannot be opened; `NoSpace` and `ReadOnly` when the store cannot be written.
    pub fn insert_tree(&self, path: &Path, options: &TreeOptions) -> Result<Tree, StoreError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let failed = |errno| StoreError::from_errno(errno, "open", path);
        let root = rustix::fs::openat(CWD, path, flags, Mode::empty()).map_err(failed)?;
        let top = rustix::fs::openat(&root, ".", OPEN_DIR, Mode::empty()).map_err(failed)?;
        let mut walk = TreeInserter {
            store: self,
            gc_guard: self.inner().lock_against_gc()?,
            options,
            path,
            root,
            ancestors: Vec::new(),
            entries: 0,
            bytes: 0,
            files: Vec::new(),
            skipped: Vec::new(),
            pending: Vec::new(),
        };
        walk.insert_dir(&top, Path::new(""))?;
        walk.commit()?;
        let TreeInserter { mut files, mut skipped, .. } = walk;
        files.sort_by(|a, b| a.path().cmp(b.path()));
        skipped.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(Tree::new(files, skipped))
    }
}

struct TreeInserter<'a> {
    store: &'a Store,
    gc_guard: GcGuard,
    options: &'a TreeOptions,
    /// Path of the root, for messages.
    path: &'a Path,
    root: OwnedFd,
    /// Device and inode of the directories that are being traversed, outermost first.
    ancestors: Vec<(u64, u64)>,
    entries: u64,
    bytes: u64,
    files: Vec<TreeFile>,
    skipped: Vec<SkippedEntry>,
    pending: Vec<PendingEntry>,
}

/// A new content that is not in the store yet.
struct PendingEntry {
    staged: StagedFile,
    digest: Digest,
}

impl TreeInserter<'_> {
    fn failed(&self, operation: &'static str, path: &Path) -> impl Fn(Errno) -> StoreError + use<> {
        let path = self.path.join(path);
        move |errno| StoreError::from_errno(errno, operation, &path)
    }

    fn limit_exceeded(&self, path: &Path, what: &'static str, limit: u64) -> StoreError {
        StoreError::LimitExceeded { path: self.path.join(path), what, limit }
    }

    /// Inserts the entries of an open directory.
    fn insert_dir(&mut self, dir: &OwnedFd, path: &Path) -> Result<(), StoreError> {
        let depth = self.options.max_depth.min(MAX_DEPTH);
        if self.ancestors.len() >= usize::try_from(depth).unwrap_or(usize::MAX) {
            return Err(self.limit_exceeded(path, "levels of directories", depth.into()));
        }
        let stat = rustix::fs::fstat(dir).map_err(self.failed("list", path))?;
        self.ancestors.push((stat.st_dev, stat.st_ino));
        for name in self.entry_names(dir, path)? {
            self.insert_entry(dir, &name, &path.join(&name))?;
        }
        self.ancestors.pop();
        Ok(())
    }

    /// The names in a directory, sorted.
    fn entry_names(&mut self, dir: &OwnedFd, path: &Path) -> Result<Vec<OsString>, StoreError> {
        let mut names = Vec::new();
        for entry in Dir::read_from(dir).map_err(self.failed("list", path))? {
            let entry = entry.map_err(self.failed("list", path))?;
            let name = entry.file_name();
            if name == c"." || name == c".." {
                continue;
            }
            let name = OsString::from_vec(name.to_bytes().to_vec());
            if self.options.exclude.contains(&name) {
                continue;
            }
            self.entries += 1;
            if self.entries > self.options.max_entries {
                return Err(self.limit_exceeded(Path::new(""), "entries", self.options.max_entries));
            }
            names.push(name);
        }
        names.sort();
        Ok(names)
    }

    fn insert_entry(&mut self, dir: &OwnedFd, name: &OsStr, path: &Path) -> Result<(), StoreError> {
        let stat = match rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) {
            // Another process has removed it.
            Err(Errno::NOENT) => return Ok(()),
            other => other.map_err(self.failed("read", path))?,
        };
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => {
                let inner = rustix::fs::openat(dir, name, OPEN_DIR, Mode::empty());
                self.insert_dir(&inner.map_err(self.failed("open", path))?, path)
            }
            FileType::RegularFile => {
                let open = || rustix::fs::openat(dir, name, OPEN_FILE | OFlags::NOFOLLOW, Mode::empty());
                self.insert_file(path, &stat, open)
            }
            FileType::Symlink => self.follow_link(path),
            _ => {
                self.skip(path, SkipReason::SpecialFile);
                Ok(())
            }
        }
    }

    /// Inserts the target of a symbolic link, if it lies beneath the root.
    fn follow_link(&mut self, path: &Path) -> Result<(), StoreError> {
        let found = match self.resolve(path, OFlags::PATH) {
            Ok(found) => found,
            Err(errno) => {
                let reason = match errno {
                    Errno::XDEV => SkipReason::EscapesRoot,
                    Errno::NOENT | Errno::NOTDIR => SkipReason::DanglingLink,
                    // A loop, or a link of `/proc`.
                    Errno::LOOP => SkipReason::LinkLoop,
                    other => return Err(self.failed("follow the link", path)(other)),
                };
                self.skip(path, reason);
                return Ok(());
            }
        };
        let stat = rustix::fs::fstat(&found).map_err(self.failed("follow the link", path))?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory if self.ancestors.contains(&(stat.st_dev, stat.st_ino)) => {
                self.skip(path, SkipReason::LinkLoop);
                Ok(())
            }
            FileType::Directory => {
                let inner = rustix::fs::openat(&found, ".", OPEN_DIR, Mode::empty());
                self.insert_dir(&inner.map_err(self.failed("open", path))?, path)
            }
            FileType::RegularFile => {
                let (root, path) = (self.root.try_clone(), path);
                let root = root.map_err(|error| StoreError::from_io(error, "open", path))?;
                self.insert_file(path, &stat, || open_beneath(&root, path, OPEN_FILE, Links::Followed))
            }
            _ => {
                self.skip(path, SkipReason::SpecialFile);
                Ok(())
            }
        }
    }

    fn resolve(&self, path: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
        open_beneath(&self.root, path, flags, Links::Followed)
    }

    fn skip(&mut self, path: &Path, reason: SkipReason) {
        self.skipped.push(SkippedEntry { path: path.to_owned(), reason });
    }

    /// Inserts a regular file. It is opened only when its digest is not cached.
    fn insert_file(
        &mut self,
        path: &Path,
        stat: &Stat,
        open: impl Fn() -> Result<OwnedFd, Errno>,
    ) -> Result<(), StoreError> {
        let inner = self.store.inner();
        let cached = inner.digest_cache.get(&fingerprint(stat));
        if let Some(digest) = cached {
            let size = file_size(stat);
            if inner.touch(&self.gc_guard, &digest, file_mode(stat))? {
                return self.add_file(path, digest, size, file_mode(stat));
            }
        }
        // Taken before the file is read, so that each later change shows in the file's times.
        let now = inner.options.clock.timestamp();
        let full_path = self.path.join(path);
        let file = open().map_err(self.failed("open", path))?;
        let left = self.options.max_bytes.saturating_sub(self.bytes);
        let mut source = SourceFile::new(file, &full_path, left).map_err(|error| match error {
            StoreError::LimitExceeded { .. } => {
                self.limit_exceeded(Path::new(""), "bytes", self.options.max_bytes)
            }
            other => other,
        })?;
        let (key, mode, size) = (fingerprint(source.stat()), file_mode(source.stat()), source.size());
        let (digest, staged) =
            self.store.copy_and_digest(&mut source, mode, &self.gc_guard, NEVER_CANCELLED)?;
        inner.digest_cache.put(key, digest, now);
        if let Some(staged) = staged {
            self.pending.push(PendingEntry { staged, digest });
        }
        self.add_file(path, digest, size, mode)?;
        if self.pending.len() >= MAX_PENDING { self.commit() } else { Ok(()) }
    }

    fn add_file(&mut self, path: &Path, digest: Digest, size: u64, mode: FileMode) -> Result<(), StoreError> {
        self.bytes = self.bytes.saturating_add(size);
        if self.bytes > self.options.max_bytes {
            return Err(self.limit_exceeded(Path::new(""), "bytes", self.options.max_bytes));
        }
        self.files.push(TreeFile::new(path.to_owned(), digest, size, mode));
        Ok(())
    }

    /// Links all pending contents into the store.
    fn commit(&mut self) -> Result<(), StoreError> {
        let inner = self.store.inner();
        let waiting = std::mem::take(&mut self.pending);
        let is_flushed_together =
            waiting.len() >= MIN_JOINT_SYNC && inner.options.durability != Durability::Process;
        if is_flushed_together {
            let failed = |errno| StoreError::from_errno(errno, "write", inner.dirs.path());
            rustix::fs::syncfs(inner.dirs.root()).map_err(failed)?;
        }
        for PendingEntry { staged, digest } in waiting {
            if !is_flushed_together {
                staged.sync()?;
            }
            staged.commit(&digest)?;
        }
        Ok(())
    }
}

fn file_mode(stat: &Stat) -> FileMode {
    if Mode::from_raw_mode(stat.st_mode).contains(Mode::XUSR) {
        FileMode::Executable
    } else {
        FileMode::Plain
    }
}
