//! The event loop: frames from the host, and what the jobs' processes have to say.
//!
//! State: the open jobs, and the processes that this one is the parent of. Nothing survives it.

mod processes;

use std::collections::{BTreeMap, HashMap};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{DumpableBehavior, Pid, Resource, Rlimit, Signal};

use conjure_guest::protocol::{
    Decoder, Frame, FrameError, FrameKind, GuestError, Hello, Open, PROTOCOL_VERSION, Reply, Request, Welcome,
};

use crate::channels::UsedChannels;
use crate::exec::{ExecJob, OomCounter, SpillFolder, Surroundings};
use crate::feed::FeedError;
use crate::file_job::FileJob;
use crate::files::Roots;
use crate::job::{Cut, Cx, Got, Interest, Port, SCRATCH, read, too_many};
use crate::outbox::Outbox;
use crate::{clock, error, sys};

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
    #[error("cannot {doing}: {errno}")]
    System { doing: &'static str, errno: Errno },
}

fn system(doing: &'static str) -> impl Fn(Errno) -> Fatal {
    move |errno| Fatal::System { doing, errno }
}

/// Lives the guest's life: until the stream ends or SIGTERM comes, or the host breaks the protocol.
pub(crate) fn run() -> Result<(), Fatal> {
    sys::block_signals();
    // A session of its own, so that a terminal's Ctrl-C goes to the host alone; a leader has one already.
    let _ = rustix::process::setsid();
    rustix::process::set_child_subreaper(Some(rustix::process::getpid())).map_err(system("adopt orphans"))?;
    rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable)
        .map_err(system("close this process to debuggers"))?;
    let mut guest = Guest::new()?;
    let ended = guest.serve();
    // What the host may still read, such as the greeting that tells the other version.
    let _ = guest.outbox.flush(rustix::stdio::stdout());
    guest.end_everything();
    ended
}

/// What the greeting said.
#[derive(Debug)]
struct Session {
    roots: Roots,
    workdir: String,
    env: BTreeMap<String, String>,
    spill: Option<SpillFolder>,
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
    /// The operation that it was forked for, which may be over.
    channel: u32,
    /// What an exec left behind: output that nobody wants, read so that its writers can go on.
    unwanted: Vec<OwnedFd>,
}

/// What a descriptor in the poll set belongs to.
#[derive(Debug, Clone, Copy)]
enum Token {
    Host,
    Outbox,
    Signals,
    Job(u32, Port),
    Unwanted(Pid),
}

struct Guest {
    signals: sys::SignalFd,
    null: OwnedFd,
    open_files: Rlimit,
    oom: OomCounter,
    decoder: Decoder,
    outbox: Outbox,
    session: Option<Session>,
    channels: BTreeMap<u32, Channel>,
    used: UsedChannels,
    children: HashMap<Pid, Child>,
    /// Since when processes that lost their shim are being killed, and when to look again.
    sweep: Option<(Duration, Duration)>,
    scratch: Vec<u8>,
    is_ending: bool,
}

impl Guest {
    fn new() -> Result<Self, Fatal> {
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
            oom: OomCounter::open(),
            decoder: Decoder::new(),
            outbox: Outbox::default(),
            session: None,
            channels: BTreeMap::new(),
            used: UsedChannels::default(),
            children: HashMap::new(),
            sweep: None,
            scratch: vec![0; SCRATCH],
            is_ending: false,
        })
    }

    fn serve(&mut self) -> Result<(), Fatal> {
        while !self.is_ending {
            for token in self.wait()? {
                self.handle(token)?;
            }
            self.look_at_jobs();
            self.sweep();
            if self.outbox.flush(rustix::stdio::stdout()).is_err() {
                break;
            }
        }
        Ok(())
    }

    /// Waits until something is ready or due.
    fn wait(&self) -> Result<Vec<Token>, Fatal> {
        let mut tokens = vec![Token::Signals];
        let mut fds = vec![PollFd::new(&self.signals, PollFlags::IN)];
        let (stdin, stdout) = (rustix::stdio::stdin(), rustix::stdio::stdout());
        if self.outbox.takes_control() {
            tokens.push(Token::Host);
            fds.push(PollFd::from_borrowed_fd(stdin, PollFlags::IN));
        }
        if !self.outbox.is_empty() {
            tokens.push(Token::Outbox);
            fds.push(PollFd::from_borrowed_fd(stdout, PollFlags::OUT));
        }
        let now = clock::now();
        let mut due = self.sweep.map(|(_, next)| next);
        let mut interests: Vec<Interest<'_>> = Vec::new();
        for (&number, channel) in &self.channels {
            let room = if self.outbox.takes_content() {
                usize::try_from(channel.credit).unwrap_or(usize::MAX)
            } else {
                0
            };
            let look = match &channel.job {
                Job::Exec(job) => {
                    job.interests(room, &mut interests);
                    job.next_look(now)
                }
                Job::File(job) => {
                    job.interests(room, &mut interests);
                    job.next_look(now)
                }
            };
            for (port, fd, events) in interests.drain(..) {
                tokens.push(Token::Job(number, port));
                fds.push(PollFd::from_borrowed_fd(fd, events));
            }
            let deadline = channel.deadline.filter(|_| channel.job.has_deadline());
            due = [due, look, deadline].into_iter().flatten().min();
        }
        for (&pid, child) in &self.children {
            for pipe in &child.unwanted {
                tokens.push(Token::Unwanted(pid));
                fds.push(PollFd::new(pipe, PollFlags::IN));
            }
        }
        let timeout = due.map(|due| {
            let left = due.saturating_sub(clock::now());
            Timespec {
                tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
                tv_nsec: i64::from(left.subsec_nanos()),
            }
        });
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) => {}
            Err(Errno::INTR | Errno::AGAIN) => return Ok(Vec::new()),
            Err(errno) => return Err(Fatal::System { doing: "wait for events", errno }),
        }
        Ok(tokens
            .into_iter()
            .zip(fds)
            .filter_map(|(token, fd)| (!fd.revents().is_empty()).then_some(token))
            .collect())
    }

    fn handle(&mut self, token: Token) -> Result<(), Fatal> {
        match token {
            Token::Signals => {
                while let Some(signal) = self.signals.take() {
                    if signal == Signal::TERM {
                        self.is_ending = true;
                    } else {
                        self.reap();
                    }
                }
            }
            Token::Host => match read(rustix::stdio::stdin(), &mut self.scratch) {
                Got::Bytes(length) => {
                    self.decoder.push(self.scratch.get(..length).unwrap_or_default());
                    while let Some(frame) = self.decoder.next_frame()? {
                        self.frame(&frame)?;
                    }
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
            oom: &mut self.oom,
            is_sweeping: self.sweep.is_some(),
        };
        Some(work(&mut channel.job, &mut cx))
    }

    fn frame(&mut self, frame: &Frame) -> Result<(), Fatal> {
        let number = frame.channel;
        if self.session.is_none() && frame.kind != FrameKind::Hello {
            return Err(Fatal::Protocol(format!("a {:?} frame before the greeting", frame.kind)));
        }
        match frame.kind {
            FrameKind::Hello if self.session.is_some() => {
                return Err(Fatal::Protocol("a second greeting".to_owned()));
            }
            FrameKind::Hello => self.greet(frame.json()?)?,
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
            FrameKind::Welcome | FrameKind::Done => {
                return Err(Fatal::Protocol(format!("a {:?} frame, which only guests send", frame.kind)));
            }
        }
        Ok(())
    }

    fn greet(&mut self, hello: Hello) -> Result<(), Fatal> {
        let pid = rustix::process::getpid().as_raw_nonzero().get().unsigned_abs();
        self.outbox.json(FrameKind::Welcome, 0, &Welcome { version: PROTOCOL_VERSION, pid });
        if hello.version != PROTOCOL_VERSION {
            return Err(Fatal::Version(hello.version));
        }
        let paths = hello.roots.iter().map(|root| &root.path).chain([&hello.workdir]).chain(&hello.spill_dir);
        if let Some(path) = paths.into_iter().find(|path| !path.starts_with('/')) {
            return Err(Fatal::Protocol(format!("the greeting names `{path}`, which is not absolute")));
        }
        self.session = Some(Session {
            roots: Roots::open(&hello.roots, &hello.workdir),
            workdir: hello.workdir,
            env: hello.env,
            spill: hello.spill_dir.as_deref().map(SpillFolder::open),
        });
        Ok(())
    }

    fn open(&mut self, number: u32, open: &Open) {
        if let Err(error) = self.start(number, open) {
            self.outbox.done(number, &error::encode(&Err(error)));
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
            oom: &mut self.oom,
            is_sweeping: self.sweep.is_some(),
        };
        let (job, pid) = if let Request::Exec(request) = &open.request {
            let surroundings = Surroundings {
                env: &session.env,
                workdir: &session.workdir,
                open_files: self.open_files,
                null: self.null.as_fd(),
            };
            let (job, pid) = ExecJob::start(request, &surroundings, &mut cx)?;
            (Job::Exec(Box::new(job)), pid)
        } else {
            let (job, pid) = FileJob::start(&open.request, &session.roots, self.null.as_fd(), &mut cx)?;
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
            let result = self.with_job(number, |job, cx| {
                let mut result = job.advance(cx);
                if result.is_none() && is_late {
                    job.cut(Cut::TimedOut, cx.now);
                    result = job.advance(cx);
                }
                result
            });
            if let Some(Some(result)) = result {
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
