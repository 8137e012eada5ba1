//! Reads the kernel's event counters of the cgroup: which limits of the sandbox commands ran into.
//!
//! State: handles of the counter files. They are opened once, because the files may not be reachable later.

use std::fs::File;
use std::os::unix::fs::FileExt;

use conjure_guest::protocol::ReachedLimits;

/// Event counters of a cgroup.
#[derive(Debug)]
pub(crate) struct CgroupEvents {
    /// OOM kills in the cgroup.
    kills: Option<File>,
    /// Refused processes and threads in the cgroup.
    refusals: Option<File>,
    /// OOM kills on the whole machine, when no cgroup counts them. Reading this file is slow.
    machine: Option<File>,
    machine_kills: u64,
}

/// The counters at one moment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EventCounts {
    kills: u64,
    refusals: u64,
}

impl CgroupEvents {
    /// Opens the counters of the given cgroup directories, or else of the cgroup of this process.
    pub(crate) fn open(dirs_first: &[String]) -> Self {
        let groups = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let mut dirs = dirs_first.to_vec();
        for line in groups.lines() {
            let mut fields = line.splitn(3, ':').skip(1);
            let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else { continue };
            if controllers.is_empty() {
                dirs.push(format!("/sys/fs/cgroup{path}"));
            } else {
                // The directory of a hierarchy is named after its controllers. Each controller also has a link.
                dirs.extend(
                    controllers
                        .split(',')
                        .filter(|controller| matches!(*controller, "memory" | "pids"))
                        .map(|controller| format!("/sys/fs/cgroup/{controller}{path}")),
                );
            }
        }
        // In a container, the own cgroup often appears as the root.
        dirs.extend(["", "/memory", "/pids"].map(|name| format!("/sys/fs/cgroup{name}")));
        Self::from_dirs(&dirs)
    }

    /// Opens each counter in the first directory that has it.
    fn from_dirs(dirs: &[String]) -> Self {
        let find = |names: &[&str], key| {
            let mut files = dirs.iter().flat_map(|dir| names.iter().map(move |name| format!("{dir}/{name}")));
            files.find_map(|path| File::open(path).ok().filter(|file| read(file, key).is_some()))
        };
        let kills = find(&["memory.events", "memory.oom_control"], KILLS);
        let machine = if kills.is_none() { File::open("/proc/vmstat").ok() } else { None };
        let machine_kills = machine.as_ref().and_then(|file| read(file, KILLS)).unwrap_or(0);
        Self { kills, refusals: find(&["pids.events"], REFUSALS), machine, machine_kills }
    }

    /// Reads the counters.
    pub(crate) fn counts(&self) -> EventCounts {
        let current = |file: &Option<File>, key| file.as_ref().and_then(|file| read(file, key)).unwrap_or(0);
        EventCounts { kills: current(&self.kills, KILLS), refusals: current(&self.refusals, REFUSALS) }
    }

    /// Returns the limits that were reached since `before`. `is_killed` tells whether the program was killed. The
    /// machine's counter is read only then.
    pub(crate) fn delta_since(&mut self, before: EventCounts, is_killed: bool) -> ReachedLimits {
        let now = self.counts();
        let mut memory = now.kills > before.kills;
        if let Some(machine) = self.machine.as_ref().filter(|_| is_killed) {
            let kills = read(machine, KILLS).unwrap_or(0);
            memory |= kills > self.machine_kills;
            self.machine_kills = kills;
        }
        ReachedLimits { memory, processes: now.refusals > before.refusals, ..ReachedLimits::default() }
    }
}

const KILLS: &str = "oom_kill ";
const REFUSALS: &str = "max ";

fn read(file: &File, key: &str) -> Option<u64> {
    // `/proc/vmstat` has about 5 KiB.
    let mut bytes = [0_u8; 16 * 1024];
    let length = file.read_at(&mut bytes, 0).ok()?;
    std::str::from_utf8(bytes.get(..length)?)
        .ok()?
        .lines()
        .find_map(|line| line.strip_prefix(key))
        .and_then(|count| count.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use std::fs::write;

    use super::*;

    #[test]
    fn a_risen_counter_is_a_reached_limit() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = |name: &str| dir.path().join(name);
        let say = |kills: u64, refusals: u64| {
            write(path("memory.events"), format!("low 0\noom 7\noom_kill {kills}\n")).expect("written");
            write(path("pids.events"), format!("max {refusals}\n")).expect("written");
        };
        say(3, 5);
        let mut events =
            CgroupEvents::from_dirs(&["/nowhere".to_owned(), dir.path().to_str().expect("UTF-8").to_owned()]);
        let before = events.counts();
        let reached = |memory, processes| ReachedLimits { memory, processes, ..ReachedLimits::default() };
        assert_eq!(events.delta_since(before, true), reached(false, false));
        say(4, 5);
        assert_eq!(events.delta_since(before, false), reached(true, false));
        say(4, 900);
        assert_eq!(events.delta_since(events.counts(), true), reached(false, false));
        assert_eq!(events.delta_since(before, true), reached(true, true));
    }
}
