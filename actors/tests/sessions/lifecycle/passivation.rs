//! Who leaves a session leaves it whole: its lease is given back when its sandbox is gone, and not before.

use std::sync::Arc;
use std::time::Duration;

use conjure_actors::executors::ExecutorSource;
use conjure_actors::session::{Session, SessionComponents, SessionError, SessionFactory, SessionSetup};
use conjure_actors::supervision::Failure;
use conjure_base::{CallId, Clock as _, Deadline, SystemClock};
use conjure_conversation::{Decision, TurnStop};
use conjure_journal::{Journal as _, JournalError, LeaseOwner, MemoryJournal};
use conjure_sandbox::{
    ArtifactDir, CallOptions, Command, CommandOutcome, Executor, Layout, LineRange, Listing, SandboxError,
    SandboxErrorKind, View, WriteResult,
};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::sync::watch;

use crate::scenario::{Host, Scenario, answered, key, options};
use crate::support::{SECOND, of, soon};

/// The numbers of created and ending sandboxes, and whether they may end.
#[derive(Debug)]
pub(crate) struct SandboxState {
    layout: Layout,
    made: watch::Sender<u32>,
    leaving: watch::Sender<u32>,
    pub(crate) may_go: watch::Sender<bool>,
    /// The number of file requests, and whether they complete.
    pub(crate) calls: watch::Sender<u32>,
    pub(crate) may_answer: watch::Sender<bool>,
}

impl SandboxState {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            layout: Layout {
                workspace: "/workspace".into(),
                read_only: Vec::new(),
                artifacts: ArtifactDir::None,
            },
            made: watch::Sender::new(0),
            leaving: watch::Sender::new(0),
            may_go: watch::Sender::new(false),
            calls: watch::Sender::new(0),
            may_answer: watch::Sender::new(true),
        })
    }

    async fn until_leaving(&self, count: u32) {
        self.leaving.subscribe().wait_for(|leaving| *leaving >= count).await.unwrap();
    }
}

/// A sandbox of the embedder that ends only when the test permits it.
#[derive(Debug)]
struct HeldSandbox(Arc<SandboxState>);

fn refused<T: Send + 'static>() -> BoxFuture<'static, Result<T, SandboxError>> {
    std::future::ready(Err(SandboxError::new(SandboxErrorKind::Unsupported, "it only lies there"))).boxed()
}

impl Executor for HeldSandbox {
    fn layout(&self) -> &Layout {
        &self.0.layout
    }

    fn run<'a>(&'a self, _: Command, _: CallOptions) -> BoxFuture<'a, Result<CommandOutcome, SandboxError>> {
        refused()
    }

    fn view<'a>(
        &'a self,
        _: &'a str,
        _: Option<LineRange>,
        _: u64,
        _: CallOptions,
    ) -> BoxFuture<'a, Result<View, SandboxError>> {
        refused()
    }

    fn create_file<'a>(
        &'a self,
        _: &'a str,
        _: &'a [u8],
        _: CallOptions,
    ) -> BoxFuture<'a, Result<WriteResult, SandboxError>> {
        refused()
    }

    fn str_replace<'a>(
        &'a self,
        _: &'a str,
        _: &'a str,
        _: &'a str,
        _: CallOptions,
    ) -> BoxFuture<'a, Result<WriteResult, SandboxError>> {
        refused()
    }

    fn list<'a>(
        &'a self,
        _: &'a str,
        _: u32,
        _: u32,
        _: CallOptions,
    ) -> BoxFuture<'a, Result<Listing, SandboxError>> {
        async {
            self.0.calls.send_modify(|calls| *calls += 1);
            self.0.may_answer.subscribe().wait_for(|may| *may).await.unwrap();
            refused().await
        }
        .boxed()
    }

    fn cleanup(&self) -> BoxFuture<'_, ()> {
        async {
            self.0.leaving.send_modify(|leaving| *leaving += 1);
            self.0.may_go.subscribe().wait_for(|may| *may).await.unwrap();
        }
        .boxed()
    }
}

#[derive(Debug)]
struct Source(Arc<SandboxState>);

impl ExecutorSource for Source {
    fn layout(&self) -> &Layout {
        &self.0.layout
    }

    fn create(&self, _: Deadline) -> BoxFuture<'_, Result<Box<dyn Executor>, SandboxError>> {
        self.0.made.send_modify(|created| *created += 1);
        std::future::ready(Ok(Box::new(HeldSandbox(Arc::clone(&self.0))) as Box<dyn Executor>)).boxed()
    }
}

/// The scenario, with such sandboxes.
struct HeldSandboxSource {
    scenario: Scenario,
    dock: Arc<SandboxState>,
}

impl SessionFactory for HeldSandboxSource {
    fn build<'a>(&'a self, setup: SessionSetup<'a>) -> BoxFuture<'a, Result<SessionComponents, Failure>> {
        async move {
            let executor = setup.executors.clone().supervise(Arc::new(Source(Arc::clone(&self.dock))))?;
            let parts = self.scenario.build(setup).await?;
            Ok(SessionComponents { executor: Some(Arc::new(executor)), ..parts })
        }
        .boxed()
    }
}

pub(crate) struct SandboxFixture {
    pub(crate) host: Host,
    journal: MemoryJournal,
    pub(crate) dock: Arc<SandboxState>,
}

impl SandboxFixture {
    pub(crate) async fn new(cleanup_timeout: Duration) -> Self {
        let (journal, dock, scenario) = (MemoryJournal::new(), SandboxState::new(), Scenario::default());
        let mut options = options("first");
        options.executors.cleanup_timeout = cleanup_timeout;
        options.idle_after = SECOND * 100;
        let factory = Arc::new(HeldSandboxSource { scenario: scenario.clone(), dock: Arc::clone(&dock) });
        let host = Host::with_factory(of(journal.clone()), scenario, options, factory).await;
        Self { host, journal, dock }
    }

    /// A session that has a sandbox.
    pub(crate) async fn session(&self) -> Session {
        let session = self.host.open().await;
        use_sandbox(&session).await;
        session
    }

    /// True if another owner can acquire the session now.
    async fn is_free(&self, session: &Session) -> bool {
        match self
            .journal
            .acquire_lease(&key(session), &LeaseOwner::new("other").unwrap(), SECOND * 1_000)
            .await
        {
            Ok(_) => true,
            Err(JournalError::LeaseHeld { .. }) => false,
            Err(error) => panic!("{error}"),
        }
    }

    async fn until_down(&self) {
        while self.host.trees() > 0 {
            SystemClock.sleep_until(SystemClock.deadline(SECOND)).await;
        }
    }
}

async fn use_sandbox(session: &Session) {
    // It lists no directories, either.
    let listed = session.list_files().await.unwrap_err();
    assert!(matches!(listed, SessionError::Files { kind: SandboxErrorKind::Unsupported, .. }), "{listed}");
    let executor = session.executor().await.unwrap();
    let output = executor.run(Command::bash("true"), CallOptions::until(soon())).await;
    assert_eq!(output.unwrap_err().kind(), SandboxErrorKind::Unsupported);
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Closed,
    Idle,
    Crashed,
    Terminated,
}

/// However the session ends, and however long its sandbox takes for it.
#[tokio::test(start_paused = true)]
async fn a_lease_is_released_after_the_sandbox_ended() {
    for way in [Way::Closed, Way::Idle, Way::Crashed, Way::Terminated] {
        let fixture = SandboxFixture::new(SECOND * 3_600).await;
        let session = fixture.session().await;
        match way {
            Way::Closed => session.close().await.unwrap(),
            Way::Idle => {}
            Way::Crashed => {
                // Nor does any later incarnation come up.
                fixture.host.scenario.broken.lock().unwrap().1 = 100;
                session.kill();
            }
            Way::Terminated => fixture.host.leave(&session),
        }
        fixture.dock.until_leaving(1).await;
        for _ in 0..10 {
            // Longer than a lease without a renewal.
            SystemClock.sleep_until(SystemClock.deadline(SECOND * 50)).await;
            assert!(!fixture.is_free(&session).await, "{way:?}: the sandbox is still there");
        }
        fixture.dock.may_go.send_replace(true);
        fixture.until_down().await;
        assert!(fixture.is_free(&session).await, "{way:?}: nobody has it any more");
        assert_eq!(*fixture.dock.leaving.borrow(), 1, "{way:?}");
        fixture.host.shutdown().await;
    }
}

/// An executor handle of a passivated session does not create another sandbox.
#[tokio::test(start_paused = true)]
async fn an_executor_handle_creates_no_sandbox_for_a_passivated_session() {
    let fixture = SandboxFixture::new(SECOND * 3_600).await;
    let session = fixture.session().await;
    let executor = session.executor().await.unwrap();
    session.close().await.unwrap();
    fixture.dock.until_leaving(1).await;
    for may_go in [false, true] {
        fixture.dock.may_go.send_replace(may_go);
        let refused = executor.run(Command::bash("true"), CallOptions::until(soon())).await.unwrap_err();
        assert_eq!(refused.kind(), SandboxErrorKind::Unavailable, "{refused}");
    }
    fixture.until_down().await;
    assert_eq!(*fixture.dock.made.borrow(), 1);
    use_sandbox(&session).await;
    assert_eq!(*fixture.dock.made.borrow(), 2);
    fixture.host.shutdown().await;
}

/// A sandbox that never ends delays neither the end of its session nor its next start.
#[tokio::test(start_paused = true)]
async fn a_sandbox_that_never_ends_is_abandoned() {
    let fixture = SandboxFixture::new(SECOND * 90).await;
    let session = fixture.session().await;
    session.close().await.unwrap();
    fixture.dock.until_leaving(1).await;
    fixture.until_down().await;
    assert!(!*fixture.dock.may_go.borrow());
    assert_eq!(session.send("hello").await.unwrap().end().await, Ok(answered()));
    use_sandbox(&session).await;
    assert_eq!(*fixture.dock.made.borrow(), 2);
    fixture.host.shutdown().await;
}

/// A request behind a close is neither lost nor executed twice: the next incarnation serves it.
#[tokio::test(start_paused = true)]
async fn requests_queued_behind_a_close_revive_the_session() {
    let host = Host::new().await;
    let session = host.open().await;
    let turn = session.send("door").await.unwrap();
    host.scenario.reached(1).await;
    // Requests about the turn are forwarded to it; a decision waits for its end, like a close.
    let decide = || session.decide(CallId::new("none"), Decision::Allow);
    let open = async { host.scenario.open() };
    let (before, first, behind, second, last, ()) =
        tokio::join!(decide(), session.close(), decide(), session.close(), decide(), open);
    for decided in [before, behind, last] {
        assert!(matches!(decided, Err(SessionError::Rejected(_))), "{decided:?}");
    }
    assert_eq!([first, second], [Ok(()), Ok(())]);
    assert_eq!(turn.end().await, Ok(answered()));
    host.shutdown().await;
}

/// The same while the session, or all of the runtime, is stopped from above.
#[tokio::test(start_paused = true)]
async fn requests_queued_at_a_stop_are_not_lost() {
    for is_all in [false, true] {
        let host = Host::new().await;
        let session = host.open().await;
        let turn = session.send("call slow").await.unwrap();
        while host.scenario.started.lock().unwrap().is_empty() {
            tokio::task::yield_now().await;
        }
        let decide = || session.decide(CallId::new("none"), Decision::Allow);
        let stopping = async {
            if is_all {
                host.setting.draining.cancel();
                host.root.shutdown(soon()).await.unwrap();
            } else {
                host.leave(&session);
            }
        };
        let (close, decided, closed, interrupted, ()) =
            tokio::join!(session.close(), decide(), session.close(), session.interrupt(), stopping);
        assert_eq!([close, closed, interrupted], [Ok(()), Ok(()), Ok(())], "{is_all}");
        match decided.unwrap_err() {
            SessionError::ShuttingDown if is_all => {}
            // The running turn has taken it.
            SessionError::Rejected(_) => {}
            error => panic!("{is_all}: {error}"),
        }
        assert_eq!(turn.end().await, Ok(TurnStop::Interrupted), "{is_all}");
        host.shutdown().await;
    }
}
