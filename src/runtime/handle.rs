//! The runtime that a host holds.

use std::fmt;
use std::sync::Arc;

use conjure_actors::janitor::Janitor;
use conjure_actors::pool::PoolStats;
use conjure_actors::registry::Registry;
use conjure_actors::runtime as tree;
use conjure_actors::supervision::Tree;
use conjure_base::{Clock as _, Deadline, SystemClock};

use super::error::RuntimeError;
use super::hosts::Presence;
use super::outfit::Outfitter;
use super::remains::Shelf;
use super::storage::Storage;
use super::work::{Closed, Work};

/// Sessions of many tenants, supervised: whatever fails, is put right, and nothing that was acknowledged is lost.
///
/// Cheap to clone; dropping the last clone stops everything in order, in the background: use [`Runtime::shutdown`] to know.
///
/// ```
/// use std::time::Duration;
/// use conjure::{
///     Clock as _, Config, Environment, ExecutorKind, Runtime, RuntimeOptions, ScriptedModel, SessionSpec, Settings,
///     SystemClock, TenantId, TurnEvent,
/// };
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = tempfile::tempdir()?;
/// # let data = folder.path().join("data");
/// let settings = Settings {
///     executor: Some(ExecutorKind::Local), // trusted skills only: it isolates nothing
///     skill_paths: Some(vec!["fixtures/skills".into()]),
///     data: Some(data),
///     ..Settings::default()
/// };
/// let config = Config::layered(settings, &Environment::of_process(), None)?;
/// // The model's words come from a file here; `RuntimeOptions::anthropic` calls a live one.
/// let model = ScriptedModel::from_file("fixtures/scripts/minimal-skill.yaml")?;
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
    pub(super) inner: Arc<Inner>,
}

pub(super) struct Inner {
    /// What is done for callers: ended first.
    pub(super) work: Work,
    pub(super) tree: tree::Runtime,
    pub(super) outfitter: Outfitter,
    /// What is to be deleted at services.
    pub(super) remains: Shelf,
    /// Closed when the tree has ended.
    pub(super) storage: Storage,
    /// Left last; `None`: nobody else has the data.
    pub(super) presence: Option<Arc<Presence>>,
}

impl Runtime {
    /// The registry of skills: the configuration's folders are its catalog `default`; a host may register more, for all tenants
    /// or for one.
    #[must_use]
    pub fn registry(&self) -> &Registry {
        self.inner.tree.registry()
    }

    /// Who clears up in the background: after dead hosts, in folders, in the journal, and what is kept long enough.
    #[must_use]
    pub fn janitor(&self) -> &Janitor {
        self.inner.tree.janitor()
    }

    /// Everything that runs, as it is now.
    #[must_use]
    pub fn tree(&self) -> Tree {
        self.inner.tree.tree()
    }

    /// How it is.
    #[must_use]
    pub fn health(&self) -> tree::Health {
        self.inner.tree.health()
    }

    /// The pools of sandboxes that are made before a session needs them ([`PoolSettings`](crate::PoolSettings)): how many are ready, how
    /// often sessions got one, and why there are none where there are none.
    #[must_use]
    pub fn pools(&self) -> Vec<PoolStats> {
        self.inner.outfitter.pools()
    }

    /// Begins no turn any more, and returns when those that run are over or wait for a person: what is queued stays queued.
    /// There is no way back but a new runtime.
    ///
    /// # Errors
    /// When turns still run at the deadline; they go on.
    pub async fn drain(&self, deadline: Deadline) -> Result<(), RuntimeError> {
        Ok(self.inner.tree.drain(deadline).await?)
    }

    /// Stops everything in order: sessions that are being opened or deleted are, turns that run are interrupted and their ends
    /// recorded, sandboxes end, the journal is closed last. May be called as often as one likes.
    ///
    /// # Errors
    /// When the deadline passed before; what was left was killed, and is recovered by the next start.
    pub async fn shutdown(&self, deadline: Deadline) -> Result<(), RuntimeError> {
        let half = SystemClock.deadline(SystemClock.remaining(deadline) / 2);
        let closed = self.inner.work.close(half.earlier(deadline)).await;
        let stopped = self.inner.tree.shutdown(deadline).await;
        tokio::select! {
            biased;
            () = self.inner.storage.close() => {}
            () = SystemClock.sleep_until(deadline) => {}
        }
        if let (Ok(()), Closed::Whole, Some(presence)) = (&stopped, closed, &self.inner.presence) {
            presence.leave();
        }
        Ok(stopped?)
    }
}

impl fmt::Debug for Runtime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Runtime").field("health", &self.health()).finish_non_exhaustive()
    }
}
