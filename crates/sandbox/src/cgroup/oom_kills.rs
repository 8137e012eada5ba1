//! Counts how many processes of a control group the kernel killed because memory ran out.
//!
//! State: the path of the counter. The counter disappears when the group's owner removes the group.

use std::fs;
use std::path::PathBuf;

use rustix::process::Pid;

use super::hierarchy::{Hierarchy, Version, hierarchies};

/// The counter of a control group.
#[derive(Debug)]
pub(crate) struct OomKillCounter {
    file: PathBuf,
}

impl OomKillCounter {
    /// The counter of the group of this process; `None` if the process has no group of its own with a visible
    /// counter.
    pub(crate) fn for_process(process: Pid) -> Option<Self> {
        let mountinfo = fs::read_to_string("/proc/self/mountinfo").ok()?;
        let cgroup = fs::read_to_string(format!("/proc/{}/cgroup", process.as_raw_nonzero())).ok()?;
        let kills = Self { file: file(&hierarchies(&mountinfo, &cgroup))? };
        kills.count()?;
        Some(kills)
    }

    /// The number of killed processes; `None` when the group was removed.
    pub(crate) fn count(&self) -> Option<u64> {
        parse_count(&fs::read_to_string(&self.file).ok()?)
    }
}

/// The path of the counter for a process with these hierarchies. The group at a mount point is not used, because it
/// has other processes as well.
fn file(hierarchies: &[Hierarchy]) -> Option<PathBuf> {
    let own = hierarchies.iter().filter(|found| found.own != found.mount);
    let has_memory = |found: &&Hierarchy| found.controllers.iter().any(|name| name == "memory");
    let one = own.clone().filter(|found| found.version == Version::One).find(has_memory);
    let two = || own.clone().find(|found| found.version == Version::Two);
    match (one, two) {
        (Some(one), _) => Some(one.own.join("memory.oom_control")),
        (None, two) => two().map(|two| two.own.join("memory.events")),
    }
}

/// Parses a file that has the number on a line of its own.
fn parse_count(text: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix("oom_kill "))?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_number_stands_in_a_line_of_its_own() {
        assert_eq!(parse_count("oom_kill_disable 0\nunder_oom 0\noom_kill 3\n"), Some(3));
        assert_eq!(parse_count("low 0\nhigh 0\nmax 17\noom 2\noom_kill 1\noom_group_kill 0\n"), Some(1));
        // Kernels before 4.13.
        assert_eq!(parse_count("oom_kill_disable 0\nunder_oom 0\n"), None);
    }

    fn check(mountinfo: &str, cgroup: &str, expected: Option<&str>) {
        let found = file(&hierarchies(mountinfo, cgroup));
        assert_eq!(found.as_deref().and_then(|file| file.to_str()), expected);
    }

    #[test]
    fn it_is_that_of_the_process_and_of_nobody_else() {
        let one = "30 26 0:26 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n";
        let two = "33 26 0:29 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
        let both = format!("{one}{two}");
        check(one, "4:memory:/docker/x\n", Some("/sys/fs/cgroup/memory/docker/x/memory.oom_control"));
        check(two, "0::/docker/x\n", Some("/sys/fs/cgroup/docker/x/memory.events"));
        check(&both, "4:memory:/a\n0::/b\n", Some("/sys/fs/cgroup/memory/a/memory.oom_control"));
        check(one, "4:memory:/\n", None);
        check(two, "0::/../../elsewhere\n", None);
        check("", "0::/a\n", None);
    }

    proptest! {
        #[test]
        fn no_text_is_too_strange(text in any::<String>(), number in any::<u64>()) {
            parse_count(&text);
            prop_assert_eq!(parse_count(&format!("oom_kill {number}\n{text}")), Some(number));
        }
    }
}
