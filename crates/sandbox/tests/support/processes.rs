//! The machine's processes, and the control groups that hold them.

use std::fs;
use std::path::Path;

use rustix::process::Signal;

/// A process of this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Process {
    pub(crate) pid: i32,
    pub(crate) parent: i32,
    pub(crate) state: char,
    pub(crate) arguments: String,
}

pub(crate) fn processes() -> Vec<Process> {
    let read = |dir: &Path| -> Option<Process> {
        let pid = dir.file_name()?.to_str()?.parse().ok()?;
        let stat = fs::read_to_string(dir.join("stat")).ok()?;
        // The name stands in parentheses and may hold anything.
        let mut fields = stat.rsplit_once(") ")?.1.split(' ');
        let state = fields.next()?.chars().next()?;
        let parent = fields.next()?.parse().ok()?;
        let arguments = fs::read(dir.join("cmdline")).ok()?;
        let arguments = String::from_utf8_lossy(&arguments).replace('\0', " ");
        Some(Process { pid, parent, state, arguments })
    };
    fs::read_dir("/proc").unwrap().filter_map(|entry| read(&entry.ok()?.path())).collect()
}

/// The running processes whose arguments contain this text.
pub(crate) fn bearing(mark: &str) -> Vec<Process> {
    processes()
        .into_iter()
        .filter(|process| process.state != 'Z' && process.arguments.contains(mark))
        .collect()
}

pub(crate) fn is_alive(pid: i32) -> bool {
    processes().iter().any(|process| process.pid == pid && process.state != 'Z')
}

/// This process' ancestors, the nearest first.
fn ancestors(pid: i32) -> Vec<i32> {
    let all = processes();
    let parent = |pid: i32| all.iter().find(|process| process.pid == pid).map(|process| process.parent);
    std::iter::successors(parent(pid), |pid| parent(*pid)).collect()
}

/// The process below `host` that this process descends from.
pub(crate) fn guest_of_process(pid: i32, host: u32) -> i32 {
    let line = ancestors(pid);
    let index = line.iter().position(|ancestor| u32::try_from(*ancestor) == Ok(host));
    line[index.expect("the host is above it") - 1]
}

/// All processes that descend from this one.
pub(crate) fn descendants(of: u32) -> Vec<i32> {
    let all = processes();
    let mut found = vec![i32::try_from(of).unwrap()];
    let mut next = 0;
    while let Some(parent) = found.get(next).copied() {
        found.extend(all.iter().filter(|process| process.parent == parent).map(|process| process.pid));
        next += 1;
    }
    found.split_off(1)
}

/// True if it is the first process of another pid namespace.
fn is_first(pid: i32) -> bool {
    // Its number in each namespace, ours first.
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:")).unwrap_or_default();
    let numbers: Vec<&str> = numbers.split_ascii_whitespace().collect();
    numbers.len() > 1 && numbers.last() == Some(&"1")
}

/// The first process of this process' pid namespace.
pub(crate) fn first_in_namespace(pid: i32) -> i32 {
    ancestors(pid).into_iter().find(|pid| is_first(*pid)).expect("it has a pid namespace")
}

/// The first processes of the sandboxes in which something of this directory is mounted.
pub(crate) fn guests_in(dir: &Path) -> Vec<i32> {
    let dir = dir.to_str().unwrap();
    let has_it = |pid: i32| {
        let mounts = fs::read_to_string(format!("/proc/{pid}/mountinfo")).unwrap_or_default();
        mounts.contains(dir)
    };
    let living = processes().into_iter().filter(|process| process.state != 'Z').map(|process| process.pid);
    living.filter(|pid| is_first(*pid) && has_it(*pid)).collect()
}

pub(crate) fn zombies_below(guest: i32) -> usize {
    let all = processes();
    let below = descendants(u32::try_from(guest).unwrap());
    all.iter().filter(|process| process.state == 'Z' && below.contains(&process.pid)).count()
}

pub(crate) fn sigkill(pid: i32) {
    signal(pid, Signal::KILL);
}

pub(crate) fn signal(pid: i32, which: Signal) {
    let pid = rustix::process::Pid::from_raw(pid).unwrap();
    rustix::process::kill_process(pid, which).unwrap();
}

/// Our control groups whose names contain this text.
pub(crate) fn control_groups(part: &str) -> Vec<String> {
    control_groups_below(Path::new("/sys/fs/cgroup"), part)
}

fn control_groups_below(dir: &Path, part: &str) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.starts_with("conjure-") && name.contains(part) {
                found.push(entry.path().display().to_string());
            }
            found.extend(control_groups_below(&entry.path(), part));
        }
    }
    found
}

/// The most memory that this process ever had resident, in bytes.
pub(crate) fn peak_memory(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").trim().parse::<u64>().unwrap() * 1024
}
