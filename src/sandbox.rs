//! Making the sandbox that a configuration asks for.

use std::sync::Arc;
use std::time::Duration;

use conjure_base::{Clock, SystemClock};
use conjure_sandbox::{Executor, Local, NetworkPolicy, Sandbox};

use crate::config::{Config, ExecutorKind};
use crate::context::SessionContext;
use crate::error::Error;

/// A sandbox that is not ready by then will not be.
const PATIENCE: Duration = Duration::from_secs(30);

/// Makes the sandbox of the configuration's kind for this context, and prepares it.
///
/// End it with [`Executor::cleanup`] before the context is dropped: what runs in it works in the context's folder.
///
/// # Errors
/// When no kind is configured, for isolation is never given up without being asked; when the kind cannot limit the
/// network to the configured hosts; when the sandbox cannot be made.
pub async fn open_sandbox(config: &Config, context: &SessionContext) -> Result<Arc<dyn Executor>, Error> {
    // What it cannot keep is refused, where it was asked for: "nothing" is also the default, and what the caller gives
    // up by the name `local`; a list of hosts is somebody's wish.
    if config.executor() == ExecutorKind::Local && matches!(config.network(), NetworkPolicy::Limited(_)) {
        let message = "the sandbox `local` cannot limit the network to some hosts: it isolates nothing";
        return Err(Error::Container { message: message.to_owned(), source: None });
    }
    let connector = match config.executor() {
        ExecutorKind::Local => Local::without_isolation(config.handed_on().clone()),
        ExecutorKind::Unnamed => {
            let message = "no sandbox is configured, and none is taken without being asked for by name: `local` isolates nothing";
            return Err(Error::Container { message: message.to_owned(), source: None });
        }
    };
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let deadline = clock.deadline(PATIENCE);
    let sandbox = Sandbox::open(&connector, context.execution(), clock, deadline).await?;
    sandbox.init().await?;
    Ok(Arc::new(sandbox))
}
