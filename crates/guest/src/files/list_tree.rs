//! Lists a whole tree in pages: depth first, ordered by the bytes of the names, without following links.
//!
//! A page resumes after a path, even when the tree has changed. An entry that existed all the time is listed once.

use std::ffi::{CStr, CString};
use std::os::fd::OwnedFd;
use std::vec::IntoIter;

use rustix::fs::{AtFlags, Dir, Mode, OFlags, statat};
use rustix::io::Errno;

use conjure_guest::protocol::{EntryKind, FileEntry, GuestError, Reply, UnlistedEntry};

use super::list::{DEPTH_MAX, ENTRIES_MAX, JSON_ENTRY, JSON_MAX, NAMES_MAX, entry, escaped_len};
use super::resolve::WorkerRoots;
use crate::error::file_error;

const DOING: &str = "list";

/// The maximum JSON size of the entries of a page. The last entry and the resume path may exceed it.
const PAGE_JSON: usize = JSON_MAX - 256 * 1024;

const TOO_MANY: &str = "it holds more names than can be listed; pack them into one file";
const TOO_DEEP: &str = "its contents are too deep to be listed";

/// A page that is being filled.
#[derive(Debug, Default)]
struct WalkPage {
    entries: Vec<FileEntry>,
    unlisted: Vec<UnlistedEntry>,
    /// The path of the last inspected entry.
    last: Vec<u8>,
    json: usize,
    max_entries: usize,
}

/// A directory whose names are being listed.
#[derive(Debug)]
struct WalkLevel {
    dir: OwnedFd,
    prefix: Vec<u8>,
    names: IntoIter<CString>,
}

/// Lists a page of the tree beneath `path`.
pub(super) fn list_tree(
    roots: &WorkerRoots<'_>,
    path: &str,
    after: Option<&[u8]>,
    max_entries: u32,
) -> Result<Reply, GuestError> {
    let resolved = roots.resolve(path)?;
    let failed = |errno| file_error(errno, path, DOING);
    let top = resolved.open_beneath(&resolved.rest, OFlags::RDONLY | OFlags::DIRECTORY).map_err(failed)?;
    let mut page = WalkPage {
        last: after.unwrap_or_default().to_vec(),
        max_entries: max_entries.clamp(1, ENTRIES_MAX) as usize,
        ..WalkPage::default()
    };
    match WalkLevel::read(top, Vec::new()).map_err(failed)? {
        DirContents::Names(top) => {
            let mut levels = vec![top];
            if let Some(after) = after {
                resume_after(&mut levels, after);
            }
            let next = page.fill(levels);
            Ok(Reply::Walk { entries: page.entries, unlisted: page.unlisted, next })
        }
        DirContents::TooMany => {
            page.add_unlisted(".".to_owned(), TOO_MANY);
            Ok(Reply::Walk { entries: page.entries, unlisted: page.unlisted, next: None })
        }
    }
}

/// The contents of a directory.
#[derive(Debug)]
enum DirContents {
    Names(WalkLevel),
    TooMany,
}

impl WalkLevel {
    /// Opens a subdirectory.
    fn open(&self, name: &CStr, path: &[u8]) -> Result<DirContents, Errno> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let dir = rustix::fs::openat(&self.dir, name, flags, Mode::empty())?;
        Self::read(dir, [path, b"/"].concat())
    }

    fn read(dir: OwnedFd, prefix: Vec<u8>) -> Result<DirContents, Errno> {
        let mut names = Vec::new();
        let mut entries = Dir::read_from(&dir)?;
        while let Some(entry) = entries.read() {
            let entry = entry?;
            let name = entry.file_name();
            if name == c"." || name == c".." {
                continue;
            }
            if names.len() >= NAMES_MAX {
                return Ok(DirContents::TooMany);
            }
            names.push(name.to_owned());
        }
        names.sort();
        Ok(DirContents::Names(Self { dir, prefix, names: names.into_iter() }))
    }
}

/// Skips the entries up to and including `after`. Opens the directories on the way to it.
fn resume_after(levels: &mut Vec<WalkLevel>, after: &[u8]) {
    let mut path = Vec::new();
    for part in after.split(|byte| *byte == b'/') {
        let Some(level) = levels.last_mut() else { return };
        let later = level.names.as_slice().partition_point(|name| name.to_bytes() <= part);
        level.names = level.names.as_slice().get(later..).unwrap_or_default().to_vec().into_iter();
        path.extend_from_slice(part);
        let Ok(name) = CString::new(part) else { return };
        // Do not enter a directory that was not listed, or that is no directory any more.
        if std::str::from_utf8(part).is_err() || levels.len() >= DEPTH_MAX as usize {
            return;
        }
        match levels.last().map(|level| level.open(&name, &path)) {
            Some(Ok(DirContents::Names(below))) => levels.push(below),
            _ => return,
        }
        path.push(b'/');
    }
}

impl WalkPage {
    /// Lists the remaining names of these directories, innermost last. Returns the resume path for the next page.
    fn fill(&mut self, mut levels: Vec<WalkLevel>) -> Option<Vec<u8>> {
        while let Some(level) = levels.last_mut() {
            let Some(name) = level.names.next() else {
                levels.pop();
                continue;
            };
            // It was removed meanwhile.
            let Ok(stat) = statat(&level.dir, &name, AtFlags::SYMLINK_NOFOLLOW) else { continue };
            let path = [level.prefix.as_slice(), name.to_bytes()].concat();
            let found = entry(String::from_utf8_lossy(&path).into_owned(), &stat);
            if self.entries.len() + self.unlisted.len() >= self.max_entries || self.json >= PAGE_JSON {
                return Some(std::mem::take(&mut self.last));
            }
            self.last.clone_from(&path);
            if name.to_str().is_err() {
                self.add_unlisted(found.path, "its name is not UTF-8");
                continue;
            }
            if found.kind == EntryKind::Directory {
                match level.open(&name, &path) {
                    Ok(DirContents::Names(_)) if levels.len() >= DEPTH_MAX as usize => {
                        self.add_unlisted(found.path.clone(), TOO_DEEP);
                    }
                    Ok(DirContents::Names(below)) => levels.push(below),
                    Ok(DirContents::TooMany) => self.add_unlisted(found.path.clone(), TOO_MANY),
                    // It was removed or replaced meanwhile. Its own entry remains.
                    Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {}
                    Err(errno) => {
                        self.add_unlisted(found.path.clone(), &format!("it cannot be listed: {errno}"));
                    }
                }
            }
            self.json += JSON_ENTRY + escaped_len(&found.path);
            self.entries.push(found);
        }
        None
    }

    fn add_unlisted(&mut self, path: String, reason: &str) {
        self.json += JSON_ENTRY + escaped_len(&path) + escaped_len(reason);
        self.unlisted.push(UnlistedEntry { path, reason: reason.to_owned() });
    }
}
