//! Leftovers of a host on the machine: processes, control groups, mounts, containers.
//!
//! Whatever loses its parent below this process becomes its child (a "subreaper"), so nothing can hide: what is a child and
//! no present host was left by one before.

use std::fs;
use std::path::Path;
use std::time::Duration;

use conjure::{Clock as _, SystemClock};
use rustix::process::{Pid, WaitOptions, getpid, set_child_subreaper, waitpid};

use crate::drill::Result;
use crate::drill::checks::containers;
use crate::drill::checks::findings::Findings;
use crate::drill::fixture::Sandboxes;
use crate::drill::process::Identity;

/// How long the processes and control groups of a killed host may take to be gone once the next one is ready.
const PATIENCE: Duration = Duration::from_secs(300);

/// From now on, what loses its parent becomes a child of this process.
pub(crate) fn adopt_orphans() -> Result<()> {
    Ok(set_child_subreaper(Some(getpid()))?)
}

/// Looks for what the hosts that are dead left.
pub(crate) fn check(
    dir: &Path,
    sandboxes: &Sandboxes,
    dead: &[Identity],
    living: &[Identity],
    findings: &mut Findings,
) -> Result<()> {
    let deadline = SystemClock.deadline(PATIENCE);
    let mut orphans = living_orphans(living)?;
    findings.tally.late += orphans.len() as u64;
    while !orphans.is_empty() && !SystemClock.remaining(deadline).is_zero() {
        std::thread::yield_now();
        orphans = living_orphans(living)?;
    }
    findings.leftover.extend(orphans.into_iter().map(|(pid, what)| format!("the process {pid} `{what}`")));
    let namespace = fs::read_link("/proc/self/ns/pid")?;
    let namespace = namespace.to_string_lossy().replace(|c: char| !c.is_ascii_digit(), "");
    let names = dead.iter().map(|host| format!("conjure-{namespace}-{}-{}-", host.pid, host.started));
    let names: Vec<String> = names.collect();
    let mut groups = groups_of(&names);
    while !groups.is_empty() && !SystemClock.remaining(deadline).is_zero() {
        std::thread::yield_now();
        groups = groups_of(&names);
    }
    findings.leftover.extend(groups);
    let mounts = fs::read_to_string("/proc/self/mountinfo")?;
    let dir = dir.to_string_lossy();
    for line in mounts.lines().filter(|line| line.contains(&*dir)) {
        findings.leftover.push(format!("the mount `{line}`"));
    }
    for container in containers::of_dead_hosts(sandboxes, living)? {
        findings.leftover.push(format!("the container {container}"));
    }
    Ok(())
}

/// The children that are no present host and live, with what they run. Those that have ended are laid to rest.
fn living_orphans(living: &[Identity]) -> Result<Vec<(i32, String)>> {
    let mut found = Vec::new();
    let own_pid = getpid().as_raw_nonzero().get();
    for entry in fs::read_dir("/proc")? {
        let name = entry?.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse::<i32>().ok()) else { continue };
        if living.iter().any(|host| u32::try_from(pid) == Ok(host.pid)) || parent_of(pid) != Some(own_pid) {
            continue;
        }
        let is_over = match Pid::from_raw(pid).map(|pid| waitpid(Some(pid), WaitOptions::NOHANG)) {
            Some(Ok(None)) => false,
            Some(Ok(Some(_)) | Err(_)) | None => true,
        };
        if !is_over {
            let arguments = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            found.push((pid, String::from_utf8_lossy(&arguments).replace('\0', " ")));
        }
    }
    Ok(found)
}

fn parent_of(pid: i32) -> Option<i32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name stands in parentheses and may hold anything.
    stat.rsplit_once(") ")?.1.split(' ').nth(1)?.parse().ok()
}

/// A process of which only the number is known: its name, state and parent.
fn described(pid: &str) -> String {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.split(' ').take(4).collect::<Vec<_>>().join(" ")
}

/// The control groups whose names begin so, with what is in them.
fn groups_of(names: &[String]) -> Vec<String> {
    let mut found = Vec::new();
    look_for_groups(Path::new("/sys/fs/cgroup"), names, 0, &mut found);
    found
}

/// Groups lie below those of hosts; nobody nests them deeply.
fn look_for_groups(dir: &Path, names: &[String], depth: usize, found: &mut Vec<String>) {
    let Ok(entries) = fs::read_dir(dir) else { return };
    for entry in entries.flatten() {
        if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            continue;
        }
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if names.iter().any(|dead| name.starts_with(dead.as_str())) {
            let group = entry.path();
            let processes = fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
            let processes: Vec<String> = processes.lines().map(described).collect();
            found.push(format!("the control group `{}`, with {processes:?}", group.display()));
        } else if depth < 6 {
            look_for_groups(&entry.path(), names, depth + 1, found);
        }
    }
}
