//! Groups of the machine that the tests run on, where it permits any; and of one that permits none.

use std::path::PathBuf;
use std::time::Duration;

use conjure_base::{Clock as _, SystemClock};

use super::cgroups::Cgroups;
use super::hierarchy::{Hierarchy, Version};
use crate::settings::isolation::{Boundary, Isolation};
use crate::settings::limits::Limits;

fn hierarchy(version: Version, own: &str) -> Hierarchy {
    let controllers = ["memory", "cpu", "pids"].map(str::to_owned).to_vec();
    Hierarchy { version, controllers, mount: PathBuf::from("/proc/self"), own: PathBuf::from(own) }
}

#[test]
fn a_machine_without_groups_says_what_would_help() {
    let none = Cgroups::from_hierarchies(&[]);
    assert_eq!(none.isolation(), Isolation::NONE);
    let reasons: Vec<_> = none.missing().iter().map(|it| (it.controller, it.reason.as_str())).collect();
    let reason = "no control groups are mounted";
    assert_eq!(reasons, [("memory", reason), ("cpu", reason), ("pids", reason)]);
    // A group that limits nothing can still be asked for, and is nothing.
    assert!(none.make(&Limits::default()).unwrap().dirs().is_empty());

    // Nobody can make directories there, root neither.
    let closed = Cgroups::from_hierarchies(&[hierarchy(Version::Two, "/proc/self/net")]);
    assert_eq!(closed.isolation(), Isolation::NONE);
    assert_eq!(closed.missing().len(), 3);
    assert!(closed.missing()[0].hint.contains("Delegate=yes"), "{:?}", closed.missing());
}

#[test]
fn a_group_has_its_limits_and_goes_when_it_is_dropped() {
    let groups = Cgroups::detect();
    if groups.isolation().memory == Boundary::Open {
        skip_without_groups(&groups);
        return;
    }
    let limits = Limits::default().with_memory(64 << 20).unwrap().with_processes(100).unwrap();
    let (one, other) = (groups.make(&limits).unwrap(), groups.make(&limits).unwrap());
    let dirs: Vec<PathBuf> = one.dirs().iter().chain(other.dirs()).cloned().collect();
    assert_eq!(dirs.len(), one.dirs().len() * 2);
    let read = |names: &[&str]| {
        let found = one
            .dirs()
            .iter()
            .flat_map(|dir| names.iter().map(|name| dir.join(name)))
            .find_map(|file| std::fs::read_to_string(file).ok());
        found.map(|text| text.trim().to_owned())
    };
    assert_eq!(read(&["memory.limit_in_bytes", "memory.max"]).as_deref(), Some("67108864"));
    if groups.isolation().process_count == Boundary::Enforced {
        assert_eq!(read(&["pids.max"]).as_deref(), Some("164"));
    }
    if groups.isolation().processor == Boundary::Enforced {
        let quota = read(&["cpu.cfs_quota_us", "cpu.max"]).unwrap();
        assert!(quota == "100000" || quota == "100000 100000", "{quota}");
    }
    // They belong to a living host.
    groups.sweep();
    assert!(dirs.iter().all(|dir| dir.is_dir()));
    drop((one, other));
    assert!(!dirs.iter().any(|dir| dir.exists()));
}

#[test]
fn two_who_make_groups_in_one_process_do_not_get_in_each_others_way() {
    let (one, other) = (Cgroups::detect(), Cgroups::detect());
    if one.isolation().memory == Boundary::Open {
        skip_without_groups(&one);
        return;
    }
    let made = [&one, &other, &one, &other].map(|groups| groups.make(&Limits::default()).unwrap());
    let mut dirs: Vec<PathBuf> = made.iter().flat_map(|group| group.dirs()).cloned().collect();
    let count = dirs.len();
    dirs.sort();
    dirs.dedup();
    assert_eq!(dirs.len(), count);
}

#[test]
#[expect(clippy::disallowed_methods, reason = "a process to put into a group")]
fn what_is_in_a_dead_hosts_group_is_killed_with_it() {
    let groups = Cgroups::detect();
    if groups.isolation().memory == Boundary::Open {
        skip_without_groups(&groups);
        return;
    }
    let made = groups.make(&Limits::default()).unwrap();
    // The same name, but for the number of a process that never was: the largest there can be is 4,194,304.
    let stray = {
        let dir = &made.dirs()[0];
        let name = dir.file_name().unwrap().to_str().unwrap();
        let mut parts: Vec<&str> = name.split('-').collect();
        parts[2] = "4194305";
        dir.with_file_name(parts.join("-"))
    };
    let mut process = std::process::Command::new("sleep").arg("60").spawn().unwrap();
    // Other hosts on this machine sweep, too: the group may be gone before anything is in it.
    let joins = || {
        let _ = std::fs::create_dir(&stray);
        std::fs::write(stray.join("cgroup.procs"), process.id().to_string()).is_ok()
    };
    assert!((0..100).any(|_| joins()));
    // The kernel needs a moment to take a killed process out of its group. That is waited for, and who is not scheduled
    // for so long is gone at another opportunity.
    let deadline = SystemClock.deadline(Duration::from_secs(600));
    groups.sweep();
    while stray.exists() {
        assert!(!SystemClock.remaining(deadline).is_zero(), "the group stays");
        groups.sweep();
    }
    let status = process.wait().unwrap();
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(9));
    assert!(made.dirs()[0].exists());
}

fn skip_without_groups(groups: &Cgroups) {
    let reason = format!("this user may make no control groups: {:?}", groups.missing());
    test_support::skip(&reason, "run the tests as root, where control groups can be written");
}
