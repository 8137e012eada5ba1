//! [`Sandbox`]: an [`Executor`](crate::Executor) over the guest protocol, the same for every kind of sandbox.
//!
//! It owns the pending calls and the tasks that serve the guest's stream. Its state does not survive this process:
//! when the stream ends, the guest ends itself and everything it runs.

mod content_changes;
mod executor_impl;
mod file_stream;
mod sandbox_process;

use std::any::Any;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use conjure_base::{Clock, Deadline};
use conjure_guest::protocol::{Reply, Request};
#[cfg(feature = "jail")]
use futures_util::future::BoxFuture;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::calls::call_options::CallOptions;
use crate::calls::command::Command;
#[cfg(feature = "local")]
use crate::calls::executor::Executor as _;
use crate::calls::files::WriteResult;
use crate::calls::guest_ops::ContentSender;
use crate::connector::WorkspaceListener;
use crate::connector::{Connector, StartedSandbox};
use crate::content::ContentInstaller;
#[cfg(feature = "local")]
use crate::copy::GuestCopier;
use crate::error::{SandboxError, SandboxErrorKind};
use crate::guest_connection::{GuestConnection, wrong_reply};
use crate::installed_content::InstalledContent;
use crate::mux::{GRACE, HandshakeError, SharedMux, TunnelPolicy, run_tasks, shake_hands};
use crate::settings::context::ExecutionContext;
use crate::settings::isolation::{Boundary, Isolation};
use crate::settings::layout::Layout;
use crate::settings::limits::{DiskLimit, Limits};

/// A sandbox after the handshake with its guest.
///
/// When the last handle is dropped (the sandbox and its streams), the guest's stream is closed. The guest then ends
/// everything it runs and itself. [`Executor::cleanup`](crate::Executor::cleanup) does the same and waits for it.
pub struct Sandbox {
    pub(crate) guest: Arc<GuestConnection>,
    layout: Layout,
    isolation: Isolation,
    content_installer: Option<Arc<dyn ContentInstaller>>,
    installed: InstalledContent,
    #[cfg_attr(not(feature = "jail"), expect(dead_code, reason = "only spares ask for it"))]
    workspace_listener: Option<Arc<dyn WorkspaceListener>>,
    /// The session's variables, for a sandbox that was created before its session was known.
    environment: BTreeMap<String, String>,
    /// For a sandbox that shares no directories with the host.
    #[cfg(feature = "local")]
    copier: Option<GuestCopier>,
}

impl Sandbox {
    /// Creates a sandbox for this context and waits until its guest is ready.
    ///
    /// # Errors
    /// `NotEnforced` when this kind, or this sandbox, does not enforce a boundary that the context's floor requires;
    /// `BadRequest` for invalid names of variables, and for two directories at one path; the errors of the connector;
    /// `TimedOut` at `deadline`; `Unavailable` when the guest sends an invalid greeting or cannot confine itself.
    /// Then nothing remains of the sandbox.
    pub async fn open(
        connector: &dyn Connector,
        context: &ExecutionContext,
        clock: Arc<dyn Clock>,
        deadline: Deadline,
    ) -> Result<Self, SandboxError> {
        Self::open_with_guard(connector, context, clock, deadline, Box::new(())).await
    }

    /// As [`Sandbox::open`]; drops `held` when nothing of the sandbox remains.
    pub(crate) async fn open_with_guard(
        connector: &dyn Connector,
        context: &ExecutionContext,
        clock: Arc<dyn Clock>,
        deadline: Deadline,
        held: Box<dyn Any + Send>,
    ) -> Result<Self, SandboxError> {
        context.check()?;
        connector.isolation().require(&context.floor)?;
        let connecting = async {
            let mut connection = connector.connect(context).await?;
            if let Some(proxy) = &connection.proxy {
                proxy.add_to_environment(&mut connection.hello);
            }
            let greeted =
                shake_hands(&mut *connection.reader, &mut *connection.writer, &connection.hello).await;
            let refusal = match greeted {
                Ok((welcome, decoder)) => {
                    let isolation = connection.guard.confirmed_isolation(&welcome);
                    let admitted = connection.guard.verify(&welcome);
                    let limited = admitted.and_then(|()| require_disk_limit(&isolation, &context.limits));
                    match limited.and_then(|()| isolation.require(&context.floor)) {
                        Ok(()) => return Ok((connection, decoder, isolation)),
                        Err(refusal) => refusal,
                    }
                }
                Err(HandshakeError::SetUp(failure)) => connection.guard.describe_setup_error(&failure),
                Err(HandshakeError::Other(error)) => {
                    let how = end(connection, &*clock).await;
                    return Err(error.with_message(format!("{error} ({how})")));
                }
            };
            // The sandbox is removed before the error is returned.
            end(connection, &*clock).await;
            Err(refusal)
        };
        let (connection, decoder, isolation) = tokio::select! {
            biased;
            connecting = connecting => connecting?,
            () = clock.sleep_until(deadline) => {
                return Err(SandboxError::new(SandboxErrorKind::TimedOut, "the sandbox was not ready in time"));
            }
        };
        let StartedSandbox { reader, writer, hello: _, layout, proxy, guard } = connection;
        #[cfg(feature = "local")]
        let (guard, copy_plan) = {
            let mut guard = guard;
            let copy_plan = guard.copy_plan();
            (guard, copy_plan)
        };
        let (content_installer, workspace_listener) = (guard.content_installer(), guard.workspace_listener());
        let gateway = proxy.map(|proxy| proxy.gateway);
        let tunnel_policy = if gateway.is_some() { TunnelPolicy::Accept } else { TunnelPolicy::Reject };
        let mux = Arc::new(SharedMux::new(clock, tunnel_policy));
        let closing = CancellationToken::new();
        let tasks = TaskTracker::new();
        let supervised =
            run_tasks(Arc::clone(&mux), guard, decoder, reader, writer, gateway, closing.clone());
        tasks.spawn(async move {
            supervised.await;
            drop(held);
        });
        tasks.close();
        let guest = Arc::new(GuestConnection { mux, closing, tasks });
        #[cfg_attr(not(feature = "local"), expect(unused_mut, reason = "nothing travels"))]
        let mut sandbox = Self {
            guest,
            layout,
            isolation,
            content_installer,
            installed: InstalledContent::for_context(context),
            workspace_listener,
            environment: BTreeMap::new(),
            #[cfg(feature = "local")]
            copier: None,
        };
        #[cfg(feature = "local")]
        if let Some(copy_plan) = copy_plan {
            match GuestCopier::copy_in(Arc::clone(&sandbox.guest), copy_plan, &CallOptions::until(deadline))
                .await
            {
                Ok(copier) => sandbox.copier = Some(copier),
                Err(error) => {
                    // The sandbox is removed before the error is returned.
                    sandbox.cleanup().await;
                    return Err(error);
                }
            }
        }
        Ok(sandbox)
    }

    /// The reason of its failure; `None` while it works.
    #[must_use]
    pub fn failure(&self) -> Option<SandboxError> {
        self.guest.mux.failure()
    }

    /// Adds the session's variables to a command. Its own variables win.
    fn with_environment(&self, mut command: Command) -> Command {
        for (name, value) in &self.environment {
            if !command.env.contains_key(name) {
                command.env.insert(name.clone(), value.clone());
            }
        }
        command
    }

    /// Assigns a sandbox that was created without a session to a session.
    #[cfg(feature = "jail")]
    pub(crate) fn assign_to_session(&mut self, layout: Layout, environment: BTreeMap<String, String>) {
        (self.layout, self.environment) = (layout, environment);
    }

    /// The listener for renames of its workspace.
    #[cfg(feature = "jail")]
    pub(crate) fn workspace_listener(&self) -> Option<&dyn WorkspaceListener> {
        self.workspace_listener.as_deref()
    }

    /// The index of its installed content.
    pub(crate) const fn installed(&self) -> &InstalledContent {
        &self.installed
    }

    /// The installer of content, where directories are shared with the host.
    pub(crate) fn content_installer(&self) -> Option<&dyn ContentInstaller> {
        self.content_installer.as_deref()
    }

    /// The copier through the guest, where no directories are shared.
    #[cfg(feature = "local")]
    pub(crate) const fn copier(&self) -> Option<&GuestCopier> {
        self.copier.as_ref()
    }

    /// The clock of its deadlines.
    pub(crate) fn clock(&self) -> &Arc<dyn Clock> {
        self.guest.mux.clock()
    }

    /// Resolves when the sandbox has ended. The future does not borrow this value, so it works after the value was
    /// moved.
    #[cfg(feature = "jail")]
    pub(crate) fn wait_failed(&self) -> BoxFuture<'static, SandboxError> {
        let mux = Arc::clone(&self.guest.mux);
        Box::pin(async move { mux.failed().await })
    }

    async fn change(
        &self,
        request: Request,
        sender: ContentSender,
        options: CallOptions,
    ) -> Result<WriteResult, SandboxError> {
        match self.guest.finish(request, 0, sender, options).await? {
            (_, Reply::Write { size, existed, .. }, _) => Ok(WriteResult { size, existed }),
            (call, ..) => Err(wrong_reply(&call)),
        }
    }
}

/// Ends a sandbox that is not used. Returns a description of how its guest ended.
async fn end(connection: StartedSandbox, clock: &dyn Clock) -> String {
    let StartedSandbox { reader, writer, mut guard, .. } = connection;
    drop((reader, writer));
    let how = tokio::select! {
        biased;
        how = guard.wait() => how,
        () = clock.sleep_until(clock.deadline(GRACE)) => {
            guard.kill().await;
            "it had to be killed".to_owned()
        }
    };
    guard.release().await;
    guard.remove_leftovers().await;
    how
}

impl fmt::Debug for Sandbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sandbox")
            .field("layout", &self.layout)
            .field("isolation", &self.isolation)
            .field("failure", &self.failure())
            .finish_non_exhaustive()
    }
}

/// Fails when the limits require that the kernel limits the disk, and it does not.
fn require_disk_limit(isolation: &Isolation, limits: &Limits) -> Result<(), SandboxError> {
    if limits.disk_limit() == DiskLimit::Watched || isolation.disk == Boundary::Enforced {
        return Ok(());
    }
    let message = "the kernel cannot limit the disk of this kind of sandbox, or of one with further directories to write; take a \
                   jail of a host that is root, or have the guest watch over the disk";
    Err(SandboxError::new(SandboxErrorKind::NotEnforced, message))
}
