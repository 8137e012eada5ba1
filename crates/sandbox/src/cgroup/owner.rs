//! The name of a sandbox's group, which tells whose it is, so that what a dead host left can be known and removed.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};

const PREFIX: &str = "conjure";

/// A process of this machine, for as long as the machine runs: its number may be used again, its start is not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Owner {
    /// The pid namespace in which `pid` counts, by the number of its inode.
    namespace: u64,
    pid: u32,
    /// Clock ticks since the machine's start.
    started: u64,
}

impl Owner {
    /// This process.
    pub(crate) fn own() -> io::Result<Self> {
        let pid = std::process::id();
        let started = start_of(Path::new("/proc"), pid)
            .ok_or_else(|| io::Error::other("/proc/self/stat tells no start"))?;
        Ok(Self { namespace: own_namespace()?, pid, started })
    }

    /// The name of its group with this number.
    pub(crate) fn name(&self, number: u64) -> String {
        let Self { namespace, pid, started } = self;
        format!("{PREFIX}-{namespace}-{pid}-{started}-{number}")
    }

    /// Whose group it is, by its name; `None` for what is none of ours.
    pub(crate) fn of(name: &str) -> Option<Self> {
        let mut parts = name.split('-');
        let prefix = parts.next()?;
        let mut number = || {
            // Only what `name` writes: no signs, no leading zeros.
            let text = parts.next()?;
            text.parse::<u64>().ok().filter(|number| number.to_string() == text)
        };
        let owner = Self { namespace: number()?, pid: u32::try_from(number()?).ok()?, started: number()? };
        let _number = number()?;
        (prefix == PREFIX && parts.next().is_none()).then_some(owner)
    }

    /// Whether it is known to live.
    #[cfg(feature = "docker")]
    pub(crate) fn is_alive(&self) -> bool {
        self.life(Path::new("/proc")) == Life::Lives
    }

    /// Whether it is known to be dead. One of another pid namespace cannot be known, nor one that this user is not shown.
    pub(crate) fn is_dead(&self) -> bool {
        self.life(Path::new("/proc")) == Life::IsOver
    }

    /// What can be known of it here, where processes are shown in the folder `proc`.
    fn life(&self, proc: &Path) -> Life {
        if own_namespace().ok() != Some(self.namespace) {
            return Life::Unknown;
        }
        match start_of(proc, self.pid) {
            Some(started) if started == self.started => Life::Lives,
            Some(_) => Life::IsOver,
            // Others' processes may be hidden (`hidepid`), but not that there is one.
            None => match i32::try_from(self.pid).ok().and_then(Pid::from_raw).map(test_kill_process) {
                Some(Err(Errno::SRCH)) => Life::IsOver,
                _ => Life::Unknown,
            },
        }
    }
}

/// What can be known of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Life {
    Lives,
    IsOver,
    Unknown,
}

fn own_namespace() -> io::Result<u64> {
    Ok(fs::metadata("/proc/self/ns/pid")?.ino())
}

/// When a living process was started. Its name, the second field, may hold anything.
fn start_of(proc: &Path, pid: u32) -> Option<u64> {
    let stat = fs::read(proc.join(format!("{pid}/stat"))).ok()?;
    let stat = String::from_utf8_lossy(&stat);
    let (_, rest) = stat.rsplit_once(") ")?;
    rest.split_ascii_whitespace().nth(19)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_living_owner_is_known_by_its_name_and_a_dead_one_too() {
        let own = Owner::own().unwrap();
        assert_eq!(Owner::of(&own.name(7)), Some(own));
        assert!(!own.is_dead());
        assert!(Owner { started: own.started + 1, ..own }.is_dead(), "the number was used again");
        assert!(!Owner { namespace: 1, started: 1, ..own }.is_dead(), "nobody can know");
    }

    #[test]
    fn one_that_is_not_shown_is_not_taken_for_dead() {
        let hidden = tempfile::tempdir().unwrap();
        let own = Owner::own().unwrap();
        assert_eq!(own.life(Path::new("/proc")), Life::Lives);
        assert_eq!(own.life(hidden.path()), Life::Unknown);
        // Numbers of processes end far below.
        let gone = Owner { pid: i32::MAX.unsigned_abs(), ..own };
        assert_eq!(gone.life(hidden.path()), Life::IsOver);
    }

    proptest! {
        #[test]
        fn only_our_own_names_are_taken_for_ours(name in "(conjure|other)?(-[0-9+]{0,21}){0,6}") {
            if let Some(owner) = Owner::of(&name) {
                let number = name.rsplit('-').next().unwrap().parse().unwrap();
                prop_assert_eq!(owner.name(number), name);
            }
        }
    }
}
