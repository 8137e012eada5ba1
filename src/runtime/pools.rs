//! Sandboxes that are made before their session is there, and sessions that get them.
//!
//! State: for each kind of sandbox a pool, in memory; what spares have on the disk, in `<data>/pool`, which belongs to no tenant. What
//! hosts that died left there is removed when it is opened again.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use conjure_actors::admission::Gate;
use conjure_actors::executors::{ConnectorSource, ExecutorSource};
use conjure_actors::pool::{Pool, PoolOptions, PoolSpec, PoolStats, Spare as Waiting, SpareSource};
use conjure_actors::supervision::{ChildId, ChildSpec};
use conjure_base::{Deadline, SystemClock, TenantId};
use conjure_sandbox::{
    Connector, DataFolder, ExecutionContext, Executor, Isolation, Layout, SandboxError, SandboxErrorKind,
    Spare, SpareSpec,
};
use futures_util::future::BoxFuture;
use tokio::sync::OnceCell;

use super::error::RuntimeError;
use crate::config::{Config, ExecutorKind, PoolSettings};
use crate::sandbox::connector;

/// Where spares have their folders, in a data folder.
const FOLDER: &str = "pool";

/// The pools of a runtime, by the kind of sandbox.
#[derive(Debug, Default)]
pub(crate) struct Pools {
    kinds: BTreeMap<&'static str, KindPool>,
}

/// The pool of a kind, and what its spares are made of. Clones are the same.
#[derive(Debug, Clone)]
pub(crate) struct KindPool {
    pool: Pool<Maker>,
    spec: SpareSpec,
    size: usize,
}

impl Pools {
    /// Those of this configuration, and their actors. A kind without spares has a gate for its starts all the same.
    pub(crate) fn make(
        config: &Config,
        settings: PoolSettings,
        data: &Path,
    ) -> Result<(Self, Vec<ChildSpec>), RuntimeError> {
        let spec =
            SpareSpec { network: config.network().clone(), limits: *config.limits(), floor: *config.floor() };
        let (mut kinds, mut actors) = (BTreeMap::new(), Vec::new());
        let of_kinds = [
            (ExecutorKind::Jail, "the starts of jails", settings.jail),
            (ExecutorKind::Docker, "the starts of containers", settings.docker),
        ];
        for (kind, starts, size) in of_kinds {
            let size = size.unwrap_or_default();
            let mut options = PoolOptions::of_size(size);
            options.starts = starts;
            options.max_age = settings.max_age.unwrap_or(options.max_age);
            options.starts_at_once = settings.starts_at_once.unwrap_or(options.starts_at_once);
            // Which of them it is, where configurations differ.
            let name = format!("{}-{:.8}", kind.as_str(), spec.key(kind.as_str()).to_hex());
            let failed = |error: &dyn fmt::Display| RuntimeError::broke_off("naming a pool", &error);
            let name = ChildId::new(name).map_err(|error| failed(&error))?;
            let maker = Maker {
                config: config.clone(),
                kind,
                folder: data.join(FOLDER),
                spec: spec.clone(),
                makings: OnceCell::new(),
            };
            let (actor, pool) =
                PoolSpec::new(name, maker, options).build().map_err(|error| failed(&error))?;
            if size > 0 {
                actors.push(actor);
            }
            kinds.insert(kind.as_str(), KindPool { pool, spec: spec.clone(), size });
        }
        if !actors.is_empty() && !config.allowed_paths().is_empty() {
            tracing::warn!(
                "no session is served by a pool: sandboxes with allowed paths are made for their session"
            );
        }
        Ok((Self { kinds }, actors))
    }

    pub(crate) fn of(&self, kind: ExecutorKind) -> Option<&KindPool> {
        self.kinds.get(kind.as_str())
    }

    /// What the starts of each kind pass.
    pub(crate) fn starts(&self) -> Vec<Gate> {
        self.kinds.values().map(|kind| kind.pool.starts().clone()).collect()
    }

    /// How those are that have spares.
    pub(crate) fn stats(&self) -> Vec<PoolStats> {
        self.kinds.values().filter(|kind| kind.size > 0).map(|kind| kind.pool.stats()).collect()
    }

    /// Removes what dead hosts left of theirs. Blocks.
    pub(crate) fn sweep(data: &Path) -> Result<(), SandboxError> {
        let folder = data.join(FOLDER);
        if folder.is_dir() { DataFolder::open(&folder).map(drop) } else { Ok(()) }
    }
}

/// Makes the spares of a kind.
pub(crate) struct Maker {
    config: Config,
    kind: ExecutorKind,
    folder: PathBuf,
    spec: SpareSpec,
    /// Made when the first spare is, and again when that failed.
    makings: OnceCell<Makings>,
}

struct Makings {
    data: DataFolder,
    connector: Arc<dyn Connector>,
}

impl Maker {
    async fn makings(&self) -> Result<&Makings, SandboxError> {
        let made = self.makings.get_or_try_init(|| async {
            let (config, kind, folder) = (self.config.clone(), self.kind, self.folder.clone());
            let making = tokio::task::spawn_blocking(move || {
                let data = DataFolder::open(&folder)?;
                let made = connector(&config, kind, &data);
                let connector = made.map_err(|error| unavailable(&error))?;
                Ok(Makings { data, connector })
            });
            making.await.unwrap_or_else(|error| Err(unavailable(&error)))
        });
        made.await
    }
}

fn unavailable(error: &dyn fmt::Display) -> SandboxError {
    SandboxError::new(SandboxErrorKind::Unavailable, error.to_string())
}

impl SpareSource for Maker {
    type Spare = Ready;

    fn make(&self, deadline: Deadline) -> BoxFuture<'_, Result<Ready, SandboxError>> {
        Box::pin(async move {
            let Makings { data, connector } = self.makings().await?;
            let spare =
                Spare::open(&**connector, data, self.spec.clone(), Arc::new(SystemClock), deadline).await?;
            Ok(Ready(spare))
        })
    }
}

/// The configuration is left out: it holds the host's environment.
impl fmt::Debug for Maker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Maker").field("kind", &self.kind).field("spec", &self.spec).finish_non_exhaustive()
    }
}

/// A spare that waits.
pub(crate) struct Ready(Spare);

impl Waiting for Ready {
    fn is_live(&self) -> bool {
        self.0.failure().is_none()
    }

    fn ended(&self) -> BoxFuture<'static, SandboxError> {
        self.0.ended()
    }

    async fn retire(self) {
        self.0.retire().await;
    }
}

/// The sandboxes of one session, of a kind that has a pool: a spare where one serves, else one that is made for it.
#[derive(Debug)]
pub(crate) struct PooledSource {
    kind: KindPool,
    made: ConnectorSource,
    tenant: TenantId,
    context: Arc<ExecutionContext>,
    /// Where the session's workspace lies, when it is its own.
    data: DataFolder,
    fit: Fit,
}

/// Whether a session can have a spare.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fit {
    Spare,
    MadeOnly,
}

impl PooledSource {
    /// Of sandboxes for this context, whose tenant has this data folder; `made` makes those that are made for it.
    pub(crate) fn new(
        kind: KindPool,
        made: ConnectorSource,
        tenant: TenantId,
        context: ExecutionContext,
        data: DataFolder,
    ) -> Self {
        let fits = kind.spec.serves(&context) && data.is_own_workspace(&context.workspace);
        let fit = if fits { Fit::Spare } else { Fit::MadeOnly };
        Self { kind, made, tenant, context: Arc::new(context), data, fit }
    }

    async fn claimed(&self, deadline: Deadline) -> Option<Box<dyn Executor>> {
        let KindPool { pool, size, .. } = &self.kind;
        if *size == 0 {
            return None;
        }
        if self.fit == Fit::MadeOnly {
            pool.missed();
            return None;
        }
        let claim =
            |Ready(spare): Ready| async move { spare.claim(&self.context, &self.data, deadline).await };
        let sandbox = pool.claim(claim).await?;
        Some(Box::new(sandbox))
    }
}

impl ExecutorSource for PooledSource {
    fn layout(&self) -> &Layout {
        self.made.layout()
    }

    fn isolation(&self) -> Isolation {
        self.made.isolation()
    }

    fn open(&self, deadline: Deadline) -> BoxFuture<'_, Result<Box<dyn Executor>, SandboxError>> {
        Box::pin(async move {
            if let Some(claimed) = self.claimed(deadline).await {
                return Ok(claimed);
            }
            let _permit = self.kind.pool.admit(&self.tenant, deadline).await?;
            // What a claim that was broken off left to be done, or is still at.
            let (data, workspace) = (self.data.clone(), self.context.workspace.clone());
            let settling = tokio::task::spawn_blocking(move || data.settle_workspace(&workspace));
            settling.await.unwrap_or_else(|error| Err(unavailable(&error)))?;
            self.made.open(deadline).await
        })
    }
}
