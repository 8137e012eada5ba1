//! A folder's quota, where the kernel keeps none: what it takes is measured often, and what runs is ended when it is too
//! much.
//!
//! The measuring is done by a child that may block or be killed. How often is decided by three things: it takes at most
//! about a twentieth of a processor ([`schedule`]); it is done at once when the file system lost so much space that the quota
//! may be used up; else every tenth of a second. While the folder takes too much, programs are started with files of no
//! size allowed, so that they can remove but not write.

mod measure;
mod schedule;
mod watch;

pub(crate) use watch::{Room, Watch};

use conjure_guest::protocol::{ErrorCode, GuestError, QuotaExcess};

/// Why nothing is run any more.
pub(crate) fn beyond_help(excess: &QuotaExcess) -> GuestError {
    let message = format!(
        "the workspace takes {excess}, which is so much more that nothing is run in it any more; whoever runs the host \
         must remove files from it"
    );
    crate::error::error(ErrorCode::NoSpace, message)
}

/// Why the file at `path` is not written.
pub(crate) fn no_room(room: &Room, path: &str, doing: &str) -> GuestError {
    let QuotaExcess { used, allowed } = room.now;
    let message = format!(
        "cannot {doing} `{path}`: the workspace would take more of the disk than it may (it takes {} of {} bytes, {} of \
         {} files and folders); remove what is not needed",
        used.bytes, allowed.bytes, used.inodes, allowed.inodes
    );
    crate::error::error(ErrorCode::NoSpace, message)
}
