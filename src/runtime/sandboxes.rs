//! Where the sandboxes of sessions come from: of the configuration's kinds, or of the host's own.
//!
//! State: what was found of the machine, in memory. The connectors themselves are their tenants', beside the data folders that they know.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, OnceLock};

use conjure_actors::admission::AdmittedSource;
use conjure_actors::executors::{ConnectorSource, ExecutorSource};
use conjure_base::{Clock as _, Deadline, SystemClock};
use conjure_journal::SessionKey;
use conjure_sandbox::{Connector, ExecutionContext, Executor, Isolation, Jail, Layout, SandboxError};
use futures_util::future::BoxFuture;

use super::error::RuntimeError;
use super::home::{Home, TenantHome};
use super::hosted::NO_SANDBOX;
use super::pools::{PooledSource, Pools};
use super::tenants::{MeteredSource, Meters, Policies};
use crate::config::{Config, ExecutorKind};
use crate::context::{SessionContext, SessionFolders};
use crate::sandbox::connector;

/// Makes the executors of a host's own: for each session, where its executors come from.
///
/// ```
/// use std::sync::Arc;
/// use conjure::{ExecutionContext, ExecutorFactory, ExecutorSource, SandboxError, SessionKey};
///
/// fn check(_: impl ExecutorFactory) {}
/// check(|session: &SessionKey, context: ExecutionContext| -> Result<Arc<dyn ExecutorSource>, SandboxError> {
///     todo!("a source for {session} working in {:?}", context.workspace)
/// });
/// ```
pub trait ExecutorFactory: Send + Sync {
    /// Where the executors of this session come from. Called at each start of the session, on a thread that may block; nothing
    /// is made yet. `context` says what the session's sandboxes are for: its workspace, its skills' folders, its environment.
    ///
    /// What the configuration demands of a sandbox (`context.floor`), [`ExecutorSource::isolation`] and the
    /// [`Executor::isolation`](conjure_sandbox::Executor::isolation) of what it opens must say that they keep: else the
    /// session does not start, or has no sandbox.
    ///
    /// # Errors
    /// Why there are none; the session does not start.
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

/// Sandboxes of a host's own.
#[derive(Clone)]
pub(crate) enum Own {
    Connector(Arc<dyn Connector>),
    Factory(Arc<dyn ExecutorFactory>),
}

/// What a name of a sandbox stands for.
pub(crate) enum Kind<'a> {
    Own(&'a Own),
    Built(ExecutorKind),
}

/// The sandboxes of a runtime.
pub(crate) struct Sandboxes {
    own: BTreeMap<String, Own>,
    policies: Policies,
    meters: Meters,
    pools: Pools,
    /// Looks at the machine once, for all tenants.
    jail: OnceLock<Jail>,
}

impl Sandboxes {
    /// Of this data, for tenants with these policies.
    pub(crate) fn new(
        own: BTreeMap<String, Own>,
        policies: Policies,
        home: &Arc<Home>,
        pools: Pools,
    ) -> Self {
        let meters = Meters::new(Arc::clone(home), policies.clone());
        Self { own, policies, meters, pools, jail: OnceLock::new() }
    }

    /// What tenants may have.
    pub(crate) const fn policies(&self) -> &Policies {
        &self.policies
    }

    /// What their folders take.
    pub(crate) const fn meters(&self) -> &Meters {
        &self.meters
    }

    /// The sandboxes that are made before their session is there.
    pub(crate) const fn pools(&self) -> &Pools {
        &self.pools
    }

    /// What this name stands for; it may be that of no sandbox. The host's own names stand before ours.
    pub(crate) fn kind(&self, name: &str) -> Result<Option<Kind<'_>>, RuntimeError> {
        if let Some(own) = self.own.get(name) {
            return Ok(Some(Kind::Own(own)));
        }
        if name == NO_SANDBOX {
            return Ok(None);
        }
        name.parse().map(Kind::Built).map(Some).map_err(|_| {
            let built = ["jail", "docker", "local", NO_SANDBOX].map(str::to_owned);
            let available = self.own.keys().cloned().chain(built).collect();
            RuntimeError::UnknownExecutor { name: name.to_owned(), available }
        })
    }

    /// Where the sandboxes of a session come from, in its tenant's folder. Blocks.
    pub(crate) fn source(
        &self,
        session: &SessionKey,
        home: &Arc<TenantHome>,
        kind: &Kind<'_>,
        config: &Config,
        context: SessionContext,
    ) -> Result<Arc<dyn ExecutorSource>, RuntimeError> {
        let source = self.source_of(session, home, kind, config, context)?;
        let gate = self.policies.sandboxes().clone();
        let admitted = Arc::new(AdmittedSource::new(source, gate, session.tenant.clone()));
        Ok(Arc::new(MeteredSource::new(admitted, self.meters.clone(), session.tenant.clone())))
    }

    fn source_of(
        &self,
        session: &SessionKey,
        home: &Arc<TenantHome>,
        kind: &Kind<'_>,
        config: &Config,
        context: SessionContext,
    ) -> Result<Arc<dyn ExecutorSource>, RuntimeError> {
        let refused = |error: SandboxError| RuntimeError::Sandbox(error.into());
        let policy = self.policies.of(&session.tenant);
        let wanted = context.execution();
        let execution = ExecutionContext {
            network: wanted.network.within(&policy.network).map_err(refused)?,
            floor: wanted.floor.or(&policy.floor),
            tenant: Some(session.tenant.clone()),
            session: Some(session.session),
            ..wanted.clone()
        };
        let connector = match kind {
            Kind::Own(Own::Factory(factory)) => {
                let floor = execution.floor;
                let source = factory.source(session, execution).map_err(refused)?;
                source.isolation().demand(&floor).map_err(refused)?;
                let folders = (context.into_folders(), Arc::clone(home));
                return Ok(Arc::new(Demanding { source, floor, _folders: folders }));
            }
            Kind::Own(Own::Connector(connector)) => Arc::clone(connector),
            Kind::Built(kind) => self.built(home, *kind, config)?,
        };
        let pool = match kind {
            Kind::Built(kind) => self.pools.of(*kind).cloned(),
            Kind::Own(_) => None,
        };
        let source = ConnectorSource::new(connector, execution.clone()).map_err(refused)?;
        let data = context.data().clone();
        let source = source.holding(Arc::new((context.into_folders(), Arc::clone(home))));
        Ok(match pool {
            Some(pool) => Arc::new(PooledSource::new(pool, source, session.tenant.clone(), execution, data)),
            None => Arc::new(source),
        })
    }

    /// The connector of a tenant: its folders lie in the tenant's data folder.
    fn built(
        &self,
        home: &TenantHome,
        kind: ExecutorKind,
        config: &Config,
    ) -> Result<Arc<dyn Connector>, RuntimeError> {
        home.connector(kind, |data| match kind {
            ExecutorKind::Jail => {
                let jail = self.jail.get_or_init(|| Jail::new(config.handed_on().clone()));
                Ok(Arc::new(jail.apart(data.clone())))
            }
            kind => connector(config, kind, data).map_err(RuntimeError::Sandbox),
        })
    }
}

/// A host's own source, of which the configuration demands what it demands of ours.
#[derive(Debug)]
struct Demanding {
    source: Arc<dyn ExecutorSource>,
    floor: Isolation,
    /// What the folders belong to that the source was told of.
    _folders: (SessionFolders, Arc<TenantHome>),
}

impl ExecutorSource for Demanding {
    fn layout(&self) -> &Layout {
        self.source.layout()
    }

    fn isolation(&self) -> Isolation {
        self.source.isolation()
    }

    fn open(&self, deadline: Deadline) -> BoxFuture<'_, Result<Box<dyn Executor>, SandboxError>> {
        Box::pin(async move {
            let executor = self.source.open(deadline).await?;
            if let Err(refusal) = executor.isolation().demand(&self.floor) {
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

impl fmt::Debug for Sandboxes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sandboxes").field("own", &self.own.keys()).finish_non_exhaustive()
    }
}
