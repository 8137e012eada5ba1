//! Killing everything that descends from this process, also what left its group and its session.
//!
//! Both the guest and the shims are subreapers: whatever a command started, and wherever it moved to, its
//! chain of parents leads here. A round stops all descendants first, again and again until no new ones are
//! found, so that a storm of forks comes to rest, and then kills them. Nothing is kept between rounds.

use std::collections::{HashMap, HashSet};
use std::os::fd::AsFd;
use std::time::Duration;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, WaitOptions};

use crate::sys;

/// How often a round looks for descendants that were born while it stopped the others.
const STOP_PASSES: usize = 200;

/// How long to wait for the killed to die before looking again.
const PAUSE: Duration = Duration::from_millis(10);

/// Kills all descendants of this process and waits until it has none.
pub(crate) fn kill_all() {
    loop {
        kill_round(|_| false);
        loop {
            match rustix::process::wait(WaitOptions::NOHANG) {
                Ok(Some(_)) | Err(Errno::INTR) => {}
                Ok(None) => break,
                Err(_) => return,
            }
        }
        sys::wait_for_signal(&[Signal::CHILD], Some(PAUSE));
    }
}

/// How many processes and threads descend from this process; at least `enough` when there are so many.
pub(crate) fn count_tasks(enough: u64) -> u64 {
    let own = rustix::process::getpid();
    // All that process 1 can see descend from it. A storm changes its parents while one looks.
    let family: Vec<Pid> = if own.is_init() {
        numeric_names("/proc")
    } else {
        descendants(own, &|_| false).into_iter().collect()
    };
    let mut count = 0;
    for pid in family {
        if count >= enough {
            break;
        }
        count += numeric_names(&format!("/proc/{}/task", pid.as_raw_nonzero())).len() as u64;
    }
    count
}

/// Stops and kills the descendants of this process, except its children for which `keep` holds and theirs.
/// Returns how many were still alive; they may take a moment to die and must be reaped by the caller.
pub(crate) fn kill_round(keep: impl Fn(Pid) -> bool) -> usize {
    let own = rustix::process::getpid();
    let mut stopped = HashSet::new();
    for _ in 0..STOP_PASSES {
        let mut fresh = 0;
        let family = descendants(own, &keep);
        for &pid in &family {
            if !stopped.contains(&pid)
                && signal_member(pid, own, &family, Signal::STOP).is_ok_and(|sent| sent)
            {
                stopped.insert(pid);
                fresh += 1;
            }
        }
        if fresh == 0 {
            break;
        }
    }
    let family = descendants(own, &keep);
    let killed = |pid: &&Pid| signal_member(**pid, own, &family, Signal::KILL).is_ok_and(|sent| sent);
    family.iter().filter(killed).count()
}

/// Signals `pid` if it is, at this moment, a living child of `own` or of a member of `family`, and says whether it was. The
/// descriptor is taken before the check, so a number that was reused in between is never signalled. The error is that the
/// system does not permit it.
pub(crate) fn signal_member(
    pid: Pid,
    own: Pid,
    family: &HashSet<Pid>,
    signal: Signal,
) -> Result<bool, Errno> {
    let pidfd = match rustix::process::pidfd_open(pid, PidfdFlags::empty()) {
        Ok(pidfd) => Some(pidfd),
        // No such system call, in an emulated kernel: the number has to do.
        Err(Errno::NOSYS) => None,
        Err(_) => return Ok(false),
    };
    let Some(stat) = stat_of(pid) else { return Ok(false) };
    if stat.is_dead || !(stat.parent == own || family.contains(&stat.parent)) {
        return Ok(false);
    }
    let sent = match pidfd {
        Some(pidfd) => rustix::process::pidfd_send_signal(pidfd, signal),
        None => rustix::process::kill_process(pid, signal),
    };
    match sent {
        Ok(()) => Ok(true),
        Err(Errno::PERM) => Err(Errno::PERM),
        // It has just died.
        Err(_) => Ok(false),
    }
}

/// What a process does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Motion {
    /// A thread of it runs, or waits for something to happen.
    Going,
    /// The kernel holds it, in a way that signals do not end: it takes none before, and then it heeds them.
    Held,
    /// All of its threads are stopped.
    Still,
    /// There is no such process, or no thread of it lives.
    Gone,
}

/// What a process does, at this moment.
pub(crate) fn motion(pid: Pid) -> Motion {
    let pid = pid.as_raw_nonzero();
    let states = numeric_names(&format!("/proc/{pid}/task")).into_iter().filter_map(|task| {
        let stat = read_small(&format!("/proc/{pid}/task/{}/stat", task.as_raw_nonzero()))?;
        Some(state_of_thread(&stat))
    });
    motion_of(states)
}

/// What a process with such threads does.
fn motion_of(threads: impl Iterator<Item = Motion>) -> Motion {
    threads.fold(Motion::Gone, |all, one| match (all, one) {
        (Motion::Going, _) | (_, Motion::Going) => Motion::Going,
        (Motion::Held, _) | (_, Motion::Held) => Motion::Held,
        (Motion::Still, _) | (_, Motion::Still) => Motion::Still,
        (Motion::Gone, Motion::Gone) => Motion::Gone,
    })
}

fn state_of_thread(stat: &str) -> Motion {
    match stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next()) {
        Some('T' | 't') => Motion::Still,
        Some('D') => Motion::Held,
        Some('Z' | 'X' | 'x') | None => Motion::Gone,
        Some(_) => Motion::Going,
    }
}

/// All descendants of a process.
pub(crate) fn descendants_of(pid: Pid) -> HashSet<Pid> {
    descendants(pid, &|_| false)
}

/// All descendants of this process, each behind its parent.
pub(crate) fn lineage() -> Vec<Pid> {
    lineage_of(rustix::process::getpid(), &|_| false)
}

/// All descendants of `own`, without the children to keep and without theirs.
fn descendants(own: Pid, keep: &impl Fn(Pid) -> bool) -> HashSet<Pid> {
    lineage_of(own, keep).into_iter().collect()
}

/// The same, each behind its parent.
fn lineage_of(own: Pid, keep: &impl Fn(Pid) -> bool) -> Vec<Pid> {
    let Some(children) = children_of(own) else {
        return lineage_by_scan(own, keep);
    };
    let (mut lineage, mut known) = (Vec::new(), HashSet::new());
    let mut open: Vec<Pid> = children.into_iter().filter(|child| !keep(*child)).collect();
    while let Some(pid) = open.pop() {
        if known.insert(pid) {
            lineage.push(pid);
            open.extend(children_of(pid).unwrap_or_default());
        }
    }
    lineage
}

/// The threads of a process.
pub(crate) fn threads_of(pid: Pid) -> Vec<Pid> {
    numeric_names(&format!("/proc/{}/task", pid.as_raw_nonzero()))
}

/// Whether a thread of a process has not ended.
pub(crate) fn is_alive(pid: Pid, thread: Pid) -> bool {
    let path = format!("/proc/{}/task/{}/stat", pid.as_raw_nonzero(), thread.as_raw_nonzero());
    read_small(&path).is_some_and(|stat| state_of_thread(&stat) != Motion::Gone)
}

/// Whether `pid` is a child of `parent`.
pub(crate) fn is_child_of(pid: Pid, parent: Pid) -> bool {
    stat_of(pid).is_some_and(|stat| stat.parent == parent)
}

/// The children of all threads of `pid`; `None` when the process is gone or the kernel does not tell.
fn children_of(pid: Pid) -> Option<Vec<Pid>> {
    let mut children = Vec::new();
    let mut told = false;
    for task in numeric_names(&format!("/proc/{}/task", pid.as_raw_nonzero())) {
        let path = format!("/proc/{}/task/{}/children", pid.as_raw_nonzero(), task.as_raw_nonzero());
        if let Some(text) = read_small(&path) {
            told = true;
            children.extend(text.split_ascii_whitespace().filter_map(parse_pid));
        }
    }
    told.then_some(children)
}

/// The same as [`lineage_of`], from the parents of all processes, for kernels that do not list children.
fn lineage_by_scan(own: Pid, keep: &impl Fn(Pid) -> bool) -> Vec<Pid> {
    let mut by_parent: HashMap<Pid, Vec<Pid>> = HashMap::new();
    for pid in numeric_names("/proc") {
        if let Some(stat) = stat_of(pid) {
            by_parent.entry(stat.parent).or_default().push(pid);
        }
    }
    let mut lineage = Vec::new();
    let mut open: Vec<Pid> = by_parent.remove(&own).unwrap_or_default();
    open.retain(|child| !keep(*child));
    while let Some(pid) = open.pop() {
        lineage.push(pid);
        open.extend(by_parent.remove(&pid).unwrap_or_default());
    }
    lineage
}

struct Stat {
    parent: Pid,
    is_dead: bool,
}

fn stat_of(pid: Pid) -> Option<Stat> {
    parse_stat(&read_small(&format!("/proc/{}/stat", pid.as_raw_nonzero()))?)
}

/// `pid (name) state parent …`, where the name may hold anything, parentheses included.
fn parse_stat(text: &str) -> Option<Stat> {
    /// Fields between the parent and the number of threads.
    const BETWEEN: usize = 15;
    let (_, rest) = text.rsplit_once(") ")?;
    let mut fields = rest.split(' ');
    let state = fields.next()?;
    let parent = parse_pid(fields.next()?)?;
    // The state is that of the first thread, which others may outlive.
    let has_others =
        fields.nth(BETWEEN).and_then(|threads| threads.parse().ok()).is_some_and(|count: u64| count > 1);
    Some(Stat { parent, is_dead: matches!(state, "Z" | "X" | "x") && !has_others })
}

fn parse_pid(text: &str) -> Option<Pid> {
    text.parse().ok().and_then(Pid::from_raw)
}

fn numeric_names(path: &str) -> Vec<Pid> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let Ok(folder) = rustix::fs::open(path, flags, Mode::empty()) else { return Vec::new() };
    let Ok(entries) = rustix::fs::Dir::new(folder) else { return Vec::new() };
    entries.flatten().filter_map(|entry| entry.file_name().to_str().ok().and_then(parse_pid)).collect()
}

/// The text of a file in `/proc`. Names of processes need not be UTF-8; what is not is replaced.
fn read_small(path: &str) -> Option<String> {
    let file = rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let mut bytes = Vec::new();
    let mut piece = [0_u8; 4096];
    loop {
        match rustix::io::read(file.as_fd(), &mut piece) {
            Ok(0) => return Some(String::from_utf8_lossy(&bytes).into_owned()),
            Ok(length) => bytes.extend_from_slice(piece.get(..length)?),
            Err(Errno::INTR) => {}
            Err(_) => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_may_have_any_name() {
        let stat = parse_stat("7 (a) Z 1 (b) S 42 7 7 0 -1\n").expect("parses");
        assert_eq!(stat.parent.as_raw_nonzero().get(), 42);
        assert!(!stat.is_dead);
        assert!(parse_stat("7 (a) Z 42 7").expect("parses").is_dead);
        let with = |threads: u32| format!("7 (a) Z 42 7 7 0 -1 1 2 3 4 5 6 7 8 9 20 0 {threads} 0 99\n");
        assert!(parse_stat(&with(1)).expect("parses").is_dead);
        assert!(!parse_stat(&with(2)).expect("parses").is_dead, "a thread outlives the first one");
        assert!(parse_stat("7 (a").is_none());
    }

    #[test]
    fn a_process_stands_still_when_all_its_threads_do() {
        let of = |states: &str| {
            motion_of(states.chars().map(|state| state_of_thread(&format!("7 (a) b) {state} 1 2"))))
        };
        assert_eq!(of(""), Motion::Gone);
        assert_eq!(of("ZX"), Motion::Gone);
        assert_eq!(of("ZTt"), Motion::Still);
        assert_eq!(of("TDZ"), Motion::Held);
        for going in ["R", "TS", "TDR", "I", "ZR"] {
            assert_eq!(of(going), Motion::Going, "{going}");
        }
        assert_eq!(state_of_thread("7 (a"), Motion::Gone);
    }
}
