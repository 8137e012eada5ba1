//! A busy host: sandboxes with running commands, file transfers, and sandboxes that are being created.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use conjure_base::{Clock as _, SystemClock};
use conjure_sandbox::{
    Command, Docker, ExecutionContext, Executor, RunEvent, Sandbox, SandboxError, SandboxErrorKind,
};
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use tempfile::TempDir;
use tokio::task::JoinSet;

use crate::engine::{OwnEngine, pause};
use crate::support::{host, options, output_of, soon, until};

/// The timeout after which an operation counts as hanging.
const HANGS: Duration = Duration::from_secs(400);

/// A sandbox, and its workspace, which is an ordinary directory of the host's.
#[derive(Debug)]
pub(crate) struct Container {
    pub(crate) sandbox: Arc<Sandbox>,
    pub(crate) workspace: TempDir,
}

/// Sandboxes with something to do.
pub(crate) struct Load {
    containers: Vec<Container>,
    calls: JoinSet<Result<(), SandboxError>>,
    openings: JoinSet<Result<Container, SandboxError>>,
}

impl OwnEngine {
    pub(crate) fn connector(&self) -> Docker {
        Docker::new(self.options(), host())
    }
}

pub(crate) async fn open(connector: &Docker, workspace: &Path) -> Result<Sandbox, SandboxError> {
    Sandbox::open(connector, &ExecutionContext::new(workspace), Arc::new(SystemClock), soon(300)).await
}

pub(crate) async fn container(connector: &Docker) -> Result<Container, SandboxError> {
    let workspace = tempfile::tempdir().unwrap();
    fs::write(workspace.path().join("kept"), "kept\n").unwrap();
    let sandbox = open(connector, workspace.path()).await?;
    Ok(Container { sandbox: Arc::new(sandbox), workspace })
}

/// The output of a script, which must succeed.
pub(crate) async fn sh(sandbox: &Sandbox, script: &str) -> String {
    output_of(&sandbox.run(Command::new(["sh", "-c", script]), options()).await.unwrap())
}

/// A new container works, for a directory that was there before; and nothing but it is there.
pub(crate) async fn assert_works(connector: &Docker, workspace: &Path) {
    let sandbox = reopen(connector, workspace).await;
    assert_eq!(sh(&sandbox, "cat kept; echo well").await, "kept\nwell\n");
    sandbox.cleanup().await;
}

/// A sandbox, as a host opens one that is told to try again.
async fn reopen(connector: &Docker, workspace: &Path) -> Sandbox {
    let deadline = soon(180);
    loop {
        match open(connector, workspace).await {
            Ok(sandbox) => return sandbox,
            Err(error) => {
                assert!(error.is_retryable(), "{error}");
                assert!(!SystemClock.remaining(deadline).is_zero(), "{error}");
                SystemClock.sleep_until(SystemClock.deadline(Duration::from_millis(100))).await;
            }
        }
    }
}

/// It ends, and does not hang.
pub(crate) async fn ends<T>(what: &str, work: impl Future<Output = T>) -> T {
    tokio::time::timeout(HANGS, work).await.unwrap_or_else(|_| panic!("{what} hangs"))
}

/// The allowed errors of a call or an open whose engine, container or guest ended.
#[track_caller]
pub(crate) fn assert_told(error: &SandboxError) {
    let kinds = [SandboxErrorKind::Lost, SandboxErrorKind::Unavailable, SandboxErrorKind::EngineUnavailable];
    assert!(kinds.contains(&error.kind()), "{:?}: {error}", error.kind());
    assert!(error.is_retryable(), "{error}");
}

impl Load {
    /// So many sandboxes at work, and as many that are being made when this is yielded.
    pub(crate) async fn on(connector: &Docker, count: usize) -> Self {
        let made: Vec<_> =
            stream::iter(0..count).map(|_| container(connector)).buffered(count).try_collect().await.unwrap();
        let mut load = Self { containers: made, calls: JoinSet::new(), openings: JoinSet::new() };
        for it in &load.containers {
            load.calls.spawn(runs(Arc::clone(&it.sandbox)));
            load.calls.spawn(writes(Arc::clone(&it.sandbox)));
            load.calls.spawn(upload(Arc::clone(&it.sandbox)));
            load.calls.spawn(download(Arc::clone(&it.sandbox), it.workspace.path().join("large")));
        }
        for it in &load.containers {
            let is_there = |name: &str| it.workspace.path().join(name).exists();
            until("all are at work", || is_there("begun") && is_there("put") && is_there("large")).await;
        }
        for _ in 0..count {
            let connector = connector.clone();
            load.openings.spawn(async move { container(&connector).await });
        }
        load
    }

    /// Pending creations complete or fail.
    pub(crate) async fn openings_end(&mut self) {
        while let Some(ended) = ends("an opening", self.openings.join_next()).await {
            match ended.unwrap() {
                Ok(container) => self.containers.push(container),
                Err(error) => assert_told(&error),
            }
        }
    }

    /// Commands run in all that were made, for longer than an engine's silence could be overlooked.
    pub(crate) async fn assert_continues(&self) {
        let until = soon(3);
        while !SystemClock.remaining(until).is_zero() {
            for container in &self.containers {
                assert_eq!(sh(&container.sandbox, "cat kept").await, "kept\n");
            }
            pause().await;
        }
    }

    /// All calls end, each with an error that says what it is; what is being made is made, or is told of. The workspaces,
    /// whose sandboxes are over, are yielded.
    pub(crate) async fn end_as_lost(mut self) -> Vec<TempDir> {
        while let Some(ended) = ends("a call", self.calls.join_next()).await {
            let error = ended.unwrap().unwrap_err();
            assert_told(&error);
        }
        self.openings_end().await;
        let mut workspaces = Vec::new();
        for Container { sandbox, workspace } in self.containers {
            ends("a cleanup", sandbox.cleanup()).await;
            let error = sandbox.run(Command::new(["true"]), options()).await.unwrap_err();
            assert_eq!(error.kind(), SandboxErrorKind::Lost, "{error}");
            assert_eq!(fs::read_to_string(workspace.path().join("kept")).unwrap(), "kept\n");
            workspaces.push(workspace);
        }
        workspaces
    }
}

/// A command that takes for ever.
async fn runs(sandbox: Arc<Sandbox>) -> Result<(), SandboxError> {
    let command = Command::new(["sh", "-c", "echo > begun; busybox sleep 1000"]);
    let outcome = sandbox.run(command, options()).await?;
    panic!("it ended by itself: {outcome:?}");
}

/// One that writes for ever, and is read.
async fn writes(sandbox: Arc<Sandbox>) -> Result<(), SandboxError> {
    let process = sandbox.start(Command::new(["busybox", "yes"]), options()).await?;
    loop {
        if let RunEvent::Ended(outcome) = process.next_event().await? {
            panic!("it ended by itself: {outcome:?}");
        }
    }
}

/// Files that go in, one after the other.
async fn upload(sandbox: Arc<Sandbox>) -> Result<(), SandboxError> {
    let piece = Bytes::from(vec![b'x'; 64 << 10]);
    loop {
        let pieces = stream::iter(vec![Ok(piece.clone()); 16]);
        sandbox.write("put", Box::pin(pieces), options()).await?;
    }
}

/// A file that comes out, again and again.
async fn download(sandbox: Arc<Sandbox>, large: std::path::PathBuf) -> Result<(), SandboxError> {
    let made = large.with_extension("new");
    fs::write(&made, vec![b'x'; 4 << 20]).unwrap();
    fs::set_permissions(&made, std::os::unix::fs::PermissionsExt::from_mode(0o644)).unwrap();
    fs::rename(&made, &large).unwrap();
    loop {
        let mut content = sandbox.read("large", options()).await?;
        while content.try_next().await?.is_some() {}
    }
}
