//! Arithmetic on disk usage, and the hard limit above which no program may run.

use conjure_guest::protocol::{DiskUsage, ErrorCode, GuestError, QuotaExcess};

/// The hard limit is twice the quota, or the quota plus this margin. Programs are ended long before they reach it,
/// but each one can add a little until it has ended.
const HARD_LIMIT_MARGIN: DiskUsage = DiskUsage { bytes: 1 << 30, inodes: 100_000 };

/// Returns the maximum usage with which programs may run.
pub(super) fn hard_limit(allowed: DiskUsage) -> DiskUsage {
    let more = plus(allowed, HARD_LIMIT_MARGIN);
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

pub(super) const fn minus(usage: DiskUsage, part: DiskUsage) -> DiskUsage {
    DiskUsage {
        bytes: usage.bytes.saturating_sub(part.bytes),
        inodes: usage.inodes.saturating_sub(part.inodes),
    }
}

/// The error when no program may run any more.
pub(crate) fn hard_limit_error(excess: &QuotaExcess) -> GuestError {
    let message = format!(
        "the workspace uses {excess}, which is so far above it that no program runs any more; the operator of the host \
         must remove files from it"
    );
    crate::error::error(ErrorCode::NoSpace, message)
}
