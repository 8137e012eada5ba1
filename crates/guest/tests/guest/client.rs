//! A synchronous host for tests.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use conjure_guest::protocol::{
    Access, CaptureLimits, CommandRules, Decoder, DirId, DiskUsage, END_TIMEOUT, EnforcedRules, ExecEnd,
    ExecReply, ExecRequest, Frame, FrameKind, GuestError, Hello, Open, OpenedRoots, OutputMode,
    PROTOCOL_VERSION, ProcessLimits, ProgramLifetime, ProxySpec, Quota, QuotaBasis, Reply, Request, Root,
    StdinMode, StreamId, Welcome, encode_data_into, encode_into,
};

/// Nothing here takes longer, unless it hangs.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(600);

/// Credit that no test uses up.
pub(crate) const PLENTY: u32 = u32::MAX;

static NEXT_TEST_ID: AtomicU32 = AtomicU32::new(0);

/// A guest, and directories for it.
pub(crate) struct Guest {
    child: Child,
    stdin: Option<ChildStdin>,
    frames: Receiver<Frame>,
    seen: BTreeMap<u32, Vec<Frame>>,
    next: u32,
    /// In the environment of everything that this guest's commands start.
    pub(crate) mark: String,
    dir: tempfile::TempDir,
}

/// What came on a channel.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) result: Result<Reply, GuestError>,
    pub(crate) content: Vec<u8>,
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: Vec<u8>,
}

impl Outcome {
    pub(crate) fn exec(&self) -> &ExecReply {
        match &self.result {
            Ok(Reply::Exec(reply)) => reply,
            other => panic!("not the end of a program: {other:?}"),
        }
    }

    pub(crate) fn end(&self) -> ExecEnd {
        self.exec().end
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }
}

#[expect(clippy::disallowed_methods, reason = "tests bound their waits")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// Waits, within bounds, until something that no event tells of has come about.
#[track_caller]
pub(crate) fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = now();
    while !is_so() {
        assert!(start.elapsed() < TIMEOUT, "it never came about: {what}");
        #[expect(clippy::disallowed_methods, reason = "a bounded poll of /proc and of files")]
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The identities of the roots, as the test sees them.
fn opened_roots(hello: &Hello) -> OpenedRoots {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").expect("Linux has one");
    let dir = |root: &Root| {
        let found = std::fs::metadata(&root.path).ok().filter(std::fs::Metadata::is_dir)?;
        Some(DirId { device: found.dev(), inode: found.ino() })
    };
    OpenedRoots { boot: Some(boot.trim().to_owned()), dirs: hello.roots.iter().map(dir).collect() }
}

impl Guest {
    /// A guest after the handshake.
    pub(crate) fn start() -> Self {
        let guest = Self::start_without_handshake();
        let hello = guest.hello();
        guest.with_handshake(&hello)
    }

    fn with_handshake(mut self, hello: &Hello) -> Self {
        let welcome = self.send_hello(hello);
        let (pid, rules) = (self.child.id(), EnforcedRules::default());
        let roots = opened_roots(hello);
        assert_eq!(welcome, Welcome { version: PROTOCOL_VERSION, pid, confinement: None, rules, roots });
        self
    }

    /// Performs the handshake with these rules.
    #[track_caller]
    pub(crate) fn handshake(&mut self, rules: CommandRules) -> Welcome {
        let hello = Hello { rules, ..self.hello() };
        self.send_hello(&hello)
    }

    #[track_caller]
    pub(crate) fn send_hello(&mut self, hello: &Hello) -> Welcome {
        self.send_json(FrameKind::Hello, 0, hello);
        let frame = self.next_of(0);
        assert_eq!(frame.kind, FrameKind::Welcome);
        frame.json().expect("a welcome")
    }

    /// A guest whose working directory has a quota. `fill` runs before the handshake.
    pub(crate) fn start_with_quota(allowed: DiskUsage, fill: impl FnOnce(&Self)) -> Self {
        let guest = Self::start_without_handshake();
        fill(&guest);
        let path = guest.path("work").to_str().expect("UTF-8").to_owned();
        let quota = Quota { path, allowed, basis: QuotaBasis::Everything };
        let hello = Hello { quota: Some(quota), ..guest.hello() };
        guest.with_handshake(&hello)
    }

    /// A guest with a proxy port, and its address.
    pub(crate) fn start_with_proxy() -> (Self, SocketAddrV4) {
        let port = test_support::free_port();
        let guest = Self::start_without_handshake();
        let hello = Hello { proxy: Some(ProxySpec { port }), ..guest.hello() };
        (guest.with_handshake(&hello), SocketAddrV4::new(Ipv4Addr::LOCALHOST, port))
    }

    /// A guest before the handshake.
    pub(crate) fn start_without_handshake() -> Self {
        #[expect(clippy::disallowed_methods, reason = "this is the program under test")]
        Self::spawn(Command::new(env!("CARGO_BIN_EXE_conjure-guest")), Self::dir())
    }

    /// The directories of a guest.
    pub(crate) fn dir() -> tempfile::TempDir {
        let dir = tempfile::tempdir().expect("a directory");
        for name in ["work", "fixed", "outside"] {
            std::fs::create_dir(dir.path().join(name)).expect("a directory");
        }
        dir
    }

    /// Starts a guest in this way.
    pub(crate) fn spawn(mut command: Command, dir: tempfile::TempDir) -> Self {
        let number = NEXT_TEST_ID.fetch_add(1, Ordering::Relaxed);
        let mark = format!("CONJURE_TEST_MARK={}-{number}", std::process::id());
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the guest starts");
        let stdin = child.stdin.take();
        let mut stdout = child.stdout.take().expect("a pipe");
        let (sender, frames) = channel();
        std::thread::spawn(move || {
            let mut decoder = Decoder::new();
            let mut buffer = vec![0; 256 * 1024];
            while let Ok(length) = stdout.read(&mut buffer) {
                if length == 0 {
                    break;
                }
                decoder.push(&buffer[..length]);
                while let Some(frame) = decoder.next_frame().expect("the guest speaks the protocol") {
                    if sender.send(frame).is_err() {
                        return;
                    }
                }
            }
            assert!(decoder.is_at_boundary(), "the guest ended within a frame");
        });
        Self { child, stdin, frames, seen: BTreeMap::new(), next: 1, mark, dir }
    }

    pub(crate) fn hello(&self) -> Hello {
        let path = |name: &str| self.path(name).to_str().expect("UTF-8").to_owned();
        let (name, value) = self.mark.split_once('=').expect("a variable");
        Hello {
            roots: vec![
                Root { path: path("work"), access: Access::ReadWrite },
                Root { path: path("fixed"), access: Access::ReadOnly },
            ],
            env: BTreeMap::from([
                ("PATH".to_owned(), "/usr/local/bin:/usr/bin:/bin".to_owned()),
                (name.to_owned(), value.to_owned()),
            ]),
            spill_dir: Some(path("work/.spill")),
            workdir: path("work"),
            ..Hello::default()
        }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn work(&self, name: impl AsRef<Path>) -> PathBuf {
        self.path("work").join(name)
    }

    pub(crate) fn send_raw(&mut self, bytes: &[u8]) {
        self.stdin.as_mut().expect("not closed").write_all(bytes).expect("the guest reads");
    }

    pub(crate) fn send(&mut self, kind: FrameKind, channel: u32, payload: &[u8]) {
        let mut bytes = Vec::new();
        encode_into(&mut bytes, kind, channel, payload).expect("short enough");
        self.send_raw(&bytes);
    }

    pub(crate) fn send_json(&mut self, kind: FrameKind, channel: u32, value: &impl serde::Serialize) {
        self.send(kind, channel, &serde_json::to_vec(value).expect("JSON"));
    }

    pub(crate) fn send_data(&mut self, channel: u32, content: &[u8]) {
        let mut bytes = Vec::new();
        encode_data_into(&mut bytes, channel, StreamId::Content, content).expect("short enough");
        self.send_raw(&bytes);
    }

    pub(crate) fn grant(&mut self, channel: u32, bytes: u32) {
        self.send(FrameKind::Credit, channel, &bytes.to_le_bytes());
    }

    /// Sends all of `content` as credit comes, and then the end.
    pub(crate) fn feed(&mut self, channel: u32, content: &[u8]) {
        let mut credit = 0;
        let mut rest = content;
        let mut others = Vec::new();
        while !rest.is_empty() {
            if credit == 0 {
                let frame = self.next_of(channel);
                let is_over = frame.kind == FrameKind::Done;
                if frame.kind == FrameKind::Credit {
                    credit = frame.credit().expect("credit") as usize;
                } else {
                    others.push(frame);
                }
                if is_over {
                    break;
                }
                continue;
            }
            let (piece, after) = rest.split_at(rest.len().min(credit).min(64 * 1024));
            self.send_data(channel, piece);
            credit -= piece.len();
            rest = after;
        }
        self.seen.entry(channel).or_default().splice(0..0, others);
        self.send(FrameKind::Eof, channel, &[]);
    }

    pub(crate) fn open(&mut self, request: Request, credit: u32, timeout_ms: Option<u64>) -> u32 {
        let channel = self.next;
        self.next += 1;
        self.send_json(FrameKind::Open, channel, &Open { request, credit, timeout_ms });
        channel
    }

    /// The next frame of a channel.
    #[track_caller]
    pub(crate) fn next_of(&mut self, channel: u32) -> Frame {
        if let Some(frames) = self.seen.get_mut(&channel).filter(|frames| !frames.is_empty()) {
            return frames.remove(0);
        }
        loop {
            match self.frames.recv_timeout(TIMEOUT) {
                Ok(frame) if frame.channel == channel => return frame,
                Ok(frame) => self.seen.entry(frame.channel).or_default().push(frame),
                Err(RecvTimeoutError::Timeout) => panic!("channel {channel} hangs"),
                Err(RecvTimeoutError::Disconnected) => panic!("the guest ended: {}", self.stderr_text()),
            }
        }
    }

    /// The frames of a channel that came while others were waited for.
    pub(crate) fn seen_of(&mut self, channel: u32) -> Vec<Frame> {
        self.seen.remove(&channel).unwrap_or_default()
    }

    /// Takes what comes on a channel until it is over.
    #[track_caller]
    pub(crate) fn finish(&mut self, channel: u32) -> Outcome {
        let (mut content, mut stdout, mut stderr) = (Vec::new(), Vec::new(), Vec::new());
        loop {
            let frame = self.next_of(channel);
            match frame.kind {
                FrameKind::Data => {
                    let (stream, bytes) = frame.data().expect("data");
                    match stream {
                        StreamId::Content => content.extend_from_slice(bytes),
                        StreamId::Stdout => stdout.extend_from_slice(bytes),
                        StreamId::Stderr => stderr.extend_from_slice(bytes),
                    }
                }
                FrameKind::Credit => {}
                FrameKind::Done => {
                    let result = frame.json().expect("a result");
                    return Outcome { result, content, stdout, stderr };
                }
                other => panic!("a guest does not send {other:?}"),
            }
        }
    }

    #[track_caller]
    pub(crate) fn call(&mut self, request: Request) -> Outcome {
        let channel = self.open(request, PLENTY, None);
        self.finish(channel)
    }

    /// Runs a script to its end.
    #[track_caller]
    pub(crate) fn bash(&mut self, script: &str) -> Outcome {
        self.call(bash(script))
    }

    /// Opens a write and sends the content.
    #[track_caller]
    pub(crate) fn write(&mut self, path: &str, content: &[u8]) -> Result<Reply, GuestError> {
        let channel = self.open(Request::Write { path: path.to_owned(), mode: None }, 0, None);
        self.feed(channel, content);
        self.finish(channel).result
    }

    #[track_caller]
    pub(crate) fn read(&mut self, path: &str) -> Outcome {
        self.call(Request::Read { path: path.to_owned(), offset: 0, length: None })
    }

    /// Closes the stream and waits for the guest's end.
    pub(crate) fn close(&mut self) -> ExitStatus {
        drop(self.stdin.take());
        self.wait()
    }

    pub(crate) fn kill(&mut self) -> ExitStatus {
        self.child.kill().expect("it runs");
        self.wait()
    }

    pub(crate) fn wait(&mut self) -> ExitStatus {
        let mut status = None;
        wait_until("the guest's end", || {
            status = self.child.try_wait().expect("a child of ours");
            status.is_some()
        });
        status.expect("it ended")
    }

    pub(crate) fn stderr_text(&mut self) -> String {
        let _ = self.wait();
        let mut words = String::new();
        if let Some(mut stderr) = self.child.stderr.take() {
            stderr.read_to_string(&mut words).expect("UTF-8");
        }
        words
    }

    /// The processes that this guest's commands started and that still live.
    pub(crate) fn leftovers(&self) -> Vec<String> {
        marked(&self.mark)
    }

    #[track_caller]
    pub(crate) fn assert_nothing_left(&self) {
        let mark = self.mark.clone();
        wait_until(&format!("nothing of {mark} is left"), || marked(&mark).is_empty());
    }

    /// Nothing is left when a result came just now of what began to be ended then, or later. Within the time that a guest takes for
    /// that, all is dead when the result comes; of a machine that stood still for longer, it is so in the end.
    #[track_caller]
    pub(crate) fn assert_nothing_left_of_what_ends_since(&self, then: Instant) {
        if now().saturating_duration_since(then) < END_TIMEOUT {
            assert_eq!(self.leftovers(), Vec::<String>::new(), "all is dead when the result comes");
        } else {
            self.assert_nothing_left();
        }
    }

    /// The guest's children that are zombies, and all its children.
    pub(crate) fn children(&self) -> (usize, usize) {
        let (mut zombies, mut all) = (0, 0);
        for pid in pids() {
            let Ok(stat) = std::fs::read_to_string(format!("/proc/{pid}/stat")) else { continue };
            let Some((_, rest)) = stat.rsplit_once(") ") else { continue };
            let mut fields = rest.split(' ');
            let state = fields.next();
            if fields.next() == Some(&self.pid().to_string()) {
                all += 1;
                zombies += usize::from(state == Some("Z"));
            }
        }
        (zombies, all)
    }

    /// The guest's resident memory, in KiB.
    pub(crate) fn resident(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid())).expect("it runs");
        let line = status.lines().find(|line| line.starts_with("VmRSS")).expect("a figure");
        line.split_ascii_whitespace().nth(1).expect("a figure").parse().expect("a number")
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        drop(self.stdin.take());
        if std::thread::panicking() {
            let _ = self.child.kill();
        }
        let _ = self.child.wait();
    }
}

fn pids() -> Vec<u32> {
    let entries = std::fs::read_dir("/proc").expect("/proc");
    entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

fn marked(mark: &str) -> Vec<String> {
    let is_marked = |pid: &u32| {
        std::fs::read(format!("/proc/{pid}/environ"))
            .is_ok_and(|environ| environ.split(|byte| *byte == 0).any(|variable| variable == mark.as_bytes()))
    };
    let describe = |pid: u32| {
        let command = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        format!("{pid} {}", String::from_utf8_lossy(&command).replace('\0', " "))
    };
    pids().into_iter().filter(is_marked).map(describe).collect()
}

/// Bounds that most tests do not reach.
pub(crate) const CAPTURE: OutputMode =
    OutputMode::Capture(CaptureLimits { head: 64 * 1024, tail: 64 * 1024, spill: 64 * 1024 * 1024 });

pub(crate) fn exec_request(argv: &[&str]) -> ExecRequest {
    ExecRequest {
        argv: argv.iter().map(|argument| (*argument).to_owned()).collect(),
        env: BTreeMap::new(),
        cwd: None,
        stdin: StdinMode::Null,
        output: CAPTURE,
        merge_stderr: false,
        limits: ProcessLimits::default(),
        lifetime: ProgramLifetime::Call,
    }
}

pub(crate) fn exec(argv: &[&str]) -> Request {
    Request::Exec(exec_request(argv))
}

pub(crate) fn bash(script: &str) -> Request {
    exec(&["bash", "-c", script])
}
