//! Lists, signals and kills all descendants of this process, including those that left its process group or
//! session.
//!
//! The guest and the shims are subreapers. So the chain of parents of every process that a command started leads
//! here. One kill round first stops all descendants, and repeats this until it finds no new ones. That ends a fork
//! storm. Then it kills them. No state is kept between rounds.

use std::collections::{HashMap, HashSet};
use std::os::fd::AsFd;
use std::time::Duration;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, WaitOptions};

use crate::sys;

/// The maximum number of passes in which a round looks for descendants that were forked meanwhile.
const STOP_PASSES: usize = 200;

/// How long to wait for killed processes to exit before the next round.
const KILL_WAIT: Duration = Duration::from_millis(10);

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
        sys::wait_for_signal(&[Signal::CHILD], Some(KILL_WAIT));
    }
}

/// Counts the processes and threads below this process. Stops counting at `enough`.
pub(crate) fn count_tasks(enough: u64) -> u64 {
    let own = rustix::process::getpid();
    // Everything that process 1 can see descends from it. A fork storm changes parents during the walk.
    let members: Vec<Pid> = if own.is_init() {
        numeric_names("/proc")
    } else {
        descendants(own, &|_| false).into_iter().collect()
    };
    let mut count = 0;
    for pid in members {
        if count >= enough {
            break;
        }
        count += numeric_names(&format!("/proc/{}/task", pid.as_raw_nonzero())).len() as u64;
    }
    count
}

/// Stops and kills the descendants of this process, except its children for which `keep` returns true, and their
/// descendants. They exit shortly after, and the caller must reap them. In a fork storm, some may be left.
pub(crate) fn kill_round(keep: impl Fn(Pid) -> bool) {
    let own = rustix::process::getpid();
    let mut stopped = HashSet::new();
    for _ in 0..STOP_PASSES {
        let mut newly_stopped = 0;
        let members = descendants(own, &keep);
        for &pid in &members {
            if !stopped.contains(&pid)
                && signal_member(pid, own, &members, Signal::STOP).is_ok_and(|sent| sent)
            {
                stopped.insert(pid);
                newly_stopped += 1;
            }
        }
        if newly_stopped == 0 {
            break;
        }
    }
    let members = descendants(own, &keep);
    for &pid in &members {
        let _ = signal_member(pid, own, &members, Signal::KILL);
    }
}

/// Whether this process has a child for which `keep` returns false. A killed child counts until it is reaped.
pub(crate) fn has_other_children(keep: impl Fn(Pid) -> bool) -> bool {
    !descendants(rustix::process::getpid(), &keep).is_empty()
}

/// Signals `pid` if it is a living child of `own` or of a member of `family`, and returns whether it was. The
/// pidfd is opened before the check, so a reused pid is never signalled. Fails only when the system does not
/// permit it.
pub(crate) fn signal_member(
    pid: Pid,
    own: Pid,
    members: &HashSet<Pid>,
    signal: Signal,
) -> Result<bool, Errno> {
    let pidfd = match rustix::process::pidfd_open(pid, PidfdFlags::empty()) {
        Ok(pidfd) => Some(pidfd),
        // An emulated kernel lacks the system call. Then the process is signalled by its pid.
        Err(Errno::NOSYS) => None,
        Err(_) => return Ok(false),
    };
    let Some(stat) = stat_of(pid) else { return Ok(false) };
    if stat.is_dead || !(stat.parent == own || members.contains(&stat.parent)) {
        return Ok(false);
    }
    let sent = match pidfd {
        Some(pidfd) => rustix::process::pidfd_send_signal(pidfd, signal),
        None => rustix::process::kill_process(pid, signal),
    };
    match sent {
        Ok(()) => Ok(true),
        Err(Errno::PERM) => Err(Errno::PERM),
        // It has just exited.
        Err(_) => Ok(false),
    }
}

/// The run state of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ProcessState {
    /// At least one thread runs or sleeps.
    Running,
    /// The kernel holds it in an uninterruptible wait. It handles signals afterwards.
    Uninterruptible,
    /// All of its threads are stopped.
    Stopped,
    /// The process does not exist, or none of its threads lives.
    Exited,
}

/// Returns the current run state of a process.
pub(crate) fn process_state(pid: Pid) -> ProcessState {
    let pid = pid.as_raw_nonzero();
    let states = numeric_names(&format!("/proc/{pid}/task")).into_iter().filter_map(|task| {
        let stat = read_small(&format!("/proc/{pid}/task/{}/stat", task.as_raw_nonzero()))?;
        Some(thread_state(&stat))
    });
    combined_state(states)
}

/// Combines the states of all threads of a process.
fn combined_state(threads: impl Iterator<Item = ProcessState>) -> ProcessState {
    threads.fold(ProcessState::Exited, |all, one| match (all, one) {
        (ProcessState::Running, _) | (_, ProcessState::Running) => ProcessState::Running,
        (ProcessState::Uninterruptible, _) | (_, ProcessState::Uninterruptible) => {
            ProcessState::Uninterruptible
        }
        (ProcessState::Stopped, _) | (_, ProcessState::Stopped) => ProcessState::Stopped,
        (ProcessState::Exited, ProcessState::Exited) => ProcessState::Exited,
    })
}

fn thread_state(stat: &str) -> ProcessState {
    match stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next()) {
        Some('T' | 't') => ProcessState::Stopped,
        Some('D') => ProcessState::Uninterruptible,
        Some('Z' | 'X' | 'x') | None => ProcessState::Exited,
        Some(_) => ProcessState::Running,
    }
}

/// Returns all descendants of a process.
pub(crate) fn descendants_of(pid: Pid) -> HashSet<Pid> {
    descendants(pid, &|_| false)
}

/// Returns all descendants of this process, parents before their children.
pub(crate) fn descendants_parents_first() -> Vec<Pid> {
    walk_parents_first(rustix::process::getpid(), &|_| false)
}

/// Returns all descendants of `own`, without the children that `keep` selects and their descendants.
fn descendants(own: Pid, keep: &impl Fn(Pid) -> bool) -> HashSet<Pid> {
    walk_parents_first(own, keep).into_iter().collect()
}

/// Like [`descendants`], parents before their children.
fn walk_parents_first(own: Pid, keep: &impl Fn(Pid) -> bool) -> Vec<Pid> {
    let Some(children) = children_of(own) else {
        return walk_by_scan(own, keep);
    };
    let (mut descendants, mut known) = (Vec::new(), HashSet::new());
    let mut open: Vec<Pid> = children.into_iter().filter(|child| !keep(*child)).collect();
    while let Some(pid) = open.pop() {
        if known.insert(pid) {
            descendants.push(pid);
            open.extend(children_of(pid).unwrap_or_default());
        }
    }
    descendants
}

/// Returns the threads of a process.
pub(crate) fn threads_of(pid: Pid) -> Vec<Pid> {
    numeric_names(&format!("/proc/{}/task", pid.as_raw_nonzero()))
}

/// Whether a thread has not exited.
pub(crate) fn is_alive(pid: Pid, thread: Pid) -> bool {
    let path = format!("/proc/{}/task/{}/stat", pid.as_raw_nonzero(), thread.as_raw_nonzero());
    read_small(&path).is_some_and(|stat| thread_state(&stat) != ProcessState::Exited)
}

/// Whether `pid` is a child of `parent`.
pub(crate) fn is_child_of(pid: Pid, parent: Pid) -> bool {
    stat_of(pid).is_some_and(|stat| stat.parent == parent)
}

/// Whether `pid` is a program that a shim is starting: a child of a child of `guest`, which the kernel holds until the
/// program runs (`vfork`). No command can keep a shim in this state.
pub(crate) fn is_being_started(pid: Pid, guest: Pid) -> bool {
    stat_of(pid).is_some_and(|stat| {
        is_child_of(stat.parent, guest) && process_state(stat.parent) == ProcessState::Uninterruptible
    })
}

/// Returns the children of all threads of `pid`. `None` when the process is gone or the kernel does not list
/// children.
fn children_of(pid: Pid) -> Option<Vec<Pid>> {
    let mut children = Vec::new();
    let mut is_listed = false;
    for task in numeric_names(&format!("/proc/{}/task", pid.as_raw_nonzero())) {
        let path = format!("/proc/{}/task/{}/children", pid.as_raw_nonzero(), task.as_raw_nonzero());
        if let Some(text) = read_small(&path) {
            is_listed = true;
            children.extend(text.split_ascii_whitespace().filter_map(parse_pid));
        }
    }
    is_listed.then_some(children)
}

/// Like [`walk_parents_first`], from the parents of all processes. For kernels that do not list children.
fn walk_by_scan(own: Pid, keep: &impl Fn(Pid) -> bool) -> Vec<Pid> {
    let mut by_parent: HashMap<Pid, Vec<Pid>> = HashMap::new();
    for pid in numeric_names("/proc") {
        if let Some(stat) = stat_of(pid) {
            by_parent.entry(stat.parent).or_default().push(pid);
        }
    }
    let mut descendants = Vec::new();
    let mut open: Vec<Pid> = by_parent.remove(&own).unwrap_or_default();
    open.retain(|child| !keep(*child));
    while let Some(pid) = open.pop() {
        descendants.push(pid);
        open.extend(by_parent.remove(&pid).unwrap_or_default());
    }
    descendants
}

struct Stat {
    parent: Pid,
    is_dead: bool,
}

fn stat_of(pid: Pid) -> Option<Stat> {
    parse_stat(&read_small(&format!("/proc/{}/stat", pid.as_raw_nonzero()))?)
}

/// Parses `pid (name) state parent …`. The name may contain anything, including parentheses.
fn parse_stat(text: &str) -> Option<Stat> {
    /// The number of fields between the parent and the thread count.
    const BETWEEN: usize = 15;
    let (_, rest) = text.rsplit_once(") ")?;
    let mut fields = rest.split(' ');
    let state = fields.next()?;
    let parent = parse_pid(fields.next()?)?;
    // The state is that of the first thread. Other threads may outlive it.
    let has_others =
        fields.nth(BETWEEN).and_then(|threads| threads.parse().ok()).is_some_and(|count: u64| count > 1);
    Some(Stat { parent, is_dead: matches!(state, "Z" | "X" | "x") && !has_others })
}

fn parse_pid(text: &str) -> Option<Pid> {
    text.parse().ok().and_then(Pid::from_raw)
}

fn numeric_names(path: &str) -> Vec<Pid> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let Ok(dir) = rustix::fs::open(path, flags, Mode::empty()) else { return Vec::new() };
    let Ok(entries) = rustix::fs::Dir::new(dir) else { return Vec::new() };
    entries.flatten().filter_map(|entry| entry.file_name().to_str().ok().and_then(parse_pid)).collect()
}

/// Reads a file of `/proc`. Process names need not be UTF-8; invalid bytes are replaced.
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
    use std::os::unix::process::CommandExt as _;

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
    fn a_process_is_stopped_when_all_its_threads_are() {
        let of = |states: &str| {
            combined_state(states.chars().map(|state| thread_state(&format!("7 (a) b) {state} 1 2"))))
        };
        assert_eq!(of(""), ProcessState::Exited);
        assert_eq!(of("ZX"), ProcessState::Exited);
        assert_eq!(of("ZTt"), ProcessState::Stopped);
        assert_eq!(of("TDZ"), ProcessState::Uninterruptible);
        for going in ["R", "TS", "TDR", "I", "ZR"] {
            assert_eq!(of(going), ProcessState::Running, "{going}");
        }
        assert_eq!(thread_state("7 (a"), ProcessState::Exited);
    }

    /// One child waits for the start of a program (`vfork`), and another has a child that runs.
    #[test]
    #[expect(clippy::disallowed_methods, reason = "the kernel decides how such a process looks")]
    fn a_program_that_is_being_started_is_recognised() {
        let script = "import ctypes, os, time\n\
            if os.fork() == 0:\n\
            \x20   libc = ctypes.CDLL(None)\n\
            \x20   if libc.vfork() == 0: libc.pause()\n\
            \x20   os._exit(0)\n\
            if os.fork() == 0: os.fork()\n\
            time.sleep(1000)";
        let mut command = std::process::Command::new("python3");
        let mut process = command.args(["-c", script]).process_group(0).spawn().expect("python3");
        let guest = Pid::from_child(&process);
        // Whether the child waits, whether its own child is being started, and whether it is itself.
        let look = |child: Pid| {
            let below = children_of(child)?.into_iter().next()?;
            let is_waiting = process_state(child) == ProcessState::Uninterruptible;
            Some((is_waiting, is_being_started(below, guest), is_being_started(child, guest)))
        };
        let mut found = Vec::new();
        let is_recognised = (0..60_000).any(|_| {
            std::thread::sleep(Duration::from_millis(1));
            found = children_of(guest).unwrap_or_default().into_iter().filter_map(look).collect();
            found.contains(&(true, true, false)) && found.contains(&(false, false, false))
        });
        let _ = rustix::process::kill_process_group(guest, Signal::KILL);
        process.wait().expect("killed");
        assert!(is_recognised, "{found:?}");
    }
}
