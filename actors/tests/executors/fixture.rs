//! A session's supervised sandbox, in a tree of its own.

use std::sync::Arc;
use std::time::Duration;

use conjure_actors::admission::{AdmissionGate, AdmittedSource};
use conjure_actors::executors::{
    ConnectorSource, ExecutorOptions, ExecutorSource, PriorSandbox, SupervisedExecutor,
};
use conjure_actors::supervision::{
    Child, ChildId, Intensity, Root, StartError, Strategy, SupervisorSpec, Worker, WorkerSpec,
};
use conjure_base::{Clock, Deadline, SystemClock, TenantId};
use conjure_sandbox::{
    CallOptions, Command, CommandEnd, CommandOutcome, Connector, ExecutionContext, Executor, Jail, Limits,
    Local, SandboxError,
};
use tempfile::TempDir;
pub(crate) use test_support::until;

use crate::processes::{bearing, first_in_namespace, guest_of_process, sigkill};
use crate::source::Source;

/// A kind of sandbox.
#[derive(Clone, Copy)]
pub(crate) enum Kind {
    Local,
    Jail,
}

impl Kind {
    fn connector(self) -> Arc<dyn Connector> {
        let host = [("PATH".into(), "/usr/local/bin:/usr/bin:/bin".into())];
        match self {
            Self::Local => Arc::new(Local::without_isolation(host)),
            Self::Jail => Arc::new(Jail::new(host)),
        }
    }

    /// The guest that is responsible for this process.
    fn guest(self, pid: i32) -> i32 {
        match self {
            Self::Local => guest_of_process(pid, std::process::id()),
            Self::Jail => first_in_namespace(pid),
        }
    }
}

/// Makes a test of each function for each of these kinds.
#[macro_export]
macro_rules! for_kinds {
    ($($name:ident,)*) => {
        mod local {
            $(
                #[tokio::test]
                async fn $name() {
                    super::$name($crate::fixture::Kind::Local).await;
                }
            )*
        }
        mod jail {
            $(
                #[tokio::test]
                async fn $name() {
                    if !test_support::has_user_namespaces() {
                        return;
                    }
                    super::$name($crate::fixture::Kind::Jail).await;
                }
            )*
        }
    };
}

pub(crate) struct Fixture {
    pub(crate) root: Root,
    pub(crate) executor: SupervisedExecutor,
    pub(crate) source: Arc<Source>,
    pub(crate) workspace: TempDir,
    kind: Kind,
}

impl Fixture {
    pub(crate) async fn of(kind: Kind) -> Self {
        Self::with(kind, ExecutorOptions::default()).await
    }

    pub(crate) async fn with(kind: Kind, options: ExecutorOptions) -> Self {
        Self::made(kind, Limits::default(), options, PriorSandbox::None, |source| source).await
    }

    /// One whose sandbox is paused and put away after these times.
    pub(crate) async fn idling(
        kind: Kind,
        pause_after: Option<Duration>,
        unused_after: Option<Duration>,
    ) -> Self {
        let mut options = ExecutorOptions::default();
        options.pause_after = pause_after;
        options.unused_after = unused_after;
        Self::with(kind, options).await
    }

    /// A jail with these limits.
    pub(crate) async fn limited(limits: Limits) -> Self {
        let options = ExecutorOptions::default();
        Self::made(Kind::Jail, limits, options, PriorSandbox::None, |source| source).await
    }

    /// One of a session that had a sandbox before.
    pub(crate) async fn resumed(kind: Kind) -> Self {
        let (limits, options) = (Limits::default(), ExecutorOptions::default());
        Self::made(kind, limits, options, PriorSandbox::Existed, |source| source).await
    }

    /// A fixture whose sandboxes are admitted by this gate.
    pub(crate) async fn gated(kind: Kind, gate: &AdmissionGate, tenant: &str) -> Self {
        Self::gated_with(kind, gate, tenant, ExecutorOptions::default()).await
    }

    pub(crate) async fn gated_with(
        kind: Kind,
        gate: &AdmissionGate,
        tenant: &str,
        options: ExecutorOptions,
    ) -> Self {
        let (gate, tenant) = (gate.clone(), TenantId::new(tenant).unwrap());
        let admitted = |source| Arc::new(AdmittedSource::new(source, gate, tenant)) as _;
        Self::made(kind, Limits::default(), options, PriorSandbox::None, admitted).await
    }

    async fn made(
        kind: Kind,
        limits: Limits,
        options: ExecutorOptions,
        prior_sandbox: PriorSandbox,
        wrap: impl FnOnce(Arc<dyn ExecutorSource>) -> Arc<dyn ExecutorSource>,
    ) -> Self {
        let workspace = tempfile::tempdir().unwrap();
        let context = ExecutionContext { limits, ..ExecutionContext::new(workspace.path()) };
        let inner = ConnectorSource::new(kind.connector(), context).unwrap();
        let source = Arc::new(Source::new(inner, workspace.path().to_str().unwrap()));
        let wrapped = wrap(Arc::clone(&source) as _);
        let (child, executor) =
            SupervisedExecutor::detached(id("executors"), wrapped, options, prior_sandbox).unwrap();
        let root = SupervisorSpec::ordered(id("root"), Strategy::OneForOne)
            .intensity(Intensity::new(100, Duration::from_secs(1)));
        let root = Root::spawn(root.child(child).unwrap().build().0, soon()).await.unwrap();
        Self { root, executor, source, workspace, kind }
    }

    pub(crate) async fn run(&self, script: &str) -> Result<CommandOutcome, SandboxError> {
        self.executor.run(Command::bash(script), options()).await
    }

    /// The output of a script, which must succeed.
    pub(crate) async fn sh(&self, script: &str) -> String {
        let outcome = self.run(script).await.unwrap();
        let text = String::from_utf8([outcome.stdout.head, outcome.stdout.tail].concat()).unwrap();
        assert_eq!(outcome.end, CommandEnd::Exited(0), "{text}");
        text
    }

    pub(crate) fn mark(&self) -> &str {
        self.workspace.path().to_str().unwrap()
    }

    /// A shell command that starts a long-running process with the marker.
    pub(crate) fn sleeper(&self) -> String {
        format!("exec -a {} sleep 1000", self.mark())
    }

    /// Leaves a process behind that runs on, the only one that bears the mark. Under `local`, those of a guest that was killed
    /// before may still be there for a moment.
    pub(crate) async fn start_background_sleeper(&self) {
        until("nothing is left of the one before", || bearing(self.mark()).is_empty()).await;
        self.sh(&format!("setsid bash -c '{}' > /dev/null 2>&1 &", self.sleeper())).await;
        self.until_sleeping(1).await;
    }

    fn sleepers(&self) -> usize {
        let name = format!("{} 1000", self.mark());
        bearing(self.mark()).iter().filter(|process| process.arguments.trim() == name).count()
    }

    pub(crate) async fn until_sleeping(&self, count: usize) {
        until("the sleepers run", || self.sleepers() == count).await;
    }

    pub(crate) fn is_paused(&self) -> bool {
        let processes = bearing(self.mark());
        !processes.is_empty() && processes.iter().all(|process| process.state == 'T')
    }

    /// Kills the guest above the processes that run; one at least must.
    pub(crate) fn kill_guest(&self) {
        sigkill(self.kind.guest(bearing(self.mark())[0].pid));
    }

    /// Kills the guest while no call runs, and waits until another sandbox is opened.
    pub(crate) async fn lose_sandbox(&self) {
        self.start_background_sleeper().await;
        let calls = *self.source.calls.borrow();
        self.kill_guest();
        self.source.until_calls(calls + 1).await;
    }

    /// The actor that watches the sandbox.
    pub(crate) async fn actor(&self) -> Child {
        let (other, _) = WorkerSpec::new(id("executor"), |_| async { Ok(IdleWorker) }).build();
        match self.executor.supervisor().start_child(other, soon()).await {
            Err(StartError::AlreadyStarted(child)) => child,
            other => panic!("there is no actor: {other:?}"),
        }
    }

    /// The tree ends in order, and nothing is left; nor were there ever two sandboxes at a time.
    pub(crate) async fn end(self) {
        self.root.shutdown(soon()).await.unwrap();
        match self.kind {
            Kind::Jail => {
                assert_eq!(bearing(self.mark()), []);
                assert_eq!(*self.source.overlaps.lock().unwrap(), [""; 0], "never two sandboxes at a time");
            }
            // The processes of a killed local guest end individually, shortly afterwards.
            Kind::Local => until("its processes are gone", || bearing(self.mark()).is_empty()).await,
        }
    }
}

struct IdleWorker;

impl Worker for IdleWorker {
    type Message = ();

    async fn handle(
        &mut self,
        (): (),
        _: &conjure_actors::supervision::Context<()>,
    ) -> Result<conjure_actors::supervision::Flow, conjure_actors::supervision::Failure> {
        Ok(conjure_actors::supervision::Flow::Continue)
    }
}

pub(crate) fn id(text: &str) -> ChildId {
    ChildId::new(text).unwrap()
}

pub(crate) fn soon() -> Deadline {
    SystemClock.deadline(Duration::from_secs(120))
}

/// A call that has time enough for a slow machine: none of the tests waits for it.
pub(crate) fn options() -> CallOptions {
    CallOptions::until(soon())
}
