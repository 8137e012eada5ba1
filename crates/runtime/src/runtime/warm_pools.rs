//! Warm sandboxes: sandboxes that are created before a session needs them, and the sources that claim them.
//!
//! State: one pool for each kind of sandbox, in memory. The files of warm sandboxes are in `<data>/pool`, which belongs
//! to no tenant. What dead processes left there is removed when the directory is opened again.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use conjure_actors::admission::AdmissionGate;
use conjure_actors::executors::{ConnectorSource, ExecutorSource};
use conjure_actors::pool::{Pool, PoolItem, PoolItemFactory, PoolOptions, PoolStats};
use conjure_actors::supervision::{ChildId, ChildSpec};
use conjure_base::{Deadline, SystemClock, TenantId};
use conjure_sandbox::{
    Connector, DataDir, ExecutionContext, Executor, Isolation, Layout, SandboxError, SandboxErrorKind,
    WarmSandbox, WarmSpec,
};
use futures_util::future::BoxFuture;
use tokio::sync::OnceCell;

use crate::config::{Config, ExecutorKind, PoolSettings};
use crate::runtime::error::RuntimeError;
use crate::sandbox::connector;

/// The directory of warm sandboxes in a data directory.
const DIR: &str = "pool";

/// The warm pools of a runtime, by the kind of sandbox.
#[derive(Debug, Default)]
pub(crate) struct WarmPools {
    kinds: BTreeMap<&'static str, WarmPool>,
}

/// The warm pool of one kind, and its specification. Clones share it.
#[derive(Debug, Clone)]
pub(crate) struct WarmPool {
    pool: Pool<WarmSandboxFactory>,
    spec: WarmSpec,
    size: usize,
}

impl WarmPools {
    /// The pools of this configuration, and their actors. Every kind has an admission gate for its starts, even without
    /// warm sandboxes.
    pub(crate) fn new(
        config: &Config,
        settings: PoolSettings,
        data: &Path,
    ) -> Result<(Self, Vec<ChildSpec>), RuntimeError> {
        let spec =
            WarmSpec { network: config.network().clone(), limits: *config.limits(), floor: *config.floor() };
        let (mut kinds, mut actors) = (BTreeMap::new(), Vec::new());
        let of_kinds = [
            (ExecutorKind::Jail, "the starts of jails", settings.jail),
            (ExecutorKind::Docker, "the starts of containers", settings.docker),
        ];
        for (kind, starts, size) in of_kinds {
            let size = size.unwrap_or_default();
            let mut options = PoolOptions::with_size(size);
            options.start_gate_name = starts;
            options.max_age = settings.max_age.unwrap_or(options.max_age);
            options.starts_at_once = settings.starts_at_once.unwrap_or(options.starts_at_once);
            // The name tells pools of different configurations apart.
            let name = format!("{}-{:.8}", kind.as_str(), spec.key(kind.as_str()).to_hex());
            let name =
                ChildId::new(name).map_err(|error| RuntimeError::interrupted("naming a pool", &error))?;
            let factory = WarmSandboxFactory {
                config: config.clone(),
                kind,
                dir: data.join(DIR),
                spec: spec.clone(),
                state: OnceCell::new(),
            };
            let (actor, pool) = Pool::spec(name, factory, options);
            if size > 0 {
                actors.push(actor);
            }
            kinds.insert(kind.as_str(), WarmPool { pool, spec: spec.clone(), size });
        }
        if !actors.is_empty() && !config.allowed_paths().is_empty() {
            tracing::warn!(
                "no session uses the warm pools: sandboxes with allowed paths are created for their session"
            );
        }
        Ok((Self { kinds }, actors))
    }

    pub(crate) fn pool(&self, kind: ExecutorKind) -> Option<&WarmPool> {
        self.kinds.get(kind.as_str())
    }

    /// The admission gates for the starts of sandboxes, one for each kind.
    pub(crate) fn starts(&self) -> Vec<AdmissionGate> {
        self.kinds.values().map(|kind| kind.pool.start_gate().clone()).collect()
    }

    /// The state of the pools with warm sandboxes.
    pub(crate) fn stats(&self) -> Vec<PoolStats> {
        self.kinds.values().filter(|kind| kind.size > 0).map(|kind| kind.pool.stats()).collect()
    }

    /// Removes the files that dead processes left in the pool's directory. Blocks.
    pub(crate) fn sweep(data: &Path) -> Result<(), SandboxError> {
        let dir = data.join(DIR);
        if dir.is_dir() { DataDir::open(&dir).map(drop) } else { Ok(()) }
    }
}

/// Creates the warm sandboxes of a kind.
pub(crate) struct WarmSandboxFactory {
    config: Config,
    kind: ExecutorKind,
    dir: PathBuf,
    spec: WarmSpec,
    /// Created with the first sandbox. If that fails, the next sandbox tries again.
    state: OnceCell<FactoryState>,
}

struct FactoryState {
    data: DataDir,
    connector: Arc<dyn Connector>,
}

impl WarmSandboxFactory {
    async fn state(&self) -> Result<&FactoryState, SandboxError> {
        let state = self.state.get_or_try_init(|| async {
            let (config, kind, dir) = (self.config.clone(), self.kind, self.dir.clone());
            let making = tokio::task::spawn_blocking(move || {
                let data = DataDir::open(&dir)?;
                let created = connector(&config, kind, &data);
                let connector = created.map_err(|error| unavailable(&error))?;
                Ok(FactoryState { data, connector })
            });
            making.await.unwrap_or_else(|error| Err(unavailable(&error)))
        });
        state.await
    }
}

fn unavailable(error: &dyn fmt::Display) -> SandboxError {
    SandboxError::new(SandboxErrorKind::Unavailable, error.to_string())
}

impl PoolItemFactory for WarmSandboxFactory {
    type Item = ReadySandbox;

    fn create(&self, deadline: Deadline) -> BoxFuture<'_, Result<ReadySandbox, SandboxError>> {
        Box::pin(async move {
            let FactoryState { data, connector } = self.state().await?;
            let sandbox =
                WarmSandbox::open(&**connector, data, self.spec.clone(), Arc::new(SystemClock), deadline)
                    .await?;
            Ok(ReadySandbox(sandbox))
        })
    }
}

/// Leaves out the configuration: it holds the embedder's environment.
impl fmt::Debug for WarmSandboxFactory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WarmSandboxFactory")
            .field("kind", &self.kind)
            .field("spec", &self.spec)
            .finish_non_exhaustive()
    }
}

/// A warm sandbox that is ready to be claimed.
pub(crate) struct ReadySandbox(WarmSandbox);

impl PoolItem for ReadySandbox {
    fn is_live(&self) -> bool {
        self.0.failure().is_none()
    }

    fn ended(&self) -> BoxFuture<'static, SandboxError> {
        self.0.wait_ended()
    }

    async fn retire(self) {
        self.0.close().await;
    }
}

/// The source of one session's sandboxes, of a kind with a pool. It claims a warm sandbox if one fits, and creates a
/// new one otherwise.
#[derive(Debug)]
pub(crate) struct PooledSource {
    kind: WarmPool,
    create: ConnectorSource,
    tenant: TenantId,
    context: Arc<ExecutionContext>,
    /// The tenant's data directory. It holds the session's workspace, unless that is a directory of the embedder.
    data: DataDir,
    origin: SandboxOrigin,
}

/// Whether a session can use a warm sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SandboxOrigin {
    WarmFirst,
    CreateOnly,
}

impl PooledSource {
    /// A source for this context. `data` is the data directory of its tenant; `create` creates new sandboxes.
    pub(crate) fn new(
        kind: WarmPool,
        create: ConnectorSource,
        tenant: TenantId,
        context: ExecutionContext,
        data: DataDir,
    ) -> Self {
        let fits = kind.spec.serves(&context) && data.is_own_workspace(&context.workspace);
        let origin = if fits { SandboxOrigin::WarmFirst } else { SandboxOrigin::CreateOnly };
        Self { kind, create, tenant, context: Arc::new(context), data, origin }
    }

    async fn claim(&self, deadline: Deadline) -> Option<Box<dyn Executor>> {
        let WarmPool { pool, size, .. } = &self.kind;
        if *size == 0 {
            return None;
        }
        if self.origin == SandboxOrigin::CreateOnly {
            pool.record_miss();
            return None;
        }
        let claim = |ReadySandbox(sandbox): ReadySandbox| async move {
            sandbox.claim(&self.context, &self.data, deadline).await
        };
        let sandbox = pool.claim(claim).await?;
        Some(Box::new(sandbox))
    }
}

impl ExecutorSource for PooledSource {
    fn layout(&self) -> &Layout {
        self.create.layout()
    }

    fn isolation(&self) -> Isolation {
        self.create.isolation()
    }

    fn create(&self, deadline: Deadline) -> BoxFuture<'_, Result<Box<dyn Executor>, SandboxError>> {
        Box::pin(async move {
            if let Some(claimed) = self.claim(deadline).await {
                return Ok(claimed);
            }
            let _permit = self.kind.pool.admit(&self.tenant, deadline).await?;
            // Completes the workspace swap of an interrupted claim first.
            let (data, workspace) = (self.data.clone(), self.context.workspace.clone());
            let settling = tokio::task::spawn_blocking(move || data.finish_workspace_swap(&workspace));
            settling.await.unwrap_or_else(|error| Err(unavailable(&error)))?;
            self.create.create(deadline).await
        })
    }
}
