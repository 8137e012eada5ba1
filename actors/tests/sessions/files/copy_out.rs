//! A sandbox with a workspace of its own, whose changes must come to the host.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use conjure_actors::runtime::{NewSession, SessionRuntime, TreeOptions};
use conjure_actors::session::{Accepted, Session, SessionComponents, SessionStatus};
use conjure_base::{CallId, SystemClock, TenantId};
use conjure_conversation::Decision;
use conjure_journal::LeaseOwner;
use conjure_sandbox::{
    CallOptions, Command, CommandOutcome, CopyOutReport, ExecutionContext, Executor, HostAccess, Layout,
    LineRange, Local, Sandbox, SandboxError, SandboxErrorKind, SkippedFile, View, WriteResult,
};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::sync::watch;

use crate::files::equipped;
use crate::scenario::{Scenario, answered, follow, options};
use crate::support::{memory, soon};

/// A local sandbox that declares no shared directories, and counts the copies of changed files.
#[derive(Debug)]
struct SandboxWithOwnFiles {
    sandbox: Sandbox,
    calls: AtomicU32,
    is_broken: AtomicBool,
    /// True if copies complete.
    may_come: watch::Sender<bool>,
}

impl Executor for SandboxWithOwnFiles {
    fn layout(&self) -> &Layout {
        self.sandbox.layout()
    }

    fn host_access(&self) -> HostAccess {
        HostAccess::Copied
    }

    fn run<'a>(
        &'a self,
        command: Command,
        options: CallOptions,
    ) -> BoxFuture<'a, Result<CommandOutcome, SandboxError>> {
        self.sandbox.run(command, options)
    }

    fn view<'a>(
        &'a self,
        path: &'a str,
        range: Option<LineRange>,
        max_bytes: u64,
        options: CallOptions,
    ) -> BoxFuture<'a, Result<View, SandboxError>> {
        self.sandbox.view(path, range, max_bytes, options)
    }

    fn create_file<'a>(
        &'a self,
        path: &'a str,
        content: &'a [u8],
        options: CallOptions,
    ) -> BoxFuture<'a, Result<WriteResult, SandboxError>> {
        self.sandbox.create_file(path, content, options)
    }

    fn str_replace<'a>(
        &'a self,
        path: &'a str,
        old: &'a str,
        new: &'a str,
        options: CallOptions,
    ) -> BoxFuture<'a, Result<WriteResult, SandboxError>> {
        self.sandbox.str_replace(path, old, new, options)
    }

    fn copy_out(&self, options: CallOptions) -> BoxFuture<'_, Result<CopyOutReport, SandboxError>> {
        async move {
            assert!(!options.cancel.is_cancelled(), "it could bring nothing");
            self.calls.fetch_add(1, Ordering::SeqCst);
            self.may_come.subscribe().wait_for(|may| *may).await.unwrap();
            if self.is_broken.load(Ordering::SeqCst) {
                return Err(SandboxError::new(SandboxErrorKind::NoSpace, "the disk is full"));
            }
            let skipped =
                SkippedFile { path: "link".to_owned(), reason: "it is not a regular file".to_owned() };
            Ok(CopyOutReport { skipped: vec![skipped; 20], ..CopyOutReport::default() })
        }
        .boxed()
    }
}

async fn copying_sandbox(dir: &std::path::Path) -> (SessionRuntime, Session, Arc<SandboxWithOwnFiles>) {
    let context = ExecutionContext::new(dir.to_owned());
    let local = Local::without_isolation([("PATH".into(), "/usr/local/bin:/usr/bin:/bin".into())]);
    let sandbox = Sandbox::open(&local, &context, Arc::new(SystemClock), soon()).await.unwrap();
    let copying_sandbox = Arc::new(SandboxWithOwnFiles {
        sandbox,
        calls: AtomicU32::new(0),
        is_broken: AtomicBool::new(false),
        may_come: watch::Sender::new(true),
    });
    let executor = Arc::clone(&copying_sandbox);
    let factory = equipped(&Scenario::default(), move |_, parts| SessionComponents {
        executor: Some(Arc::clone(&executor) as _),
        ..parts
    });
    let mut runtime_options = TreeOptions::new(memory(), factory, LeaseOwner::new("first").unwrap());
    runtime_options.sessions = options("first");
    let runtime = SessionRuntime::spawn(runtime_options).await.unwrap();
    let session = runtime.open(NewSession::new(TenantId::new("acme").unwrap())).await.unwrap();
    (runtime, session.with_deadline(soon()), copying_sandbox)
}

/// The files of a turn are available when its end is reported, unless the configuration does not wait for them.
#[tokio::test]
async fn the_end_of_a_turn_is_reported_after_its_files_are_copied() {
    let dir = tempfile::tempdir().unwrap();
    let (runtime, session, copying_sandbox) = copying_sandbox(dir.path()).await;
    for is_interrupted in [false, true] {
        copying_sandbox.may_come.send_replace(false);
        let calls = copying_sandbox.calls.load(Ordering::SeqCst);
        let mut turn = session.send("call write").await.unwrap();
        let (turn_id, mut second) = match turn.accepted() {
            Accepted::Started { turn, seq } => (turn, session.subscribe(seq).await.unwrap()),
            other => panic!("{other:?}"),
        };
        while copying_sandbox.calls.load(Ordering::SeqCst) == calls {
            tokio::task::yield_now().await;
        }
        // Everything is recorded; everything but the end is reported.
        let mut reported = String::new();
        while let Some(Some(event)) = turn.next().now_or_never() {
            reported.push_str(&format!("{event:?}"));
        }
        assert!(reported.contains("AgentMessage") && !reported.contains("Ended"), "{reported}");
        while let Some(update) = second.next().now_or_never() {
            assert!(!format!("{update:?}").contains("Idle"), "{update:?}");
        }
        let snapshot = session.snapshot().await.unwrap();
        assert_eq!(snapshot.status, SessionStatus::Running(turn_id));
        assert_ne!(snapshot.last_turn.map(|last| last.turn), Some(turn_id));
        if is_interrupted {
            session.interrupt().await.unwrap();
        } else {
            copying_sandbox.may_come.send_replace(true);
        }
        assert_eq!(follow(&mut turn).await.1, answered());
        let snapshot = session.snapshot().await.unwrap();
        assert_eq!(snapshot.last_turn.map(|last| last.turn), Some(turn_id));
    }
    copying_sandbox.may_come.send_replace(true);
    runtime.shutdown(soon()).await.unwrap();
    copying_sandbox.sandbox.cleanup().await;
}

#[tokio::test]
async fn changed_files_are_copied_out_after_each_turn_and_before_the_end() {
    let dir = tempfile::tempdir().unwrap();
    let (runtime, session, copying_sandbox) = copying_sandbox(dir.path()).await;
    let calls = || copying_sandbox.calls.load(Ordering::SeqCst);
    for turn in 1..=3 {
        // A failure is no failure of the turn, nor of the session.
        copying_sandbox.is_broken.store(turn == 2, Ordering::SeqCst);
        let (lines, stop) = follow(&mut session.send("call write").await.unwrap()).await;
        assert_eq!(stop, answered(), "{lines:#?}");
        // This waits until nothing is under way, and refers to nothing that there is.
        let result = session.decide(CallId::new("none"), Decision::Allow).await;
        assert!(result.is_err(), "{result:?}");
        assert_eq!(calls(), turn);
    }
    runtime.shutdown(soon()).await.unwrap();
    assert_eq!(calls(), 4);
    copying_sandbox.sandbox.cleanup().await;
}
