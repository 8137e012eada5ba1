//! A folder's quota, where the kernel keeps none: what it takes is measured often, and what runs is ended when it is too
//! much.
//!
//! The measuring is done by a child that may block or be killed. How often is decided by three things: it takes at most
//! about a twentieth of a processor ([`schedule`]); it is done at once when the file system lost so much space that the quota
//! may be used up; else every tenth of a second. When more was lost than that, all that runs stands still meanwhile. While the folder takes too much, programs are started with files of no
//! size allowed, so that they can remove but not write.

mod measure;
mod room;
mod schedule;
mod watch;

pub(crate) use measure::of_stat;
pub(crate) use room::{Allowance, Room, no_room, takes};
pub(crate) use watch::{Look, Watch};

use conjure_guest::protocol::{DiskUsage, ErrorCode, GuestError, QuotaExcess};

/// Twice the quota, or so much more than it, is beyond help: nothing is run any more. What runs is ended long before,
/// but each program can add a little before it is.
const BEYOND: DiskUsage = DiskUsage { bytes: 1 << 30, inodes: 100_000 };

/// The most with which anything can be run.
fn beyond(allowed: DiskUsage) -> DiskUsage {
    let more = plus(allowed, BEYOND);
    DiskUsage {
        bytes: more.bytes.max(allowed.bytes.saturating_mul(2)),
        inodes: more.inodes.max(allowed.inodes.saturating_mul(2)),
    }
}

pub(crate) const fn plus(usage: DiskUsage, more: DiskUsage) -> DiskUsage {
    DiskUsage {
        bytes: usage.bytes.saturating_add(more.bytes),
        inodes: usage.inodes.saturating_add(more.inodes),
    }
}

const fn less(usage: DiskUsage, part: DiskUsage) -> DiskUsage {
    DiskUsage {
        bytes: usage.bytes.saturating_sub(part.bytes),
        inodes: usage.inodes.saturating_sub(part.inodes),
    }
}

/// Why nothing is run any more.
pub(crate) fn beyond_help(excess: &QuotaExcess) -> GuestError {
    let message = format!(
        "the workspace takes {excess}, which is so much more that nothing is run in it any more; whoever runs the host \
         must remove files from it"
    );
    crate::error::error(ErrorCode::NoSpace, message)
}
