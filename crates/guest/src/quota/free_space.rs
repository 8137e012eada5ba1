//! The free space of the file system, and what it says about files that the measurement cannot see.
//!
//! Usually, other users of the file system change their usage little. So when the file system lost space that no
//! visible file uses, a process of the sandbox may hide a deleted file. But other users may also have taken the
//! space. So hidden usage counts only when several measurements in a row were incomplete.

use std::os::fd::OwnedFd;

use conjure_guest::protocol::DiskUsage;

use super::measure::{Completeness, Measurement};
use super::usage::minus;

/// Hidden usage counts after this many incomplete measurements in a row. A program whose start ends during a measurement
/// makes it incomplete, too.
const INCOMPLETE_MIN: u32 = 3;

/// The space of a file system.
#[derive(Debug, Clone, Copy)]
pub(super) struct FreeSpace {
    pub(super) bytes: u64,
    /// `None` where the file system creates inodes as it needs them.
    pub(super) inodes: Option<u64>,
    /// Used bytes and inodes.
    taken: DiskUsage,
}

impl FreeSpace {
    /// The space of the file system that `dir` lies on. `None` when the system does not report it.
    pub(super) fn read(dir: &OwnedFd) -> Option<Self> {
        let stat = rustix::fs::fstatvfs(dir).ok()?;
        let inodes = (stat.f_files > 0).then_some(stat.f_ffree);
        let taken = DiskUsage {
            bytes: stat.f_blocks.saturating_sub(stat.f_bfree).saturating_mul(stat.f_frsize),
            inodes: stat.f_files.saturating_sub(stat.f_ffree),
        };
        Some(Self { bytes: stat.f_bfree.saturating_mul(stat.f_frsize), inodes, taken })
    }

    /// The used space, without `used`.
    const fn used_by_others(&self, used: DiskUsage) -> DiskUsage {
        minus(self.taken, used)
    }
}

/// Estimates the usage that measurements cannot see.
#[derive(Debug, Default)]
pub(super) struct HiddenUsage {
    incomplete_in_a_row: u32,
    /// The usage of others on the file system: the lowest value since the last complete measurement.
    used_by_others: Option<DiskUsage>,
}

impl HiddenUsage {
    /// Records that no program runs. When a program ends, the kernel frees its hidden files, so incomplete
    /// measurements are counted anew. A program that starts now can only make its own measurements incomplete.
    pub(super) const fn no_program_runs(&mut self) {
        self.incomplete_in_a_row = 0;
    }

    /// Processes the result of a measurement, and returns the hidden usage. `free_before` is the free space when the
    /// measurement began, `free_now` when it ended.
    pub(super) fn update(
        &mut self,
        found: Measurement,
        free_before: Option<FreeSpace>,
        free_now: Option<FreeSpace>,
    ) -> DiskUsage {
        match found.completeness {
            Completeness::Complete => {
                self.incomplete_in_a_row = 0;
                // The measurement may or may not have counted what was written meanwhile. The later value favours
                // the writer.
                self.used_by_others = free_now.map(|free| free.used_by_others(found.used));
                return DiskUsage::default();
            }
            // A busy machine may take long to start a program. Others use space meanwhile.
            Completeness::ProgramStarting => return DiskUsage::default(),
            Completeness::Incomplete => {}
        }
        self.incomplete_in_a_row = self.incomplete_in_a_row.saturating_add(1);
        let Some(free) = free_before else { return DiskUsage::default() };
        let beside = free.used_by_others(found.used);
        // The first measurement begins before any program runs. A program may run when it ends.
        let others = self.used_by_others.unwrap_or(beside);
        self.used_by_others = Some(DiskUsage {
            bytes: others.bytes.min(beside.bytes),
            inodes: others.inodes.min(beside.inodes),
        });
        if self.incomplete_in_a_row < INCOMPLETE_MIN { DiskUsage::default() } else { minus(beside, others) }
    }
}

#[cfg(test)]
mod tests {
    use super::Completeness::{Complete, Incomplete, ProgramStarting};
    use super::*;

    const NOTHING: DiskUsage = DiskUsage { bytes: 0, inodes: 0 };

    fn update(hidden: &mut HiddenUsage, completeness: Completeness, taken: u64) -> DiskUsage {
        let taken = DiskUsage { bytes: taken, inodes: taken };
        let free = Some(FreeSpace { bytes: 0, inodes: Some(0), taken });
        hidden.update(Measurement { used: NOTHING, completeness }, free, free)
    }

    #[test]
    fn only_programs_that_run_hide_space() {
        let mut hidden = HiddenUsage::default();
        assert_eq!(update(&mut hidden, Complete, 100), NOTHING);
        let counted: Vec<u64> = (0..4).map(|_| update(&mut hidden, Incomplete, 150).inodes).collect();
        assert_eq!(counted, [0, 0, 50, 50]);
        // All programs ended, and others took more. The next program is not blamed for it.
        hidden.no_program_runs();
        assert_eq!(update(&mut hidden, Incomplete, 900), NOTHING);
    }

    #[test]
    fn a_slow_start_of_a_program_hides_nothing() {
        let mut hidden = HiddenUsage::default();
        assert_eq!(update(&mut hidden, Complete, 100), NOTHING);
        // Others take space while it starts.
        for _ in 0..10 {
            assert_eq!(update(&mut hidden, ProgramStarting, 900), NOTHING);
        }
        // The usage of others before the start is still known, and a start does not reset the count.
        let counted: Vec<u64> = [Incomplete, ProgramStarting, Incomplete, Incomplete]
            .map(|completeness| update(&mut hidden, completeness, 150).inodes)
            .to_vec();
        assert_eq!(counted, [0, 0, 0, 50]);
    }
}
