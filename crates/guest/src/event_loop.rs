//! The event loop: waits for frames from the host and for the processes of the jobs, and handles them.
//!
//! State: the open jobs and the child processes. Nothing survives a crash.

mod dispatch;
mod guest_protection;
mod handshake;
mod interference_score;
mod job_table;
mod open_job;
mod pause;
mod poll;
mod poll_token;
mod quota;
mod reaper;
mod used_channel_numbers;

use std::collections::{BTreeMap, HashMap};
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::fs::{Mode, OFlags};
use rustix::process::{DumpableBehavior, Pid, Resource, Rlimit, Signal};

use conjure_guest::protocol::{Decoder, Hello, ProcessLimits};

use self::interference_score::Interference;
use self::open_job::{Channel, Child, Job};
use self::poll_token::{PollToken, rotate};
use self::used_channel_numbers::UsedChannels;
use crate::confinement::{CgroupEvents, CommandConfinement, OomScore};
use crate::error::{FatalError, system_error};
use crate::exec::{ShimPool, SpillDir};
use crate::files::Roots;
use crate::frame_queue::FrameQueue;
use crate::jail::InitEnv;
use crate::job::{ReadOutcome, SCRATCH_LEN, read};
use crate::pause::{MeasurementPause, ProcessPause};
use crate::quota::QuotaMonitor;
use crate::tunnel::{self, Tunnels};
use crate::{clock, sys};

/// Runs the guest until the stream ends, SIGTERM arrives, or the host breaks the protocol.
pub(crate) fn run() -> Result<(), FatalError> {
    run_loop(Decoder::new(), CgroupEvents::open(&[]), OomScore::open(), |_| Ok(()))
}

/// Runs the guest in a jail. `decoder` holds the bytes that followed the handshake.
pub(crate) fn run_in_jail(hello: Hello, decoder: Decoder, env: InitEnv) -> Result<(), FatalError> {
    let InitEnv { confinement, cgroup_events, oom_score, output } = env;
    run_loop(decoder, cgroup_events, oom_score, |guest| {
        guest.greet(hello, Some(confinement), output)?;
        guest.take_frames()
    })
}

fn run_loop(
    decoder: Decoder,
    cgroup_events: CgroupEvents,
    oom_score: OomScore,
    begin: impl FnOnce(&mut EventLoop) -> Result<(), FatalError>,
) -> Result<(), FatalError> {
    sys::block_signals();
    // A session of its own, so that a terminal's Ctrl-C reaches only the host. A session leader already has one.
    let _ = rustix::process::setsid();
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))
        .map_err(system_error("adopt orphans"))?;
    rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable)
        .map_err(system_error("close this process to debuggers"))?;
    let mut guest = EventLoop::new(decoder, cgroup_events, oom_score)?;
    let ended = begin(&mut guest).and_then(|()| guest.serve());
    // The host may still read these frames, for example the reply that reports another version.
    let _ = guest.frames.flush(rustix::stdio::stdout());
    guest.end_everything();
    ended
}

/// The configuration from the handshake.
#[derive(Debug)]
struct GuestConfig {
    roots: Roots,
    workdir: String,
    env: BTreeMap<String, String>,
    spill: Option<SpillDir>,
    limits: ProcessLimits,
    /// The confinement of each command, in addition to the guest's own.
    command_confinement: CommandConfinement,
    quota: Option<QuotaMonitor>,
    /// The directory that holds the content directories. It is opened before any command runs.
    content_root: Option<OwnedFd>,
}

struct EventLoop {
    signals: sys::SignalFd,
    null: OwnedFd,
    open_files: Rlimit,
    oom_score: OomScore,
    cgroup_events: CgroupEvents,
    decoder: Decoder,
    frames: FrameQueue,
    config: Option<GuestConfig>,
    channels: BTreeMap<u32, Channel>,
    used: UsedChannels,
    children: HashMap<Pid, Child>,
    shims: ShimPool,
    tunnels: Tunnels,
    /// When the reaper started to kill processes that lost their shim, and when it checks again.
    orphan_kill: Option<(Duration, Duration)>,
    /// The pause that the host requested.
    pause_in_force: Option<ProcessPause>,
    interference: Interference,
    /// The pause until the next quota measurement ends.
    measurement_pause: Option<MeasurementPause>,
    scratch: Vec<u8>,
    /// The number of iterations. It rotates the order in which ready descriptors are handled.
    iteration: usize,
    is_ending: bool,
}

impl EventLoop {
    fn new(decoder: Decoder, cgroup_events: CgroupEvents, oom_score: OomScore) -> Result<Self, FatalError> {
        let signals =
            sys::SignalFd::new(&[Signal::CHILD, Signal::TERM]).map_err(system_error("receive signals"))?;
        let flags = OFlags::RDWR | OFlags::CLOEXEC;
        let null =
            rustix::fs::open("/dev/null", flags, Mode::empty()).map_err(system_error("open `/dev/null`"))?;
        rustix::io::ioctl_fionbio(rustix::stdio::stdin(), true)
            .map_err(system_error("use standard input"))?;
        rustix::io::ioctl_fionbio(rustix::stdio::stdout(), true)
            .map_err(system_error("use standard output"))?;
        let open_files = rustix::process::getrlimit(Resource::Nofile);
        // Each operation uses several descriptors. Commands get the original limit.
        let raised = Rlimit { current: open_files.maximum, maximum: open_files.maximum };
        let _ = rustix::process::setrlimit(Resource::Nofile, raised);
        Ok(Self {
            signals,
            null,
            open_files,
            oom_score,
            cgroup_events,
            decoder,
            frames: FrameQueue::default(),
            config: None,
            channels: BTreeMap::new(),
            used: UsedChannels::default(),
            children: HashMap::new(),
            shims: ShimPool::default(),
            tunnels: Tunnels::default(),
            orphan_kill: None,
            pause_in_force: None,
            interference: Interference::default(),
            measurement_pause: None,
            scratch: vec![0; SCRATCH_LEN],
            iteration: 0,
            is_ending: false,
        })
    }

    fn serve(&mut self) -> Result<(), FatalError> {
        while !self.is_ending {
            let mut ready = self.wait()?;
            self.iteration = self.iteration.wrapping_add(1);
            rotate(&mut ready, self.iteration);
            for token in ready {
                self.handle(token)?;
            }
            self.advance_jobs();
            self.poll_quota();
            self.with_tunnels(|tunnels, cx| tunnels.close_overdue(cx));
            self.kill_orphans();
            if self.frames.flush(rustix::stdio::stdout()).is_err() {
                break;
            }
        }
        Ok(())
    }

    fn handle(&mut self, token: PollToken) -> Result<(), FatalError> {
        match token {
            PollToken::Signals => {
                while let Some((signal, sender)) = self.signals.take() {
                    if signal == Signal::CHILD {
                        self.reap();
                    } else {
                        // If the guest is process 1, only a signal from outside its pid namespace ends it. Commands
                        // inside can send it the signals that it blocks.
                        self.is_ending |=
                            sender == sys::SignalSender::Outside || !rustix::process::getpid().is_init();
                    }
                }
            }
            PollToken::Host => match read(rustix::stdio::stdin(), &mut self.scratch) {
                ReadOutcome::Bytes(length) => {
                    self.decoder.push(self.scratch.get(..length).unwrap_or_default());
                    self.take_frames()?;
                }
                ReadOutcome::Nothing => {}
                ReadOutcome::End => self.is_ending = true,
            },
            // The loop flushes in every iteration.
            PollToken::HostOutput => {}
            PollToken::Job(channel_id, port) => {
                self.with_job(channel_id, |job, cx| match job {
                    Job::Exec(job) => job.ready(port, cx),
                    Job::File(job) => job.ready(port, cx),
                });
            }
            PollToken::Tunnel(port) => self.with_tunnels(|tunnels, cx| tunnels.ready(port, cx)),
            PollToken::Quota => self.read_measurement(),
            PollToken::AbandonedPipe(pid) => {
                if let Some(child) = self.children.get_mut(&pid) {
                    child.abandoned_pipes.retain(|pipe| read(pipe, &mut self.scratch) != ReadOutcome::End);
                }
            }
        }
        Ok(())
    }

    fn with_tunnels<T>(&mut self, work: impl FnOnce(&mut Tunnels, &mut tunnel::TunnelContext<'_>) -> T) -> T {
        let mut cx =
            tunnel::TunnelContext { now: clock::now(), frames: &mut self.frames, scratch: &mut self.scratch };
        work(&mut self.tunnels, &mut cx)
    }
}
