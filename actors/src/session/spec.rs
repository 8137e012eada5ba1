//! The components, factory and options of sessions.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use conjure_artifact::{ArtifactUploader, OutputStore};
use conjure_base::Redactor;
use conjure_conversation::{
    CANCEL_GRACE, Compaction, Composer, Model, PreCallHook, SessionProfile, Summarizer, ToolRunner,
};
use conjure_journal::{LeaseOwner, SessionKey};
use conjure_sandbox::Executor;
use futures_util::future::BoxFuture;
use tokio_util::sync::CancellationToken;

use crate::artifacts::ArtifactServices;
use crate::executors::{ExecutorOptions, SupervisedExecutorBuilder};
use crate::journal::JournalHandle;
use crate::metrics::RuntimeMetrics;
use crate::supervision::Failure;
use crate::tenants::TenantAccounts;

/// The components of a session's actor. The factory builds them for each incarnation.
#[derive(Clone)]
pub struct SessionComponents {
    /// The model that answers.
    pub model: Arc<dyn Model>,
    /// Writes the summary of a history that does not fit into the model's context: the former model, after a change of
    /// the model.
    pub summarizer: Option<Arc<dyn Summarizer>>,
    /// Composes the instructions and tool definitions of each model call.
    pub composer: Arc<dyn Composer>,
    /// Runs the tools and decides whether they may run.
    pub tools: Arc<dyn ToolRunner>,
    /// Redacts secrets in everything that leaves the session. The tools have clones of it, which share the secrets
    /// added later.
    pub redactor: Redactor,
    /// The sandbox of the tools, if they have one.
    pub executor: Option<Arc<dyn Executor>>,
    /// The stores of files that turns produce. Each is listed after every turn that ran tools.
    pub outputs: Vec<Arc<dyn OutputStore>>,
    /// The services behind the session's artifacts, if it may have any.
    pub artifacts: Option<ArtifactServices>,
    /// Uploads artifacts to the service that runs the session's hosted skills, if there is one.
    pub uploads: Option<ArtifactUploader>,
    /// Runs before each model call, for example to wait for tools.
    pub pre_call_hook: Option<Arc<dyn PreCallHook>>,
}

impl fmt::Debug for SessionComponents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionComponents").field("executor", &self.executor).finish_non_exhaustive()
    }
}

/// The input for building a session's components.
#[derive(Debug)]
#[non_exhaustive]
pub struct SessionSetup<'a> {
    /// The session.
    pub key: &'a SessionKey,
    /// Its recorded settings.
    pub profile: &'a SessionProfile,
    /// Builds supervised executors for tools that run in a sandbox.
    pub executors: SupervisedExecutorBuilder,
}

/// The input for changing a session's model.
#[derive(Debug)]
#[non_exhaustive]
pub struct ModelSetup<'a> {
    /// The session.
    pub key: &'a SessionKey,
    /// Its profile with the new model.
    pub profile: &'a SessionProfile,
    /// Its current components. They are as the factory built them, except that the model is wrapped.
    pub components: &'a SessionComponents,
}

/// Builds the components of sessions from their recorded profiles. The embedder implements it.
pub trait SessionFactory: Send + Sync + 'static {
    /// Builds the components of this session. Called at each start of its actor, on the actor's own task, within its
    /// start timeout.
    ///
    /// # Errors
    /// If something is missing. The session does not start then; the next message tries again.
    fn build<'a>(&'a self, setup: SessionSetup<'a>) -> BoxFuture<'a, Result<SessionComponents, Failure>>;

    /// Builds the same components with another model, and with what depends on the model. Called between two turns. The
    /// default implementation refuses the change.
    ///
    /// # Errors
    /// Why the session cannot have this model. It keeps its current one.
    fn with_model<'a>(&'a self, _setup: ModelSetup<'a>) -> BoxFuture<'a, Result<SessionComponents, Failure>> {
        Box::pin(std::future::ready(Err("its model cannot be changed".into())))
    }
}

/// When an interrupted turn continues.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Resume {
    /// When a handle of the session attaches.
    #[default]
    WhenAttached,
    /// As soon as the session's actor starts.
    AtStart,
}

/// Options of all sessions of a runtime.
#[derive(Debug, Clone)]
pub struct SessionOptions {
    /// The owner of the leases. A process that uses the name of a dead process need not wait for its leases.
    pub owner: LeaseOwner,
    /// The duration of a lease. After a crash of the process, other owners wait this long.
    pub lease: Duration,
    /// The idle time after which a session is passivated.
    pub idle_after: Duration,
    /// How long a call of a handle waits, unless the handle has its own deadline.
    pub deadline: Duration,
    /// How long the tools of an interrupted turn may take to finish what they have started.
    pub grace: Duration,
    /// How a long history is compacted; `None`: only as the model's context needs. A summarizer of the embedder bypasses
    /// admission and budget checks. The usage of its summaries is charged nevertheless.
    pub compaction: Option<Compaction>,
    /// When an interrupted turn continues.
    pub resume: Resume,
    /// Options of a session's sandbox.
    pub executors: ExecutorOptions,
    /// How many messages may wait in the mailbox of a session's actor.
    pub queue: usize,
    /// After how many failures in a row a session goes into quarantine.
    pub quarantine_after: u32,
    /// The maximum number of events and previews in a session's ring, and of their bytes.
    pub ring: (usize, usize),
}

impl SessionOptions {
    /// Options with leases of one minute, passivation after 15 minutes, and 30 seconds for a call.
    #[must_use]
    pub fn new(owner: LeaseOwner) -> Self {
        Self {
            owner,
            lease: Duration::from_secs(60),
            idle_after: Duration::from_secs(15 * 60),
            deadline: Duration::from_secs(30),
            grace: CANCEL_GRACE,
            compaction: None,
            resume: Resume::WhenAttached,
            executors: ExecutorOptions::default(),
            queue: 256,
            quarantine_after: 4,
            ring: (256, 1 << 20),
        }
    }
}

/// The services that all sessions of a runtime share.
#[derive(Clone)]
pub struct SessionServices {
    /// The journal of the sessions.
    pub journal: JournalHandle,
    /// Builds their components.
    pub session_factory: Arc<dyn SessionFactory>,
    /// Their options.
    pub options: Arc<SessionOptions>,
    /// Their metrics.
    pub metrics: RuntimeMetrics,
    /// Cancelled when no new turn may start.
    pub draining: CancellationToken,
    /// The accounts of their tenants: quotas and budgets.
    pub accounts: TenantAccounts,
}

impl fmt::Debug for SessionServices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionServices").field("options", &self.options).finish_non_exhaustive()
    }
}
