//! Lists directories level by level, without following links, and within limits.

use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, Stat, statat};
use rustix::io::Errno;

use conjure_guest::protocol::{EntryKind, FileEntry, GuestError, PAYLOAD_MAX, Reply};

use super::resolve::{ResolvedPath, WorkerRoots};
use crate::error::file_error;

const DOING: &str = "list";

/// The maximum number of names to read, listed or not.
pub(super) const NAMES_MAX: usize = 200_000;

/// The maximum number of entries, whatever the request says.
pub(super) const ENTRIES_MAX: u32 = 50_000;

/// The maximum number of levels, whatever the request says.
pub(super) const DEPTH_MAX: u32 = 64;

/// The maximum JSON size of the entries, so that the reply fits into one frame.
pub(super) const JSON_MAX: usize = PAYLOAD_MAX - 4096;

/// The maximum JSON size of an entry without its path.
pub(super) const JSON_ENTRY: usize = 128;

/// The limits of a listing.
#[derive(Debug, Clone, Copy)]
pub(super) struct ListLimits {
    pub(super) depth: u32,
    pub(super) entries: u32,
    pub(super) hidden: bool,
}

/// The entries that were found.
#[derive(Debug, Default)]
pub(super) struct Listing {
    pub(super) entries: Vec<FileEntry>,
    pub(super) truncated: bool,
    names: usize,
    json: usize,
}

/// Lists the directory at `path`.
pub(super) fn list(roots: &WorkerRoots<'_>, path: &str, limits: ListLimits) -> Result<Reply, GuestError> {
    let resolved = roots.resolve(path)?;
    let dir = resolved
        .open_beneath(&resolved.rest, OFlags::RDONLY | OFlags::DIRECTORY)
        .map_err(|errno| file_error(errno, path, DOING))?;
    let Listing { entries, truncated, .. } = list_dir(&resolved, dir, limits)?;
    Ok(Reply::List { entries, truncated })
}

/// Lists an open directory. It completes one level before the next, so that a huge subdirectory does not hide the rest.
pub(super) fn list_dir(
    resolved: &ResolvedPath<'_>,
    dir: OwnedFd,
    limits: ListLimits,
) -> Result<Listing, GuestError> {
    let mut listing = Listing::default();
    let mut level = vec![String::new()];
    for depth in 0..limits.depth.min(DEPTH_MAX) {
        let mut below = Vec::new();
        for prefix in level {
            let opened = if depth == 0 {
                dir.try_clone().map_err(|error| super::io::io_failure(&error, resolved.given, DOING))
            } else {
                let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let resolve = rustix::fs::ResolveFlags::BENEATH | rustix::fs::ResolveFlags::NO_SYMLINKS;
                match rustix::fs::openat2(&dir, prefix.as_str(), flags, Mode::empty(), resolve) {
                    Ok(dir) => Ok(dir),
                    // It was removed, replaced or made inaccessible meanwhile. Its own entry remains.
                    Err(_) => continue,
                }
            }?;
            listing
                .add_dir(opened, &prefix, limits, &mut below)
                .map_err(|errno| file_error(errno, resolved.given, DOING))?;
            if listing.truncated {
                break;
            }
        }
        if listing.truncated || below.is_empty() {
            break;
        }
        level = below;
    }
    listing.entries.sort_by(|left, right| left.path.cmp(&right.path));
    Ok(listing)
}

impl Listing {
    fn add_dir(
        &mut self,
        dir: OwnedFd,
        prefix: &str,
        limits: ListLimits,
        below: &mut Vec<String>,
    ) -> Result<(), Errno> {
        let mut names = Vec::new();
        let mut entries = Dir::read_from(&dir)?;
        while let Some(entry) = entries.read() {
            let entry = entry?;
            let name = entry.file_name();
            if name == c"." || name == c".." {
                continue;
            }
            self.names += 1;
            if self.names > NAMES_MAX {
                self.truncated = true;
                break;
            }
            if limits.hidden || !name.to_bytes().starts_with(b".") {
                names.push(name.to_owned());
            }
        }
        names.sort();
        for name in names {
            // It was removed meanwhile.
            let Ok(stat) = statat(&dir, &name, AtFlags::SYMLINK_NOFOLLOW) else { continue };
            let shown = name.to_string_lossy();
            let path =
                if prefix.is_empty() { shown.clone().into_owned() } else { format!("{prefix}/{shown}") };
            self.json += JSON_ENTRY + escaped_len(&path);
            if self.entries.len() >= limits.entries.min(ENTRIES_MAX) as usize || self.json > JSON_MAX {
                self.truncated = true;
                return Ok(());
            }
            let entry = entry(path, &stat);
            if entry.kind == EntryKind::Directory && name.to_str().is_ok() {
                below.push(entry.path.clone());
            }
            self.entries.push(entry);
        }
        Ok(())
    }
}

/// Returns the maximum JSON size of a text. A character takes at most six bytes, and only control characters take
/// that many.
pub(super) fn escaped_len(text: &str) -> usize {
    text.bytes().map(|byte| if byte < 0x20 { 6 } else { 2 }).sum()
}

/// Converts the metadata of the file at `path`.
pub(super) fn entry(path: String, stat: &Stat) -> FileEntry {
    let kind = match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => EntryKind::File,
        FileType::Directory => EntryKind::Directory,
        FileType::Symlink => EntryKind::Symlink,
        _ => EntryKind::Other,
    };
    let nanoseconds = i64::try_from(stat.st_mtime_nsec).unwrap_or(0);
    FileEntry {
        path,
        kind,
        size: if kind == EntryKind::File { stat.st_size.cast_unsigned() } else { 0 },
        modified_ns: stat.st_mtime.saturating_mul(1_000_000_000).saturating_add(nanoseconds),
        mode: stat.st_mode & 0o777,
    }
}
