//! The event loop: frames from the host, and what the jobs' processes have to say.
//!
//! State: the open jobs, and the processes that this one is the parent of. Nothing survives it.

mod greeting;
mod interference;
mod pausing;
mod processes;
mod readiness;
mod watching;

use std::collections::{BTreeMap, HashMap};
use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{DumpableBehavior, Pid, Resource, Rlimit, Signal};

use conjure_guest::protocol::{
    Decoder, Frame, FrameError, FrameKind, GuestError, Hello, Open, PROTOCOL_VERSION, ProcessLimits, Reply,
    Request, is_tunnel,
};

use self::interference::Interference;
use self::readiness::{Token, take_turns};
use self::watching::Standstill;
use crate::channels::UsedChannels;
use crate::exec::{Burden, ExecJob, Shim, Shims, SpillFolder, Surroundings, Writing};
use crate::feed::FeedError;
use crate::file_job::{FileJob, Places};
use crate::files::Roots;
use crate::fortress::{CommandWalls, OomScore, Pressure};
use crate::jail::Inside;
use crate::job::{Cut, Cx, Got, SCRATCH, read, too_many};
use crate::outbox::Outbox;
use crate::pause::Pause;
use crate::quota::Watch;
use crate::tunnel::{self, Tunnels};
use crate::{clock, error, quota, sys};

/// The channel of children that belong to no operation: the greeting's, which is nobody else's.
const NO_OPERATION: u32 = 0;

/// The most operations at a time.
const CHANNELS_MAX: usize = 1024;

/// Why the guest cannot go on.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Fatal {
    #[error("the host broke the protocol: {0}")]
    Frame(#[from] FrameError),
    #[error("the host broke the protocol on channel {channel}: {error}")]
    Data { channel: u32, error: FeedError },
    #[error("the host broke the protocol: {0}")]
    Protocol(String),
    #[error(
        "the host speaks version {0} of the protocol, this guest {PROTOCOL_VERSION}; they must be built together"
    )]
    Version(u32),
    #[error("it takes no argument, `jail`, `own`, or `connect` and a path")]
    Arguments,
    #[error("cannot listen on port {port} of 127.0.0.1, where commands are to find the proxy: {errno}")]
    Proxy { port: u16, errno: Errno },
    #[error("cannot {doing}: {errno}")]
    System { doing: &'static str, errno: Errno },
}

pub(crate) fn system(doing: &'static str) -> impl Fn(Errno) -> Fatal {
    move |errno| Fatal::System { doing, errno }
}

/// Lives the guest's life: until the stream ends or SIGTERM comes, or the host breaks the protocol.
pub(crate) fn run() -> Result<(), Fatal> {
    live(Decoder::new(), Pressure::open(&[]), OomScore::open(), |_| Ok(()))
}

/// The same in a jail that the greeting asked for; `decoder` has what followed the greeting.
pub(crate) fn run_inside(hello: Hello, decoder: Decoder, inside: Inside) -> Result<(), Fatal> {
    let Inside { confinement, pressure, oom_score, output } = inside;
    live(decoder, pressure, oom_score, |guest| {
        guest.greet(hello, Some(confinement), output)?;
        guest.take_frames()
    })
}

fn live(
    decoder: Decoder,
    pressure: Pressure,
    oom_score: OomScore,
    begin: impl FnOnce(&mut Guest) -> Result<(), Fatal>,
) -> Result<(), Fatal> {
    sys::block_signals();
    // A session of its own, so that a terminal's Ctrl-C goes to the host alone; a leader has one already.
    let _ = rustix::process::setsid();
    rustix::process::set_child_subreaper(Some(rustix::process::getpid())).map_err(system("adopt orphans"))?;
    rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable)
        .map_err(system("close this process to debuggers"))?;
    let mut guest = Guest::new(decoder, pressure, oom_score)?;
    let ended = begin(&mut guest).and_then(|()| guest.serve());
    // What the host may still read, such as the greeting that tells the other version.
    let _ = guest.outbox.flush(rustix::stdio::stdout());
    guest.end_everything();
    ended
}

/// Tells how it ended: the exit code.
pub(crate) fn exit_code(ended: Result<(), Fatal>) -> u8 {
    match ended {
        Ok(()) => 0,
        Err(error) => {
            // Nobody may be left to read it.
            let _ = writeln!(std::io::stderr(), "conjure-guest: {error}");
            2
        }
    }
}

/// What the greeting said.
#[derive(Debug)]
struct Session {
    roots: Roots,
    workdir: String,
    env: BTreeMap<String, String>,
    spill: Option<SpillFolder>,
    limits: ProcessLimits,
    /// What each command is put under besides.
    walls: CommandWalls,
    watch: Option<Watch>,
    /// The folder of the shelves, opened before any command ran.
    shelves: Option<OwnedFd>,
}

/// An open operation.
#[derive(Debug)]
struct Channel {
    job: Job,
    credit: u64,
    deadline: Option<Duration>,
}

#[derive(Debug)]
enum Job {
    /// Boxed, being much the larger.
    Exec(Box<ExecJob>),
    File(FileJob),
}

/// A child of the guest that is not reaped yet.
#[derive(Debug)]
struct Child {
    /// The operation that it was forked for, which may be over; [`NO_OPERATION`] where there is none.
    channel: u32,
    /// What an exec left behind: output that nobody wants, read so that its writers can go on.
    unwanted: Vec<OwnedFd>,
}

struct Guest {
    signals: sys::SignalFd,
    null: OwnedFd,
    open_files: Rlimit,
    oom_score: OomScore,
    pressure: Pressure,
    decoder: Decoder,
    outbox: Outbox,
    session: Option<Session>,
    channels: BTreeMap<u32, Channel>,
    used: UsedChannels,
    children: HashMap<Pid, Child>,
    shims: Shims,
    tunnels: Tunnels,
    /// Since when processes that lost their shim are being killed, and when to look again.
    sweep: Option<(Duration, Duration)>,
    /// Where what programs left running stands still.
    pause: Option<Pause>,
    interference: Interference,
    /// Where everything stands still until the quota was measured.
    standstill: Option<Standstill>,
    scratch: Vec<u8>,
    /// How often the loop went round: what is ready has its turn in another order each time.
    round: usize,
    is_ending: bool,
}

impl Guest {
    fn new(decoder: Decoder, pressure: Pressure, oom_score: OomScore) -> Result<Self, Fatal> {
        let signals =
            sys::SignalFd::new(&[Signal::CHILD, Signal::TERM]).map_err(system("receive signals"))?;
        let flags = OFlags::RDWR | OFlags::CLOEXEC;
        let null = rustix::fs::open("/dev/null", flags, Mode::empty()).map_err(system("open `/dev/null`"))?;
        rustix::io::ioctl_fionbio(rustix::stdio::stdin(), true).map_err(system("use standard input"))?;
        rustix::io::ioctl_fionbio(rustix::stdio::stdout(), true).map_err(system("use standard output"))?;
        let open_files = rustix::process::getrlimit(Resource::Nofile);
        // Each operation takes some descriptors; commands get the former limit back.
        let raised = Rlimit { current: open_files.maximum, maximum: open_files.maximum };
        let _ = rustix::process::setrlimit(Resource::Nofile, raised);
        Ok(Self {
            signals,
            null,
            open_files,
            oom_score,
            pressure,
            decoder,
            outbox: Outbox::default(),
            session: None,
            channels: BTreeMap::new(),
            used: UsedChannels::default(),
            children: HashMap::new(),
            shims: Shims::default(),
            tunnels: Tunnels::default(),
            sweep: None,
            pause: None,
            interference: Interference::default(),
            standstill: None,
            scratch: vec![0; SCRATCH],
            round: 0,
            is_ending: false,
        })
    }

    fn serve(&mut self) -> Result<(), Fatal> {
        while !self.is_ending {
            let mut ready = self.wait()?;
            self.round = self.round.wrapping_add(1);
            take_turns(&mut ready, self.round);
            for token in ready {
                self.handle(token)?;
            }
            self.look_at_jobs();
            self.look_at_quota();
            self.with_tunnels(|tunnels, cx| tunnels.look(cx));
            self.sweep();
            if self.outbox.flush(rustix::stdio::stdout()).is_err() {
                break;
            }
        }
        Ok(())
    }

    fn handle(&mut self, token: Token) -> Result<(), Fatal> {
        match token {
            Token::Signals => {
                while let Some((signal, sender)) = self.signals.take() {
                    if signal == Signal::CHILD {
                        self.reap();
                    } else {
                        // Commands can signal process 1 of their namespace as soon as it blocks the signal.
                        self.is_ending |=
                            sender == sys::Sender::Outside || !rustix::process::getpid().is_init();
                    }
                }
            }
            Token::Host => match read(rustix::stdio::stdin(), &mut self.scratch) {
                Got::Bytes(length) => {
                    self.decoder.push(self.scratch.get(..length).unwrap_or_default());
                    self.take_frames()?;
                }
                Got::Nothing => {}
                Got::End => self.is_ending = true,
            },
            // The loop flushes in any case.
            Token::Outbox => {}
            Token::Job(number, port) => {
                self.with_job(number, |job, cx| match job {
                    Job::Exec(job) => job.ready(port, cx),
                    Job::File(job) => job.ready(port, cx),
                });
            }
            Token::Tunnel(port) => self.with_tunnels(|tunnels, cx| tunnels.ready(port, cx)),
            Token::Quota => self.quota_was_measured(),
            Token::Unwanted(pid) => {
                if let Some(child) = self.children.get_mut(&pid) {
                    child.unwanted.retain(|pipe| read(pipe, &mut self.scratch) != Got::End);
                }
            }
        }
        Ok(())
    }

    /// Lets a job work. `None` when there is no such job any more.
    fn with_job<T>(&mut self, number: u32, work: impl FnOnce(&mut Job, &mut Cx<'_>) -> T) -> Option<T> {
        let channel = self.channels.get_mut(&number)?;
        let mut cx = Cx {
            channel: number,
            now: clock::now(),
            credit: &mut channel.credit,
            outbox: &mut self.outbox,
            scratch: &mut self.scratch,
            spill: self.session.as_mut().and_then(|session| session.spill.as_mut()),
            pressure: &mut self.pressure,
            is_sweeping: self.sweep.is_some(),
        };
        Some(work(&mut channel.job, &mut cx))
    }

    fn take_frames(&mut self) -> Result<(), Fatal> {
        while let Some(frame) = self.decoder.next_frame()? {
            self.frame(&frame)?;
        }
        Ok(())
    }

    fn with_tunnels<T>(&mut self, work: impl FnOnce(&mut Tunnels, &mut tunnel::Cx<'_>) -> T) -> T {
        let mut cx = tunnel::Cx { now: clock::now(), outbox: &mut self.outbox, scratch: &mut self.scratch };
        work(&mut self.tunnels, &mut cx)
    }

    fn frame(&mut self, frame: &Frame) -> Result<(), Fatal> {
        let number = frame.channel;
        if self.session.is_none() && frame.kind != FrameKind::Hello {
            return Err(Fatal::Protocol(format!("a {:?} frame before the greeting", frame.kind)));
        }
        if is_tunnel(number) {
            return self.with_tunnels(|tunnels, cx| tunnels.frame(frame, cx));
        }
        match frame.kind {
            FrameKind::Hello if self.session.is_some() => {
                return Err(Fatal::Protocol("a second greeting".to_owned()));
            }
            FrameKind::Hello => self.greet(frame.json()?, None, None)?,
            FrameKind::Open => {
                let open = frame.json()?;
                if !self.used.claim(number) {
                    return Err(Fatal::Protocol(format!(
                        "channel {number} cannot be opened: it was used before"
                    )));
                }
                self.open(number, &open);
            }
            FrameKind::Data => {
                let (_, content) = frame.data()?;
                let taken = self.with_job(number, |job, cx| match job {
                    Job::Exec(job) => job.data(content, cx),
                    Job::File(job) => job.data(content, cx),
                });
                if let Some(Err(error)) = taken {
                    return Err(Fatal::Data { channel: number, error });
                }
            }
            FrameKind::Eof => {
                self.with_job(number, |job, cx| match job {
                    Job::Exec(job) => job.end_of_data(cx),
                    Job::File(job) => job.end_of_data(cx),
                });
            }
            FrameKind::Credit => {
                let bytes = frame.credit()?;
                if let Some(channel) = self.channels.get_mut(&number) {
                    channel.credit = channel.credit.saturating_add(u64::from(bytes));
                }
            }
            FrameKind::Cancel => {
                self.with_job(number, |job, cx| job.cut(Cut::Cancelled, cx.now));
            }
            FrameKind::Welcome | FrameKind::Done | FrameKind::Tunnel => {
                return Err(Fatal::Protocol(format!("a {:?} frame, which only guests send", frame.kind)));
            }
        }
        Ok(())
    }

    fn open(&mut self, number: u32, open: &Open) {
        let ended = match self.rest(&open.request) {
            None => self.start(number, open).err().map(Err),
            ended => ended,
        };
        if let Some(result) = ended {
            self.outbox.done(number, &error::encode(&result));
        }
    }

    fn start(&mut self, number: u32, open: &Open) -> Result<(), GuestError> {
        if self.channels.len() >= CHANNELS_MAX {
            return Err(too_many(self.channels.len()));
        }
        // Only a greeted guest comes here.
        let Some(session) = &mut self.session else { return Ok(()) };
        let now = clock::now();
        let mut credit = u64::from(open.credit);
        let mut cx = Cx {
            channel: number,
            now,
            credit: &mut credit,
            outbox: &mut self.outbox,
            scratch: &mut self.scratch,
            spill: session.spill.as_mut(),
            pressure: &mut self.pressure,
            is_sweeping: self.sweep.is_some(),
        };
        let (job, pid) = if let Request::Exec(request) = &open.request {
            if let Some(excess) = session.watch.as_mut().and_then(Watch::is_beyond) {
                return Err(quota::beyond_help(&excess));
            }
            let surroundings = Surroundings {
                env: &session.env,
                workdir: &session.workdir,
                open_files: self.open_files,
                limits: &session.limits,
                walls: &session.walls,
                oom_score: &self.oom_score,
                null: self.null.as_fd(),
                burden: if self.channels.is_empty() && !cx.outbox.is_large() {
                    Burden::Light
                } else {
                    Burden::Heavy
                },
                writing: session.watch.as_ref().map_or(Writing::Allowed, Watch::writing),
            };
            let (job, pid) = ExecJob::start(request, &surroundings, &mut self.shims, &mut cx)?;
            (Job::Exec(Box::new(job)), pid)
        } else {
            let room = session.watch.as_ref().map(Watch::room);
            let shelves = session.shelves.as_ref().map(AsFd::as_fd);
            let places =
                Places { roots: &session.roots, room: room.as_ref(), shelves, null: self.null.as_fd() };
            let (job, pid) = FileJob::start(&open.request, &places, &mut cx)?;
            if let Some(watch) = session.watch.as_mut().filter(|_| job.is_change()) {
                watch.change_begins();
            }
            (Job::File(job), pid)
        };
        self.children.insert(pid, Child { channel: number, unwanted: Vec::new() });
        let deadline = open.timeout_ms.and_then(|timeout| now.checked_add(Duration::from_millis(timeout)));
        self.channels.insert(number, Channel { job, credit, deadline });
        Ok(())
    }

    /// Lets every job go as far as it can, and ends those that are over or late.
    fn look_at_jobs(&mut self) {
        let numbers: Vec<u32> = self.channels.keys().copied().collect();
        for number in numbers {
            let is_late = self.channels.get(&number).is_some_and(|channel| {
                channel.job.has_deadline()
                    && channel.deadline.is_some_and(|deadline| deadline <= clock::now())
            });
            if is_late {
                self.look_for_stalled(number);
            }
            let advanced = self.with_job(number, |job, cx| {
                let mut result = job.advance(cx);
                if result.is_none() && is_late {
                    job.cut(Cut::TimedOut, cx.now);
                    result = job.advance(cx);
                }
                (result, job.take_idle())
            });
            let Some((result, idle)) = advanced else { continue };
            if let Some(shim) = idle {
                self.interference.answered();
                // It is nobody's now, and ended by what it is told or by the end of its line.
                if let Some(child) = self.children.get_mut(&shim.pid()) {
                    child.channel = NO_OPERATION;
                }
                self.shims.keep(shim);
            }
            if let Some(result) = result {
                self.note_written(number, &result);
                self.outbox.done(number, &result);
                self.forget(number);
            }
        }
    }

    /// Removes a job that is over. What it left running may still write.
    fn forget(&mut self, number: u32) {
        if let Some(Channel { job: Job::Exec(job), .. }) = self.channels.remove(&number)
            && let Some(child) = self.children.values_mut().find(|child| child.channel == number)
        {
            child.unwanted = job.into_pipes();
        }
    }
}

impl Job {
    fn has_deadline(&self) -> bool {
        match self {
            Self::Exec(job) => job.has_deadline(),
            Self::File(job) => job.has_deadline(),
        }
    }

    /// The shim that has no more to do for it, once.
    fn take_idle(&mut self) -> Option<Shim> {
        match self {
            Self::Exec(job) => job.take_idle(),
            Self::File(_) => None,
        }
    }

    fn cut(&mut self, cut: Cut, now: Duration) {
        match self {
            Self::Exec(job) => job.cut(cut, now),
            Self::File(job) => job.cut(cut, now),
        }
    }

    /// The payload of the last frame, when the job is over.
    fn advance(&mut self, cx: &mut Cx<'_>) -> Option<Vec<u8>> {
        match self {
            Self::Exec(job) => {
                job.advance(cx).map(|result: Result<Reply, GuestError>| error::encode(&result))
            }
            Self::File(job) => job.advance(cx),
        }
    }
}
