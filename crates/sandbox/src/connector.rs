//! [`Connector`]: creates sandboxes of one kind, and returns the byte stream to the guest of each.
//!
//! The connector contains everything that is specific to its kind of sandbox. The protocol over the stream is the
//! same for all kinds ([`crate::Sandbox`]). A connector holds no state of a sandbox: the [`SandboxGuard`] of the
//! started sandbox does, and ends it when it is dropped.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use conjure_guest::protocol::{Hello, SetupError, Welcome};
use futures_util::future::BoxFuture;
use tokio::io::{AsyncRead, AsyncWrite};

use crate::content::ContentInstaller;
#[cfg(feature = "local")]
use crate::copy::CopyPlan;
use crate::error::{SandboxError, SandboxErrorKind};
use crate::proxy_gateway::Proxy;
use crate::settings::context::ExecutionContext;
use crate::settings::isolation::Isolation;
use crate::settings::layout::Layout;

/// Creates sandboxes of one kind.
pub trait Connector: Send + Sync + fmt::Debug {
    /// The boundaries of a sandbox of this kind, as far as they are known before one is created. An embedder can
    /// refuse a kind that is too weak. `Sandbox::isolation` returns those of a created sandbox.
    fn isolation(&self) -> Isolation;

    /// The layout of a sandbox for this context, for the model's instructions before a sandbox is created. Blocks;
    /// creates nothing.
    ///
    /// # Errors
    /// When the context names missing directories, as for [`Connector::connect`]; `Unsupported` when this kind knows
    /// its layout only after the creation.
    fn layout(&self, context: &ExecutionContext) -> Result<Layout, SandboxError> {
        let _ = context;
        let message = "this kind of sandbox has no layout before its creation";
        Err(SandboxError::new(SandboxErrorKind::Unsupported, message))
    }

    /// Creates a sandbox and starts its guest. Dropping the future releases what was created so far.
    ///
    /// # Errors
    /// When the context cannot be met. The error names what is missing; no boundary is weakened instead.
    fn connect<'a>(
        &'a self,
        context: &'a ExecutionContext,
    ) -> BoxFuture<'a, Result<StartedSandbox, SandboxError>>;
}

/// A sandbox whose guest was started, before the handshake.
pub struct StartedSandbox {
    /// The byte stream from the guest.
    pub reader: Box<dyn AsyncRead + Send + Unpin>,
    /// The byte stream to the guest. Closing it ends the guest and everything it runs.
    pub writer: Box<dyn AsyncWrite + Send + Unpin>,
    /// The first message to the guest, which describes this sandbox.
    pub hello: Hello,
    /// The paths in the sandbox.
    pub layout: Layout,
    /// The proxy for commands. [`crate::Sandbox::open`] adds it to their environment and to the greeting. `None`: no
    /// proxy.
    pub proxy: Option<Proxy>,
    /// Owns the sandbox and ends it.
    pub guard: Box<dyn SandboxGuard>,
}

impl fmt::Debug for StartedSandbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The greeting contains the environment, which may contain secrets, so it is left out.
        f.debug_struct("StartedSandbox")
            .field("layout", &self.layout)
            .field("proxy", &self.proxy)
            .field("guard", &self.guard)
            .finish_non_exhaustive()
    }
}

/// Owns a sandbox and all its resources on the host. Dropping it kills the guest at once and releases the rest. For
/// an orderly end, close the stream and call [`SandboxGuard::wait`].
pub trait SandboxGuard: Send + fmt::Debug {
    /// Returns the boundaries of this sandbox, from the guest's answer to the greeting.
    fn confirmed_isolation(&mut self, welcome: &Welcome) -> Isolation;

    /// Checks that the guest runs in the expected sandbox, as far as the guest can tell.
    ///
    /// # Errors
    /// When it does not. The sandbox is then ended before any command.
    fn verify(&self, welcome: &Welcome) -> Result<(), SandboxError> {
        let _ = welcome;
        Ok(())
    }

    /// Returns the error for a guest that could not confine itself, with a hint if one is known.
    fn describe_setup_error(&self, failure: &SetupError) -> SandboxError {
        SandboxError::new(SandboxErrorKind::Unavailable, format!("the sandbox cannot be set up: {failure}"))
    }

    /// Returns the installer of content for the running sandbox. [`crate::Sandbox::open`] calls this once, after the
    /// handshake. `None`: [`crate::Executor::install_content`] is unsupported.
    fn content_installer(&self) -> Option<Arc<dyn ContentInstaller>> {
        None
    }

    /// Returns the listener that is notified when the workspace directory is renamed. [`crate::Sandbox::open`] calls
    /// this once, after the handshake. `None`: the workspace cannot be renamed, and the sandbox cannot be a warm one.
    fn workspace_listener(&self) -> Option<Arc<dyn WorkspaceListener>> {
        None
    }

    /// Takes the plan of what to copy through the guest, for a sandbox that shares no directories with the host.
    /// [`crate::Sandbox::open`] calls this once, after the handshake. `None`: directories are shared.
    #[cfg(feature = "local")]
    fn copy_plan(&mut self) -> Option<CopyPlan> {
        None
    }

    /// Waits for the end of the guest, and describes it ("exit code 0", "signal 9 …"). The future may be dropped and
    /// created again.
    fn wait(&mut self) -> BoxFuture<'_, String>;

    /// Kills the guest and waits for its end.
    fn kill(&mut self) -> BoxFuture<'_, ()>;

    /// Releases the resources that another sandbox may use next, after the guest's end, and waits for it. Afterwards
    /// nothing of the sandbox changes its workspace. Slow work belongs here rather than in [`SandboxGuard::wait`],
    /// because pending calls wait for that.
    fn release(&mut self) -> BoxFuture<'_, ()> {
        Box::pin(async {})
    }

    /// Removes what remains of the sandbox after [`SandboxGuard::release`], and waits for it.
    fn remove_leftovers(&mut self) -> BoxFuture<'_, ()> {
        Box::pin(async {})
    }
}

/// Listens for renames of the workspace directory of a sandbox. A bind mount follows the directory; a recorded path
/// does not.
pub trait WorkspaceListener: Send + Sync + fmt::Debug {
    /// Records the new path of the workspace on the host.
    ///
    /// # Errors
    /// `BadRequest` and others when `to` is no usable path.
    fn on_moved(&self, to: &Path) -> Result<(), SandboxError>;

    /// Changes the owner of files that the host has moved into the workspace to the sandbox's user, like that of the
    /// initial files.
    ///
    /// # Errors
    /// When their owner cannot be changed. Changes that were already made are undone when the sandbox ends.
    fn chown_new_files(&self) -> BoxFuture<'_, Result<(), SandboxError>>;
}
