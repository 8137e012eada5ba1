//! Listing a whole tree in pages: depth first, in the order of the names' bytes, without following links.
//!
//! A page goes on after a path, whatever has become of the tree since: what was there all the time is listed once.

use std::ffi::{CStr, CString};
use std::os::fd::OwnedFd;
use std::vec::IntoIter;

use rustix::fs::{AtFlags, Dir, Mode, OFlags, statat};
use rustix::io::Errno;

use conjure_guest::protocol::{EntryKind, FileEntry, GuestError, Reply, Unlisted};

use super::list::{DEPTH_MAX, ENTRIES_MAX, JSON_ENTRY, JSON_MAX, NAMES_MAX, entry, escaped};
use super::roots::Reach;
use crate::error::of_file;

const DOING: &str = "list";

/// Bytes of JSON that the entries of a page may take. The last of them, and what the next page goes on after, come on top.
const PAGE_JSON: usize = JSON_MAX - 256 * 1024;

const TOO_MANY: &str = "it holds more names than can be listed; pack them into one file";
const TOO_DEEP: &str = "what is in it lies too deep to be listed";

/// A page, while it is filled.
#[derive(Debug, Default)]
struct Page {
    entries: Vec<FileEntry>,
    unlisted: Vec<Unlisted>,
    /// The path that was looked at last.
    last: Vec<u8>,
    json: usize,
    most: usize,
}

/// A folder that is gone through.
#[derive(Debug)]
struct Level {
    folder: OwnedFd,
    prefix: Vec<u8>,
    names: IntoIter<CString>,
}

/// Lists a page of the tree beneath `path`.
pub(super) fn walk(
    reach: &Reach<'_>,
    path: &str,
    after: Option<&[u8]>,
    max_entries: u32,
) -> Result<Reply, GuestError> {
    let place = reach.place(path)?;
    let refuse = |errno| of_file(errno, path, DOING);
    let top = place.open_beneath(&place.rest, OFlags::RDONLY | OFlags::DIRECTORY).map_err(refuse)?;
    let mut page = Page {
        last: after.unwrap_or_default().to_vec(),
        most: max_entries.clamp(1, ENTRIES_MAX) as usize,
        ..Page::default()
    };
    match Level::read(top, Vec::new()).map_err(refuse)? {
        Inside::Names(top) => {
            let mut levels = vec![top];
            if let Some(after) = after {
                go_on_after(&mut levels, after);
            }
            let next = page.fill(levels);
            Ok(Reply::Walk { entries: page.entries, unlisted: page.unlisted, next })
        }
        Inside::TooMany => {
            page.leave_out(".".to_owned(), TOO_MANY);
            Ok(Reply::Walk { entries: page.entries, unlisted: page.unlisted, next: None })
        }
    }
}

/// What lies in a folder.
#[derive(Debug)]
enum Inside {
    Names(Level),
    TooMany,
}

impl Level {
    /// A folder of another.
    fn open(&self, name: &CStr, path: &[u8]) -> Result<Inside, Errno> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let folder = rustix::fs::openat(&self.folder, name, flags, Mode::empty())?;
        Self::read(folder, [path, b"/"].concat())
    }

    fn read(folder: OwnedFd, prefix: Vec<u8>) -> Result<Inside, Errno> {
        let mut names = Vec::new();
        let mut entries = Dir::read_from(&folder)?;
        while let Some(entry) = entries.read() {
            let entry = entry?;
            let name = entry.file_name();
            if name == c"." || name == c".." {
                continue;
            }
            if names.len() >= NAMES_MAX {
                return Ok(Inside::TooMany);
            }
            names.push(name.to_owned());
        }
        names.sort();
        Ok(Inside::Names(Self { folder, prefix, names: names.into_iter() }))
    }
}

/// Passes over what was listed, up to `after`, the folders that it lies in among it.
fn go_on_after(levels: &mut Vec<Level>, after: &[u8]) {
    let mut path = Vec::new();
    for part in after.split(|byte| *byte == b'/') {
        let Some(level) = levels.last_mut() else { return };
        let later = level.names.as_slice().partition_point(|name| name.to_bytes() <= part);
        level.names = level.names.as_slice().get(later..).unwrap_or_default().to_vec().into_iter();
        path.extend_from_slice(part);
        let Ok(name) = CString::new(part) else { return };
        // What was left out is not gone into now, nor what is no folder any more.
        if std::str::from_utf8(part).is_err() || levels.len() >= DEPTH_MAX as usize {
            return;
        }
        match levels.last().map(|level| level.open(&name, &path)) {
            Some(Ok(Inside::Names(below))) => levels.push(below),
            _ => return,
        }
        path.push(b'/');
    }
}

impl Page {
    /// Lists what is left of these folders, the innermost last. What the next page goes on after.
    fn fill(&mut self, mut levels: Vec<Level>) -> Option<Vec<u8>> {
        while let Some(level) = levels.last_mut() {
            let Some(name) = level.names.next() else {
                levels.pop();
                continue;
            };
            // Gone meanwhile.
            let Ok(stat) = statat(&level.folder, &name, AtFlags::SYMLINK_NOFOLLOW) else { continue };
            let path = [level.prefix.as_slice(), name.to_bytes()].concat();
            let found = entry(String::from_utf8_lossy(&path).into_owned(), &stat);
            if self.entries.len() + self.unlisted.len() >= self.most || self.json >= PAGE_JSON {
                return Some(std::mem::take(&mut self.last));
            }
            self.last.clone_from(&path);
            if name.to_str().is_err() {
                self.leave_out(found.path, "its name is not UTF-8");
                continue;
            }
            if found.kind == EntryKind::Directory {
                match level.open(&name, &path) {
                    Ok(Inside::Names(_)) if levels.len() >= DEPTH_MAX as usize => {
                        self.leave_out(found.path.clone(), TOO_DEEP);
                    }
                    Ok(Inside::Names(below)) => levels.push(below),
                    Ok(Inside::TooMany) => self.leave_out(found.path.clone(), TOO_MANY),
                    // Gone or replaced meanwhile: its own entry stands.
                    Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {}
                    Err(errno) => {
                        self.leave_out(found.path.clone(), &format!("it cannot be listed: {errno}"));
                    }
                }
            }
            self.json += JSON_ENTRY + escaped(&found.path);
            self.entries.push(found);
        }
        None
    }

    fn leave_out(&mut self, path: String, reason: &str) {
        self.json += JSON_ENTRY + escaped(&path) + escaped(reason);
        self.unlisted.push(Unlisted { path, reason: reason.to_owned() });
    }
}
