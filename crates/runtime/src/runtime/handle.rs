//! The handle of a runtime.

use std::fmt;
use std::sync::Arc;

use conjure_actors::catalogs::CatalogRegistry;
use conjure_actors::maintenance::MaintenanceScheduler;
use conjure_actors::pool::PoolStats;
use conjure_actors::runtime as tree;
use conjure_actors::supervision::ActorTree;
use conjure_base::{Clock as _, Deadline, SystemClock};

use crate::runtime::data::journal_storage::JournalStorage;
use crate::runtime::data::process_lock::ProcessLock;
#[cfg(feature = "vaults")]
use crate::runtime::data::vaults::Vaults;
use crate::runtime::error::RuntimeError;
use crate::runtime::remote_cleanup::NoteStore;
use crate::runtime::session::factory::session_factory::RuntimeSessionFactory;
use crate::runtime::task_set::{CloseOutcome, TaskSet};

/// Supervised sessions of many tenants. Failed parts are restarted, and acknowledged messages survive.
///
/// Clones are cheap. Dropping the last clone stops everything in order in the background. [`Runtime::shutdown`] waits for
/// that.
///
/// ```
/// use std::time::Duration;
/// use conjure::{Clock as _, Config, ProcessEnv, Runtime, RuntimeOptions, SessionSpec, Settings, SystemClock, TenantId, TurnEvent};
/// use conjure::config::ExecutorKind;
/// use conjure::model::ScriptedModel;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let directory = tempfile::tempdir()?;
/// # let data = directory.path().join("data");
/// let settings = Settings {
///     executor: Some(ExecutorKind::Local), // trusted skills only: it isolates nothing
///     skill_paths: Some(vec!["../../fixtures/skills".into()]),
///     data: Some(data),
///     ..Settings::default()
/// };
/// let config = Config::from_layers(settings, &ProcessEnv::from_process(), None)?;
/// // The model's words come from a file here; `RuntimeOptions::anthropic` calls a live one.
/// let model = ScriptedModel::from_file("../../fixtures/scripts/minimal-skill.yaml")?;
/// let options = RuntimeOptions::from(config).model("scripted", model);
///
/// let runtime = Runtime::spawn(options.clone()).await?;
/// let tenant = TenantId::new("acme")?;
/// let session = runtime.open(SessionSpec::new(tenant.clone()).skills(["minimal-skill"])).await?;
/// let mut turn = session.send("Greet me.").await?;
/// while let Some(event) = turn.next().await {
///     if let TurnEvent::Ended { stop, .. } = event? {
///         assert_eq!(stop.to_string(), "the model is done (end_turn)");
///     }
/// }
/// runtime.shutdown(SystemClock.deadline(Duration::from_secs(10))).await?;
///
/// // It is there after a restart, here or in another process.
/// let runtime = Runtime::spawn(options).await?;
/// let again = runtime.session(&tenant, session.id()).await?;
/// assert_eq!(again.snapshot().await?.last_text, "The smallest skill says hello.");
/// runtime.shutdown(SystemClock.deadline(Duration::from_secs(10))).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Runtime {
    pub(super) inner: Arc<RuntimeInner>,
}

pub(super) struct RuntimeInner {
    /// The tracked tasks. Closed first at shutdown.
    pub(super) tasks: TaskSet,
    pub(super) tree: tree::SessionRuntime,
    pub(super) factory: RuntimeSessionFactory,
    /// The cleanup notes. They say what still has to be deleted at models' services.
    pub(super) notes: NoteStore,
    /// Closed after the actors.
    pub(super) storage: JournalStorage,
    #[cfg(feature = "vaults")]
    pub(super) vaults: Vaults,
    /// Released last. `None` if no other process uses the data directory.
    pub(super) process_lock: Option<Arc<ProcessLock>>,
}

impl Runtime {
    /// The registry of skills. Its catalog `default` has the skill directories of the configuration. The embedder may
    /// register more catalogs, for all tenants or for one.
    #[must_use]
    pub fn registry(&self) -> &CatalogRegistry {
        self.inner.tree.registry()
    }

    /// The janitor, which runs the maintenance tasks in the background.
    #[must_use]
    pub fn maintenance(&self) -> &MaintenanceScheduler {
        self.inner.tree.maintenance()
    }

    /// The current tree of all actors.
    #[must_use]
    pub fn tree(&self) -> ActorTree {
        self.inner.tree.tree()
    }

    /// The health of the runtime.
    #[must_use]
    pub fn health(&self) -> tree::Health {
        self.inner.tree.health()
    }

    /// The pools of warm sandboxes ([`PoolSettings`](crate::PoolSettings)): how many are ready, how often sessions
    /// got one, and why a pool is empty.
    #[must_use]
    pub fn pools(&self) -> Vec<PoolStats> {
        self.inner.factory.sandboxes.pools().stats()
    }

    /// Starts no new turns, and returns when all running turns have ended or wait for an approval. Queued messages
    /// stay queued. This cannot be undone; start a new runtime instead.
    ///
    /// # Errors
    ///
    /// If turns still run at the deadline; they continue.
    pub async fn drain(&self, deadline: Deadline) -> Result<(), RuntimeError> {
        Ok(self.inner.tree.drain(deadline).await?)
    }

    /// Runs `work` in the background. It is cancelled when the runtime shuts down, and no caller waits for it.
    #[cfg(feature = "mcp-server")]
    pub(crate) fn spawn_in_background(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.inner.tasks.spawn(work);
    }

    /// Stops the runtime in order. May be called several times. The runtime:
    ///
    /// - completes opens and deletes of sessions that have started
    /// - interrupts running turns and records their ends
    /// - ends sandboxes
    /// - closes the journal last
    ///
    /// # Errors
    ///
    /// If the deadline passed first. The rest was killed, and the next start recovers it.
    pub async fn shutdown(&self, deadline: Deadline) -> Result<(), RuntimeError> {
        let half = SystemClock.deadline(SystemClock.remaining(deadline) / 2);
        self.inner.factory.python.end(half.min(deadline)).await;
        let closed = self.inner.tasks.close(half.min(deadline)).await;
        let stopped = self.inner.tree.shutdown(deadline).await;
        #[cfg(feature = "mcp")]
        self.inner.factory.close_tenant_servers(deadline).await;
        #[cfg(feature = "mcp")]
        {
            // The rest of the time is for the storage.
            let most = SystemClock.deadline(SystemClock.remaining(deadline) * 3 / 4);
            self.inner.vaults.finish_renewals(most.min(deadline)).await;
        }
        tokio::select! {
            biased;
            () = self.inner.storage.close() => {}
            () = SystemClock.sleep_until(deadline) => {}
        }
        if let (Ok(()), CloseOutcome::Completed, Some(process_lock)) =
            (&stopped, closed, &self.inner.process_lock)
        {
            process_lock.release();
        }
        Ok(stopped?)
    }
}

impl fmt::Debug for Runtime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Runtime").field("health", &self.health()).finish_non_exhaustive()
    }
}
