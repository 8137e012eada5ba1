//! A sandbox with a workspace of its own, whose changes must come to the host.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use conjure_actors::runtime::{NewSession, SessionRuntime, TreeOptions};
use conjure_actors::session::{
    Accepted, Session, SessionComponents, SessionFactory, SessionSetup, SessionStatus,
};
use conjure_actors::supervision::Failure;
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

use crate::support::{memory, soon};
use crate::world::{Stage, answered, follow, options};

/// A sandbox of this machine that says that it shares no folders, and counts how often it is asked for what changed.
#[derive(Debug)]
struct Apart {
    sandbox: Sandbox,
    calls: AtomicU32,
    is_broken: AtomicBool,
    /// Whether what was asked for comes.
    may_come: watch::Sender<bool>,
}

impl Executor for Apart {
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
            let left = SkippedFile { path: "link".to_owned(), reason: "it is no plain file".to_owned() };
            Ok(CopyOutReport { skipped: vec![left; 20], ..CopyOutReport::default() })
        }
        .boxed()
    }
}

/// The stage, with such a sandbox.
struct Bench {
    stage: Stage,
    apart: Arc<Apart>,
}

impl SessionFactory for Bench {
    fn build<'a>(&'a self, setup: SessionSetup<'a>) -> BoxFuture<'a, Result<SessionComponents, Failure>> {
        async move {
            let parts = self.stage.build(setup).await?;
            Ok(SessionComponents { executor: Some(Arc::clone(&self.apart) as _), ..parts })
        }
        .boxed()
    }
}

async fn apart(folder: &std::path::Path) -> (SessionRuntime, Session, Arc<Apart>) {
    let context = ExecutionContext::new(folder.to_owned());
    let local = Local::without_isolation([("PATH".into(), "/usr/local/bin:/usr/bin:/bin".into())]);
    let sandbox = Sandbox::open(&local, &context, Arc::new(SystemClock), soon()).await.unwrap();
    let apart = Arc::new(Apart {
        sandbox,
        calls: AtomicU32::new(0),
        is_broken: AtomicBool::new(false),
        may_come: watch::Sender::new(true),
    });
    let bench = Bench { stage: Stage::default(), apart: Arc::clone(&apart) };
    let mut runtime_options = TreeOptions::new(memory(), Arc::new(bench), LeaseOwner::new("first").unwrap());
    runtime_options.sessions = options("first");
    let runtime = SessionRuntime::spawn(runtime_options).await.unwrap();
    let session = runtime.open(NewSession::new(TenantId::new("acme").unwrap())).await.unwrap();
    (runtime, session.with_deadline(soon()), apart)
}

/// Whoever hears of a turn's end finds its files, unless nobody wants to wait for them.
#[tokio::test]
async fn the_end_of_a_turn_is_told_when_its_files_have_come() {
    let folder = tempfile::tempdir().unwrap();
    let (runtime, session, apart) = apart(folder.path()).await;
    for is_interrupted in [false, true] {
        apart.may_come.send_replace(false);
        let calls = apart.calls.load(Ordering::SeqCst);
        let mut turn = session.send("call write").await.unwrap();
        let (turn_id, mut second) = match turn.accepted() {
            Accepted::Started { turn, seq } => (turn, session.subscribe(seq).await.unwrap()),
            other => panic!("{other:?}"),
        };
        while apart.calls.load(Ordering::SeqCst) == calls {
            tokio::task::yield_now().await;
        }
        // All is recorded; but for the end, all is told.
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
            apart.may_come.send_replace(true);
        }
        assert_eq!(follow(&mut turn).await.1, answered());
        let snapshot = session.snapshot().await.unwrap();
        assert_eq!(snapshot.last_turn.map(|last| last.turn), Some(turn_id));
    }
    apart.may_come.send_replace(true);
    runtime.shutdown(soon()).await.unwrap();
    apart.sandbox.cleanup().await;
}

#[tokio::test]
async fn what_a_turn_changed_is_brought_back_after_it_and_before_the_end() {
    let folder = tempfile::tempdir().unwrap();
    let (runtime, session, apart) = apart(folder.path()).await;
    let calls = || apart.calls.load(Ordering::SeqCst);
    for turn in 1..=3 {
        // A failure is no failure of the turn, nor of the session.
        apart.is_broken.store(turn == 2, Ordering::SeqCst);
        let (lines, stop) = follow(&mut session.send("call write").await.unwrap()).await;
        assert_eq!(stop, answered(), "{lines:#?}");
        // This waits until nothing is under way, and refers to nothing that there is.
        let nothing = session.decide(CallId::new("none"), Decision::Allow).await;
        assert!(nothing.is_err(), "{nothing:?}");
        assert_eq!(calls(), turn);
    }
    runtime.shutdown(soon()).await.unwrap();
    assert_eq!(calls(), 4);
    apart.sandbox.cleanup().await;
}
