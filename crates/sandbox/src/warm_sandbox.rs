//! [`WarmSandbox`]: a sandbox that is created before a session needs it, and assigned to one session later.
//!
//! A warm sandbox is generic: it has fixed limits, network and boundaries, empty content directories, and an empty
//! workspace of its own. Its claim adds the rest: skills are installed, its workspace takes the place of the session's,
//! and each command gets the session's environment. It is used once.
//!
//! State: the sandbox, and its workspace in the data directory of the warm sandboxes, which is removed with it. After a
//! crash of this process the sandbox ends itself, and the next opening of the data directory removes its directory. A
//! claim that was interrupted is completed when its session's workspace is used again
//! ([`DataDir::finish_workspace_swap`]).

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use conjure_base::{Clock, Deadline, Digest};
use futures_util::future::BoxFuture;

use crate::calls::call_options::CallOptions;
use crate::calls::command::Command;
use crate::calls::executor::Executor as _;
use crate::connector::Connector;
use crate::data_dir::DataDir;
use crate::error::{SandboxError, SandboxErrorKind};
use crate::guest_process::unavailable;
use crate::host_dirs::{SessionFiles, swap_workspace};
use crate::jail::{ClaimContent, needs_only_content_dirs};
use crate::sandbox::Sandbox;
use crate::settings::context::{ExecutionContext, NetworkPolicy};
use crate::settings::isolation::Isolation;
use crate::settings::layout::HostAccess;
use crate::settings::limits::{DiskLimit, Limits};

/// The settings of a sandbox that are fixed at its creation, beside those of its connector.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WarmSpec {
    /// The network access of its commands.
    pub network: NetworkPolicy,
    /// Its resource limits.
    pub limits: Limits,
    /// The boundaries that must be enforced.
    pub floor: Isolation,
}

impl WarmSpec {
    /// The settings of a sandbox for this context.
    #[must_use]
    pub fn from_context(context: &ExecutionContext) -> Self {
        Self { network: context.network.clone(), limits: context.limits, floor: context.floor }
    }

    /// A key that is equal for warm sandboxes of the same settings and the same kind. `kind` names all settings of the
    /// connector.
    #[must_use]
    pub fn key(&self, kind: &str) -> Digest {
        Digest::of_bytes(format!("{kind:?} {self:?}").as_bytes())
    }

    /// Whether a warm sandbox of this spec can serve a session with this context. It cannot serve a context with
    /// settings that must be fixed at the creation:
    /// - another network, other limits or another floor
    /// - a disk limit that the kernel enforces
    /// - allowed paths, second paths of workspace directories, and read-only directories outside the content
    ///   directories
    /// - a [`crate::SandboxNetwork`]
    /// - variables that name a proxy, if the sandbox has its own
    #[must_use]
    pub fn serves(&self, context: &ExecutionContext) -> bool {
        let is_proxy = |name: &String| name.to_ascii_lowercase().ends_with("_proxy");
        *self == Self::from_context(context)
            // With a kernel limit, the workspace is a file system of its own, and the session's files cannot be moved
            // into it.
            && self.limits.disk_limit() == DiskLimit::Watched
            && context.allowed_paths.is_empty()
            && context.workspace_mounts.is_empty()
            && context.sandbox_network.is_none()
            && needs_only_content_dirs(context)
            && (self.network == NetworkPolicy::None || !context.environment.keys().any(is_proxy))
    }

    fn context(&self, workspace: PathBuf) -> ExecutionContext {
        let Self { network, limits, floor } = self.clone();
        ExecutionContext { network, limits, floor, ..ExecutionContext::new(workspace) }
    }
}

/// The timeout of the first run of a shell, which usually takes some milliseconds.
const WARM_UP: Duration = Duration::from_secs(2);

/// A sandbox after the handshake and a first run of the shell, without a session. Dropping the value ends the
/// sandbox; [`WarmSandbox::close`] waits for the end.
pub struct WarmSandbox {
    sandbox: Sandbox,
    spec: WarmSpec,
    /// Its own workspace on the host.
    workspace: PathBuf,
}

impl WarmSandbox {
    /// Creates a warm sandbox with this connector. The connector's directories should be in `data`. They should be on
    /// the file system of the sessions that claim the sandbox, and have no other use.
    ///
    /// # Errors
    /// As [`Sandbox::open`]; `Unsupported` where sandboxes of this kind cannot be assigned later, because they share
    /// no directories with the host or have no file system of their own. Then nothing remains of the sandbox.
    pub async fn open(
        connector: &dyn Connector,
        data: &DataDir,
        spec: WarmSpec,
        clock: Arc<dyn Clock>,
        deadline: Deadline,
    ) -> Result<Self, SandboxError> {
        let data = data.clone();
        let owned = tokio::task::spawn_blocking(move || data.workspace()).await;
        let owned = owned
            .map_err(|error| unavailable("the workspace of a warm sandbox cannot be created", error))??;
        let workspace = owned.path().to_owned();
        let context = spec.context(workspace.clone());
        let open =
            Sandbox::open_with_guard(connector, &context, Arc::clone(&clock), deadline, Box::new(owned));
        let sandbox = open.await?;
        if sandbox.host_access() != HostAccess::Mounted || sandbox.workspace_listener().is_none() {
            sandbox.cleanup().await;
            let message = "a sandbox of this kind cannot be made before its session is there: it has none of the host's directories, or \
                           no file system of its own";
            return Err(SandboxError::new(SandboxErrorKind::Unsupported, message));
        }
        warm_up(&sandbox, clock.deadline(WARM_UP).min(deadline)).await;
        Ok(Self { sandbox, spec, workspace })
    }

    /// The settings that it was created with.
    #[must_use]
    pub const fn spec(&self) -> &WarmSpec {
        &self.spec
    }

    /// The reason of its failure; `None` while it works.
    #[must_use]
    pub fn failure(&self) -> Option<SandboxError> {
        self.sandbox.failure()
    }

    /// Resolves when the sandbox has ended by itself or was lost, also after a session claimed it.
    pub fn wait_ended(&self) -> BoxFuture<'static, SandboxError> {
        self.sandbox.wait_failed()
    }

    /// Ends the sandbox, and returns when nothing of it remains.
    pub async fn close(self) {
        self.sandbox.cleanup().await;
    }

    /// Assigns the sandbox to a session. This installs the session's skills, makes the sandbox's directory the
    /// session's workspace with all files of the old one, and gives commands the session's environment. `data` is the
    /// data directory of the session's workspace. The labels of a container do not change, so they name no tenant and
    /// no session.
    ///
    /// No process may run in the session's workspace. The future may be dropped at any point. Then the sandbox ends,
    /// and the workspace has all its files, at the latest after [`DataDir::finish_workspace_swap`].
    ///
    /// # Errors
    /// `Unsupported` for a context that it cannot serve ([`WarmSpec::serves`]), or a workspace that is not a
    /// session's own in `data`; as [`Sandbox::open`] for its directories; `Unavailable` when the directories cannot
    /// be swapped, as between two file systems; `Lost` when the sandbox has ended. Then nothing remains of the
    /// sandbox, and a new one can be created in the session's workspace.
    pub async fn claim(
        self,
        context: &ExecutionContext,
        data: &DataDir,
        deadline: Deadline,
    ) -> Result<Sandbox, SandboxError> {
        let Self { sandbox, spec, workspace: from } = self;
        let options = CallOptions::until(deadline);
        let prepared = async {
            context.check()?;
            if !spec.serves(context) {
                let message = "the session needs settings that must be fixed when a sandbox is created";
                return Err(SandboxError::new(SandboxErrorKind::Unsupported, message));
            }
            let (context, data) = (context.clone(), data.clone());
            let content =
                tokio::task::spawn_blocking(move || ClaimContent::from_context(&context, &data)).await;
            let content =
                content.map_err(|error| unavailable("a session's directories cannot be inspected", error));
            let ClaimContent { workspace, items, layout } = content??;
            for item in items {
                sandbox.install_content(item, options.clone()).await?;
            }
            Ok((workspace, layout))
        };
        let (workspace, layout) = match prepared.await {
            Ok(prepared) => prepared,
            Err(error) => {
                // The sandbox is removed before the error is returned.
                sandbox.cleanup().await;
                return Err(error);
            }
        };
        let interest = InterestGuard::default();
        let is_wanted = Arc::clone(&interest.0);
        // The thread cannot be interrupted, and owns the sandbox until it ends. It may start late.
        let moving = tokio::task::spawn_blocking(move || {
            let moved = swap_workspace(&from, &workspace, &is_wanted, || {
                sandbox.workspace_listener().map_or(Ok(()), |listener| listener.on_moved(&workspace))
            });
            (sandbox, moved)
        });
        let moved = moving.await.map_err(|error| unavailable("a workspace cannot be swapped", error));
        let (mut sandbox, moved) = moved?;
        let given = match moved {
            Ok(SessionFiles::WereMoved) => match sandbox.workspace_listener() {
                Some(listener) => listener.chown_new_files().await,
                None => Ok(()),
            },
            Ok(SessionFiles::WereAbsent) => sandbox.failure().map_or(Ok(()), Err),
            Err(error) => Err(error),
        };
        match given {
            Ok(()) => {
                let mut layout = layout;
                // Additional mounts of its connector, such as volumes.
                layout.read_only.extend(sandbox.layout().read_only.iter().cloned());
                sandbox.assign_to_session(layout, context.environment.clone());
                Ok(sandbox)
            }
            Err(error) => {
                sandbox.cleanup().await;
                Err(error)
            }
        }
    }
}

/// Runs the shell, if there is one. So the session's first command does not wait until the shell is read from disk:
/// file systems of images take several milliseconds. The result does not matter: if the sandbox ends, the sandbox
/// itself reports it.
async fn warm_up(sandbox: &Sandbox, deadline: Deadline) {
    if let Err(error) = sandbox.run(Command::bash(":"), CallOptions::until(deadline)).await {
        tracing::debug!(%error, "a warm sandbox could not be warmed up");
    }
}

/// Tells the thread that the claim is still wanted, until this is dropped.
struct InterestGuard(Arc<AtomicBool>);

impl Default for InterestGuard {
    fn default() -> Self {
        Self(Arc::new(AtomicBool::new(true)))
    }
}

impl Drop for InterestGuard {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

impl fmt::Debug for WarmSandbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WarmSandbox")
            .field("spec", &self.spec)
            .field("workspace", &self.workspace)
            .field("failure", &self.failure())
            .finish_non_exhaustive()
    }
}
