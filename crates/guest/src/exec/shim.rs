//! The shim: the process that stands between the guest and one program, and answers for all that descends
//! from it.
//!
//! It is a subreaper, so whatever the program starts stays below it, also after `setsid` and double forks. It
//! reports the program's end at once, and lives on while something that the program started lives. SIGTERM,
//! from the guest or because the guest died, makes it kill everything below it.
//!
//! State: none outside the process tree. If the shim itself is killed, its children fall to the guest, which
//! kills them; if the guest is killed, the kernel tells the shim.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::os::fd::{AsFd as _, OwnedFd};

use rustix::io::Errno;
use rustix::process::{Pid, Rlimit, Signal, WaitId, WaitIdOptions, WaitOptions};

use conjure_guest::protocol::{ErrorCode, ExecRequest, GuestError, ProcessLimits};

use crate::fortress::{limits_of_program, name_of_limit};
use crate::sys::SpawnError;
use crate::{error, sys, tree};

/// Where programs are looked for when the environment has no `PATH`.
const DEFAULT_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// What a shim tells the guest.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Report {
    /// The program ended.
    Ended(Ended),
    /// The program could not be started.
    Failed(GuestError),
}

/// A program's end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ended {
    /// Its wait status.
    pub(super) status: i32,
    /// What it started and is still there.
    pub(super) leaves: Leaves,
}

/// Whether a program left something running.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Leaves {
    Nothing = 0,
    Something = 1,
}

impl Report {
    const ENDED: u8 = b'e';
    const FAILED: u8 = b'f';

    fn encode(&self) -> Vec<u8> {
        match self {
            Self::Ended(Ended { status, leaves }) => {
                [&[Self::ENDED, *leaves as u8], status.to_le_bytes().as_slice()].concat()
            }
            Self::Failed(error) => {
                let mut bytes = vec![Self::FAILED];
                bytes.extend(serde_json::to_vec(error).unwrap_or_default());
                bytes
            }
        }
    }

    /// The report in `bytes`; `None` until it is whole. A failure is whole at the end of the pipe.
    pub(super) fn decode(bytes: &[u8], is_end: bool) -> Option<Self> {
        match bytes.split_first()? {
            (&Self::ENDED, rest) => {
                let (leaves, rest) = rest.split_first()?;
                let leaves =
                    if *leaves == Leaves::Nothing as u8 { Leaves::Nothing } else { Leaves::Something };
                let (status, _) = rest.split_first_chunk::<4>()?;
                Some(Self::Ended(Ended { status: i32::from_le_bytes(*status), leaves }))
            }
            (&Self::FAILED, rest) if is_end => serde_json::from_slice(rest).ok().map(Self::Failed),
            _ => None,
        }
    }
}

/// What a shim needs to know.
#[derive(Debug, Clone, Copy)]
pub(super) struct Launch<'a> {
    pub(super) request: &'a ExecRequest,
    pub(super) env: &'a BTreeMap<String, String>,
    pub(super) workdir: &'a str,
    /// The limit of open files that the guest was started with.
    pub(super) open_files: Rlimit,
    /// What the program may use.
    pub(super) limits: ProcessLimits,
    pub(super) guest: Pid,
}

/// How many descriptors every shim has: the program's three, and the pipe to report on.
const DESCRIPTORS: usize = 4;

/// The life of a shim. Its descriptors are these, and the rules of Landlock that it puts itself and the program under,
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
    let Some(report_to) = descriptors.pop() else { return 1 };
    let started = start(launch);
    // The program has them now; the ends of its pipes must not be held up by this process.
    drop(descriptors);
    match started {
        Ok(program) => {
            // Not to keep the folder busy.
            let _ = rustix::process::chdir("/");
            supervise(program, report_to);
            0
        }
        Err(error) => {
            send(&report_to, &Report::Failed(error));
            0
        }
    }
}

/// Waits until nothing is left below this process.
fn supervise(program: Pid, report_to: OwnedFd) {
    let mut report_to = Some(report_to);
    loop {
        match rustix::process::wait(WaitOptions::NOHANG) {
            Ok(Some((pid, status))) => {
                if pid == program
                    && let Some(pipe) = report_to.take()
                {
                    let ended = Ended { status: status.as_raw(), leaves: leaves() };
                    send(&pipe, &Report::Ended(ended));
                }
            }
            Ok(None) => {
                let signals = [Signal::CHILD, Signal::TERM];
                if sys::wait_for_signal(&signals, None) == Some(Signal::TERM) {
                    tree::kill_all();
                    return;
                }
            }
            Err(Errno::INTR) => {}
            Err(_) => return,
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

/// Sends a report. A guest that is gone needs none.
fn send(pipe: &OwnedFd, report: &Report) {
    let bytes = report.encode();
    let mut rest = bytes.as_slice();
    while !rest.is_empty() {
        match rustix::io::write(pipe, rest) {
            Ok(written) => rest = rest.get(written..).unwrap_or_default(),
            Err(Errno::INTR) => {}
            Err(_) => return,
        }
    }
}

fn start(launch: &Launch<'_>) -> Result<Pid, GuestError> {
    let request = launch.request;
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
    let limits = limits_of_program(&launch.limits, launch.open_files);

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
