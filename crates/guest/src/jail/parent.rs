//! The parent process of a jail. It does everything that must happen before the namespaces exist, and then waits.
//!
//! It reads exactly one frame, so the rest of the stream belongs to process 1. When it dies, the kernel kills
//! process 1.

use std::fs::OpenOptions;
use std::io::{ErrorKind, Write};

use rustix::io::Errno;
use rustix::process::{DumpableBehavior, Pid, PidfdFlags, Signal, WaitOptions};
use rustix::thread::UnshareFlags;

use conjure_guest::protocol::{
    BecomeUser, Decoder, EnforcedRules, FrameKind, Hello, JailSpec, OpenedRoots, PROTOCOL_VERSION,
    SetupError, SetupStep, Welcome, encode_into,
};

use crate::error::{self, FatalError};
use crate::event_loop;
use crate::job::SCRATCH_LEN;
use crate::sys;

use super::mount_sources::MountSources;
use super::setup_error::{SetupResult, from_io_error, setup_error};
use super::{identity, init, user_limits};

/// The exit code after a set-up error that was reported to the host.
const FAILED: u8 = 3;

/// Sets up the jail that [`Hello`] describes, and waits for its end. Returns the exit code.
pub(crate) fn run() -> Result<u8, FatalError> {
    // Commands must not inherit descriptors that the host left open.
    sys::close_from(3);
    let Some((mut hello, decoder)) = read_hello()? else { return Ok(0) };
    if hello.version != PROTOCOL_VERSION {
        let pid = rustix::process::getpid().as_raw_nonzero().get().unsigned_abs();
        let (rules, roots) = (EnforcedRules::default(), OpenedRoots::default());
        let welcome = Welcome { version: PROTOCOL_VERSION, pid, confinement: None, rules, roots };
        write_frame(FrameKind::Welcome, &welcome);
        return Err(FatalError::Version(hello.version));
    }
    let Some(spec) = hello.jail.take() else {
        return Err(FatalError::Protocol(
            "`Hello` asks for no jail, but this guest was started as `conjure-guest jail`".to_owned(),
        ));
    };
    match start(&spec, hello, decoder) {
        Ok(init) => Ok(wait(init)),
        Err(failure) => Ok(report_failure(&failure)),
    }
}

/// Reads the host's first frame. `None` when the stream is closed.
fn read_hello() -> Result<Option<(Hello, Decoder)>, FatalError> {
    let mut decoder = Decoder::new();
    let mut buffer = vec![0; SCRATCH_LEN];
    loop {
        if let Some(frame) = decoder.next_frame()? {
            if frame.kind != FrameKind::Hello {
                return Err(FatalError::Protocol(format!("a {:?} frame before `Hello`", frame.kind)));
            }
            return Ok(Some((frame.json()?, decoder)));
        }
        match rustix::io::read(rustix::stdio::stdin(), &mut buffer) {
            Ok(0) => return Ok(None),
            Ok(length) => decoder.push(buffer.get(..length).unwrap_or_default()),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(FatalError::System { doing: "read `Hello`", errno }),
        }
    }
}

/// Starts process 1 of the jail.
fn start(spec: &JailSpec, hello: Hello, decoder: Decoder) -> SetupResult<Pid> {
    join_cgroups(&spec.cgroups)?;
    // Root opens the host's directories now, since no other user could reach them. Another user opens them in the
    // namespaces, since it may mount only there.
    let sources = match spec.identity.become_user {
        BecomeUser::Dedicated(user) => {
            let sources = MountSources::open(spec)?;
            identity::become_user(user)?;
            Some(sources)
        }
        BecomeUser::Stay => None,
    };
    let (uid, gid) = (rustix::process::geteuid(), rustix::process::getegid());
    user_limits::lower_limits();
    let namespaces = UnshareFlags::NEWUSER
        | UnshareFlags::NEWNS
        | UnshareFlags::NEWPID
        | UnshareFlags::NEWNET
        | UnshareFlags::NEWIPC
        | UnshareFlags::NEWUTS
        | UnshareFlags::NEWCGROUP;
    sys::unshare(namespaces).map_err(setup_error(SetupStep::Namespaces, "make namespaces"))?;
    identity::map_user(&spec.identity, uid, gid)?;

    let process = |errno| setup_error(SetupStep::Process, "start the jail's first process")(errno);
    // From here on, signals are handled synchronously: process 1 must not outlive this process.
    sys::block_signals();
    let own = rustix::process::pidfd_open(rustix::process::getpid(), PidfdFlags::empty()).map_err(process)?;
    let init = sys::fork_whole(move || {
        let entered = init::tie_to_parent(&own).and_then(|()| {
            drop(own);
            init::enter(spec, sources)
        });
        match entered {
            Ok(env) => error::exit_code(event_loop::run_in_jail(hello, decoder, env)),
            Err(failure) => report_failure(&failure),
        }
    });
    let init = init.map_err(process)?;
    identity::give_up_privileges()?;
    let closed = rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable);
    closed.map_err(setup_error(SetupStep::Privileges, "close this process to debuggers"))?;
    Ok(init)
}

/// Joins the cgroups. All children of this process will be in them, too.
///
/// This process has one thread. In version 1 it joins as a thread, because the kernel moves a thread at once. To
/// move a process it first holds up all forks of the machine, which takes milliseconds. In version 2 a thread
/// cannot leave the group of its process.
fn join_cgroups(groups: &[String]) -> SetupResult<()> {
    let write_to =
        |path: String| OpenOptions::new().write(true).open(path).and_then(|mut file| file.write_all(b"0"));
    for group in groups {
        let joined = match write_to(format!("{group}/tasks")) {
            Err(error) if error.kind() == ErrorKind::NotFound => write_to(format!("{group}/cgroup.procs")),
            joined => joined,
        };
        joined
            .map_err(from_io_error(SetupStep::ControlGroups, format!("join the control group `{group}`")))?;
    }
    Ok(())
}

/// Waits for the end of process 1, with no open descriptors. Returns the exit code.
///
/// SIGTERM ends the jail at once, and it is gone when this process exits. To kill a jail, the host sends SIGTERM
/// and waits.
fn wait(init: Pid) -> u8 {
    // The host waits for the end of the stream, and these descriptors would keep it open.
    sys::close_from(0);
    loop {
        match rustix::process::waitpid(Some(init), WaitOptions::NOHANG) {
            Ok(Some((_, status))) => {
                if status.terminating_signal() == Some(Signal::KILL.as_raw()) {
                    // End in the same way, so that the host sees it.
                    let _ = rustix::process::kill_process(rustix::process::getpid(), Signal::KILL);
                }
                let code = status.terminating_signal().map(|signal| 128 + signal).or(status.exit_status());
                return code.and_then(|code| u8::try_from(code).ok()).unwrap_or(u8::MAX);
            }
            Ok(None) => {
                if sys::wait_for_signal(&[Signal::CHILD, Signal::TERM], None) == Some(Signal::TERM) {
                    let _ = rustix::process::kill_process(init, Signal::KILL);
                }
            }
            Err(Errno::INTR) => {}
            Err(_) => return u8::MAX,
        }
    }
}

/// Reports the set-up error to the host. Returns the exit code.
fn report_failure(failure: &SetupError) -> u8 {
    write_frame(FrameKind::Done, failure);
    FAILED
}

/// Writes a frame of the handshake. A failure does not matter, since the host is gone then.
fn write_frame(kind: FrameKind, value: &impl serde::Serialize) {
    let mut bytes = Vec::new();
    let payload = serde_json::to_vec(value).unwrap_or_default();
    if encode_into(&mut bytes, kind, 0, &payload).is_err() {
        return;
    }
    let mut rest = bytes.as_slice();
    while !rest.is_empty() {
        match rustix::io::write(rustix::stdio::stdout(), rest) {
            Ok(written) => rest = rest.get(written..).unwrap_or_default(),
            Err(Errno::INTR) => {}
            Err(_) => return,
        }
    }
}
