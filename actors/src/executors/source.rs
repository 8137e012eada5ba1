//! Where the sandboxes of one session come from.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use conjure_base::{Deadline, SystemClock};
use conjure_sandbox::{Connector, ExecutionContext, Executor, Isolation, Layout, Sandbox, SandboxError};
use futures_util::future::BoxFuture;

use crate::admission::Permit;

/// Makes the sandboxes of one session, one after another, each with the same workspace.
///
/// It is asked again only when nothing of the sandbox before changes the workspace any more ([`Executor::stop`]). What it makes it gives away: no two sessions can have
/// the same sandbox.
pub trait ExecutorSource: Send + Sync + fmt::Debug {
    /// Where things lie in each of them. It is known before the first is made, as the model is told then.
    fn layout(&self) -> &Layout;

    /// What they keep apart from the host, as far as that is known before one is made.
    fn isolation(&self) -> Isolation {
        Isolation::NONE
    }

    /// Waits until there may be one more sandbox, and returns what is held from before it is made until nothing of it is left.
    ///
    /// # Errors
    /// When there may be none, or not before `deadline`.
    fn acquire_permit(&self, deadline: Deadline) -> BoxFuture<'_, Result<Option<Permit>, SandboxError>> {
        let _ = deadline;
        Box::pin(async { Ok(None) })
    }

    /// Makes a sandbox. Dropping the future releases what was made so far.
    ///
    /// # Errors
    /// When there is none to be had, or not before `deadline`. Nothing is left of it then.
    fn create(&self, deadline: Deadline) -> BoxFuture<'_, Result<Box<dyn Executor>, SandboxError>>;
}

/// Sandboxes of a [`Connector`], for one context.
pub struct ConnectorSource {
    connector: Arc<dyn Connector>,
    context: ExecutionContext,
    layout: Layout,
    /// What the context's folders belong to.
    _held: Option<Arc<dyn Any + Send + Sync>>,
}

impl ConnectorSource {
    /// A source of sandboxes for this context. Looks at the context's folders, and blocks for that.
    ///
    /// # Errors
    /// When the context names what is not there, or the connector does not say where things lie before a sandbox is made.
    pub fn new(connector: Arc<dyn Connector>, context: ExecutionContext) -> Result<Self, SandboxError> {
        let layout = connector.layout(&context)?;
        Ok(Self { connector, context, layout, _held: None })
    }

    /// Keeps this for as long as sandboxes may be made: what owns the context's folders, a temporary workspace for instance.
    #[must_use]
    pub fn with_resource(mut self, held: Arc<dyn Any + Send + Sync>) -> Self {
        self._held = Some(held);
        self
    }
}

impl ExecutorSource for ConnectorSource {
    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn isolation(&self) -> Isolation {
        self.connector.isolation()
    }

    fn create(&self, deadline: Deadline) -> BoxFuture<'_, Result<Box<dyn Executor>, SandboxError>> {
        Box::pin(async move {
            let sandbox =
                Sandbox::open(&*self.connector, &self.context, Arc::new(SystemClock), deadline).await?;
            Ok(Box::new(sandbox) as Box<dyn Executor>)
        })
    }
}

/// The context is left out: its environment may hold secrets.
impl fmt::Debug for ConnectorSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConnectorSource")
            .field("connector", &self.connector)
            .field("layout", &self.layout)
            .finish_non_exhaustive()
    }
}
