//! The source of a session's sandboxes.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use conjure_base::{Deadline, SystemClock};
use conjure_sandbox::{Connector, ExecutionContext, Executor, Isolation, Layout, Sandbox, SandboxError};
use futures_util::future::BoxFuture;

use crate::admission::Permit;

/// Creates the sandboxes of one session, one after another, each with the same workspace.
///
/// The actor asks for another sandbox only when nothing of the last one changes the workspace any more ([`Executor::stop`]). The
/// source gives each sandbox away by value, so two sessions never have the same one.
pub trait ExecutorSource: Send + Sync + fmt::Debug {
    /// The layout of each sandbox. It is known before the first sandbox is created, because the model learns it then.
    fn layout(&self) -> &Layout;

    /// The boundaries that the sandboxes enforce, as far as known before one is created.
    fn isolation(&self) -> Isolation {
        Isolation::NONE
    }

    /// Waits for admission of one more sandbox. The permit is held from before the sandbox is created until nothing of
    /// it is left.
    ///
    /// # Errors
    /// If the sandbox is not admitted before `deadline`.
    fn acquire_permit(&self, deadline: Deadline) -> BoxFuture<'_, Result<Option<Permit>, SandboxError>> {
        let _ = deadline;
        Box::pin(async { Ok(None) })
    }

    /// Creates a sandbox. Dropping the future removes what was created so far.
    ///
    /// # Errors
    /// If the sandbox cannot be created before `deadline`. Nothing is left of it then.
    fn create(&self, deadline: Deadline) -> BoxFuture<'_, Result<Box<dyn Executor>, SandboxError>>;
}

/// A source that creates sandboxes with a [`Connector`] for one context.
pub struct ConnectorSource {
    connector: Arc<dyn Connector>,
    context: ExecutionContext,
    layout: Layout,
    /// Keeps the owner of the context's directories alive.
    _held: Option<Arc<dyn Any + Send + Sync>>,
}

impl ConnectorSource {
    /// A source of sandboxes for this context. Checks the context's directories; blocks.
    ///
    /// # Errors
    /// If the context names missing directories, or if the connector does not know its layout before a sandbox is
    /// created.
    pub fn new(connector: Arc<dyn Connector>, context: ExecutionContext) -> Result<Self, SandboxError> {
        let layout = connector.layout(&context)?;
        Ok(Self { connector, context, layout, _held: None })
    }

    /// Keeps this value alive while sandboxes may be created: the owner of the context's directories, such as a
    /// temporary workspace.
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

/// Leaves out the context, because its environment may contain secrets.
impl fmt::Debug for ConnectorSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConnectorSource")
            .field("connector", &self.connector)
            .field("layout", &self.layout)
            .finish_non_exhaustive()
    }
}
