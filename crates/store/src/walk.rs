//! Inserting a whole folder.
//!
//! The walk goes from handle to handle, so what is exchanged meanwhile leads nowhere else. Links are resolved by the
//! kernel beneath the folder's handle; where one stays beneath it, what it leads to is taken in its place.
//!
//! State: contents that are written and not yet in the store, at most [`BATCH`]; dropped, they leave nothing.

use std::ffi::{OsStr, OsString};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt as _;
use std::path::Path;
use std::thread;
use std::time::Duration;

use conjure_base::Digest;
use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;

use crate::cache::FileKey;
use crate::draft::Draft;
use crate::error::StoreError;
use crate::source::{Source, TO_THE_END};
use crate::store::{Durability, Hold, Store, Variant};
use crate::tree::{LeftOut, LeftOutReason, Tree, TreeFile, TreeOptions};

/// New contents that wait for the disk together.
const BATCH: usize = 64;

/// With fewer new contents than this, each is flushed by itself: flushing the whole file system also waits for what others
/// wrote.
const TOGETHER: usize = 8;

/// A rename or a mount anywhere on the machine makes the kernel give up a path that leads upwards. So often it is asked
/// again at once, and so often after a pause: about a second, which only a storm of renames lasts.
const RACES: usize = 16;
const PATIENT_RACES: usize = 1000;

/// What no folder may exceed, whatever the options say: each level holds a descriptor open.
const DEEPEST: u32 = 128;

const FOLDER: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
const FILE: OFlags = OFlags::RDONLY.union(OFlags::NONBLOCK).union(OFlags::NOCTTY).union(OFlags::CLOEXEC);

impl Store {
    /// Inserts every file beneath the folder at `path`.
    ///
    /// Links that stay beneath the folder are replaced by what they lead to; other links, devices, pipes and sockets are
    /// left out, and the tree says so ([`Tree::left_out`]). Files that were read before and have not changed since are not
    /// opened again. The folder may change meanwhile: each file is taken as it was at some moment, or the walk fails.
    ///
    /// # Errors
    /// `TooMuch` beyond the bounds of the options; `Changed` when a file changes while it is read; `NotFound` and
    /// `PermissionDenied` for what cannot be opened; `NoSpace` and `ReadOnly` when the store cannot be written.
    pub fn insert_tree(&self, path: &Path, options: &TreeOptions) -> Result<Tree, StoreError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let failed = |errno| StoreError::of(errno, "open", path);
        let root = rustix::fs::openat(CWD, path, flags, Mode::empty()).map_err(failed)?;
        let top = rustix::fs::openat(&root, ".", FOLDER, Mode::empty()).map_err(failed)?;
        let mut walk = Walk {
            store: self,
            hold: self.inner().hold()?,
            options,
            path,
            root,
            above: Vec::new(),
            entries: 0,
            bytes: 0,
            files: Vec::new(),
            left_out: Vec::new(),
            waiting: Vec::new(),
        };
        walk.folder(&top, Path::new(""))?;
        walk.commit()?;
        let Walk { mut files, mut left_out, .. } = walk;
        files.sort_by(|a, b| a.path().cmp(b.path()));
        left_out.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(Tree::new(files, left_out))
    }
}

struct Walk<'a> {
    store: &'a Store,
    hold: Hold,
    options: &'a TreeOptions,
    /// The folder's path, for messages.
    path: &'a Path,
    root: OwnedFd,
    /// The folders that are being walked through, outermost first.
    above: Vec<(u64, u64)>,
    entries: u64,
    bytes: u64,
    files: Vec<TreeFile>,
    left_out: Vec<LeftOut>,
    waiting: Vec<Waiting>,
}

/// A new content that is not yet in the store.
struct Waiting {
    draft: Draft,
    digest: Digest,
}

impl Walk<'_> {
    fn failed(&self, doing: &'static str, path: &Path) -> impl Fn(Errno) -> StoreError + use<> {
        let path = self.path.join(path);
        move |errno| StoreError::of(errno, doing, &path)
    }

    fn too_much(&self, path: &Path, what: &'static str, limit: u64) -> StoreError {
        StoreError::TooMuch { path: self.path.join(path), what, limit }
    }

    /// Walks through an open folder.
    fn folder(&mut self, folder: &OwnedFd, path: &Path) -> Result<(), StoreError> {
        let depth = self.options.depth.min(DEEPEST);
        if self.above.len() >= usize::try_from(depth).unwrap_or(usize::MAX) {
            return Err(self.too_much(path, "levels of folders", depth.into()));
        }
        let stat = rustix::fs::fstat(folder).map_err(self.failed("list", path))?;
        self.above.push((stat.st_dev, stat.st_ino));
        for name in self.names(folder, path)? {
            self.entry(folder, &name, &path.join(&name))?;
        }
        self.above.pop();
        Ok(())
    }

    /// The names in a folder, sorted.
    fn names(&mut self, folder: &OwnedFd, path: &Path) -> Result<Vec<OsString>, StoreError> {
        let mut names = Vec::new();
        for entry in Dir::read_from(folder).map_err(self.failed("list", path))? {
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
            if self.entries > self.options.entries {
                return Err(self.too_much(Path::new(""), "entries", self.options.entries));
            }
            names.push(name);
        }
        names.sort();
        Ok(names)
    }

    fn entry(&mut self, folder: &OwnedFd, name: &OsStr, path: &Path) -> Result<(), StoreError> {
        let stat = match rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) {
            // Removed meanwhile.
            Err(Errno::NOENT) => return Ok(()),
            other => other.map_err(self.failed("read", path))?,
        };
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => {
                let inner = rustix::fs::openat(folder, name, FOLDER, Mode::empty());
                self.folder(&inner.map_err(self.failed("open", path))?, path)
            }
            FileType::RegularFile => {
                let open = || rustix::fs::openat(folder, name, FILE | OFlags::NOFOLLOW, Mode::empty());
                self.file(path, &stat, open)
            }
            FileType::Symlink => self.link(path),
            _ => {
                self.leave_out(path, LeftOutReason::NotPlain);
                Ok(())
            }
        }
    }

    /// Takes what a link leads to, if that lies beneath the folder.
    fn link(&mut self, path: &Path) -> Result<(), StoreError> {
        let found = match self.resolve(path, OFlags::PATH) {
            Ok(found) => found,
            Err(errno) => {
                let reason = match errno {
                    Errno::XDEV => LeftOutReason::LeadsOut,
                    Errno::NOENT | Errno::NOTDIR => LeftOutReason::Dangling,
                    // A link of `/proc`, or a circle.
                    Errno::LOOP => LeftOutReason::Circle,
                    other => return Err(self.failed("follow the link", path)(other)),
                };
                self.leave_out(path, reason);
                return Ok(());
            }
        };
        let stat = rustix::fs::fstat(&found).map_err(self.failed("follow the link", path))?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory if self.above.contains(&(stat.st_dev, stat.st_ino)) => {
                self.leave_out(path, LeftOutReason::Circle);
                Ok(())
            }
            FileType::Directory => {
                let inner = rustix::fs::openat(&found, ".", FOLDER, Mode::empty());
                self.folder(&inner.map_err(self.failed("open", path))?, path)
            }
            FileType::RegularFile => {
                let (root, path) = (self.root.try_clone(), path);
                let root = root.map_err(|error| StoreError::of_io(error, "open", path))?;
                self.file(path, &stat, || resolve(&root, path, FILE))
            }
            _ => {
                self.leave_out(path, LeftOutReason::NotPlain);
                Ok(())
            }
        }
    }

    fn resolve(&self, path: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
        resolve(&self.root, path, flags | OFlags::CLOEXEC)
    }

    fn leave_out(&mut self, path: &Path, reason: LeftOutReason) {
        self.left_out.push(LeftOut { path: path.to_owned(), reason });
    }

    /// Takes a plain file, which is opened only when it is not known.
    fn file(
        &mut self,
        path: &Path,
        stat: &Stat,
        open: impl Fn() -> Result<OwnedFd, Errno>,
    ) -> Result<(), StoreError> {
        let inner = self.store.inner();
        let known = inner.known.get(&FileKey::of(stat));
        if let Some(digest) = known {
            let size = u64::try_from(stat.st_size).unwrap_or(0);
            if inner.touch(&self.hold, &digest, variant(stat))? {
                return self.add(path, digest, size, variant(stat));
            }
        }
        // Read before the file is: what changes from now on shows in its times.
        let now = inner.options.clock.timestamp();
        let full_path = self.path.join(path);
        let file = open().map_err(self.failed("open", path))?;
        let left = self.options.bytes.saturating_sub(self.bytes);
        let mut source = Source::of(file, &full_path, left).map_err(|error| match error {
            StoreError::TooMuch { .. } => self.too_much(Path::new(""), "bytes", self.options.bytes),
            other => other,
        })?;
        let (key, variant, size) = (FileKey::of(source.stat()), variant(source.stat()), source.size());
        let (digest, draft) = self.store.take(&mut source, variant, &self.hold, TO_THE_END)?;
        inner.known.put(key, digest, now);
        if let Some(draft) = draft {
            self.waiting.push(Waiting { draft, digest });
        }
        self.add(path, digest, size, variant)?;
        if self.waiting.len() >= BATCH { self.commit() } else { Ok(()) }
    }

    fn add(&mut self, path: &Path, digest: Digest, size: u64, variant: Variant) -> Result<(), StoreError> {
        self.bytes = self.bytes.saturating_add(size);
        if self.bytes > self.options.bytes {
            return Err(self.too_much(Path::new(""), "bytes", self.options.bytes));
        }
        self.files.push(TreeFile::new(path.to_owned(), digest, size, variant));
        Ok(())
    }

    /// Puts what waits into the store.
    fn commit(&mut self) -> Result<(), StoreError> {
        let inner = self.store.inner();
        let waiting = std::mem::take(&mut self.waiting);
        let is_flushed_together =
            waiting.len() >= TOGETHER && inner.options.durability != Durability::Process;
        if is_flushed_together {
            let failed = |errno| StoreError::of(errno, "write", inner.folders.path());
            rustix::fs::syncfs(inner.folders.root()).map_err(failed)?;
        }
        for Waiting { draft, digest } in waiting {
            if !is_flushed_together {
                draft.flush()?;
            }
            draft.commit(&digest)?;
        }
        Ok(())
    }
}

/// Opens what lies at a path beneath the folder, through links that stay beneath it.
#[expect(
    clippy::disallowed_methods,
    reason = "no event tells of the end of a storm of renames; the walk may block"
)]
fn resolve(root: &OwnedFd, path: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    for race in 0..PATIENT_RACES {
        match rustix::fs::openat2(root, path, flags, Mode::empty(), resolve) {
            Err(Errno::AGAIN | Errno::INTR) if race < RACES => {}
            Err(Errno::AGAIN | Errno::INTR) => thread::sleep(Duration::from_millis(1)),
            other => return other,
        }
    }
    Err(Errno::AGAIN)
}

fn variant(stat: &Stat) -> Variant {
    if Mode::from_raw_mode(stat.st_mode).contains(Mode::XUSR) { Variant::Executable } else { Variant::Plain }
}
