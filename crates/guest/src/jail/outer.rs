//! The outer process: everything that must be done before the namespaces exist, and then waiting.
//!
//! It reads exactly one frame, so what follows on the stream is the inner process's. In a crash of it, the kernel
//! kills the inner process.

use std::fs::OpenOptions;
use std::io::Write;

use rustix::io::Errno;
use rustix::process::{DumpableBehavior, Pid, PidfdFlags, Signal, WaitOptions};
use rustix::thread::UnshareFlags;

use conjure_guest::protocol::{
    BecomeUser, Decoder, FrameKind, Hello, JailSpec, PROTOCOL_VERSION, RootsFound, RulesInForce,
    SetupFailure, SetupStep, Welcome, encode_into,
};

use crate::guest::{self, Fatal};
use crate::job::SCRATCH;
use crate::sys;

use super::failure::{Done, at, of_io};
use super::sources::Sources;
use super::{identity, inner, shares};

/// The exit code after a failure that the host was told of.
const FAILED: u8 = 3;

/// Sets up the jail that the greeting asks for, and waits for its end. The exit code.
pub(crate) fn run() -> Result<u8, Fatal> {
    // What a careless host left open would be open to commands, too.
    sys::close_from(3);
    let Some((mut hello, decoder)) = greeting()? else { return Ok(0) };
    if hello.version != PROTOCOL_VERSION {
        let pid = rustix::process::getpid().as_raw_nonzero().get().unsigned_abs();
        let (rules, roots) = (RulesInForce::default(), RootsFound::default());
        let welcome = Welcome { version: PROTOCOL_VERSION, pid, confinement: None, rules, roots };
        say(FrameKind::Welcome, &welcome);
        return Err(Fatal::Version(hello.version));
    }
    let Some(spec) = hello.jail.take() else {
        return Err(Fatal::Protocol("the greeting asks for no jail, which this guest is for".to_owned()));
    };
    match start(&spec, hello, decoder) {
        Ok(inner) => Ok(wait(inner)),
        Err(failure) => Ok(tell(&failure)),
    }
}

/// The host's first frame; `None` when it closed the stream instead.
fn greeting() -> Result<Option<(Hello, Decoder)>, Fatal> {
    let mut decoder = Decoder::new();
    let mut buffer = vec![0; SCRATCH];
    loop {
        if let Some(frame) = decoder.next_frame()? {
            if frame.kind != FrameKind::Hello {
                return Err(Fatal::Protocol(format!("a {:?} frame before the greeting", frame.kind)));
            }
            return Ok(Some((frame.json()?, decoder)));
        }
        match rustix::io::read(rustix::stdio::stdin(), &mut buffer) {
            Ok(0) => return Ok(None),
            Ok(length) => decoder.push(buffer.get(..length).unwrap_or_default()),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(Fatal::System { doing: "read the greeting", errno }),
        }
    }
}

/// Starts the inner process.
fn start(spec: &JailSpec, hello: Hello, decoder: Decoder) -> Done<Pid> {
    join(&spec.cgroups)?;
    // As root, everything of the host's is opened now, where nobody else could reach it; else in the namespaces,
    // without which nobody may mount anything.
    let sources = match spec.identity.become_user {
        BecomeUser::Dedicated(user) => {
            let sources = Sources::open(spec)?;
            identity::become_user(user)?;
            Some(sources)
        }
        BecomeUser::Stay => None,
    };
    let (uid, gid) = (rustix::process::geteuid(), rustix::process::getegid());
    shares::lower_limits();
    let namespaces = UnshareFlags::NEWUSER
        | UnshareFlags::NEWNS
        | UnshareFlags::NEWPID
        | UnshareFlags::NEWNET
        | UnshareFlags::NEWIPC
        | UnshareFlags::NEWUTS
        | UnshareFlags::NEWCGROUP;
    sys::unshare(namespaces).map_err(at(SetupStep::Namespaces, "make namespaces"))?;
    identity::map_user(&spec.identity, uid, gid)?;

    let process = |errno| at(SetupStep::Process, "start the jail's first process")(errno);
    // From here on they are taken as they come: the inner process must not outlive this one's end.
    sys::block_signals();
    let own = rustix::process::pidfd_open(rustix::process::getpid(), PidfdFlags::empty()).map_err(process)?;
    let inner = sys::fork_whole(move || {
        let entered = inner::follow(&own).and_then(|()| {
            drop(own);
            inner::enter(spec, sources)
        });
        match entered {
            Ok(inside) => guest::exit_code(guest::run_inside(hello, decoder, inside)),
            Err(failure) => tell(&failure),
        }
    });
    let inner = inner.map_err(process)?;
    identity::give_up_privileges()?;
    let closed = rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable);
    closed.map_err(at(SetupStep::Privileges, "close this process to debuggers"))?;
    Ok(inner)
}

/// Joins control groups, with all that this process is going to start.
fn join(groups: &[String]) -> Done<()> {
    for group in groups {
        let path = format!("{group}/cgroup.procs");
        let joined = OpenOptions::new().write(true).open(&path).and_then(|mut file| file.write_all(b"0"));
        joined.map_err(of_io(SetupStep::ControlGroups, format!("join the control group `{group}`")))?;
    }
    Ok(())
}

/// Waits for the end of the inner process, holding nothing. The exit code that says how it ended.
///
/// SIGTERM ends the jail at once, whatever it does. It is gone when this process is: a host that has to kill a jail
/// does it by this signal, and waits.
fn wait(inner: Pid) -> u8 {
    // The host waits for the end of the stream, which these would put off.
    sys::close_from(0);
    loop {
        match rustix::process::waitpid(Some(inner), WaitOptions::NOHANG) {
            Ok(Some((_, status))) => {
                if status.terminating_signal() == Some(Signal::KILL.as_raw()) {
                    // The same end, for the host to see.
                    let _ = rustix::process::kill_process(rustix::process::getpid(), Signal::KILL);
                }
                let code = status.terminating_signal().map(|signal| 128 + signal).or(status.exit_status());
                return code.and_then(|code| u8::try_from(code).ok()).unwrap_or(u8::MAX);
            }
            Ok(None) => {
                if sys::wait_for_signal(&[Signal::CHILD, Signal::TERM], None) == Some(Signal::TERM) {
                    let _ = rustix::process::kill_process(inner, Signal::KILL);
                }
            }
            Err(Errno::INTR) => {}
            Err(_) => return u8::MAX,
        }
    }
}

/// Tells the host why there is no jail. The exit code.
fn tell(failure: &SetupFailure) -> u8 {
    say(FrameKind::Done, failure);
    FAILED
}

/// Writes a frame of the handshake. A host that is gone needs none.
fn say(kind: FrameKind, value: &impl serde::Serialize) {
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
