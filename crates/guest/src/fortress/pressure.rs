//! Which limits of the whole sandbox commands ran into, as far as the kernel counts it.
//!
//! State: handles of the kernel's counters, which are in files of the control groups. They are opened once, so that it
//! does not matter whether those files can be reached later.

use std::fs::File;
use std::os::unix::fs::FileExt;

use conjure_guest::protocol::LimitsReached;

/// The kernel's counters of what it did because of a limit.
#[derive(Debug)]
pub(crate) struct Pressure {
    /// Kills in the control group for want of memory.
    kills: Option<File>,
    /// Refused processes and threads in the control group.
    refusals: Option<File>,
    /// Kills on the whole machine for want of memory, where no group counts them. To read it costs much.
    machine: Option<File>,
    machine_kills: u64,
}

/// The counters at some moment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Mark {
    kills: u64,
    refusals: u64,
}

impl Pressure {
    /// The counters of these groups, given as folders, or else of those that this process is in.
    pub(crate) fn open(given: &[String]) -> Self {
        let groups = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let mut folders = given.to_vec();
        for line in groups.lines() {
            let mut fields = line.splitn(3, ':').skip(1);
            let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else { continue };
            if controllers.is_empty() {
                folders.push(format!("/sys/fs/cgroup{path}"));
            } else {
                // A hierarchy's folder is named after its controllers; each has a link of its own, too.
                folders.extend(
                    controllers
                        .split(',')
                        .filter(|controller| matches!(*controller, "memory" | "pids"))
                        .map(|controller| format!("/sys/fs/cgroup/{controller}{path}")),
                );
            }
        }
        // In a container, the own group often appears as the root.
        folders.extend(["", "/memory", "/pids"].map(|name| format!("/sys/fs/cgroup{name}")));
        Self::of(&folders)
    }

    /// The counters of the groups with these folders, the first that has each.
    fn of(folders: &[String]) -> Self {
        let find = |names: &[&str], key| {
            let mut files =
                folders.iter().flat_map(|folder| names.iter().map(move |name| format!("{folder}/{name}")));
            files.find_map(|path| File::open(path).ok().filter(|file| read(file, key).is_some()))
        };
        let kills = find(&["memory.events", "memory.oom_control"], KILLS);
        let machine = if kills.is_none() { File::open("/proc/vmstat").ok() } else { None };
        let machine_kills = machine.as_ref().and_then(|file| read(file, KILLS)).unwrap_or(0);
        Self { kills, refusals: find(&["pids.events"], REFUSALS), machine, machine_kills }
    }

    /// The counters now.
    pub(crate) fn mark(&self) -> Mark {
        let current = |file: &Option<File>, key| file.as_ref().and_then(|file| read(file, key)).unwrap_or(0);
        Mark { kills: current(&self.kills, KILLS), refusals: current(&self.refusals, REFUSALS) }
    }

    /// Which limits were reached since `mark`. `is_killed`: whether the program was killed by somebody, which is worth
    /// asking the machine's counter.
    pub(crate) fn since(&mut self, mark: Mark, is_killed: bool) -> LimitsReached {
        let now = self.mark();
        let mut memory = now.kills > mark.kills;
        if let Some(machine) = self.machine.as_ref().filter(|_| is_killed) {
            let kills = read(machine, KILLS).unwrap_or(0);
            memory |= kills > self.machine_kills;
            self.machine_kills = kills;
        }
        LimitsReached { memory, processes: now.refusals > mark.refusals, ..LimitsReached::default() }
    }
}

const KILLS: &str = "oom_kill ";
const REFUSALS: &str = "max ";

fn read(file: &File, key: &str) -> Option<u64> {
    // `/proc/vmstat` has some 5 KiB.
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
    fn what_rose_was_reached() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str| folder.path().join(name);
        let say = |kills: u64, refusals: u64| {
            write(path("memory.events"), format!("low 0\noom 7\noom_kill {kills}\n")).expect("written");
            write(path("pids.events"), format!("max {refusals}\n")).expect("written");
        };
        say(3, 5);
        let mut pressure =
            Pressure::of(&["/nowhere".to_owned(), folder.path().to_str().expect("UTF-8").to_owned()]);
        let mark = pressure.mark();
        let reached = |memory, processes| LimitsReached { memory, processes, ..LimitsReached::default() };
        assert_eq!(pressure.since(mark, true), reached(false, false));
        say(4, 5);
        assert_eq!(pressure.since(mark, false), reached(true, false));
        say(4, 900);
        assert_eq!(pressure.since(pressure.mark(), true), reached(false, false));
        assert_eq!(pressure.since(mark, true), reached(true, true));
    }
}
