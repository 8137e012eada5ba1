//! Writing and replacing: always a new file in the same folder that takes the old one's name at the end.
//!
//! A failure, a cut or a crash before that leaves the old file as it was. The new file is removed, except when
//! the worker is killed in the middle, which only happens when its disk does not answer.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

use conjure_guest::protocol::{DATA_MAX, DiskUsage, ErrorCode, GuestError, Reply};

use super::roots::{Place, Reach, components};
use super::worker::failed;
use crate::error::{self, of_file};
use crate::quota::{Allowance, no_room, of_stat, plus, takes};
use crate::sys;

/// The largest text in which something is replaced.
const TEXT_MAX: u64 = 32 * 1024 * 1024;

/// How many links are followed at the end of a path.
const LINKS_MAX: usize = 40;

/// Permission bits of a new file.
const NEW_MODE: u32 = 0o644;

/// Writes a file from pieces of content.
pub(super) fn write(
    reach: &Reach<'_>,
    path: &str,
    mode: Option<u32>,
    input: &mut impl Read,
) -> Result<Reply, GuestError> {
    let mut target = Target::find(reach, path, "write", Missing::Make)?;
    let result = target.draft(mode).and_then(|mut draft| {
        let mut piece = vec![0; DATA_MAX];
        loop {
            let mut header = [0; 4];
            input.read_exact(&mut header).map_err(|_| cut_off(path))?;
            let length = u32::from_le_bytes(header) as usize;
            if length == 0 {
                return draft.commit();
            }
            let piece = piece.get_mut(..length).ok_or_else(|| cut_off(path))?;
            input.read_exact(piece).map_err(|_| cut_off(path))?;
            draft.write(piece)?;
        }
    });
    if result.is_err() {
        target.remove_made_folders();
    }
    result
}

/// Replaces the one occurrence of a text.
pub(super) fn replace(reach: &Reach<'_>, path: &str, old: &str, new: &str) -> Result<Reply, GuestError> {
    const DOING: &str = "edit";
    if old.is_empty() {
        let message = "the text to replace is empty; give the text as it stands in the file";
        return Err(error::error(ErrorCode::BadRequest, message));
    }
    let target = Target::find(reach, path, DOING, Missing::Refuse)?;
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = rustix::fs::openat(&target.folder, target.name.as_str(), flags, Mode::empty())
        .map_err(|errno| of_file(errno, path, DOING))?;
    let mut bytes = Vec::new();
    File::from(file)
        .take(TEXT_MAX + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| failed(&error, path, DOING))?;
    if bytes.len() as u64 > TEXT_MAX {
        let message =
            format!("cannot edit `{path}`: it has more than {TEXT_MAX} bytes; edit it with a program");
        return Err(error::error(ErrorCode::TooLarge, message));
    }
    let text = String::from_utf8(bytes).map_err(|_| {
        error::error(ErrorCode::NotText, format!("cannot edit `{path}`: it is not UTF-8 text"))
    })?;
    let Some(at) = text.find(old) else {
        let message = format!(
            "cannot edit `{path}`: the text to replace does not occur in it; view the file and copy it exactly, \
             with its white space"
        );
        return Err(error::error(ErrorCode::NoMatch, message));
    };
    // Occurrences that overlap count, too.
    if text.rfind(old) != Some(at) {
        let count = text.matches(old).count().max(2);
        let message = format!(
            "cannot edit `{path}`: the text to replace occurs {count} times; add lines around it until it is unique"
        );
        return Err(error::error(ErrorCode::NotUnique, message));
    }
    let (before, rest) = text.split_at(at);
    let (_, after) = rest.split_at(old.len());
    let mut draft = target.draft(None)?;
    for piece in [before, new, after] {
        draft.write(piece.as_bytes())?;
    }
    draft.commit()
}

/// Makes a folder, and those that are missing above it. One that is there stays as it is.
pub(super) fn make_folder(reach: &Reach<'_>, path: &str, mode: u32) -> Result<Reply, GuestError> {
    const DOING: &str = "make";
    let place = reach.place(path)?;
    reach.check_writable(&place, &place.root)?;
    let mut made = Vec::new();
    let result = make_folders(reach, &place, &place.rest, &mut made, DOING).and_then(|_| {
        let Some((parent, name)) = made.last() else { return Ok(()) };
        // Through a handle, as the name may be a link by now; the owner must be able to go on in it.
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        rustix::fs::openat(parent, name.as_str(), flags, Mode::empty())
            .and_then(|folder| rustix::fs::fchmod(&folder, Mode::from_raw_mode(mode & 0o777 | 0o700)))
            .map_err(|errno| of_file(errno, path, DOING))
    });
    if let Err(error) = result {
        remove(&made);
        return Err(error);
    }
    Ok(Reply::Folder { folders: made.len() as u64 })
}

fn cut_off(path: &str) -> GuestError {
    let message = format!("cannot write `{path}`: the content was cut off; nothing was changed");
    error::error(ErrorCode::Cancelled, message)
}

/// What happens when folders or the file are missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Missing {
    Make,
    Refuse,
}

/// A file to be changed, which need not be there.
#[derive(Debug)]
struct Target<'a> {
    path: &'a str,
    doing: &'static str,
    folder: OwnedFd,
    name: String,
    /// The regular file that is there now.
    former: Option<Stat>,
    /// Folders that were missing, with the folder that each was made in; outermost first.
    made: Vec<(OwnedFd, String)>,
    /// How much may be written; `None`: any.
    allowance: Option<&'a Allowance<'a>>,
}

impl<'a> Target<'a> {
    /// Finds the folder and the name that `path` means, following links at its end.
    fn find(
        reach: &'a Reach<'a>,
        path: &'a str,
        doing: &'static str,
        missing: Missing,
    ) -> Result<Self, GuestError> {
        let place = reach.place(path)?;
        let mut made = Vec::new();
        match Self::find_in(reach, &place, doing, missing, &mut made) {
            Ok((folder, name, former)) => {
                Ok(Self { path, doing, folder, name, former, made, allowance: place.allowance })
            }
            Err(error) => {
                remove(&made);
                Err(error)
            }
        }
    }

    fn find_in(
        reach: &Reach<'_>,
        place: &Place<'_>,
        doing: &'static str,
        missing: Missing,
        made: &mut Vec<(OwnedFd, String)>,
    ) -> Result<(OwnedFd, String, Option<Stat>), GuestError> {
        let refuse = |errno| of_file(errno, place.given, doing);
        reach.check_writable(place, &place.root)?;
        let mut rest = place.rest.clone();
        for _ in 0..LINKS_MAX {
            let Some((name, parents)) = rest.split_last().filter(|(name, _)| *name != "..") else {
                return Err(refuse(Errno::ISDIR));
            };
            let flags = OFlags::PATH | OFlags::DIRECTORY;
            let folder = match place.open_beneath(parents, flags) {
                Err(Errno::NOENT) if missing == Missing::Make => {
                    make_folders(reach, place, parents, made, doing)?
                }
                other => other.map_err(refuse)?,
            };
            reach.check_writable(place, &folder)?;
            let stat = match rustix::fs::statat(&folder, name.as_str(), AtFlags::SYMLINK_NOFOLLOW) {
                Ok(stat) => stat,
                Err(Errno::NOENT) if missing == Missing::Make => return Ok((folder, name.clone(), None)),
                Err(errno) => return Err(refuse(errno)),
            };
            match FileType::from_raw_mode(stat.st_mode) {
                FileType::RegularFile => {
                    let is_writable = rustix::fs::accessat(
                        &folder,
                        name.as_str(),
                        rustix::fs::Access::WRITE_OK,
                        AtFlags::empty(),
                    );
                    is_writable.map_err(refuse)?;
                    return Ok((folder, name.clone(), Some(stat)));
                }
                FileType::Symlink => {}
                FileType::Directory => return Err(refuse(Errno::ISDIR)),
                _ => return Err(refuse(Errno::NXIO)),
            }
            let link = rustix::fs::readlinkat(&folder, name.as_str(), Vec::new()).map_err(refuse)?;
            let link = link.to_str().ok().filter(|link| !link.starts_with('/')).ok_or(Errno::XDEV);
            let link: Vec<String> = components(link.map_err(refuse)?).map(str::to_owned).collect();
            rest = parents.iter().cloned().chain(link).collect();
        }
        Err(refuse(Errno::LOOP))
    }

    /// A new file that is to take the target's place.
    fn draft(&self, mode: Option<u32>) -> Result<Draft<'_>, GuestError> {
        let refuse = |errno| of_file(errno, self.path, self.doing);
        // The file that is replaced takes its room until the end.
        self.check_room(0, None)?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let own = rustix::process::getpid();
        let stamp = crate::clock::now().as_nanos();
        // The name is ours alone, but for a leftover of a machine that crashed.
        for attempt in 0..100 {
            let name = format!(".conjure-{own}-{stamp:x}-{attempt}.tmp", own = own.as_raw_nonzero());
            match rustix::fs::openat(&self.folder, name.as_str(), flags, Mode::RUSR | Mode::WUSR) {
                Ok(file) => {
                    let draft = Draft { target: self, name: Some(name), file: file.into(), size: 0 };
                    draft.dress(mode).map_err(refuse)?;
                    return Ok(draft);
                }
                Err(Errno::EXIST) => {}
                Err(errno) => return Err(refuse(errno)),
            }
        }
        Err(refuse(Errno::EXIST))
    }

    /// Refuses a file of so many bytes when there is no room for it. `draft`: what there is of it.
    fn check_room(&self, size: u64, draft: Option<&File>) -> Result<(), GuestError> {
        let Some(allowance) = self.allowance else { return Ok(()) };
        let so_far = || {
            let draft = draft.and_then(|draft| rustix::fs::fstat(draft).ok());
            taken(&self.made, draft.as_ref())
        };
        let whole = takes(size, self.made.len() as u64);
        allowance.check(whole, so_far).map_err(|excess| no_room(&excess, self.path, self.doing))
    }

    /// Takes back what was made for a file that was not written.
    fn remove_made_folders(&mut self) {
        remove(&self.made);
    }
}

/// Removes folders that were made, innermost first; one in which somebody put something stays.
fn remove(made: &[(OwnedFd, String)]) {
    for (folder, name) in made.iter().rev() {
        if rustix::fs::unlinkat(folder, name.as_str(), AtFlags::REMOVEDIR).is_err() {
            break;
        }
    }
}

/// What folders that were made and a file take of the disk.
fn taken(made: &[(OwnedFd, String)], file: Option<&Stat>) -> DiskUsage {
    let folders = made.iter().filter_map(|(folder, name)| {
        rustix::fs::statat(folder, name.as_str(), AtFlags::SYMLINK_NOFOLLOW).ok()
    });
    let stats = folders.chain(file.copied());
    stats.fold(DiskUsage::default(), |sum, stat| plus(sum, of_stat(&stat)))
}

/// Makes the missing folders of a path, each in one that was opened beneath the root, and opens the last.
fn make_folders(
    reach: &Reach<'_>,
    place: &Place<'_>,
    path: &[String],
    made: &mut Vec<(OwnedFd, String)>,
    doing: &'static str,
) -> Result<OwnedFd, GuestError> {
    let refuse = |errno| of_file(errno, place.given, doing);
    let flags = OFlags::PATH | OFlags::DIRECTORY;
    let mut folder = place.open_beneath(&[], flags).map_err(refuse)?;
    for (depth, name) in (1..).zip(path) {
        let upto = path.get(..depth).unwrap_or(path);
        folder = match place.open_beneath(upto, flags) {
            Err(Errno::NOENT) => {
                reach.check_writable(place, &folder)?;
                if let Some(allowance) = place.allowance {
                    // Never more than there is room for, not even for a moment: others would be ended for it.
                    let whole = takes(0, made.len() as u64 + 1);
                    let refuse = |excess| no_room(&excess, place.given, doing);
                    allowance.check(whole, || taken(made, None)).map_err(refuse)?;
                }
                match rustix::fs::mkdirat(&folder, name.as_str(), Mode::from_raw_mode(0o755)) {
                    Ok(()) => made.push((folder, name.clone())),
                    // Made by somebody else meanwhile, or a link that leads nowhere.
                    Err(Errno::EXIST) => {}
                    Err(errno) => return Err(refuse(errno)),
                }
                place.open_beneath(upto, flags).map_err(refuse)?
            }
            other => other.map_err(refuse)?,
        };
    }
    Ok(folder)
}

/// A new file without its final name. It is removed unless it is committed.
#[derive(Debug)]
struct Draft<'a> {
    target: &'a Target<'a>,
    /// `None` once it has the target's name.
    name: Option<String>,
    file: File,
    size: u64,
}

impl Draft<'_> {
    /// Gives the file its owner and its permissions.
    fn dress(&self, mode: Option<u32>) -> Result<(), Errno> {
        if let Some(former) = &self.target.former {
            let own = rustix::fs::fstat(&self.file)?;
            if (own.st_uid, own.st_gid) != (former.st_uid, former.st_gid) {
                let owner = rustix::process::Uid::from_raw(former.st_uid);
                let group = rustix::process::Gid::from_raw(former.st_gid);
                // Who may not give files away keeps them.
                let _ = rustix::fs::fchown(&self.file, Some(owner), Some(group));
            }
        }
        let former = self.target.former.as_ref().map(|former| former.st_mode);
        let mode = mode.or(former).unwrap_or(NEW_MODE) & 0o777;
        rustix::fs::fchmod(&self.file, Mode::from_raw_mode(mode))
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), GuestError> {
        if sys::is_termination_pending() {
            return Err(cut_off(self.target.path));
        }
        let (target, size) = (self.target, self.size + bytes.len() as u64);
        target.check_room(size, Some(&self.file))?;
        self.file.write_all(bytes).map_err(|error| failed(&error, target.path, target.doing))?;
        self.size = size;
        Ok(())
    }

    fn commit(mut self) -> Result<Reply, GuestError> {
        let target = self.target;
        if sys::is_termination_pending() {
            return Err(cut_off(target.path));
        }
        if let Some(name) = &self.name {
            rustix::fs::renameat(&target.folder, name.as_str(), &target.folder, target.name.as_str())
                .map_err(|errno| of_file(errno, target.path, target.doing))?;
            self.name = None;
        }
        let folders = target.made.len() as u64;
        Ok(Reply::Write { size: self.size, existed: target.former.is_some(), folders })
    }
}

impl Drop for Draft<'_> {
    fn drop(&mut self) {
        if let Some(name) = &self.name {
            // Nothing better can be done when this fails, too.
            let _ = rustix::fs::unlinkat(&self.target.folder, name.as_str(), AtFlags::empty());
        }
    }
}
