//! Spill files: they hold the complete output when head and tail do not.
//!
//! State: files in the spill directory. They survive a crash, and the owner of the directory removes them.

use std::fs::File;
use std::io::Write;
use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, Dir, Mode, OFlags};
use rustix::io::Errno;

/// The prefix of all file names.
const PREFIX: &[u8] = b"output-";

/// The maximum number of names to try.
const ATTEMPTS: u32 = 10_000;

/// The directory for spill files.
#[derive(Debug)]
pub(crate) struct SpillDir {
    path: String,
    /// Opened before any command runs, so that no command can replace the directory.
    handle: Option<OwnedFd>,
    /// Part of all names, so that they do not collide with those of an earlier guest.
    stamp: u64,
    next: u32,
    /// `total` is the maximum number of bytes of spill files. `used` is the last count, plus the bytes that were
    /// written since.
    total: u64,
    used: u64,
}

impl SpillDir {
    /// Opens the directory at `path`, and creates it if it is missing. When it cannot be opened, or is a symbolic
    /// link, nothing is spilled.
    pub(crate) fn open(path: &str, total: u64) -> Self {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let open = || rustix::fs::open(path, flags, Mode::empty());
        let dir = match open() {
            Err(Errno::NOENT) => rustix::fs::mkdir(path, Mode::from_raw_mode(0o755)).and_then(|()| open()),
            other => other,
        };
        Self::new(dir.ok(), path, total)
    }

    /// Uses an open directory, which commands see at `path`.
    pub(crate) fn from_handle(handle: OwnedFd, path: &str, total: u64) -> Self {
        Self::new(Some(handle), path, total)
    }

    fn new(handle: Option<OwnedFd>, path: &str, total: u64) -> Self {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
        let stamp = now.tv_sec.cast_unsigned();
        let path = path.trim_end_matches('/').to_owned();
        let mut dir = Self { path, handle, stamp, next: 0, total, used: 0 };
        // Includes the files of an earlier guest.
        dir.count();
        dir
    }

    /// Counts the spill files again. The host may have removed some.
    fn count(&mut self) {
        let Some(dir) = &self.handle else { return };
        let entries = rustix::fs::openat(dir, ".", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
        let Ok(entries) = entries.and_then(Dir::new) else { return };
        let of_output = entries.flatten().filter(|entry| entry.file_name().to_bytes().starts_with(PREFIX));
        let sizes = of_output.filter_map(|entry| {
            let stat = rustix::fs::statat(dir, entry.file_name(), AtFlags::SYMLINK_NOFOLLOW).ok()?;
            u64::try_from(stat.st_size).ok()
        });
        self.used = sizes.sum();
    }

    /// Returns how many more bytes may be written.
    fn remaining(&self) -> u64 {
        self.total.saturating_sub(self.used)
    }

    fn create(&mut self) -> Option<(File, String)> {
        if self.remaining() == 0 {
            self.count();
        }
        if self.remaining() == 0 {
            return None;
        }
        let dir = self.handle.as_ref()?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        for _ in 0..ATTEMPTS {
            self.next = self.next.wrapping_add(1);
            let name = format!("output-{:x}-{}.log", self.stamp, self.next);
            match rustix::fs::openat(dir, name.as_str(), flags, Mode::RUSR | Mode::WUSR) {
                Ok(file) => return Some((file.into(), name)),
                Err(Errno::EXIST) => {}
                Err(_) => return None,
            }
        }
        None
    }
}

/// The spill file of one output stream.
#[derive(Debug)]
pub(super) enum Spill {
    /// Not needed yet. It may grow to this many bytes.
    Unused(u64),
    /// Open for writing.
    Open { file: File, name: String, written: u64, limit: u64 },
    /// Not requested, or writing failed.
    Absent,
}

impl Spill {
    pub(super) fn new(limit: u64) -> Self {
        if limit == 0 { Self::Absent } else { Self::Unused(limit) }
    }

    pub(super) fn is_unused(&self) -> bool {
        matches!(self, Self::Unused(_))
    }

    /// Creates the file.
    pub(super) fn start(&mut self, dir: Option<&mut SpillDir>) {
        if let Self::Unused(limit) = *self {
            *self = match dir.and_then(SpillDir::create) {
                Some((file, name)) => Self::Open { file, name, written: 0, limit },
                None => Self::Absent,
            };
        }
    }

    /// Appends bytes up to the file's limit and the total limit. A full disk does not fail the command; the file
    /// is removed.
    pub(super) fn write(&mut self, bytes: &[u8], dir: Option<&mut SpillDir>) {
        let (Self::Open { file, name, written, limit }, Some(dir)) = (&mut *self, dir) else { return };
        let room = (*limit - *written).min(dir.remaining());
        if room < bytes.len() as u64 {
            // The file has a gap here, so no later bytes may be appended.
            *limit = *written + room;
        }
        let room = usize::try_from(room).unwrap_or(usize::MAX).min(bytes.len());
        let Some(bytes) = bytes.get(..room).filter(|bytes| !bytes.is_empty()) else { return };
        if file.write_all(bytes).is_ok() {
            *written += bytes.len() as u64;
            dir.used = dir.used.saturating_add(bytes.len() as u64);
            return;
        }
        if let Some(handle) = &dir.handle {
            // A failure here cannot be handled.
            let _ = rustix::fs::unlinkat(handle, name.as_str(), AtFlags::empty());
        }
        dir.count();
        *self = Self::Absent;
    }

    /// Returns the file's path and size.
    pub(super) fn result(&self, dir: Option<&SpillDir>) -> (Option<String>, u64) {
        match (self, dir) {
            (Self::Open { name, written, .. }, Some(dir)) => (Some(format!("{}/{name}", dir.path)), *written),
            _ => (None, 0),
        }
    }
}
