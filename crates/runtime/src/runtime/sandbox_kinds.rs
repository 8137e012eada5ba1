//! The kinds of sandboxes that sessions can have: those of the configuration, and the embedder's own.
//!
//! State, in memory: the jail support that was detected on this machine. The connectors belong to the tenants' data
//! directories.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, OnceLock};

use conjure_actors::admission::AdmittedSource;
use conjure_actors::executors::{ConnectorSource, ExecutorSource};
use conjure_base::{Clock as _, Deadline, SystemClock};
use conjure_journal::SessionKey;
use conjure_sandbox::{Connector, ExecutionContext, Executor, Isolation, Jail, Layout, SandboxError};
use futures_util::future::BoxFuture;

use crate::config::{Config, ExecutorKind};
use crate::context::{SessionContext, SessionDirsGuard};
use crate::runtime::data::data_layout::{RuntimeDir, TenantDir};
use crate::runtime::error::RuntimeError;
use crate::runtime::session::spec::NO_SANDBOX;
use crate::runtime::tenants::{DiskUsageCache, TenantPolicies, TenantQuotaSource};
use crate::runtime::warm_pools::{PooledSource, WarmPool, WarmPools};
use crate::sandbox::{connector, egress};

/// Creates the embedder's own executors for each session.
///
/// ```
/// use std::sync::Arc;
/// use conjure::journal::SessionKey;
/// use conjure::runtime::{ExecutorFactory, ExecutorSource};
/// use conjure::sandbox::{ExecutionContext, SandboxError};
///
/// fn check(_: impl ExecutorFactory) {}
/// check(|session: &SessionKey, context: ExecutionContext| -> Result<Arc<dyn ExecutorSource>, SandboxError> {
///     todo!("a source for {session} working in {:?}", context.workspace)
/// });
/// ```
pub trait ExecutorFactory: Send + Sync {
    /// Returns the source of a session's executors. The runtime calls it at each start of the session, on a thread that
    /// may block. No sandbox is created yet. `context` describes what the sandboxes are for: the workspace, the skills'
    /// directories, and the environment.
    ///
    /// The configuration's requirements (`context.floor`) must be met by [`ExecutorSource::isolation`] and by the
    /// [`Executor::isolation`](conjure_sandbox::Executor::isolation) of what it opens. Otherwise the session does not
    /// start, or has no sandbox.
    ///
    /// # Errors
    ///
    /// If the session can have no executors. The session does not start then.
    fn source(
        &self,
        session: &SessionKey,
        context: ExecutionContext,
    ) -> Result<Arc<dyn ExecutorSource>, SandboxError>;
}

impl<F> ExecutorFactory for F
where
    F: Fn(&SessionKey, ExecutionContext) -> Result<Arc<dyn ExecutorSource>, SandboxError> + Send + Sync,
{
    fn source(
        &self,
        session: &SessionKey,
        context: ExecutionContext,
    ) -> Result<Arc<dyn ExecutorSource>, SandboxError> {
        self(session, context)
    }
}

/// The embedder's own sandboxes under one name.
#[derive(Clone)]
pub(crate) enum CustomSandbox {
    Connector(Arc<dyn Connector>),
    Factory(Arc<dyn ExecutorFactory>),
}

/// The meaning of a sandbox's name.
pub(crate) enum SandboxKind<'a> {
    Custom(&'a CustomSandbox),
    BuiltIn(ExecutorKind),
}

/// The kinds of sandboxes of a runtime.
pub(crate) struct SandboxKinds {
    custom: BTreeMap<String, CustomSandbox>,
    policies: TenantPolicies,
    disk_usage: DiskUsageCache,
    pools: WarmPools,
    /// Detected once, for all tenants.
    jail: OnceLock<Jail>,
}

impl SandboxKinds {
    /// The kinds for this data, and for tenants with these policies.
    pub(crate) fn new(
        custom: BTreeMap<String, CustomSandbox>,
        policies: TenantPolicies,
        home: &Arc<RuntimeDir>,
        pools: WarmPools,
    ) -> Self {
        let disk_usage = DiskUsageCache::new(Arc::clone(home), policies.clone());
        Self { custom, policies, disk_usage, pools, jail: OnceLock::new() }
    }

    /// The policies of the tenants.
    pub(crate) const fn policies(&self) -> &TenantPolicies {
        &self.policies
    }

    /// The disk usage of the tenants.
    pub(crate) const fn disk_usage(&self) -> &DiskUsageCache {
        &self.disk_usage
    }

    /// The warm pools.
    pub(crate) const fn pools(&self) -> &WarmPools {
        &self.pools
    }

    /// The kind of sandbox of this name. `None` if the name means that the session has no sandbox. The embedder's names
    /// take precedence over the built-in ones.
    pub(crate) fn kind(&self, name: &str) -> Result<Option<SandboxKind<'_>>, RuntimeError> {
        if let Some(own) = self.custom.get(name) {
            return Ok(Some(SandboxKind::Custom(own)));
        }
        if name == NO_SANDBOX {
            return Ok(None);
        }
        name.parse().map(SandboxKind::BuiltIn).map(Some).map_err(|_| {
            let built = ["jail", "docker", "local", NO_SANDBOX].map(str::to_owned);
            let available = self.custom.keys().cloned().chain(built).collect();
            RuntimeError::UnknownExecutor { name: name.to_owned(), available }
        })
    }

    /// The source of a session's sandboxes, in its tenant's directory. Blocks.
    pub(crate) fn source(
        &self,
        session: &SessionKey,
        home: &Arc<TenantDir>,
        kind: &SandboxKind<'_>,
        config: &Config,
        context: SessionContext,
    ) -> Result<Arc<dyn ExecutorSource>, RuntimeError> {
        let pool = match kind {
            SandboxKind::BuiltIn(kind) => self.pools.pool(*kind).cloned(),
            SandboxKind::Custom(_) => None,
        };
        let source = self.source_of(session, home, kind, config, context, pool)?;
        Ok(self.within_limits(session, source))
    }

    /// The source of sandboxes that never come from a pool. They may share a workspace with other sandboxes of the
    /// session.
    pub(crate) fn unpooled_source(
        &self,
        session: &SessionKey,
        home: &Arc<TenantDir>,
        kind: &SandboxKind<'_>,
        config: &Config,
        context: SessionContext,
    ) -> Result<Arc<dyn ExecutorSource>, RuntimeError> {
        let source = self.source_of(session, home, kind, config, context, None)?;
        Ok(self.within_limits(session, source))
    }

    fn within_limits(
        &self,
        session: &SessionKey,
        source: Arc<dyn ExecutorSource>,
    ) -> Arc<dyn ExecutorSource> {
        let gate = self.policies.sandboxes().clone();
        let admitted = Arc::new(AdmittedSource::new(source, gate, session.tenant.clone()));
        Arc::new(TenantQuotaSource::new(admitted, self.disk_usage.clone(), session.tenant.clone()))
    }

    fn source_of(
        &self,
        session: &SessionKey,
        home: &Arc<TenantDir>,
        kind: &SandboxKind<'_>,
        config: &Config,
        context: SessionContext,
        pool: Option<WarmPool>,
    ) -> Result<Arc<dyn ExecutorSource>, RuntimeError> {
        let refused = |error: SandboxError| RuntimeError::Sandbox(error.into());
        let policy = self.policies.policy(&session.tenant);
        let requested = context.execution();
        let execution = ExecutionContext {
            network: requested.network.restricted_to(&policy.network).map_err(refused)?,
            startup_network: requested.startup_network.restricted_to(&policy.network).map_err(refused)?,
            floor: requested.floor.or(&policy.floor),
            tenant: Some(session.tenant.clone()),
            session: Some(session.session),
            ..requested.clone()
        };
        let connector = match kind {
            SandboxKind::Custom(CustomSandbox::Factory(factory)) => {
                let floor = execution.floor;
                let source = factory.source(session, execution).map_err(refused)?;
                source.isolation().require(&floor).map_err(refused)?;
                let dirs = (context.into_dirs_guard(), Arc::clone(home));
                return Ok(Arc::new(FloorCheckedSource { source, floor, _dirs: dirs }));
            }
            SandboxKind::Custom(CustomSandbox::Connector(connector)) => Arc::clone(connector),
            SandboxKind::BuiltIn(kind) => self.built(home, *kind, config)?,
        };
        let source = ConnectorSource::new(connector, execution.clone()).map_err(refused)?;
        let data = context.data().clone();
        let source = source.with_resource(Arc::new((context.into_dirs_guard(), Arc::clone(home))));
        Ok(match pool {
            Some(pool) => Arc::new(PooledSource::new(pool, source, session.tenant.clone(), execution, data)),
            None => Arc::new(source),
        })
    }

    /// The connector of a tenant. Its directories are in the tenant's data directory.
    fn built(
        &self,
        home: &TenantDir,
        kind: ExecutorKind,
        config: &Config,
    ) -> Result<Arc<dyn Connector>, RuntimeError> {
        home.connector(kind, |data| match kind {
            ExecutorKind::Jail => {
                let jail = self.jail.get_or_init(|| Jail::new(config.passthrough_env().clone()));
                Ok(Arc::new(jail.for_data_dir(data.clone()).with_egress(egress(config))))
            }
            kind => connector(config, kind, data).map_err(RuntimeError::Sandbox),
        })
    }
}

/// The embedder's own source. Its sandboxes are checked against the configuration's isolation requirements.
#[derive(Debug)]
struct FloorCheckedSource {
    source: Arc<dyn ExecutorSource>,
    floor: Isolation,
    /// Keeps the directories alive that the source uses.
    _dirs: (SessionDirsGuard, Arc<TenantDir>),
}

impl ExecutorSource for FloorCheckedSource {
    fn layout(&self) -> &Layout {
        self.source.layout()
    }

    fn isolation(&self) -> Isolation {
        self.source.isolation()
    }

    fn create(&self, deadline: Deadline) -> BoxFuture<'_, Result<Box<dyn Executor>, SandboxError>> {
        Box::pin(async move {
            let executor = self.source.create(deadline).await?;
            if let Err(refusal) = executor.isolation().require(&self.floor) {
                tokio::select! {
                    biased;
                    () = executor.cleanup() => {}
                    () = SystemClock.sleep_until(deadline) => {}
                }
                return Err(refusal);
            }
            Ok(executor)
        })
    }
}

impl fmt::Debug for SandboxKinds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SandboxKinds").field("custom", &self.custom.keys()).finish_non_exhaustive()
    }
}
