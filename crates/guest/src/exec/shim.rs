//! The shim: the process that stands between the guest and one program at a time, and answers for all that descends
//! from it.
//!
//! It is a subreaper, so whatever the program starts stays below it, also after `setsid` and double forks. It
//! reports the program's end at once. When nothing that the program started lives, it is idle, and may be told to run
//! another one, which saves a fork; else it lives on until nothing does, and ends. SIGTERM, from the guest or because the
//! guest died, makes it kill everything below it.
//!
//! State: none outside the process tree, and none of one program is left for the next: a program has its own memory,
//! limits, folder and mask; which processors the shim may use, which others can change, is as it was before each program; and
//! what else it has cannot be changed by others where the sandbox has its filter of system calls. If the
//! shim itself is killed, its children fall to the guest, which kills them; if the guest is killed, the kernel tells the
//! shim.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::os::fd::{AsFd as _, OwnedFd};

use rustix::io::Errno;
use rustix::process::{Pid, Rlimit, Signal, WaitId, WaitIdOptions, WaitOptions};

use conjure_guest::protocol::{ErrorCode, GuestError};

use super::line::{self, Ended, Leaves, Order, Report};
use crate::fortress::{Instruction, limits_of_program, name_of_limit};
use crate::sys::SpawnError;
use crate::{error, sys, tree};

/// Where programs are looked for when the environment has no `PATH`.
const DEFAULT_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// What a shim needs to know.
#[derive(Debug, Clone, Copy)]
pub(super) struct Launch<'a> {
    pub(super) order: &'a Order<'a>,
    pub(super) env: &'a BTreeMap<String, String>,
    pub(super) workdir: &'a str,
    /// The limit of open files that the guest was started with.
    pub(super) open_files: Rlimit,
    /// The filter of system calls that it puts itself and its programs under; empty where there is none.
    pub(super) filter: &'a [Instruction],
    pub(super) guest: Pid,
}

/// How many descriptors every shim has: the program's three, and its line to the guest.
const DESCRIPTORS: usize = 4;

/// What becomes of a shim when its program has ended.
#[derive(Debug, PartialEq, Eq)]
enum After {
    /// Nothing is below it.
    Idle,
    /// It has been told to end, or has outlived its program for what that left running.
    Over,
}

/// The life of a shim. Its descriptors are these, and the rules of Landlock that it puts itself and its programs under,
/// where there are any.
pub(super) fn run(launch: &Launch<'_>, descriptors: Vec<OwnedFd>) -> u8 {
    let own = rustix::process::getpid();
    let is_ready = rustix::process::set_child_subreaper(Some(own)).is_ok()
        && rustix::process::set_parent_process_death_signal(Some(Signal::TERM)).is_ok();
    // A guest that died before the line above sent no signal.
    if !is_ready || rustix::process::getppid() != Some(launch.guest) {
        return 1;
    }
    let mut descriptors = descriptors;
    // A program without its walls must not run.
    let walls = if descriptors.len() > DESCRIPTORS { descriptors.pop() } else { None };
    if walls.is_some_and(|walls| sys::landlock_restrict(walls.as_fd()).is_err()) {
        return 1;
    }
    if !launch.filter.is_empty() && sys::filter_syscalls(launch.filter).is_err() {
        return 1;
    }
    let Some(line) = descriptors.pop() else { return 1 };
    // The guest's, which no command can change.
    let processors = rustix::thread::sched_getaffinity(None);
    let mut after = serve(launch, descriptors, &line);
    let mut room = line::room();
    while after == After::Idle {
        let Some((order, descriptors)) = next_order(&line, &mut room) else { return 0 };
        if let Ok(processors) = &processors {
            // Where it is refused, commands could not change it either.
            let _ = rustix::thread::sched_setaffinity(None, processors);
        }
        after = serve(&Launch { order: &order, ..*launch }, descriptors.into(), &line);
    }
    0
}

/// Waits for an order. Nothing is below this process then, so SIGTERM may end it at once.
fn next_order(line: &OwnedFd, room: &mut [u8]) -> Option<(Order<'static>, [OwnedFd; 3])> {
    // Of those that commands sent none waits for a later program.
    if sys::is_other_pending(&[Signal::CHILD, Signal::CONT]) {
        return None;
    }
    sys::allow_termination();
    let order = Order::receive(line, room);
    sys::block_termination();
    order
}

/// Runs a program, and reports its end.
fn serve(launch: &Launch<'_>, descriptors: Vec<OwnedFd>, line: &OwnedFd) -> After {
    let started = start(launch);
    // The program has them now; the ends of its pipes must not be held up by this process.
    drop(descriptors);
    // Not to keep the folder busy.
    let _ = rustix::process::chdir("/");
    match started {
        Ok(program) => supervise(program, line),
        Err(error) => match Report::Failed(error).send(line) {
            Ok(()) => After::Idle,
            Err(_) => After::Over,
        },
    }
}

/// Waits until nothing is left below this process.
fn supervise(program: Pid, line: &OwnedFd) -> After {
    loop {
        match rustix::process::wait(WaitOptions::NOHANG) {
            Ok(Some((pid, status))) if pid == program => {
                let leaves = leaves();
                let report = Report::Ended(Ended { status: status.as_raw(), leaves });
                let is_sent = report.send(line).is_ok();
                if leaves == Leaves::Nothing {
                    return if is_sent { After::Idle } else { After::Over };
                }
            }
            Ok(None) => {
                let signals = [Signal::CHILD, Signal::TERM];
                if sys::wait_for_signal(&signals, None) == Some(Signal::TERM) {
                    tree::kill_all();
                    return After::Over;
                }
            }
            Ok(Some(_)) | Err(Errno::INTR) => {}
            Err(_) => return After::Over,
        }
    }
}

/// Whether this process has children.
fn leaves() -> Leaves {
    let any = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    match rustix::process::waitid(WaitId::All, any) {
        Err(Errno::CHILD) => Leaves::Nothing,
        _ => Leaves::Something,
    }
}

fn start(launch: &Launch<'_>) -> Result<Pid, GuestError> {
    let request = &launch.order.request;
    let (program, _) = request
        .argv
        .split_first()
        .filter(|(program, _)| !program.is_empty())
        .ok_or_else(|| error::error(ErrorCode::BadRequest, "no program is named"))?;
    let folder = request.cwd.as_deref().unwrap_or(launch.workdir);
    enter(launch.workdir, folder)?;
    let argv = request.argv.iter().map(|argument| string(argument)).collect::<Result<Vec<_>, _>>()?;
    let mut variables: BTreeMap<&str, &str> =
        launch.env.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    variables.extend(request.env.iter().map(|(name, value)| (name.as_str(), value.as_str())));
    let env = variables.iter().map(|(name, value)| variable(name, value)).collect::<Result<Vec<_>, _>>()?;
    let path = variables.get("PATH").copied().unwrap_or(DEFAULT_PATH);
    let limits = limits_of_program(&launch.order.limits, launch.open_files);

    if program.contains('/') {
        return sys::spawn(&string(program)?, &argv, &env, &limits).map_err(|error| refusal(error, program));
    }
    // What was found but cannot be run is told, when nothing better follows in the list.
    let mut found = None;
    for folder in path.split(':') {
        let candidate =
            if folder.is_empty() { format!("./{program}") } else { format!("{folder}/{program}") };
        match rustix::fs::stat(candidate.as_str()) {
            Ok(stat) if rustix::fs::FileType::from_raw_mode(stat.st_mode).is_file() => {}
            _ => continue,
        }
        match sys::spawn(&string(&candidate)?, &argv, &env, &limits) {
            Ok(pid) => return Ok(pid),
            Err(error @ SpawnError::Program(Errno::ACCESS | Errno::NOENT)) => {
                found.get_or_insert_with(|| refusal(error, &candidate));
            }
            Err(error) => return Err(refusal(error, &candidate)),
        }
    }
    Err(found.unwrap_or_else(|| {
        let message = format!(
            "cannot run `{program}`: it is in no folder of PATH ({path}); install it or give its full path"
        );
        error::error(ErrorCode::NotFound, message)
    }))
}

fn enter(workdir: &str, folder: &str) -> Result<(), GuestError> {
    if folder.contains('\0') {
        let message = "the folder to run the command in has a NUL character in its name, which no folder has";
        return Err(error::error(ErrorCode::BadRequest, message));
    }
    let enter = |folder: &str| {
        rustix::process::chdir(folder)
            .map_err(|errno| error::of_file(errno, folder, "run the command in the folder"))
    };
    if !folder.starts_with('/') {
        enter(workdir)?;
    }
    enter(folder)
}

fn string(text: &str) -> Result<CString, GuestError> {
    CString::new(text).map_err(|_| {
        error::error(
            ErrorCode::BadRequest,
            "an argument or variable holds a NUL character, which no program takes",
        )
    })
}

fn variable(name: &str, value: &str) -> Result<CString, GuestError> {
    if name.is_empty() || name.contains('=') {
        let message = format!("`{name}` is no name of a variable: it must not be empty nor hold `=`");
        return Err(error::error(ErrorCode::BadRequest, message));
    }
    string(&format!("{name}={value}"))
}

/// Why the program at `path` could not be started.
fn refusal(error: SpawnError, path: &str) -> GuestError {
    let errno = match error {
        SpawnError::Program(errno) => errno,
        SpawnError::Limit(resource, errno) => {
            let limit = name_of_limit(resource);
            return error::io(format!("cannot run `{path}`: the limit of {limit} cannot be set ({errno})"));
        }
    };
    let exists = rustix::fs::stat(path).is_ok();
    let (code, reason) = match errno {
        Errno::NOENT if exists => {
            (ErrorCode::NotFound, "the interpreter that it asks for does not exist".to_owned())
        }
        Errno::NOENT | Errno::NOTDIR => (ErrorCode::NotFound, "it does not exist".to_owned()),
        Errno::ACCESS | Errno::ISDIR => (
            ErrorCode::NotExecutable,
            "it is not executable; use `chmod +x`, or start it with its interpreter".to_owned(),
        ),
        Errno::NOEXEC => (
            ErrorCode::NotExecutable,
            "the system does not know its format; start it with its interpreter".to_owned(),
        ),
        Errno::PERM => (ErrorCode::PermissionDenied, "the system does not permit it".to_owned()),
        Errno::TOOBIG => (
            ErrorCode::ArgumentsTooLong,
            "arguments and environment are too long; pass the content by a file or standard input".to_owned(),
        ),
        Errno::AGAIN | Errno::NOMEM | Errno::MFILE | Errno::NFILE => {
            (ErrorCode::Exhausted, format!("no more processes or memory can be had ({errno})"))
        }
        other => (ErrorCode::Io, other.to_string()),
    };
    error::error(code, format!("cannot run `{path}`: {reason}"))
}
