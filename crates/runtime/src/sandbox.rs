//! Creates the sandbox that a configuration asks for.

use std::sync::Arc;
use std::time::Duration;

use conjure_base::{Clock, SystemClock};
use conjure_egress::{Egress, EgressPolicy};
use conjure_sandbox::{Connector, DataDir, Executor, Jail, Local, NetworkPolicy, Sandbox};

#[cfg(feature = "docker")]
use crate::config::ConfigError;
use crate::config::{Config, ExecutorKind};
use crate::context::SessionContext;
use crate::error::Error;

/// How long the start of a sandbox may take.
pub(crate) const START_TIMEOUT: Duration = Duration::from_secs(30);

/// Creates and prepares a sandbox of the configured kind for this context.
///
/// Call [`Executor::cleanup`] before the context is dropped, because the sandbox works in the context's directory.
///
/// # Errors
/// If the kind cannot enforce a required boundary, because isolation is never silently weakened. If the machine does not
/// permit this kind. If the sandbox cannot be created.
pub async fn open_sandbox(config: &Config, context: &SessionContext) -> Result<Arc<dyn Executor>, Error> {
    let connector = connector(config, config.executor(), context.data())?;
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let deadline = clock.deadline(START_TIMEOUT);
    let sandbox = Sandbox::open(&*connector, context.execution(), clock, deadline).await?;
    sandbox.init().await?;
    Ok(Arc::new(sandbox))
}

/// The egress of sandboxes. Each sandbox has its own policy.
pub(crate) fn egress(config: &Config) -> Egress {
    Egress::new(EgressPolicy::None).with_addresses(config.address_policy())
}

/// The connector for sandboxes of this kind. Their directories are in this data directory.
pub(crate) fn connector(
    config: &Config,
    kind: ExecutorKind,
    data: &DataDir,
) -> Result<Arc<dyn Connector>, Error> {
    // `local` cannot enforce any network policy. "Nothing" is also the default, and a caller that chooses `local` gives
    // it up. But a list of hosts is an explicit wish, so it is refused.
    if kind == ExecutorKind::Local && matches!(config.network(), NetworkPolicy::Limited(_)) {
        let message = "the sandbox `local` cannot limit the network to some hosts: it isolates nothing";
        return Err(Error::Container { message: message.to_owned(), source: None });
    }
    let host = config.passthrough_env().clone();
    Ok(match kind {
        ExecutorKind::Jail => Arc::new(Jail::new(host).with_egress(egress(config)).with_data(data.clone())),
        #[cfg(feature = "docker")]
        ExecutorKind::Docker => {
            let wrong = |error: ConfigError| Error::Container { message: error.to_string(), source: None };
            let options = config.docker().map_err(wrong)?;
            let engine = config.container_engine().map_err(wrong)?;
            let docker = conjure_sandbox::Docker::new(options, host).with_engine(engine);
            let docker = docker.with_egress(egress(config));
            Arc::new(docker.with_data(data.clone()))
        }
        #[cfg(not(feature = "docker"))]
        ExecutorKind::Docker => {
            let message = "this build has no containers: it was made without the feature `docker`";
            return Err(Error::Container { message: message.to_owned(), source: None });
        }
        ExecutorKind::Local => Arc::new(Local::without_isolation(host)),
    })
}
