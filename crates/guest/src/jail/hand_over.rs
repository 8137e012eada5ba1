//! Handing the files of a folder over to another owner, where a file system cannot show them as somebody else's; and
//! taking them back, which the host asks of a guest that is started as `conjure-guest own`.
//!
//! State: none. What a crash leaves half done is done by the next attempt.

use std::ffi::CString;
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{
    AtFlags, CWD, Dir, FileType, Gid, Mode, OFlags, ResolveFlags, Uid, chownat, fchown, fstat, openat,
    openat2, statat,
};
use rustix::io::Errno;

use conjure_guest::protocol::{SetupStep, TakeBack, WhichFiles};

use crate::guest::Fatal;

use super::failure::{Done, at};

const FOLDER: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Gives what the user `from` owns in the folder, and the folder, to the user and group `to`. Links are not followed,
/// and what is mounted in it is left alone, and so is a file with several names.
pub(super) fn hand_over(folder: &OwnedFd, path: &str, from: u32, to: u32) -> Done<()> {
    let refused = at(SetupStep::HostFolders, format!("hand `{path}` over to the jail's user {to}"));
    give(folder, from, (to, to), WhichFiles::OfOneName).map_err(refused)
}

/// Takes back what was handed over, as it is asked on standard input.
pub(crate) fn take_back() -> Result<(), Fatal> {
    let mut asked = Vec::new();
    let failed = |errno| Fatal::System { doing: "take the files of a sandbox back", errno };
    let read = std::io::stdin().read_to_end(&mut asked);
    read.map_err(|error| failed(Errno::from_io_error(&error).unwrap_or(Errno::IO)))?;
    let TakeBack { folder, from, uid, gid, which } =
        serde_json::from_slice(&asked).map_err(|error| Fatal::Protocol(error.to_string()))?;
    let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let folder = openat2(CWD, &folder, FOLDER, Mode::empty(), resolve).map_err(failed)?;
    give(&folder, from, (uid, gid), which).map_err(failed)
}

/// One folder on the way down to where the walk is.
struct Level {
    id: (u64, u64),
    names: Vec<CString>,
}

/// However deep folders are nested, one of them is open at a time.
fn give(top: &OwnedFd, from: u32, to: (u32, u32), which: WhichFiles) -> Result<(), Errno> {
    let (uid, gid) = (Some(Uid::from_raw(to.0)), Some(Gid::from_raw(to.1)));
    let mut folder = openat(top, ".", FOLDER, Mode::empty())?;
    let mut levels = vec![Level::of(&folder)?];
    while let Some(level) = levels.last_mut() {
        let Some(name) = level.names.pop() else {
            if fstat(&folder)?.st_uid == from {
                fchown(&folder, uid, gid)?;
            }
            levels.pop();
            if let Some(above) = levels.last() {
                folder = openat(&folder, "..", FOLDER, Mode::empty())?;
                if id(&folder)? != above.id {
                    // Somebody moved it meanwhile.
                    return Err(Errno::XDEV);
                }
            }
            continue;
        };
        let stat = match statat(&folder, &name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => continue,
            other => other?,
        };
        if FileType::from_raw_mode(stat.st_mode).is_dir() {
            let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
            match openat2(&folder, &name, FOLDER, Mode::empty(), resolve) {
                Ok(below) => {
                    levels.push(Level::of(&below)?);
                    folder = below;
                }
                // Gone, or another file system.
                Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::XDEV) => {}
                Err(errno) => return Err(errno),
            }
        } else if stat.st_uid == from && (which == WhichFiles::All || stat.st_nlink == 1) {
            match chownat(&folder, &name, uid, gid, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(()) | Err(Errno::NOENT) => {}
                Err(errno) => return Err(errno),
            }
        }
    }
    Ok(())
}

impl Level {
    fn of(folder: &OwnedFd) -> Result<Self, Errno> {
        let mut names = Vec::new();
        for entry in Dir::read_from(folder)? {
            let entry = entry?;
            if !matches!(entry.file_name().to_bytes(), b"." | b"..") {
                names.push(entry.file_name().to_owned());
            }
        }
        Ok(Self { id: id(folder)?, names })
    }
}

fn id(folder: impl AsFd) -> Result<(u64, u64), Errno> {
    let stat = fstat(folder)?;
    Ok((stat.st_dev, stat.st_ino))
}
