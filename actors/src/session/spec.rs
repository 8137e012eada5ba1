//! What a session is made of, and how it is treated.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use conjure_artifact::{ArtifactUploader, OutputStore};
use conjure_base::Redactor;
use conjure_conversation::{
    CANCEL_GRACE, Compaction, Composer, Model, SessionProfile, Summarizer, ToolRunner,
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

/// What a session's owner works with. Made anew for each incarnation.
#[derive(Clone)]
pub struct SessionComponents {
    /// Who answers.
    pub model: Arc<dyn Model>,
    /// Who writes the summary of a history that does not fit into the model's context: the model before, after a change.
    pub summarizer: Option<Arc<dyn Summarizer>>,
    /// Who says what the model is told beside the messages.
    pub composer: Arc<dyn Composer>,
    /// Who runs the tools, and asks whether they may run.
    pub tools: Arc<dyn ToolRunner>,
    /// What must not leave. Clones of it, as tools have them, learn what is said to be secret later.
    pub redactor: Redactor,
    /// Where the tools' files lie, where they lie somewhere.
    pub executor: Option<Arc<dyn Executor>>,
    /// Where the files lie that its turns produce. Each is asked behind every turn that ran tools.
    pub outputs: Vec<Arc<dyn OutputStore>>,
    /// What its artifacts are worked with, where it may have some.
    pub artifacts: Option<ArtifactServices>,
    /// What gives its artifacts to the service that runs its hosted skills, where one does.
    pub uploads: Option<ArtifactUploader>,
}

impl fmt::Debug for SessionComponents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionParts").field("executor", &self.executor).finish_non_exhaustive()
    }
}

/// What a session's parts are made from.
#[derive(Debug)]
#[non_exhaustive]
pub struct SessionSetup<'a> {
    /// Which session.
    pub key: &'a SessionKey,
    /// What it was opened with.
    pub profile: &'a SessionProfile,
    /// Where its sandboxes are supervised, for tools that have one.
    pub executors: SupervisedExecutorBuilder,
}

/// What a session's parts are changed from, when it gets another model.
#[derive(Debug)]
#[non_exhaustive]
pub struct ModelSetup<'a> {
    /// Which session.
    pub key: &'a SessionKey,
    /// Its profile, with the new model.
    pub profile: &'a SessionProfile,
    /// Its parts, as the factory made them. Only the model is wrapped.
    pub components: &'a SessionComponents,
}

/// Makes the parts of sessions from what is recorded of them. The host gives it.
pub trait SessionFactory: Send + Sync + 'static {
    /// The parts of this session. Called at each start of its actor, on the actor's own task, within its time to start.
    ///
    /// # Errors
    /// Whatever is missing; the session does not start then, and is tried again with the next message.
    fn build<'a>(&'a self, setup: SessionSetup<'a>) -> BoxFuture<'a, Result<SessionComponents, Failure>>;

    /// The same parts with another model, and with what depends on the model. Called between two turns. A factory without this has sessions
    /// that keep their models.
    ///
    /// # Errors
    /// Why the session cannot have this model. It keeps the one that it has.
    fn with_model<'a>(&'a self, _setup: ModelSetup<'a>) -> BoxFuture<'a, Result<SessionComponents, Failure>> {
        Box::pin(std::future::ready(Err("its model cannot be changed".into())))
    }
}

/// When a turn that was under way is driven on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Resume {
    /// Once somebody holds a handle of the session.
    #[default]
    WhenAttached,
    /// As soon as the session's actor starts.
    AtStart,
}

/// How sessions are treated.
#[derive(Debug, Clone)]
pub struct SessionOptions {
    /// Under whose name leases are taken. A process that takes the name of one that is dead need not wait for its leases.
    pub owner: LeaseOwner,
    /// For how long a lease is taken. After a crash of the process, so long those of other names wait.
    pub lease: Duration,
    /// When an idle session is put away.
    pub idle_after: Duration,
    /// How long a call of a handle waits, unless the handle says otherwise.
    pub deadline: Duration,
    /// How long the tools of a turn that is interrupted may take to end what they started.
    pub grace: Duration,
    /// How a history that has grown long is compacted; none: never. A model that writes summaries in place of the session's own is the
    /// host's, and passes no gate or budget by itself; what its summaries used is charged all the same.
    pub compaction: Option<Compaction>,
    /// When a turn that was under way is driven on.
    pub resume: Resume,
    /// How a session's sandbox is treated.
    pub executors: ExecutorOptions,
    /// How many messages may wait for a session.
    pub queue: usize,
    /// How often in a row a session may fail before it is left alone.
    pub quarantine_after: u32,
    /// How many events and previews are kept in memory for those who listen, and how many bytes of them.
    pub ring: (usize, usize),
}

impl SessionOptions {
    /// Leases of a minute, 15 minutes until a session is put away, 30 seconds for a call.
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

/// What all sessions of a runtime have in common.
#[derive(Clone)]
pub struct SessionServices {
    /// Where they are recorded.
    pub journal: JournalHandle,
    /// Who makes their parts.
    pub session_factory: Arc<dyn SessionFactory>,
    /// How they are treated.
    pub options: Arc<SessionOptions>,
    /// What they are counted with.
    pub metrics: RuntimeMetrics,
    /// Cancelled when no turn is to begin any more.
    pub draining: CancellationToken,
    /// What their tenants may have.
    pub accounts: TenantAccounts,
}

impl fmt::Debug for SessionServices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Setting").field("options", &self.options).finish_non_exhaustive()
    }
}
