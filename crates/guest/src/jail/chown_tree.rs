//! Changes the owner of all files in a directory, and back. Needed where a file system supports no ID-mapped mounts.
//! The host requests the way back by starting a guest as `conjure-guest own`.
//!
//! State: none. After a crash, the next attempt completes the work.

use std::ffi::CString;
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{
    AtFlags, CWD, Dir, FileType, Gid, Mode, OFlags, ResolveFlags, Uid, chownat, fchown, fstat, openat,
    openat2, statat,
};
use rustix::io::Errno;

use conjure_guest::protocol::{ChownRequest, FileSelection, SetupStep};

use crate::error::FatalError;

use super::setup_error::{SetupResult, setup_error};

const DIR: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Gives the files of user `from` in the directory, and the directory itself, to the user and group `to`. Does not
/// follow links. Skips mounts and files with several names.
pub(super) fn chown_to(dir: &OwnedFd, path: &str, from: u32, to: u32) -> SetupResult<()> {
    let failed =
        setup_error(SetupStep::HostDirs, format!("change the owner of `{path}` to the jail's user {to}"));
    chown_tree(dir, from, (to, to), FileSelection::SingleLink).map_err(failed)
}

/// Changes the owner back, as a [`ChownRequest`] on standard input says.
pub(crate) fn chown_back() -> Result<(), FatalError> {
    let mut asked = Vec::new();
    let failed = |errno| FatalError::System { doing: "change the owner of a sandbox's files back", errno };
    let read = std::io::stdin().read_to_end(&mut asked);
    read.map_err(|error| failed(Errno::from_io_error(&error).unwrap_or(Errno::IO)))?;
    let ChownRequest { dir, from, uid, gid, selection: which } =
        serde_json::from_slice(&asked).map_err(|error| FatalError::Protocol(error.to_string()))?;
    let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let dir = openat2(CWD, &dir, DIR, Mode::empty(), resolve).map_err(failed)?;
    chown_tree(&dir, from, (uid, gid), which).map_err(failed)
}

/// A directory on the path from the top to the current directory.
struct DirLevel {
    id: (u64, u64),
    names: Vec<CString>,
}

/// Walks the tree. Only one directory is open at a time, however deep the tree is.
fn chown_tree(top: &OwnedFd, from: u32, to: (u32, u32), which: FileSelection) -> Result<(), Errno> {
    let (uid, gid) = (Some(Uid::from_raw(to.0)), Some(Gid::from_raw(to.1)));
    let mut dir = openat(top, ".", DIR, Mode::empty())?;
    let mut levels = vec![DirLevel::of(&dir)?];
    while let Some(level) = levels.last_mut() {
        let Some(name) = level.names.pop() else {
            if fstat(&dir)?.st_uid == from {
                fchown(&dir, uid, gid)?;
            }
            levels.pop();
            if let Some(above) = levels.last() {
                dir = openat(&dir, "..", DIR, Mode::empty())?;
                if id(&dir)? != above.id {
                    // Another process moved it meanwhile.
                    return Err(Errno::XDEV);
                }
            }
            continue;
        };
        let stat = match statat(&dir, &name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => continue,
            other => other?,
        };
        if FileType::from_raw_mode(stat.st_mode).is_dir() {
            let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
            match openat2(&dir, &name, DIR, Mode::empty(), resolve) {
                Ok(below) => {
                    levels.push(DirLevel::of(&below)?);
                    dir = below;
                }
                // It was removed, or is another file system.
                Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::XDEV) => {}
                Err(errno) => return Err(errno),
            }
        } else if stat.st_uid == from && (which == FileSelection::All || stat.st_nlink == 1) {
            match chownat(&dir, &name, uid, gid, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(()) | Err(Errno::NOENT) => {}
                Err(errno) => return Err(errno),
            }
        }
    }
    Ok(())
}

impl DirLevel {
    fn of(dir: &OwnedFd) -> Result<Self, Errno> {
        let mut names = Vec::new();
        for entry in Dir::read_from(dir)? {
            let entry = entry?;
            if !matches!(entry.file_name().to_bytes(), b"." | b"..") {
                names.push(entry.file_name().to_owned());
            }
        }
        Ok(Self { id: id(dir)?, names })
    }
}

fn id(dir: impl AsFd) -> Result<(u64, u64), Errno> {
    let stat = fstat(dir)?;
    Ok((stat.st_dev, stat.st_ino))
}
