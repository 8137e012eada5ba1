//! Having everything below this process stand still, and go on.
//!
//! What programs left running is stopped by SIGSTOP, and told to go on by SIGCONT. The guest and its shims are not: so that the
//! end of the host's stream, or of the guest itself, ends all as ever, and what stands still dies by SIGKILL like the rest. No
//! right is needed for that which killing does not need, and no control group, so it is the same wherever a guest runs.
//! Processes notice no more of it than of a user's Ctrl-Z and `fg`; one that has the kernel itself send it SIGCONT, by a timer,
//! goes on: a pause saves, and is no wall.
//!
//! State: which processes had stopped before, of their own accord, and are not to go on. In a crash of the guest all that is
//! below it is killed.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use rustix::process::{Pid, Signal};
use rustix::thread::{Timespec, nanosleep};

use crate::clock;
use crate::tree::{self, Motion};

/// How long processes may take to stand still: only those that keep forking, or keep each other going, take longer. The guest
/// does nothing else meanwhile.
const WITHIN: Duration = Duration::from_millis(500);

/// How long the kernel holds one that is to stop, before it is taken for one that it keeps.
const HELD_FOR: Duration = Duration::from_millis(20);

/// How long is waited until one looks again.
const LOOK_AGAIN: Timespec = Timespec { tv_sec: 0, tv_nsec: 1_000_000 };

/// Everything stands still.
#[derive(Debug, Default)]
pub(crate) struct Pause {
    /// What had stopped before.
    own_accord: HashSet<Pid>,
}

/// Why not everything stands still.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unrest {
    /// The system does not permit that this process is stopped.
    Refused(Pid),
    /// There were always others that ran.
    Storm,
}

impl Pause {
    /// Stops all that descends from this process, but for those to spare, which others must not be confused with: this
    /// process' own children. `before`: the pause that is still in force. With it comes how many stand still now. After a
    /// failure all go on that did before.
    pub(crate) fn begin(before: Option<Self>, spare: impl Fn(Pid) -> bool) -> Result<(Self, u64), Unrest> {
        let is_first = before.is_none();
        let mut pause = before.unwrap_or_default();
        match pause.settle(&spare, is_first) {
            Ok(count) => Ok((pause, count)),
            Err(unrest) => {
                pause.end(spare);
                Err(unrest)
            }
        }
    }

    /// Stops what runs, until nothing does. Parents come first, so that none sees its child stop.
    ///
    /// One that was starting another when the family was listed may stand still before it is looked at, and leave a child that is in no
    /// list. So all must be found standing still, and behind that the family must have nobody more.
    fn settle(&mut self, spare: &impl Fn(Pid) -> bool, is_first: bool) -> Result<u64, Unrest> {
        let own = rustix::process::getpid();
        let until = clock::now() + WITHIN;
        let (mut told, mut held) = (HashSet::new(), HashMap::new());
        let mut found_still: Option<HashSet<Pid>> = None;
        loop {
            let lineage = tree::lineage();
            let family: HashSet<Pid> = lineage.iter().copied().collect();
            let (mut count, mut is_restless) = (0, false);
            for pid in lineage.into_iter().filter(|pid| !spare(*pid)) {
                match tree::motion(pid) {
                    Motion::Gone => continue,
                    Motion::Still if is_first && !told.contains(&pid) => drop(self.own_accord.insert(pid)),
                    Motion::Still => {}
                    // It stops when the kernel lets go of it, which may have it make a child first; who waits for a child that stands
                    // still is not let go.
                    Motion::Held if told.contains(&pid) => {
                        let since = *held.entry(pid).or_insert_with(clock::now);
                        is_restless |= clock::now() < since + HELD_FOR;
                    }
                    Motion::Held | Motion::Going => {
                        self.own_accord.remove(&pid);
                        // What it has started just before is found when one looks again.
                        is_restless = true;
                        match tree::signal_member(pid, own, &family, Signal::STOP) {
                            Ok(true) => drop(told.insert(pid)),
                            Ok(false) => continue,
                            Err(_) => return Err(Unrest::Refused(pid)),
                        }
                    }
                }
                count += 1;
            }
            if !is_restless {
                if found_still.is_some_and(|found| family.is_subset(&found)) {
                    return Ok(count);
                }
                found_still = Some(family);
                continue;
            }
            found_still = None;
            if clock::now() >= until {
                return Err(Unrest::Storm);
            }
            // Signals are blocked, so nothing shortens it.
            let _ = nanosleep(&LOOK_AGAIN);
        }
    }

    /// Whether anything runs, but for those to spare.
    pub(crate) fn is_disturbed(&self, spare: impl Fn(Pid) -> bool) -> bool {
        tree::lineage().into_iter().any(|pid| !spare(pid) && tree::motion(pid) == Motion::Going)
    }

    /// Has all go on that does not stand still of its own accord, and says how many. Children come first: none that a parent
    /// leaves behind is found stopped, for which the kernel would hang up on it.
    pub(crate) fn end(self, spare: impl Fn(Pid) -> bool) -> u64 {
        let own = rustix::process::getpid();
        let lineage = tree::lineage();
        let family: HashSet<Pid> = lineage.iter().copied().collect();
        let stopped = lineage.into_iter().rev().filter(|pid| !spare(*pid) && !self.own_accord.contains(pid));
        let goes_on =
            |pid: &Pid| tree::signal_member(*pid, own, &family, Signal::CONT).is_ok_and(|sent| sent);
        stopped.filter(goes_on).count() as u64
    }
}
