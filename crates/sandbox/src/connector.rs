//! How a sandbox comes to be: a [`Connector`] makes one and yields the byte stream to the guest in it.
//!
//! Everything that is special about a kind of sandbox lives in its connector; what runs over the stream is the
//! same for all of them ([`crate::Sandbox`]). A connector holds no state of a sandbox: that is in the
//! [`SandboxGuard`], which goes with the connection and ends the sandbox when it is dropped.

use std::fmt;
#[cfg(target_os = "linux")]
use std::path::Path;
#[cfg(target_os = "linux")]
use std::sync::Arc;

use conjure_guest::protocol::{Hello, SetupFailure, Welcome};
use futures_util::future::BoxFuture;
use tokio::io::{AsyncRead, AsyncWrite};

use crate::context::ExecutionContext;
use crate::error::{SandboxError, SandboxErrorKind};
use crate::gateway::Proxy;
use crate::isolation::Isolation;
#[cfg(target_os = "linux")]
use crate::provision::Provider;
#[cfg(all(feature = "local", target_os = "linux"))]
use crate::transfer::Transfer;
use crate::types::Layout;

/// Makes sandboxes of one kind.
pub trait Connector: Send + Sync + fmt::Debug {
    /// What a sandbox of this kind keeps apart from the host, as far as it is known before one is made, so that a
    /// host can refuse a kind that is too weak. What one of them achieved is `Sandbox::isolation`.
    fn isolation(&self) -> Isolation;

    /// Where things will lie in a sandbox for this context, so that a model can be told before one is made. Blocks; it
    /// makes nothing.
    ///
    /// # Errors
    /// When the context names folders that are not there, as [`Connector::connect`] would say; `Unsupported` when this kind
    /// knows it only of sandboxes that are made.
    fn layout(&self, context: &ExecutionContext) -> Result<Layout, SandboxError> {
        let _ = context;
        let message = "this kind of sandbox does not say where things lie before it is made";
        Err(SandboxError::new(SandboxErrorKind::Unsupported, message))
    }

    /// Makes a sandbox and starts the guest in it. Dropping the future releases what was made so far.
    ///
    /// # Errors
    /// When the context cannot be had, naming what is missing; nothing is weakened instead.
    fn connect<'a>(
        &'a self,
        context: &'a ExecutionContext,
    ) -> BoxFuture<'a, Result<Connection, SandboxError>>;
}

/// A sandbox whose guest was started, before the handshake.
pub struct Connection {
    /// What the guest says.
    pub reader: Box<dyn AsyncRead + Send + Unpin>,
    /// What the guest hears. Closing it ends the guest and everything it runs.
    pub writer: Box<dyn AsyncWrite + Send + Unpin>,
    /// The greeting: what this sandbox is.
    pub hello: Hello,
    /// Where things lie in it.
    pub layout: Layout,
    /// The proxy that commands find, which [`crate::Sandbox::open`] tells them and the guest of; `None`: they find none.
    pub proxy: Option<Proxy>,
    /// Ends it.
    pub guard: Box<dyn SandboxGuard>,
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The greeting holds the environment, which may hold secrets: it is left out.
        f.debug_struct("Connection")
            .field("layout", &self.layout)
            .field("proxy", &self.proxy)
            .field("guard", &self.guard)
            .finish_non_exhaustive()
    }
}

/// Holds a sandbox and everything that it occupies on the host. Dropping it kills the guest at once and
/// releases the rest; [`SandboxGuard::ended`] after the stream was closed is the gentle way.
pub trait SandboxGuard: Send + fmt::Debug {
    /// The guest has greeted, and said how it is confined: what this sandbox keeps apart from the host.
    fn greeted(&mut self, welcome: &Welcome) -> Isolation;

    /// Looks whether the sandbox is the one that was meant, as far as its guest can tell.
    ///
    /// # Errors
    /// When it is not. It is ended then, before any command.
    fn admit(&self, welcome: &Welcome) -> Result<(), SandboxError> {
        let _ = welcome;
        Ok(())
    }

    /// The error to tell when the guest could not confine itself: with what would help, where that is known.
    fn explain(&self, failure: &SetupFailure) -> SandboxError {
        SandboxError::new(SandboxErrorKind::Unavailable, format!("the sandbox cannot be set up: {failure}"))
    }

    /// Who puts content on the sandbox's shelves while it runs; asked once, after the greeting. `None`: nobody, and
    /// [`crate::Executor::provide`] is unsupported.
    #[cfg(target_os = "linux")]
    fn provider(&self) -> Option<Arc<dyn Provider>> {
        None
    }

    /// Who keeps the sandbox together when the host moves its workspace; asked once, after the greeting. `None`: nobody can,
    /// and the sandbox cannot be a spare one.
    #[cfg(target_os = "linux")]
    fn follower(&self) -> Option<Arc<dyn Follower>> {
        None
    }

    /// What must travel through the guest, where the sandbox shares no folders with the host; asked once, after the greeting.
    /// `None`: nothing, folders are shared.
    #[cfg(all(feature = "local", target_os = "linux"))]
    fn transfer(&mut self) -> Option<Transfer> {
        None
    }

    /// Waits until the guest has ended, and says how ("exit code 0", "signal 9 …"). May be dropped and asked again.
    fn ended(&mut self) -> BoxFuture<'_, String>;

    /// Kills the guest and waits until it is gone.
    fn kill(&mut self) -> BoxFuture<'_, ()>;

    /// Gives back what others may have next, once the guest has ended or was killed, and waits for it: nothing of the sandbox
    /// changes its workspace afterwards. What takes long belongs here rather than in [`SandboxGuard::ended`], after which calls
    /// under way are told.
    fn release(&mut self) -> BoxFuture<'_, ()> {
        Box::pin(async {})
    }

    /// Removes what is left of the sandbox after [`SandboxGuard::release`] and is of no use to anybody, and waits for it.
    fn clear(&mut self) -> BoxFuture<'_, ()> {
        Box::pin(async {})
    }
}

/// Keeps a sandbox together whose workspace the host moves: a bind mount follows the folder, and what was noted of its path does
/// not.
#[cfg(target_os = "linux")]
pub trait Follower: Send + Sync + fmt::Debug {
    /// The workspace lies at `to` on the host, from now on.
    ///
    /// # Errors
    /// `BadRequest` and others when such a path cannot be had.
    fn moved(&self, to: &Path) -> Result<(), SandboxError>;

    /// Files of the host's came into the workspace: gives them to the sandbox's user, as those were that it began with.
    ///
    /// # Errors
    /// When they cannot be given. What was is taken back at the sandbox's end.
    fn hand_over(&self) -> BoxFuture<'_, Result<(), SandboxError>>;
}
