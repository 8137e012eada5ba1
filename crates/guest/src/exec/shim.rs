//! The shim: the process between the guest and one program at a time. It is responsible for all descendants of
//! that program.
//!
//! The shim is a subreaper, so everything that the program starts stays below it, also after `setsid` and double
//! forks. It reports the program's exit at once. When no descendant is left, it is idle and may run another
//! program, which saves a fork. Otherwise it lives until no descendant is left, and exits. SIGTERM makes it kill
//! everything below it. It gets SIGTERM from the guest, or from the kernel when the guest dies.
//!
//! State: only the process tree. No state of one program reaches the next:
//! - A program has its own memory, limits, working directory and umask.
//! - The shim resets its CPU affinity before each program, because other processes can change it.
//! - The system call filter of the sandbox keeps other processes from changing anything else.
//!
//! If the shim is killed, its children become the guest's children, and the guest kills them.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::os::fd::{AsFd as _, OwnedFd};

use rustix::io::Errno;
use rustix::process::{Pid, Rlimit, Signal, WaitId, WaitIdOptions, WaitOptions};

use conjure_guest::protocol::{ErrorCode, GuestError};

use super::shim_protocol::{self, LaunchRequest, Leftovers, ShimExit, ShimReport};
use crate::confinement::{Instruction, limits_of_program, name_of_limit};
use crate::sys::SpawnError;
use crate::{error, process_tree, sys};

/// The search path when the environment has no `PATH`.
const DEFAULT_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// What a shim needs to run a program.
#[derive(Debug, Clone, Copy)]
pub(super) struct ShimLaunch<'a> {
    pub(super) request: &'a LaunchRequest<'a>,
    pub(super) env: &'a BTreeMap<String, String>,
    pub(super) workdir: &'a str,
    /// The limit of open files that the guest was started with.
    pub(super) open_files: Rlimit,
    /// The system call filter for the shim and its programs. Empty when there is none.
    pub(super) filter: &'a [Instruction],
    pub(super) guest: Pid,
}

/// The number of descriptors of every shim: the program's three, and its channel to the guest.
const DESCRIPTORS: usize = 4;

/// What a shim does after its program.
#[derive(Debug, PartialEq, Eq)]
enum ShimNext {
    /// No process is below it: wait for the next request.
    AwaitRequest,
    /// It got SIGTERM, or had leftover processes: exit.
    Exit,
}

/// Runs a shim. `descriptors` are the program's three, the channel, and the Landlock ruleset for commands if there
/// is one.
pub(super) fn run(launch: &ShimLaunch<'_>, descriptors: Vec<OwnedFd>) -> u8 {
    let own = rustix::process::getpid();
    let is_ready = rustix::process::set_child_subreaper(Some(own)).is_ok()
        && rustix::process::set_parent_process_death_signal(Some(Signal::TERM)).is_ok();
    // A guest that died before the call above sent no signal.
    if !is_ready || rustix::process::getppid() != Some(launch.guest) {
        return 1;
    }
    let mut descriptors = descriptors;
    // A program must not run without its confinement.
    let ruleset = if descriptors.len() > DESCRIPTORS { descriptors.pop() } else { None };
    if ruleset.is_some_and(|ruleset| sys::landlock_restrict(ruleset.as_fd()).is_err()) {
        return 1;
    }
    if !launch.filter.is_empty() && sys::filter_syscalls(launch.filter).is_err() {
        return 1;
    }
    let Some(channel) = descriptors.pop() else { return 1 };
    // The guest's affinity, which no command can change.
    let processors = rustix::thread::sched_getaffinity(None);
    let mut next = serve(launch, descriptors, &channel);
    let mut buffer = shim_protocol::request_buffer();
    while next == ShimNext::AwaitRequest {
        let Some((request, descriptors)) = next_request(&channel, &mut buffer) else { return 0 };
        if let Ok(processors) = &processors {
            // Where the system refuses this call, commands could not change the affinity either.
            let _ = rustix::thread::sched_setaffinity(None, processors);
        }
        next = serve(&ShimLaunch { request: &request, ..*launch }, descriptors.into(), &channel);
    }
    0
}

/// Waits for a request. No process is below this one, so SIGTERM may end it at once.
fn next_request(channel: &OwnedFd, buffer: &mut [u8]) -> Option<(LaunchRequest<'static>, [OwnedFd; 3])> {
    // A pending signal from a command must not affect a later program.
    if sys::is_other_pending(&[Signal::CHILD, Signal::CONT]) {
        return None;
    }
    sys::allow_termination();
    let request = LaunchRequest::receive(channel, buffer);
    sys::block_termination();
    request
}

/// Runs a program, and reports its exit.
fn serve(launch: &ShimLaunch<'_>, descriptors: Vec<OwnedFd>, channel: &OwnedFd) -> ShimNext {
    let started = start(launch);
    // The program has them now. The shim must not hold the program's pipes open.
    drop(descriptors);
    // The shim must not keep the working directory in use.
    let _ = rustix::process::chdir("/");
    match started {
        Ok(program) => supervise(program, channel),
        Err(error) => match ShimReport::Failed(error).send(channel) {
            Ok(()) => ShimNext::AwaitRequest,
            Err(_) => ShimNext::Exit,
        },
    }
}

/// Reports the program's exit, and waits until no process is left below this one.
fn supervise(program: Pid, channel: &OwnedFd) -> ShimNext {
    loop {
        match rustix::process::wait(WaitOptions::NOHANG) {
            Ok(Some((pid, status))) if pid == program => {
                let leaves = leftovers();
                let report = ShimReport::Exited(ShimExit { status: status.as_raw(), leftovers: leaves });
                let is_sent = report.send(channel).is_ok();
                if leaves == Leftovers::None {
                    return if is_sent { ShimNext::AwaitRequest } else { ShimNext::Exit };
                }
            }
            Ok(None) => {
                let signals = [Signal::CHILD, Signal::TERM];
                if sys::wait_for_signal(&signals, None) == Some(Signal::TERM) {
                    process_tree::kill_all();
                    return ShimNext::Exit;
                }
            }
            Ok(Some(_)) | Err(Errno::INTR) => {}
            Err(_) => return ShimNext::Exit,
        }
    }
}

/// Whether this process has children.
fn leftovers() -> Leftovers {
    let any = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    match rustix::process::waitid(WaitId::All, any) {
        Err(Errno::CHILD) => Leftovers::None,
        _ => Leftovers::Some,
    }
}

fn start(launch: &ShimLaunch<'_>) -> Result<Pid, GuestError> {
    let request = &launch.request.request;
    let (program, _) = request
        .argv
        .split_first()
        .filter(|(program, _)| !program.is_empty())
        .ok_or_else(|| error::error(ErrorCode::BadRequest, "no program is named"))?;
    let dir = request.cwd.as_deref().unwrap_or(launch.workdir);
    enter(launch.workdir, dir)?;
    let argv = request.argv.iter().map(|argument| c_string(argument)).collect::<Result<Vec<_>, _>>()?;
    let mut variables: BTreeMap<&str, &str> =
        launch.env.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    variables.extend(request.env.iter().map(|(name, value)| (name.as_str(), value.as_str())));
    let env = variables.iter().map(|(name, value)| variable(name, value)).collect::<Result<Vec<_>, _>>()?;
    let path = variables.get("PATH").copied().unwrap_or(DEFAULT_PATH);
    let limits = limits_of_program(&launch.request.limits, launch.open_files);

    if program.contains('/') {
        return sys::spawn(&c_string(program)?, &argv, &env, &limits)
            .map_err(|error| spawn_failure(error, program));
    }
    // A file that cannot be executed is reported when no later directory has a better one.
    let mut found = None;
    for dir in path.split(':') {
        let candidate = if dir.is_empty() { format!("./{program}") } else { format!("{dir}/{program}") };
        match rustix::fs::stat(candidate.as_str()) {
            Ok(stat) if rustix::fs::FileType::from_raw_mode(stat.st_mode).is_file() => {}
            _ => continue,
        }
        match sys::spawn(&c_string(&candidate)?, &argv, &env, &limits) {
            Ok(pid) => return Ok(pid),
            Err(error @ SpawnError::Program(Errno::ACCESS | Errno::NOENT)) => {
                found.get_or_insert_with(|| spawn_failure(error, &candidate));
            }
            Err(error) => return Err(spawn_failure(error, &candidate)),
        }
    }
    Err(found.unwrap_or_else(|| {
        let message =
            format!("cannot run `{program}`: it is not in PATH ({path}); install it or give its full path");
        error::error(ErrorCode::NotFound, message)
    }))
}

fn enter(workdir: &str, dir: &str) -> Result<(), GuestError> {
    if dir.contains('\0') {
        let message = "the working directory contains a NUL character";
        return Err(error::error(ErrorCode::BadRequest, message));
    }
    let enter = |dir: &str| {
        rustix::process::chdir(dir)
            .map_err(|errno| error::file_error(errno, dir, "run the command in the directory"))
    };
    if !dir.starts_with('/') {
        enter(workdir)?;
    }
    enter(dir)
}

fn c_string(text: &str) -> Result<CString, GuestError> {
    CString::new(text).map_err(|_| {
        error::error(
            ErrorCode::BadRequest,
            "an argument or variable contains a NUL character, which is not possible",
        )
    })
}

fn variable(name: &str, value: &str) -> Result<CString, GuestError> {
    if name.is_empty() || name.contains('=') {
        let message = format!("`{name}` is not a valid variable name: it must not be empty or contain `=`");
        return Err(error::error(ErrorCode::BadRequest, message));
    }
    c_string(&format!("{name}={value}"))
}

/// The error when the program at `path` cannot be started.
fn spawn_failure(error: SpawnError, path: &str) -> GuestError {
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
            "the system does not know its file format; start it with its interpreter".to_owned(),
        ),
        Errno::PERM => (ErrorCode::PermissionDenied, "the system does not permit it".to_owned()),
        Errno::TOOBIG => (
            ErrorCode::ArgumentsTooLong,
            "arguments and environment are too long; pass the content by a file or standard input".to_owned(),
        ),
        Errno::AGAIN | Errno::NOMEM | Errno::MFILE | Errno::NFILE => {
            (ErrorCode::Exhausted, format!("the system is out of processes or memory ({errno})"))
        }
        other => (ErrorCode::Io, other.to_string()),
    };
    error::error(code, format!("cannot run `{path}`: {reason}"))
}
