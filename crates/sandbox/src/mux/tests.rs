//! Against a guest that lies: the state machine with frames at random, and the whole client over a duplex pipe
//! whose other end the test holds.

mod tunnels;

use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use conjure_base::{Clock, Deadline, SystemClock};
use conjure_guest::protocol::{
    Decoder, ErrorCode, ExecEnd, ExecReply, Frame, FrameKind, GuestError, Open, PROTOCOL_VERSION, Reply,
    Request, StreamId, Welcome, encode_into,
};
use futures_util::future::BoxFuture;
use futures_util::{FutureExt, StreamExt};
use proptest::prelude::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};

use super::multiplexer::{Event, Multiplexer};
use crate::{
    Boundary, CallOptions, Command, CommandEnd, Connection, Connector, ExecutionContext, Executor, Hello,
    Isolation, Layout, Proxy, RunEvent, Sandbox, SandboxError, SandboxErrorKind, SandboxGuard, SetupFailure,
    SetupStep,
};

// ---------------------------------------------------------------------------------------------------------------
// The state machine alone.

fn read_request() -> Open {
    Open {
        request: Request::Read { path: "x".to_owned(), offset: 0, length: None },
        credit: 10,
        timeout_ms: None,
    }
}

fn frame(kind: FrameKind, channel: u32, payload: &[u8]) -> Frame {
    Frame { kind, channel, payload: payload.to_vec() }
}

fn data(channel: u32, content: &[u8]) -> Frame {
    frame(FrameKind::Data, channel, &[&[StreamId::Content as u8], content].concat())
}

fn done(channel: u32) -> Frame {
    let reply: Result<Reply, GuestError> = Ok(Reply::Read { size: 1 });
    frame(FrameKind::Done, channel, &serde_json::to_vec(&reply).unwrap())
}

fn written(multiplexer: &mut Multiplexer) -> Vec<Frame> {
    let mut buffer = Vec::new();
    let mut context = Context::from_waker(Waker::noop());
    let _ = multiplexer.poll_fill(&mut buffer, &mut context);
    let mut decoder = Decoder::new();
    decoder.push(&buffer);
    let mut frames = Vec::new();
    while let Some(frame) = decoder.next_frame().unwrap() {
        frames.push(frame);
    }
    frames
}

fn event(multiplexer: &mut Multiplexer, id: u32) -> Poll<Event> {
    multiplexer.poll_event(id, &mut Context::from_waker(Waker::noop()))
}

fn opened() -> (Multiplexer, u32) {
    let mut multiplexer = Multiplexer::default();
    let id = multiplexer.open(&read_request(), Deadline::NEVER).unwrap();
    assert_eq!(written(&mut multiplexer).len(), 1);
    (multiplexer, id)
}

#[test]
fn what_a_guest_must_not_say_is_a_violation() {
    let cases: [(&str, Vec<Frame>); 11] = [
        ("a channel never opened", vec![data(9, b"x")]),
        ("the end of a channel never opened", vec![done(9)]),
        ("more than granted", vec![data(1, b"01234567890")]),
        ("more than granted, in pieces", vec![data(1, b"0123456789"), data(1, b"0")]),
        ("data after the end", vec![done(1), data(1, b"x")]),
        ("two ends", vec![done(1), done(1)]),
        ("a host's frame", vec![frame(FrameKind::Open, 1, b"{}")]),
        ("a second greeting", vec![frame(FrameKind::Welcome, 0, b"{}")]),
        ("data of no stream", vec![frame(FrameKind::Data, 1, &[])]),
        ("a credit of three bytes", vec![frame(FrameKind::Credit, 1, &[1, 2, 3])]),
        ("a reply that is no reply", vec![frame(FrameKind::Done, 1, b"{}")]),
    ];
    for (what, frames) in cases {
        let (mut multiplexer, _) = opened();
        let last = frames.len() - 1;
        for (index, frame) in frames.into_iter().enumerate() {
            assert_eq!(multiplexer.receive(frame).is_err(), index == last, "{what}");
        }
    }
}

#[test]
fn a_request_that_was_not_written_yet_is_not_open_for_the_guest() {
    let mut multiplexer = Multiplexer::default();
    let id = multiplexer.open(&read_request(), Deadline::NEVER).unwrap();
    assert!(multiplexer.receive(done(id)).is_err());
}

#[test]
fn a_request_dropped_before_it_was_written_is_never_written() {
    let mut multiplexer = Multiplexer::default();
    let id = multiplexer.open(&read_request(), Deadline::NEVER).unwrap();
    multiplexer.abandon(id, Deadline::NEVER);
    assert_eq!(written(&mut multiplexer), []);
    assert_eq!(multiplexer.open_channels(), 0);
}

#[test]
fn frames_of_a_dropped_call_are_thrown_away_and_still_counted() {
    let (mut multiplexer, id) = opened();
    multiplexer.abandon(id, Deadline::NEVER);
    let kinds: Vec<_> = written(&mut multiplexer).into_iter().map(|frame| frame.kind).collect();
    assert_eq!(kinds, [FrameKind::Cancel]);
    multiplexer.receive(data(id, b"0123456789")).unwrap();
    multiplexer.receive(done(id)).unwrap();
    assert_eq!(multiplexer.open_channels(), 0);

    let (mut multiplexer, id) = opened();
    multiplexer.abandon(id, Deadline::NEVER);
    multiplexer.receive(data(id, b"01234")).unwrap();
    assert!(multiplexer.receive(data(id, b"012345")).is_err());
}

#[test]
fn what_came_before_the_sandbox_was_lost_is_still_delivered() {
    let (mut multiplexer, id) = opened();
    let other = multiplexer.open(&read_request(), Deadline::NEVER).unwrap();
    multiplexer.receive(data(id, b"x")).unwrap();
    multiplexer.receive(done(id)).unwrap();
    let lost = SandboxError::new(SandboxErrorKind::Lost, "gone");
    multiplexer.fail(lost.clone());
    multiplexer.fail(SandboxError::new(SandboxErrorKind::Lost, "a later reason"));
    assert_eq!(
        event(&mut multiplexer, id),
        Poll::Ready(Event::Data(StreamId::Content, Bytes::from_static(b"x")))
    );
    assert!(matches!(event(&mut multiplexer, id), Poll::Ready(Event::Done(Ok(_)))));
    assert_eq!(event(&mut multiplexer, other), Poll::Ready(Event::Lost(lost.clone())));
    assert_eq!(multiplexer.open(&read_request(), Deadline::NEVER), Err(lost));
}

#[test]
fn content_waits_for_credit_and_requests_do_not_wait_for_content() {
    let (mut multiplexer, id) = opened();
    let mut context = Context::from_waker(Waker::noop());
    let mut piece = Bytes::from(vec![7; 100_000]);
    assert!(multiplexer.poll_send(id, &mut piece, &mut context).is_pending());
    multiplexer.receive(frame(FrameKind::Credit, id, &70_000_u32.to_le_bytes())).unwrap();
    assert!(multiplexer.poll_send(id, &mut piece, &mut context).is_ready());
    assert!(multiplexer.poll_send(id, &mut piece, &mut context).is_ready());
    assert!(multiplexer.poll_send(id, &mut piece, &mut context).is_pending());
    assert_eq!(piece.len(), 30_000);
    multiplexer.open(&read_request(), Deadline::NEVER).unwrap();
    let frames = written(&mut multiplexer);
    let kinds: Vec<_> = frames.iter().map(|frame| frame.kind).collect();
    assert_eq!(kinds, [FrameKind::Open, FrameKind::Data, FrameKind::Data]);
    assert_eq!(frames[1].payload.len() + frames[2].payload.len(), 70_002);
}

#[test]
fn single_bytes_of_two_streams_in_turn_cost_little_more_than_their_credit() {
    let credit = 1 << 16;
    let mut multiplexer = Multiplexer::default();
    let id = multiplexer.open(&Open { credit, ..read_request() }, Deadline::NEVER).unwrap();
    written(&mut multiplexer);
    for place in 0..credit {
        let stream = if place % 2 == 0 { StreamId::Stdout } else { StreamId::Stderr };
        multiplexer.receive(frame(FrameKind::Data, id, &[stream as u8, 7])).unwrap();
    }
    assert!(multiplexer.held() <= 20 * credit as usize, "{} bytes are held", multiplexer.held());
}

#[test]
fn content_in_crumbs_comes_out_in_order_whatever_was_taken_between() {
    let mut multiplexer = Multiplexer::default();
    let open = Open { credit: 1 << 20, ..read_request() };
    let id = multiplexer.open(&open, Deadline::NEVER).unwrap();
    written(&mut multiplexer);
    let (mut sent, mut taken) = (Vec::new(), Vec::new());
    let mut take = |multiplexer: &mut Multiplexer, most: usize| {
        for _ in 0..most {
            let Poll::Ready(Event::Data(stream, bytes)) = event(multiplexer, id) else { break };
            taken.extend(bytes.iter().map(|byte| (stream, *byte)));
        }
    };
    for step in 0..3000_usize {
        let stream = if step % 3 == 0 { StreamId::Stderr } else { StreamId::Stdout };
        let size = [1, 1, 0, 1, 4095, 1, 4096, 2, 9000][step % 9];
        let content: Vec<u8> = (0..size).map(|place| (step + place) as u8).collect();
        multiplexer.receive(frame(FrameKind::Data, id, &[&[stream as u8], &content[..]].concat())).unwrap();
        sent.extend(content.iter().map(|byte| (stream, *byte)));
        if step % 50 == 0 {
            take(&mut multiplexer, step % 70);
        }
        if sent.len() > 1_000_000 {
            break;
        }
    }
    take(&mut multiplexer, usize::MAX);
    assert!(taken == sent, "{} of {} bytes", taken.len(), sent.len());
}

#[test]
fn a_guest_that_grants_a_terabyte_is_not_taken_at_its_word() {
    let (mut multiplexer, id) = opened();
    for _ in 0..256 {
        multiplexer.receive(frame(FrameKind::Credit, id, &u32::MAX.to_le_bytes())).unwrap();
    }
    let content = Bytes::from(vec![b'x'; 4 * 1024 * 1024]);
    let mut rest = content.clone();
    let mut context = Context::from_waker(Waker::noop());
    while multiplexer.poll_send(id, &mut rest, &mut context).is_ready() && !rest.is_empty() {}
    assert_eq!(content.len() - rest.len(), 512 * 1024);
    // What was written makes room, and who waits for it is woken.
    multiplexer.take_wakes();
    assert!(!written(&mut multiplexer).is_empty());
    assert_eq!(multiplexer.take_wakes().len(), 1);
    assert!(multiplexer.poll_send(id, &mut rest, &mut context).is_ready());
}

#[test]
fn a_request_longer_than_a_frame_is_refused_with_a_remedy() {
    let mut open = read_request();
    open.request = Request::Read { path: "x".repeat(2 << 20), offset: 0, length: None };
    let error = Multiplexer::default().open(&open, Deadline::NEVER).unwrap_err();
    assert_eq!(error.kind(), SandboxErrorKind::TooLarge);
    assert!(error.to_string().contains("standard input"), "{error}");
}

/// One thing that happens to the state machine.
#[derive(Debug, Clone)]
enum Step {
    Open,
    Receive(u8, u32, Vec<u8>),
    Write,
    Take(u32),
    Send(u32, usize),
    Grant(u32, u32),
    Finish(u32),
    Cancel(u32),
    Abandon(u32),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let id = 0_u32..6;
    let payload = prop_oneof![
        proptest::collection::vec(any::<u8>(), 0..12),
        (0_u8..4, 0_usize..30).prop_map(|(stream, length)| [vec![stream], vec![0; length]].concat()),
        Just(done(0).payload),
        any::<u32>().prop_map(|credit| credit.to_le_bytes().to_vec()),
    ];
    let step = prop_oneof![
        2 => Just(Step::Open),
        6 => (1_u8..9, id.clone(), payload).prop_map(|(kind, id, payload)| Step::Receive(kind, id, payload)),
        2 => Just(Step::Write),
        2 => id.clone().prop_map(Step::Take),
        1 => (id.clone(), 0_usize..100_000).prop_map(|(id, length)| Step::Send(id, length)),
        1 => (id.clone(), any::<u32>()).prop_map(|(id, bytes)| Step::Grant(id, bytes)),
        1 => id.clone().prop_map(Step::Finish),
        1 => id.clone().prop_map(Step::Cancel),
        1 => id.prop_map(Step::Abandon),
    ];
    proptest::collection::vec(step, 0..60)
}

fn kind(byte: u8) -> FrameKind {
    let mut header = vec![0, 0, 0, 0, byte, 0, 0, 0, 0];
    let mut decoder = Decoder::new();
    decoder.push(&std::mem::take(&mut header));
    decoder.next_frame().unwrap().unwrap().kind
}

proptest! {
    /// Whatever a guest says and whatever calls do: no panic, and once the sandbox failed, every channel of a
    /// call ends and none is left.
    #[test]
    fn no_sequence_panics_and_every_call_ends(steps in steps()) {
        let mut multiplexer = Multiplexer::default();
        let mut context = Context::from_waker(Waker::noop());
        for step in steps {
            match step {
                Step::Open => { let _ = multiplexer.open(&read_request(), Deadline::NEVER); }
                Step::Receive(byte, id, payload) => {
                    if let Err(violation) = multiplexer.receive(frame(kind(byte), id, &payload)) {
                        multiplexer.fail(SandboxError::new(SandboxErrorKind::Lost, violation.to_string()));
                    }
                }
                Step::Write => { written(&mut multiplexer); }
                Step::Take(id) => { let _ = event(&mut multiplexer, id); }
                Step::Send(id, length) => {
                    let _ = multiplexer.poll_send(id, &mut Bytes::from(vec![0; length]), &mut context);
                }
                Step::Grant(id, bytes) => multiplexer.grant(id, bytes),
                Step::Finish(id) => multiplexer.finish(id),
                Step::Cancel(id) => multiplexer.cancel(id, Deadline::NEVER),
                Step::Abandon(id) => multiplexer.abandon(id, Deadline::NEVER),
            }
        }
        multiplexer.fail(SandboxError::new(SandboxErrorKind::Lost, "the end"));
        for id in 0..70 {
            while let Poll::Ready(Event::Data(..)) = event(&mut multiplexer, id) {}
        }
        prop_assert_eq!(multiplexer.open_channels(), 0);
    }
}

// ---------------------------------------------------------------------------------------------------------------
// The whole client.

/// A guest that the test plays.
struct Fake {
    stream: DuplexStream,
    decoder: Decoder,
    /// Told when the host kills or drops the guest.
    ended: tokio::sync::oneshot::Receiver<()>,
}

#[derive(Debug)]
struct FakeGuard {
    ended: Option<tokio::sync::oneshot::Sender<()>>,
}

impl Drop for FakeGuard {
    fn drop(&mut self) {
        let _ = self.ended.take().map(|ended| ended.send(()));
    }
}

impl SandboxGuard for FakeGuard {
    fn greeted(&mut self, _: &Welcome) -> Isolation {
        Isolation::NONE
    }

    fn ended(&mut self) -> BoxFuture<'_, String> {
        std::future::pending().boxed()
    }

    fn kill(&mut self) -> BoxFuture<'_, ()> {
        std::future::ready(()).boxed()
    }
}

#[derive(Debug)]
struct FakeConnector {
    made: std::sync::Mutex<Option<(DuplexStream, FakeGuard)>>,
    proxy: Option<Proxy>,
}

impl Connector for FakeConnector {
    /// More than its guard achieves.
    fn isolation(&self) -> Isolation {
        Isolation::FULL
    }

    fn connect<'a>(&'a self, _: &'a ExecutionContext) -> BoxFuture<'a, Result<Connection, SandboxError>> {
        let (stream, guard) = self.made.lock().unwrap().take().expect("connected once");
        let (reader, writer) = tokio::io::split(stream);
        let layout = Layout { workspace: "/".into(), read_only: Vec::new() };
        let connection = Connection {
            reader: Box::new(reader),
            writer: Box::new(writer),
            hello: Hello::default(),
            layout,
            proxy: self.proxy.clone(),
            guard: Box::new(guard),
        };
        std::future::ready(Ok(connection)).boxed()
    }
}

fn fake() -> (FakeConnector, Fake) {
    let (host, guest) = duplex(64 * 1024);
    let (sender, ended) = tokio::sync::oneshot::channel();
    let made = std::sync::Mutex::new(Some((host, FakeGuard { ended: Some(sender) })));
    let connector = FakeConnector { made, proxy: None };
    (connector, Fake { stream: guest, decoder: Decoder::new(), ended })
}

async fn open(connector: &FakeConnector) -> Result<Sandbox, SandboxError> {
    let deadline = SystemClock.deadline(Duration::from_secs(10));
    Sandbox::open(connector, &ExecutionContext::new("/"), Arc::new(SystemClock), deadline).await
}

async fn greeted() -> (Sandbox, Fake) {
    let (connector, mut guest) = fake();
    let (sandbox, ()) = tokio::join!(open(&connector), guest.greet(PROTOCOL_VERSION));
    (sandbox.unwrap(), guest)
}

fn soon() -> CallOptions {
    CallOptions::until(SystemClock.deadline(Duration::from_secs(5)))
}

impl Fake {
    async fn greet(&mut self, version: u32) {
        assert_eq!(self.heard().await.unwrap().kind, FrameKind::Hello);
        self.welcome(version).await;
    }

    async fn welcome(&mut self, version: u32) {
        self.say(
            FrameKind::Welcome,
            0,
            &serde_json::to_vec(&Welcome {
                version,
                pid: 1,
                confinement: None,
                rules: Default::default(),
                roots: Default::default(),
            })
            .unwrap(),
        )
        .await;
    }

    /// The host's next frame; `None` when it has closed the stream.
    async fn heard(&mut self) -> Option<Frame> {
        let mut buffer = vec![0; 64 * 1024];
        loop {
            if let Some(frame) = self.decoder.next_frame().unwrap() {
                return Some(frame);
            }
            match self.stream.read(&mut buffer).await {
                Ok(0) | Err(_) => return None,
                Ok(length) => self.decoder.push(&buffer[..length]),
            }
        }
    }

    async fn say(&mut self, kind: FrameKind, channel: u32, payload: &[u8]) {
        let mut bytes = Vec::new();
        encode_into(&mut bytes, kind, channel, payload).unwrap();
        // The host may have closed the stream already: that is its right.
        let _ = self.stream.write_all(&bytes).await;
    }

    async fn reply(&mut self, channel: u32, reply: Result<Reply, GuestError>) {
        self.say(FrameKind::Done, channel, &serde_json::to_vec(&reply).unwrap()).await;
    }
}

fn exited(code: i32) -> Reply {
    Reply::Exec(ExecReply {
        end: ExecEnd::Exited(code),
        stdout: Default::default(),
        stderr: Default::default(),
        duration_us: 7,
        reached: Default::default(),
    })
}

#[tokio::test(start_paused = true)]
async fn a_call_goes_out_and_its_reply_comes_back() {
    let (sandbox, mut guest) = greeted().await;
    let call = sandbox.run(Command::new(["true"]), soon());
    let serve = async {
        let open = guest.heard().await.unwrap();
        let request: Open = open.json().unwrap();
        assert_eq!((open.kind, request.timeout_ms), (FrameKind::Open, Some(5000)));
        guest.reply(open.channel, Ok(exited(3))).await;
    };
    let (outcome, ()) = tokio::join!(call, serve);
    assert_eq!(outcome.unwrap().end, CommandEnd::Exited(3));
}

#[tokio::test(start_paused = true)]
async fn another_version_is_an_error_that_says_so() {
    let (connector, mut guest) = fake();
    let (sandbox, ()) = tokio::join!(open(&connector), guest.greet(PROTOCOL_VERSION + 1));
    let error = sandbox.unwrap_err();
    assert_eq!(error.kind(), SandboxErrorKind::Unavailable);
    assert!(error.to_string().contains(&format!("speaks version {}", PROTOCOL_VERSION + 1)), "{error}");
    guest.ended.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_guest_that_cannot_confine_itself_says_why_and_is_ended() {
    let (connector, mut guest) = fake();
    let refuse = async {
        assert_eq!(guest.heard().await.unwrap().kind, FrameKind::Hello);
        let failure = SetupFailure {
            step: SetupStep::Namespaces,
            errno: 28,
            doing: "make namespaces".to_owned(),
            reason: "No space left on device".to_owned(),
        };
        guest.say(FrameKind::Done, 0, &serde_json::to_vec(&failure).unwrap()).await;
    };
    let (sandbox, ()) = tokio::join!(open(&connector), refuse);
    let error = sandbox.unwrap_err();
    assert_eq!(error.kind(), SandboxErrorKind::Unavailable);
    assert!(error.to_string().contains("make namespaces: No space"), "{error}");
    guest.ended.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_sandbox_that_achieves_less_than_its_kind_promised_and_the_floor_demands_is_ended() {
    let (connector, mut guest) = fake();
    let mut context = ExecutionContext::new("/");
    context.floor = Isolation { network: Boundary::Enforced, ..Isolation::NONE };
    let deadline = SystemClock.deadline(Duration::from_secs(10));
    let opened = Sandbox::open(&connector, &context, Arc::new(SystemClock), deadline);
    let (sandbox, ()) = tokio::join!(opened, guest.greet(PROTOCOL_VERSION));
    let error = sandbox.unwrap_err();
    assert_eq!(error.kind(), SandboxErrorKind::NotEnforced);
    assert!(error.to_string().contains("demanded of it: network"), "{error}");
    guest.ended.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_guest_that_never_greets_is_given_up_and_killed() {
    let (connector, guest) = fake();
    assert_eq!(open(&connector).await.unwrap_err().kind(), SandboxErrorKind::TimedOut);
    guest.ended.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_guest_that_does_not_answer_is_killed_and_the_call_is_lost() {
    let (sandbox, guest) = greeted().await;
    let error = sandbox.run(Command::new(["true"]), soon()).await.unwrap_err();
    assert_eq!(error.kind(), SandboxErrorKind::Lost);
    assert!(error.to_string().contains("did not answer"), "{error}");
    assert_eq!(sandbox.view("x", None, 1, soon()).await.unwrap_err().kind(), SandboxErrorKind::Lost);
    guest.ended.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_guest_that_ignores_a_dropped_call_is_killed_too() {
    let (sandbox, mut guest) = greeted().await;
    let forever = CallOptions::until(Deadline::NEVER);
    let call = sandbox.run(Command::new(["true"]), forever);
    let opened = async { assert_eq!(guest.heard().await.unwrap().kind, FrameKind::Open) };
    tokio::select! {
        _ = call => panic!("nobody answered"),
        () = opened => {}
    }
    assert_eq!(guest.heard().await.unwrap().kind, FrameKind::Cancel);
    assert_eq!(guest.heard().await, None);
    guest.ended.await.unwrap();
    assert_eq!(sandbox.failure().unwrap().kind(), SandboxErrorKind::Lost);
}

#[tokio::test(start_paused = true)]
async fn cancelling_waits_for_what_the_guest_knows() {
    let (sandbox, mut guest) = greeted().await;
    let options = CallOptions::until(Deadline::NEVER);
    let cancel = options.cancel.clone();
    let serve = async {
        let open = guest.heard().await.unwrap();
        cancel.cancel();
        assert_eq!(guest.heard().await.unwrap().kind, FrameKind::Cancel);
        guest.reply(open.channel, Err(GuestError { code: ErrorCode::Cancelled, message: "x".into() })).await;
    };
    let (outcome, ()) = tokio::join!(sandbox.view("x", None, 1, options), serve);
    assert_eq!(outcome.unwrap_err().kind(), SandboxErrorKind::Cancelled);
    assert_eq!(sandbox.failure(), None);
}

#[tokio::test(start_paused = true)]
async fn the_end_of_the_stream_loses_all_calls() {
    let (sandbox, guest) = greeted().await;
    let (first, second) =
        (sandbox.run(Command::new(["a"]), soon()), sandbox.run(Command::new(["b"]), soon()));
    let (first, second, ()) = tokio::join!(first, second, async { drop(guest.stream) });
    for outcome in [first, second] {
        let error = outcome.unwrap_err();
        assert_eq!(error.kind(), SandboxErrorKind::Lost, "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_reply_to_something_else_and_wrong_counts_lose_the_sandbox() {
    let mut counts = exited(0);
    if let Reply::Exec(reply) = &mut counts {
        reply.stdout.head = 5;
    }
    for reply in [Reply::Read { size: 1 }, counts] {
        let (sandbox, mut guest) = greeted().await;
        let serve = async {
            let open = guest.heard().await.unwrap();
            guest.reply(open.channel, Ok(reply)).await;
        };
        let (outcome, ()) = tokio::join!(sandbox.run(Command::new(["true"]), soon()), serve);
        assert_eq!(outcome.unwrap_err().kind(), SandboxErrorKind::Lost);
        assert_eq!(sandbox.failure().unwrap().kind(), SandboxErrorKind::Lost);
        guest.ended.await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_is_not_polled_grants_nothing_and_delays_no_other() {
    let (sandbox, mut guest) = greeted().await;
    let (content, channel) = tokio::join!(sandbox.read("big", soon()), async {
        let open = guest.heard().await.unwrap();
        let mut left = open.json::<Open>().unwrap().credit as usize;
        while left > 0 {
            let size = left.min(60_000);
            guest.say(FrameKind::Data, open.channel, &vec![0; size + 1]).await;
            left -= size;
        }
        open.channel
    });
    let mut content = content.unwrap();

    // While it is full, another call passes, and no credit was granted.
    let serve = async {
        let open = guest.heard().await.unwrap();
        assert_eq!(open.kind, FrameKind::Open);
        guest.reply(open.channel, Ok(exited(0))).await;
    };
    let (outcome, ()) = tokio::join!(sandbox.run(Command::new(["true"]), soon()), serve);
    outcome.unwrap();

    // Taking it grants what was taken.
    let mut taken = 0;
    let grant = loop {
        tokio::select! {
            biased;
            frame = guest.heard() => break frame.unwrap(),
            piece = content.next() => taken += piece.unwrap().unwrap().len(),
        }
    };
    assert_eq!((grant.kind, grant.channel), (FrameKind::Credit, channel));
    assert!(grant.credit().unwrap() as usize <= taken);
}

#[tokio::test(start_paused = true)]
async fn an_error_in_the_content_cancels_the_write_and_is_what_the_caller_sees() {
    let (sandbox, mut guest) = greeted().await;
    let failure = SandboxError::new(SandboxErrorKind::Io, "the source broke");
    let content = futures_util::stream::iter([Ok(Bytes::from_static(b"abc")), Err(failure.clone())]).boxed();
    let serve = async {
        let open = guest.heard().await.unwrap();
        guest.say(FrameKind::Credit, open.channel, &100_u32.to_le_bytes()).await;
        let mut kinds = Vec::new();
        while kinds.last() != Some(&FrameKind::Cancel) {
            kinds.push(guest.heard().await.unwrap().kind);
        }
        assert!(!kinds.contains(&FrameKind::Eof), "{kinds:?}");
        guest.reply(open.channel, Err(GuestError { code: ErrorCode::Cancelled, message: "x".into() })).await;
    };
    let (outcome, ()) = tokio::join!(sandbox.write("x", content, soon()), serve);
    assert_eq!(outcome.unwrap_err(), failure);
}

#[tokio::test(start_paused = true)]
async fn a_streamed_run_yields_pieces_and_then_the_outcome() {
    let (sandbox, mut guest) = greeted().await;
    let mut stream = sandbox.run_streamed(Command::new(["true"]), soon()).unwrap();
    let open = guest.heard().await.unwrap();
    guest.say(FrameKind::Data, open.channel, b"\x01out").await;
    guest.say(FrameKind::Data, open.channel, b"\x02err").await;
    guest.reply(open.channel, Ok(exited(0))).await;
    assert_eq!(stream.next().await.unwrap().unwrap(), RunEvent::Stdout(Bytes::from_static(b"out")));
    assert_eq!(stream.next().await.unwrap().unwrap(), RunEvent::Stderr(Bytes::from_static(b"err")));
    assert!(matches!(stream.next().await, Some(Ok(RunEvent::Ended(_)))));
    assert!(stream.next().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn dropping_the_last_handle_closes_the_stream_and_a_content_stream_is_one() {
    let (sandbox, mut guest) = greeted().await;
    let stream = sandbox.run_streamed(Command::new(["true"]), soon()).unwrap();
    drop(sandbox);
    assert_eq!(guest.heard().await.unwrap().kind, FrameKind::Open);
    drop(stream);
    while guest.heard().await.is_some() {}
    guest.ended.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn cleanup_may_be_called_twice_and_calls_after_it_are_lost() {
    let (sandbox, guest) = greeted().await;
    let call = sandbox.run(Command::new(["true"]), CallOptions::until(Deadline::NEVER));
    let (outcome, (), ()) = tokio::join!(call, sandbox.cleanup(), sandbox.cleanup());
    assert_eq!(outcome.unwrap_err().kind(), SandboxErrorKind::Lost);
    guest.ended.await.unwrap();
    sandbox.cleanup().await;
    assert_eq!(sandbox.init().await.unwrap_err().kind(), SandboxErrorKind::Lost);
    assert_eq!(sandbox.run(Command::new(["x"]), soon()).await.unwrap_err().kind(), SandboxErrorKind::Lost);
}

#[tokio::test(start_paused = true)]
async fn a_call_whose_time_is_up_is_never_sent() {
    let (sandbox, mut guest) = greeted().await;
    let past = CallOptions::until(SystemClock.deadline(Duration::ZERO));
    assert_eq!(sandbox.run(Command::new(["x"]), past).await.unwrap_err().kind(), SandboxErrorKind::TimedOut);
    let cancelled = soon();
    cancelled.cancel.cancel();
    let error = sandbox.run(Command::new(["x"]), cancelled).await.unwrap_err();
    assert_eq!(error.kind(), SandboxErrorKind::Cancelled);
    drop(sandbox);
    assert_eq!(guest.heard().await, None);
}

/// What a hostile guest writes.
fn garbage() -> impl Strategy<Value = Vec<u8>> {
    let framed = (1_u8..9, 0_u32..4, proptest::collection::vec(any::<u8>(), 0..64)).prop_map(
        |(byte, channel, payload)| {
            let mut bytes = Vec::new();
            encode_into(&mut bytes, kind(byte), channel, &payload).unwrap();
            bytes
        },
    );
    let piece = prop_oneof![
        3 => framed,
        1 => proptest::collection::vec(any::<u8>(), 0..64),
        1 => Just({ let mut bytes = Vec::new(); let done = done(1);
            encode_into(&mut bytes, done.kind, 1, &done.payload).unwrap(); bytes }),
    ];
    proptest::collection::vec(piece, 0..20).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    /// Whatever bytes come: both calls end, and the sandbox can be closed.
    #[test]
    fn no_bytes_hang_or_panic_a_call(bytes in garbage()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
        runtime.unwrap().block_on(async {
            let (sandbox, mut guest) = greeted().await;
            let run = sandbox.run(Command::new(["true"]), soon());
            let read = async {
                match sandbox.read("x", soon()).await {
                    Ok(content) => content.collect::<Vec<_>>().await.len(),
                    Err(_) => 0,
                }
            };
            let hostile = async {
                let _ = guest.heard().await;
                let _ = guest.stream.write_all(&bytes).await;
                // The stream stays open: that the calls end must not depend on its end.
                while guest.heard().await.is_some() {}
            };
            let calls = async {
                let _ = tokio::join!(run, read);
                sandbox.cleanup().await;
            };
            tokio::join!(calls, hostile);
        });
    }
}
