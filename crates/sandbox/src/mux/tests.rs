//! Against a guest that lies: the state machine with frames at random, and the whole client over a duplex pipe
//! whose other end the test holds.

mod client;
mod machine;
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
    ArtifactDir, Boundary, CallOptions, Command, CommandEnd, Connector, ExecutionContext, Executor, Hello,
    Isolation, Layout, Proxy, RunEvent, Sandbox, SandboxError, SandboxErrorKind, SandboxGuard, SetupError,
    SetupStep, StartedSandbox,
};

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

fn kind(byte: u8) -> FrameKind {
    let mut header = vec![0, 0, 0, 0, byte, 0, 0, 0, 0];
    let mut decoder = Decoder::new();
    decoder.push(&std::mem::take(&mut header));
    decoder.next_frame().unwrap().unwrap().kind
}

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
    fn confirmed_isolation(&mut self, _: &Welcome) -> Isolation {
        Isolation::NONE
    }

    fn wait(&mut self) -> BoxFuture<'_, String> {
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

    fn connect<'a>(&'a self, _: &'a ExecutionContext) -> BoxFuture<'a, Result<StartedSandbox, SandboxError>> {
        let (stream, guard) = self.made.lock().unwrap().take().expect("connected once");
        let (reader, writer) = tokio::io::split(stream);
        let layout = Layout { workspace: "/".into(), read_only: Vec::new(), artifacts: ArtifactDir::None };
        let connection = StartedSandbox {
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
