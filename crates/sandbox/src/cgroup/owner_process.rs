//! [`OwnerProcess`]: the host process, which is part of the name of a control group. So a sweep can find and remove
//! the groups of dead processes.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};

const PREFIX: &str = "conjure";

/// A process of this machine since its boot. Process ids are reused, but the pair of id and start time is not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OwnerProcess {
    /// The pid namespace of `pid`, by its inode number.
    namespace: u64,
    pid: u32,
    /// The start time of the process, in clock ticks since the machine's start.
    started: u64,
}

impl OwnerProcess {
    /// This process.
    pub(crate) fn current() -> io::Result<Self> {
        let pid = std::process::id();
        let started = start_time(Path::new("/proc"), pid)
            .ok_or_else(|| io::Error::other("/proc/self/stat tells no start"))?;
        Ok(Self { namespace: own_namespace()?, pid, started })
    }

    /// The name of the process's group with this number.
    pub(crate) fn name(&self, number: u64) -> String {
        let Self { namespace, pid, started } = self;
        format!("{PREFIX}-{namespace}-{pid}-{started}-{number}")
    }

    /// Parses the name of a group; `None` for a foreign name.
    pub(crate) fn parse(name: &str) -> Option<Self> {
        let mut parts = name.split('-');
        let prefix = parts.next()?;
        let mut number = || {
            // Accepts only text that `name` writes: no signs, no leading zeros.
            let text = parts.next()?;
            text.parse::<u64>().ok().filter(|number| number.to_string() == text)
        };
        let owner = Self { namespace: number()?, pid: u32::try_from(number()?).ok()?, started: number()? };
        let _number = number()?;
        (prefix == PREFIX && parts.next().is_none()).then_some(owner)
    }

    /// Whether it is certainly alive.
    #[cfg(feature = "docker")]
    pub(crate) fn is_alive(&self) -> bool {
        self.liveness(Path::new("/proc")) == Liveness::Alive
    }

    /// Whether it is certainly dead. That is unknown for another pid namespace, and for a process that this user may
    /// not see.
    pub(crate) fn is_dead(&self) -> bool {
        self.liveness(Path::new("/proc")) == Liveness::Dead
    }

    /// Its liveness, as the directory `proc` (`/proc`) shows it.
    fn liveness(&self, proc: &Path) -> Liveness {
        if own_namespace().ok() != Some(self.namespace) {
            return Liveness::Unknown;
        }
        match start_time(proc, self.pid) {
            Some(started) if started == self.started => Liveness::Alive,
            Some(_) => Liveness::Dead,
            // Processes of other users may be hidden (`hidepid`), but a signal still shows that they exist.
            None => match i32::try_from(self.pid).ok().and_then(Pid::from_raw).map(test_kill_process) {
                Some(Err(Errno::SRCH)) => Liveness::Dead,
                _ => Liveness::Unknown,
            },
        }
    }
}

/// The liveness of a process, as far as it is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Liveness {
    Alive,
    Dead,
    Unknown,
}

fn own_namespace() -> io::Result<u64> {
    Ok(fs::metadata("/proc/self/ns/pid")?.ino())
}

/// The start time of a living process. Its name, the second field of the file, may contain any characters.
fn start_time(proc: &Path, pid: u32) -> Option<u64> {
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
        let own = OwnerProcess::current().unwrap();
        assert_eq!(OwnerProcess::parse(&own.name(7)), Some(own));
        assert!(!own.is_dead());
        assert!(OwnerProcess { started: own.started + 1, ..own }.is_dead(), "the number was used again");
        assert!(!OwnerProcess { namespace: 1, started: 1, ..own }.is_dead(), "nobody can know");
    }

    #[test]
    fn one_that_is_not_shown_is_not_taken_for_dead() {
        let hidden = tempfile::tempdir().unwrap();
        let own = OwnerProcess::current().unwrap();
        assert_eq!(own.liveness(Path::new("/proc")), Liveness::Alive);
        assert_eq!(own.liveness(hidden.path()), Liveness::Unknown);
        // Numbers of processes end far below.
        let gone = OwnerProcess { pid: i32::MAX.unsigned_abs(), ..own };
        assert_eq!(gone.liveness(hidden.path()), Liveness::Dead);
    }

    proptest! {
        #[test]
        fn only_our_own_names_are_taken_for_ours(name in "(conjure|other)?(-[0-9+]{0,21}){0,6}") {
            if let Some(owner) = OwnerProcess::parse(&name) {
                let number = name.rsplit('-').next().unwrap().parse().unwrap();
                prop_assert_eq!(owner.name(number), name);
            }
        }
    }
}
