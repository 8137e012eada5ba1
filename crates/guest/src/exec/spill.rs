//! Output that does not fit into head and tail, kept in a file from its very first byte.
//!
//! State: files in the spill folder. They stay after a crash and belong to whoever owns the folder.

use std::fs::File;
use std::io::Write;
use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, Dir, Mode, OFlags};
use rustix::io::Errno;

/// What the names of all files begin with.
const PREFIX: &[u8] = b"output-";

/// How many names are tried before giving up.
const ATTEMPTS: u32 = 10_000;

/// The folder that spilled output goes to.
#[derive(Debug)]
pub(crate) struct SpillFolder {
    path: String,
    /// Opened before any command ran, so that none can put something else in its place.
    folder: Option<OwnedFd>,
    /// Part of all names, so that those of an earlier guest are not in the way.
    stamp: u64,
    next: u32,
    /// How many bytes may lie in it of output, and how many did when it was looked into and were written since.
    total: u64,
    taken: u64,
}

impl SpillFolder {
    /// The folder at `path`, made if it is missing. One that cannot be had, or is a link that something left
    /// there, keeps nothing.
    pub(crate) fn open(path: &str, total: u64) -> Self {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let open = || rustix::fs::open(path, flags, Mode::empty());
        let folder = match open() {
            Err(Errno::NOENT) => rustix::fs::mkdir(path, Mode::from_raw_mode(0o755)).and_then(|()| open()),
            other => other,
        };
        Self::new(folder.ok(), path, total)
    }

    /// A folder that is open already, and that commands see at `path`.
    pub(crate) fn of(folder: OwnedFd, path: &str, total: u64) -> Self {
        Self::new(Some(folder), path, total)
    }

    fn new(folder: Option<OwnedFd>, path: &str, total: u64) -> Self {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
        let stamp = now.tv_sec.cast_unsigned();
        let path = path.trim_end_matches('/').to_owned();
        let mut folder = Self { path, folder, stamp, next: 0, total, taken: 0 };
        // Of an earlier guest, too.
        folder.count();
        folder
    }

    /// Counts what lies in the folder of output: what the host has removed is no more.
    fn count(&mut self) {
        let Some(folder) = &self.folder else { return };
        let entries = rustix::fs::openat(folder, ".", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
        let Ok(entries) = entries.and_then(Dir::new) else { return };
        let of_output = entries.flatten().filter(|entry| entry.file_name().to_bytes().starts_with(PREFIX));
        let sizes = of_output.filter_map(|entry| {
            let stat = rustix::fs::statat(folder, entry.file_name(), AtFlags::SYMLINK_NOFOLLOW).ok()?;
            u64::try_from(stat.st_size).ok()
        });
        self.taken = sizes.sum();
    }

    /// How much more may be written.
    fn left(&self) -> u64 {
        self.total.saturating_sub(self.taken)
    }

    fn create(&mut self) -> Option<(File, String)> {
        if self.left() == 0 {
            self.count();
        }
        if self.left() == 0 {
            return None;
        }
        let folder = self.folder.as_ref()?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        for _ in 0..ATTEMPTS {
            self.next = self.next.wrapping_add(1);
            let name = format!("output-{:x}-{}.log", self.stamp, self.next);
            match rustix::fs::openat(folder, name.as_str(), flags, Mode::RUSR | Mode::WUSR) {
                Ok(file) => return Some((file.into(), name)),
                Err(Errno::EXIST) => {}
                Err(_) => return None,
            }
        }
        None
    }
}

/// The file of one stream of output.
#[derive(Debug)]
pub(super) enum Spill {
    /// Not needed so far; it may take so many bytes.
    Unused(u64),
    /// Being written.
    Open { file: File, name: String, written: u64, limit: u64 },
    /// Not wanted, or it could not be written.
    Absent,
}

impl Spill {
    pub(super) fn new(limit: u64) -> Self {
        if limit == 0 { Self::Absent } else { Self::Unused(limit) }
    }

    pub(super) fn is_unused(&self) -> bool {
        matches!(self, Self::Unused(_))
    }

    /// Makes the file.
    pub(super) fn start(&mut self, folder: Option<&mut SpillFolder>) {
        if let Self::Unused(limit) = *self {
            *self = match folder.and_then(SpillFolder::create) {
                Some((file, name)) => Self::Open { file, name, written: 0, limit },
                None => Self::Absent,
            };
        }
    }

    /// Takes the next bytes, as far as the limit goes, and that of all output. A full disk is no failure of the command:
    /// then there is no file.
    pub(super) fn write(&mut self, bytes: &[u8], folder: Option<&mut SpillFolder>) {
        let (Self::Open { file, name, written, limit }, Some(folder)) = (&mut *self, folder) else { return };
        let room = (*limit - *written).min(folder.left());
        if room < bytes.len() as u64 {
            // Nothing that comes later may follow a gap.
            *limit = *written + room;
        }
        let room = usize::try_from(room).unwrap_or(usize::MAX).min(bytes.len());
        let Some(bytes) = bytes.get(..room).filter(|bytes| !bytes.is_empty()) else { return };
        if file.write_all(bytes).is_ok() {
            *written += bytes.len() as u64;
            folder.taken = folder.taken.saturating_add(bytes.len() as u64);
            return;
        }
        if let Some(handle) = &folder.folder {
            // Nothing better can be done when this fails, too.
            let _ = rustix::fs::unlinkat(handle, name.as_str(), AtFlags::empty());
        }
        folder.count();
        *self = Self::Absent;
    }

    /// The file's path, and its bytes.
    pub(super) fn result(&self, folder: Option<&SpillFolder>) -> (Option<String>, u64) {
        match (self, folder) {
            (Self::Open { name, written, .. }, Some(folder)) => {
                (Some(format!("{}/{name}", folder.path)), *written)
            }
            _ => (None, 0),
        }
    }
}
