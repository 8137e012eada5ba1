//! The findings of a drill, and counters of what was checked.

use std::fmt;

#[derive(Debug, Default)]
pub(crate) struct Findings {
    /// Acknowledged operations that are missing or different.
    pub(crate) lost: Vec<String>,
    /// Repeated effects.
    pub(crate) repeated: Vec<String>,
    /// Leftovers after the sweep of the next start.
    pub(crate) leftover: Vec<String>,
    /// Requests that no service accepts.
    pub(crate) invalid: Vec<String>,
    /// Secrets that were told, or lie on the disk.
    pub(crate) exposed: Vec<String>,
    /// Other errors.
    pub(crate) faults: Vec<String>,
    pub(crate) tally: Tally,
}

/// How hard it looked.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) kills: u64,
    /// Of these, before the host was ready.
    pub(crate) early_kills: u64,
    /// Of these, of the second host.
    pub(crate) companions: u64,
    pub(crate) acknowledged: u64,
    pub(crate) events: u64,
    pub(crate) sessions: usize,
    pub(crate) deleted: u64,
    /// Deletions that were under way.
    pub(crate) cut_deletions: u64,
    pub(crate) turns: u64,
    pub(crate) effects: u64,
    /// Calls that were under way when the host was killed, and are "unknown", or due again.
    pub(crate) unknown: u64,
    pub(crate) done_again: u64,
    /// Model calls that were under way.
    pub(crate) abandoned: u64,
    /// Processes of killed hosts that were still there when the next one was ready, and gone a moment later.
    pub(crate) late: u64,
}

impl Findings {
    pub(crate) fn is_clean(&self) -> bool {
        self.kinds().iter().all(|(_, found)| found.is_empty())
    }

    /// The kinds of findings, each with its name.
    pub(crate) const fn kinds(&self) -> [(&'static str, &Vec<String>); 6] {
        [
            ("lost", &self.lost),
            ("repeated", &self.repeated),
            ("leftover", &self.leftover),
            ("invalid", &self.invalid),
            ("exposed", &self.exposed),
            ("fault", &self.faults),
        ]
    }
}

impl fmt::Display for Findings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tally = &self.tally;
        writeln!(
            f,
            "{} kills ({} before the host was ready, {} of a second host); {} acknowledgements, {} events of {} turns, {} \
             effects; {} sessions stay, {} were deleted",
            tally.kills,
            tally.early_kills,
            tally.companions,
            tally.acknowledged,
            tally.events,
            tally.turns,
            tally.effects,
            tally.sessions,
            tally.deleted,
        )?;
        writeln!(
            f,
            "under way at a kill: {} calls with effects, {} without, {} model calls, {} deletions; {} processes ended a \
             moment after the next start",
            tally.unknown, tally.done_again, tally.abandoned, tally.cut_deletions, tally.late
        )?;
        for (kind, found) in self.kinds() {
            for what in found {
                writeln!(f, "{kind}: {what}")?;
            }
        }
        Ok(())
    }
}
