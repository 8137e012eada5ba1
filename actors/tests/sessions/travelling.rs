//! A sandbox with a workspace of its own, whose changes must come to the host.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use conjure_actors::runtime::{Runtime, RuntimeOptions, SessionSpec};
use conjure_actors::session::{Accepted, Fitting, Outfit, Session, SessionParts, SessionStatus};
use conjure_actors::supervision::Failure;
use conjure_base::{CallId, SystemClock, TenantId};
use conjure_conversation::Decision;
use conjure_journal::Owner;
use conjure_sandbox::{
    BroughtBack, CallOptions, Command, CommandOutcome, ExecutionContext, Executor, Layout, LeftBehind,
    LineRange, Local, Sandbox, SandboxError, SandboxErrorKind, Sharing, View, Written,
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
    asked: AtomicU32,
    is_broken: AtomicBool,
    /// Whether what was asked for comes.
    may_come: watch::Sender<bool>,
}

impl Executor for Apart {
    fn layout(&self) -> &Layout {
        self.sandbox.layout()
    }

    fn sharing(&self) -> Sharing {
        Sharing::Transferred
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
    ) -> BoxFuture<'a, Result<Written, SandboxError>> {
        self.sandbox.create_file(path, content, options)
    }

    fn str_replace<'a>(
        &'a self,
        path: &'a str,
        old: &'a str,
        new: &'a str,
        options: CallOptions,
    ) -> BoxFuture<'a, Result<Written, SandboxError>> {
        self.sandbox.str_replace(path, old, new, options)
    }

    fn bring_back(&self, options: CallOptions) -> BoxFuture<'_, Result<BroughtBack, SandboxError>> {
        async move {
            assert!(!options.cancel.is_cancelled(), "it could bring nothing");
            self.asked.fetch_add(1, Ordering::SeqCst);
            self.may_come.subscribe().wait_for(|may| *may).await.unwrap();
            if self.is_broken.load(Ordering::SeqCst) {
                return Err(SandboxError::new(SandboxErrorKind::NoSpace, "the disk is full"));
            }
            let left = LeftBehind { path: "link".to_owned(), reason: "it is no plain file".to_owned() };
            Ok(BroughtBack { left: vec![left; 20], ..BroughtBack::default() })
        }
        .boxed()
    }
}

/// The stage, with such a sandbox.
struct Bench {
    stage: Stage,
    apart: Arc<Apart>,
}

impl Outfit for Bench {
    fn outfit<'a>(&'a self, fitting: Fitting<'a>) -> BoxFuture<'a, Result<SessionParts, Failure>> {
        async move {
            let parts = self.stage.outfit(fitting).await?;
            Ok(SessionParts { executor: Some(Arc::clone(&self.apart) as _), ..parts })
        }
        .boxed()
    }
}

async fn apart(folder: &std::path::Path) -> (Runtime, Session, Arc<Apart>) {
    let context = ExecutionContext::new(folder.to_owned());
    let local = Local::without_isolation([("PATH".into(), "/usr/local/bin:/usr/bin:/bin".into())]);
    let sandbox = Sandbox::open(&local, &context, Arc::new(SystemClock), soon()).await.unwrap();
    let apart = Arc::new(Apart {
        sandbox,
        asked: AtomicU32::new(0),
        is_broken: AtomicBool::new(false),
        may_come: watch::Sender::new(true),
    });
    let bench = Bench { stage: Stage::default(), apart: Arc::clone(&apart) };
    let mut runtime_options = RuntimeOptions::new(memory(), Arc::new(bench), Owner::new("first").unwrap());
    runtime_options.sessions = options("first");
    let runtime = Runtime::spawn(runtime_options).await.unwrap();
    let session = runtime.open(SessionSpec::new(TenantId::new("acme").unwrap())).await.unwrap();
    (runtime, session.with_deadline(soon()), apart)
}

/// Whoever hears of a turn's end finds its files, unless nobody wants to wait for them.
#[tokio::test]
async fn the_end_of_a_turn_is_told_when_its_files_have_come() {
    let folder = tempfile::tempdir().unwrap();
    let (runtime, session, apart) = apart(folder.path()).await;
    for is_interrupted in [false, true] {
        apart.may_come.send_replace(false);
        let asked = apart.asked.load(Ordering::SeqCst);
        let mut turn = session.send("call write").await.unwrap();
        let (turn_id, mut second) = match turn.accepted() {
            Accepted::Started { turn, seq } => (turn, session.subscribe(seq).await.unwrap()),
            other => panic!("{other:?}"),
        };
        while apart.asked.load(Ordering::SeqCst) == asked {
            tokio::task::yield_now().await;
        }
        // All is recorded; but for the end, all is told.
        let mut told = String::new();
        while let Some(Some(event)) = turn.next().now_or_never() {
            told.push_str(&format!("{event:?}"));
        }
        assert!(told.contains("AgentMessage") && !told.contains("Ended"), "{told}");
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
    let asked = || apart.asked.load(Ordering::SeqCst);
    for turn in 1..=3 {
        // A failure is no failure of the turn, nor of the session.
        apart.is_broken.store(turn == 2, Ordering::SeqCst);
        let (lines, stop) = follow(&mut session.send("call write").await.unwrap()).await;
        assert_eq!(stop, answered(), "{lines:#?}");
        // This waits until nothing is under way, and refers to nothing that there is.
        let nothing = session.decide(CallId::new("none"), Decision::Allow).await;
        assert!(nothing.is_err(), "{nothing:?}");
        assert_eq!(asked(), turn);
    }
    runtime.shutdown(soon()).await.unwrap();
    assert_eq!(asked(), 4);
    apart.sandbox.cleanup().await;
}
