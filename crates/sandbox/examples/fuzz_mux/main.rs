//! A fuzz campaign over the host's side of the protocol: real calls of a real [`Sandbox`] against a guest that
//! lies. `examples/campaign` says how to run it.
//!
//! The guest says what fits, what does not, and damaged bytes, in pieces of any size; meanwhile callers wait, take
//! some of a stream and drop it, take none of it for long, or cancel. A small model of the protocol judges what was
//! said. Whatever that is, every call ends. What the protocol forbids loses the sandbox; what it allows never does, and
//! then each caller has exactly the bytes that were sent. The host itself speaks by the protocol, and within its credit.
#![expect(
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::panic,
    reason = "a campaign is run by hand, prints what it found and fails loudly"
)]

#[path = "../../../../examples/campaign/mod.rs"]
mod campaign;
mod guest;

use std::cell::Cell;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use campaign::Random;
use conjure_base::{Clock, Deadline, SystemClock};
use conjure_guest::protocol::{StreamId, Welcome};
use conjure_sandbox::{
    ArtifactDir, CallOptions, Command, Connector, ExecutionContext, Executor, Hello, Input, Isolation,
    Layout, RunEvent, Sandbox, SandboxError, SandboxErrorKind, SandboxGuard, StartedSandbox, View,
};
use futures_util::future::{BoxFuture, join_all};
use futures_util::{FutureExt, Stream, StreamExt, stream};
use guest::{Finale, Guest};
use tokio::io::{DuplexStream, duplex};
use tokio_util::sync::CancellationToken;

/// Buffers of one sandbox, and the credit of a few calls.
const MOST_MEMORY: u64 = 48 << 20;

fn main() {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    campaign::run(MOST_MEMORY, &mut [("guests", &mut |random| runtime.block_on(bounded(random)))]);
}

/// A call that does not end would wait for ever: time passes by itself when all wait.
async fn bounded(random: &mut Random) -> &'static str {
    tokio::time::timeout(Duration::from_secs(3600), case(random))
        .await
        .unwrap_or_else(|_| panic!("something hangs"))
}

/// What a caller does with a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Taking {
    All,
    /// Nothing until the guest has said all it wants to say; then everything.
    Late,
    /// So many pieces, then it drops the stream.
    Some(usize),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Run,
    View,
    List,
    Write,
    Create,
    Replace,
    Read(Taking),
    Stream(Taking),
}

/// What a caller got: the bytes of each stream in order, and whether the call ended well.
pub(crate) struct Got {
    pub(crate) pieces: Vec<(StreamId, Vec<u8>)>,
    pub(crate) end: Result<(), SandboxError>,
}

/// What both sides of a case know.
pub(crate) struct Shared {
    pub(crate) kinds: Vec<Kind>,
    pub(crate) cancels: Vec<CancellationToken>,
    /// The guest has said all that it says unasked.
    pub(crate) said: CancellationToken,
    pub(crate) judgement: Cell<Judgement>,
}

/// What the model of the protocol makes of what was said so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Judgement {
    Allowed,
    /// It depends on what the host has done meanwhile.
    Unsure,
    Forbidden,
}

async fn case(random: &mut Random) -> &'static str {
    let kinds: Vec<Kind> = (0..=random.below(4)).map(|_| kind(random)).collect();
    let shared = Shared {
        cancels: kinds.iter().map(|_| CancellationToken::new()).collect(),
        said: CancellationToken::new(),
        judgement: Cell::new(Judgement::Allowed),
        kinds,
    };
    let room =
        if random.below(50) == 0 { random.pick(&[1, 9, 100]) } else { random.pick(&[1000, 4096, 30_000]) };
    let (host, pipe) = duplex(room);
    let mut guest = Guest::new(pipe, random, &shared);
    let connector = OneGuest(Mutex::new(Some(host)));
    let context = ExecutionContext::new("/");
    let deadline = SystemClock.deadline(Duration::from_secs(10));
    let (sandbox, greeted) =
        tokio::join!(Sandbox::open(&connector, &context, Arc::new(SystemClock), deadline), guest.greet());
    let sandbox = match sandbox {
        Ok(sandbox) => sandbox,
        Err(error) => {
            assert!(!greeted, "{error}");
            check(&error);
            return "not greeted";
        }
    };
    let calls = shared.kinds.iter().enumerate().map(|(index, kind)| call(&sandbox, index, *kind, &shared));
    let callers = async {
        let got = join_all(calls).await;
        shared.said.cancelled().await;
        if shared.judgement.get() == Judgement::Forbidden {
            for _ in 0..10_000 {
                if sandbox.failure().is_some() {
                    break;
                }
                tokio::task::yield_now().await;
            }
            assert!(sandbox.failure().is_some(), "the guest said what it must not, and lives");
        }
        let failure = sandbox.failure();
        sandbox.cleanup().await;
        (got, failure)
    };
    let ((got, failure), finale) = tokio::join!(callers, guest.act());
    if let Some(failure) = &failure {
        assert_eq!(failure.kind(), SandboxErrorKind::Lost);
        check(failure);
    }
    match (shared.judgement.get(), finale) {
        (Judgement::Forbidden, _) => "forbidden",
        (Judgement::Unsure, _) => "unsure",
        (Judgement::Allowed, Finale::Answers) => {
            assert_eq!(failure, None, "the guest said nothing that it must not");
            guest.compare(&got);
            "allowed"
        }
        (Judgement::Allowed, Finale::Leaves | Finale::Silent) => "allowed, then gone",
    }
}

fn kind(random: &mut Random) -> Kind {
    let taking = match random.below(4) {
        0 | 1 => Taking::All,
        2 => Taking::Late,
        _ => Taking::Some(random.below(4)),
    };
    match random.below(10) {
        0 | 1 => Kind::Run,
        2 => Kind::View,
        3 => Kind::List,
        4 => Kind::Write,
        5 => Kind::Create,
        6 => Kind::Replace,
        7 => Kind::Read(taking),
        _ => Kind::Stream(taking),
    }
}

/// Makes a call; its place among the calls is its path or program.
async fn call(sandbox: &Sandbox, index: usize, kind: Kind, shared: &Shared) -> Got {
    let deadline =
        if index.is_multiple_of(2) { Deadline::NEVER } else { SystemClock.deadline(Duration::from_secs(5)) };
    let options = CallOptions { deadline, cancel: shared.cancels[index].clone() };
    let path = index.to_string();
    let command = Command {
        merge_stderr: index == 1,
        keep_head: 20,
        keep_tail: 20,
        input: if index == 2 { Input::Empty } else { Input::Bytes(vec![b'i'; 300]) },
        ..Command::new([path.clone()])
    };
    let nothing = |outcome: Result<(), SandboxError>| Got { pieces: Vec::new(), end: outcome };
    match kind {
        Kind::Run => match sandbox.run(command, options).await {
            Ok(outcome) => {
                let streams = [(StreamId::Stdout, outcome.stdout), (StreamId::Stderr, outcome.stderr)];
                let pieces = streams.map(|(id, output)| (id, [output.head, output.tail].concat()));
                Got { pieces: pieces.into(), end: Ok(()) }
            }
            Err(error) => nothing(Err(error)),
        },
        Kind::View => match sandbox.view(&path, None, 50, options).await {
            Ok(View::Text { text, .. }) => {
                Got { pieces: vec![(StreamId::Content, text.into())], end: Ok(()) }
            }
            other => nothing(other.map(drop)),
        },
        Kind::List => nothing(sandbox.list(&path, 1, 10, options).await.map(drop)),
        Kind::Write => {
            let pieces = [10, 0, 700, 70_000].map(|size| Ok(Bytes::from(vec![b'w'; size])));
            nothing(sandbox.write(&path, stream::iter(pieces).boxed(), options).await.map(drop))
        }
        Kind::Create => nothing(sandbox.create_file(&path, &[b'c'; 3000], options).await.map(drop)),
        Kind::Replace => nothing(sandbox.str_replace(&path, "a", "b", options).await.map(drop)),
        Kind::Read(taking) => match sandbox.read(&path, options).await {
            Ok(content) => take(content, taking, shared, |piece| Some((StreamId::Content, piece))).await,
            Err(error) => nothing(Err(error)),
        },
        Kind::Stream(taking) => match sandbox.run_streamed(command, options) {
            Ok(events) => {
                take(events, taking, shared, |event| match event {
                    RunEvent::Stdout(piece) => Some((StreamId::Stdout, piece)),
                    RunEvent::Stderr(piece) => Some((StreamId::Stderr, piece)),
                    RunEvent::Ended(_) => None,
                })
                .await
            }
            Err(error) => nothing(Err(error)),
        },
    }
}

async fn take<T>(
    mut items: impl Stream<Item = Result<T, SandboxError>> + Unpin,
    taking: Taking,
    shared: &Shared,
    piece: impl Fn(T) -> Option<(StreamId, Bytes)>,
) -> Got {
    if taking == Taking::Late {
        shared.said.cancelled().await;
    }
    let most = if let Taking::Some(most) = taking { most } else { usize::MAX };
    let mut pieces = Vec::new();
    while pieces.len() < most
        && let Some(item) = items.next().await
    {
        match item {
            Ok(item) => pieces.extend(piece(item).map(|(id, bytes)| (id, bytes.to_vec()))),
            Err(error) => {
                assert!(items.next().await.is_none(), "an error is the last item");
                return Got { pieces, end: Err(error) };
            }
        }
    }
    Got { pieces, end: Ok(()) }
}

/// Errors go to people and models: short, whatever the guest wrote.
fn check(error: &SandboxError) {
    let text = error.to_string();
    assert!(text.len() < 1000 && !text.contains(char::is_control), "{text:?}");
}

#[derive(Debug)]
struct OneGuest(Mutex<Option<DuplexStream>>);

impl Connector for OneGuest {
    fn isolation(&self) -> Isolation {
        Isolation::NONE
    }

    fn connect<'a>(&'a self, _: &'a ExecutionContext) -> BoxFuture<'a, Result<StartedSandbox, SandboxError>> {
        let (reader, writer) = tokio::io::split(self.0.lock().unwrap().take().unwrap());
        let hello = Hello::default();
        let layout = Layout { workspace: "/".into(), read_only: Vec::new(), artifacts: ArtifactDir::None };
        let (reader, writer) = (Box::new(reader), Box::new(writer));
        let guard = Box::new(NoProcess);
        let connection = StartedSandbox { reader, writer, hello, layout, proxy: None, guard };
        std::future::ready(Ok(connection)).boxed()
    }
}

/// There is no process to wait for.
#[derive(Debug)]
struct NoProcess;

impl SandboxGuard for NoProcess {
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
