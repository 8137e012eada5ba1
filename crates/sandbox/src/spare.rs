//! A sandbox that is made before anybody needs it, and given to one session later.
//!
//! A spare is generic: it has the limits, the network and the walls that are fixed when a sandbox is made, empty shelves, and an
//! empty workspace of its own. Whoever claims it gives it the rest: skills are linked onto its shelves, its workspace takes
//! the place of the session's, the environment goes with each command. It is used once.
//!
//! State: the sandbox, and its workspace in the data folder of the spares, which goes with it. After a crash of the host the
//! sandbox ends itself, and the folder is removed when the data folder is opened again; a claim that broke off is completed
//! when its session's workspace is used again ([`DataFolder::settle_workspace`]).

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use conjure_base::{Clock, Deadline, Digest};
use futures_util::future::BoxFuture;

use crate::connector::Connector;
use crate::context::{ExecutionContext, NetworkPolicy};
use crate::data::DataFolder;
use crate::error::{SandboxError, SandboxErrorKind};
use crate::executor::{CallOptions, Executor as _};
use crate::guest_process::unavailable;
use crate::isolation::Isolation;
use crate::jail::{Belongings, has_shelves_only};
use crate::limits::{DiskLimit, Limits};
use crate::places::{Had, hand_over};
use crate::sandbox::Sandbox;
use crate::types::{Command, Sharing};

/// What is fixed of a sandbox when it is made, beside what its connector decides.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpareSpec {
    /// What it may reach of the network.
    pub network: NetworkPolicy,
    /// What it may use.
    pub limits: Limits,
    /// What must be enforced.
    pub floor: Isolation,
}

impl SpareSpec {
    /// That of a sandbox for this context.
    #[must_use]
    pub fn of(context: &ExecutionContext) -> Self {
        Self { network: context.network.clone(), limits: context.limits, floor: context.floor }
    }

    /// Tells pools apart: the same for spares of this kind of sandbox (a name for all that its connector decides) that are made
    /// of the same.
    #[must_use]
    pub fn key(&self, kind: &str) -> Digest {
        Digest::of(format!("{kind:?} {self:?}").as_bytes())
    }

    /// Whether a spare of this spec can be given to a session with this context. What cannot be given to a sandbox that runs,
    /// it must be made with: allowed paths, folders for reading beside the shelves, another network or other limits, and
    /// variables that name a proxy, where the sandbox has one of its own.
    #[must_use]
    pub fn serves(&self, context: &ExecutionContext) -> bool {
        let is_proxy = |name: &String| name.to_ascii_lowercase().ends_with("_proxy");
        *self == Self::of(context)
            // The files of a session cannot be moved into a file system of a spare's own.
            && self.limits.disk_limit() == DiskLimit::Watched
            && context.allowed_paths.is_empty()
            && has_shelves_only(context)
            && (self.network == NetworkPolicy::None || !context.environment.keys().any(is_proxy))
    }

    fn context(&self, workspace: PathBuf) -> ExecutionContext {
        let Self { network, limits, floor } = self.clone();
        ExecutionContext { network, limits, floor, ..ExecutionContext::new(workspace) }
    }
}

/// How long the first run of a shell may take, which usually takes some milliseconds.
const WARM_UP: Duration = Duration::from_secs(2);

/// A sandbox whose guest has greeted, in which the shell was run once where it could be, and that is nobody's yet. Dropping it ends
/// it; [`Spare::retire`] waits for that.
pub struct Spare {
    sandbox: Sandbox,
    spec: SpareSpec,
    /// Its own workspace on the host.
    workspace: PathBuf,
}

impl Spare {
    /// Makes one with this connector, whose folders should lie in `data`: on the file system of those whose sessions claim it,
    /// and nobody else's.
    ///
    /// # Errors
    /// As [`Sandbox::open`]; `Unsupported` where a sandbox of this kind cannot be given away: it has none of the host's folders,
    /// or no file system of its own. Nothing is left of it then.
    pub async fn open(
        connector: &dyn Connector,
        data: &DataFolder,
        spec: SpareSpec,
        clock: Arc<dyn Clock>,
        deadline: Deadline,
    ) -> Result<Self, SandboxError> {
        let data = data.clone();
        let made = tokio::task::spawn_blocking(move || data.workspace()).await;
        let made = made.map_err(|error| unavailable("a spare's workspace cannot be made", error))??;
        let workspace = made.path().to_owned();
        let context = spec.context(workspace.clone());
        let open = Sandbox::open_holding(connector, &context, Arc::clone(&clock), deadline, Box::new(made));
        let sandbox = open.await?;
        if sandbox.sharing() != Sharing::Shared || sandbox.follower().is_none() {
            sandbox.cleanup().await;
            let message = "a sandbox of this kind cannot be made before its session is there: it has none of the host's folders, or \
                           no file system of its own";
            return Err(SandboxError::new(SandboxErrorKind::Unsupported, message));
        }
        warm_up(&sandbox, clock.deadline(WARM_UP).earlier(deadline)).await;
        Ok(Self { sandbox, spec, workspace })
    }

    /// What it was made of.
    #[must_use]
    pub const fn spec(&self) -> &SpareSpec {
        &self.spec
    }

    /// Why it does not work any more; `None` while it does.
    #[must_use]
    pub fn failure(&self) -> Option<SandboxError> {
        self.sandbox.failure()
    }

    /// Resolves when it has ended by itself, or was lost, whoever has it by then.
    pub fn ended(&self) -> BoxFuture<'static, SandboxError> {
        self.sandbox.when_ended()
    }

    /// Ends it, and returns when nothing of it is left.
    pub async fn retire(self) {
        self.sandbox.cleanup().await;
    }

    /// Makes it the sandbox of a session: its skills are put on the shelves, its workspace is the spare's from now on, with all
    /// that was in it, and commands have its environment. `data` is the data folder that the session's workspace lies in. The
    /// labels of a container stay those that it was made with, which name no tenant and no session.
    ///
    /// Nothing may run in the workspace. The future may be dropped at any point: then the sandbox ends, and the workspace has
    /// all its files, or has them again after [`DataFolder::settle_workspace`].
    ///
    /// # Errors
    /// `Unsupported` for a context that it does not serve ([`SpareSpec::serves`]), or a workspace that is not a session's own in
    /// `data`; as [`Sandbox::open`] for its folders; `Unavailable` when the workspace cannot be handed over, as between two file
    /// systems; `Lost` when the spare has ended. Nothing is left of the spare then, and the session can have a sandbox made
    /// in its workspace.
    pub async fn claim(
        self,
        context: &ExecutionContext,
        data: &DataFolder,
        deadline: Deadline,
    ) -> Result<Sandbox, SandboxError> {
        let Self { sandbox, spec, workspace: from } = self;
        let options = CallOptions::until(deadline);
        let provided = async {
            context.check()?;
            if !spec.serves(context) {
                let message = "the session needs what a sandbox must be made with";
                return Err(SandboxError::new(SandboxErrorKind::Unsupported, message));
            }
            let (wanted, data) = (context.clone(), data.clone());
            let looked = tokio::task::spawn_blocking(move || Belongings::of(&wanted, &data)).await;
            let looked =
                looked.map_err(|error| unavailable("a session's folders cannot be looked at", error));
            let Belongings { workspace, provisions, layout } = looked??;
            for provision in provisions {
                sandbox.provide(provision, options.clone()).await?;
            }
            Ok((workspace, layout))
        };
        let (workspace, layout) = match provided.await {
            Ok(provided) => provided,
            Err(error) => {
                // Nothing is left of it when the error is told.
                sandbox.cleanup().await;
                return Err(error);
            }
        };
        let wanted = Wanted::default();
        let is_wanted = Arc::clone(&wanted.0);
        // A thread that is not broken off, and keeps the sandbox for as long. It may begin late.
        let moving = tokio::task::spawn_blocking(move || {
            let moved = hand_over(&from, &workspace, &is_wanted, || {
                sandbox.follower().map_or(Ok(()), |follower| follower.moved(&workspace))
            });
            (sandbox, moved)
        });
        let moved = moving.await.map_err(|error| unavailable("a workspace cannot be handed over", error));
        let (mut sandbox, moved) = moved?;
        let given = match moved {
            Ok(Had::Files) => match sandbox.follower() {
                Some(follower) => follower.hand_over().await,
                None => Ok(()),
            },
            Ok(Had::Nothing) => sandbox.failure().map_or(Ok(()), Err),
            Err(error) => Err(error),
        };
        match given {
            Ok(()) => {
                let mut layout = layout;
                // What it has by its connector, such as volumes.
                layout.read_only.extend(sandbox.layout().read_only.iter().cloned());
                sandbox.become_of(layout, context.environment.clone());
                Ok(sandbox)
            }
            Err(error) => {
                sandbox.cleanup().await;
                Err(error)
            }
        }
    }
}

/// Runs the shell, if there is one, so that the first command of whoever claims it does not wait until it is read: file systems of
/// images take several milliseconds for that. What comes of it says nothing of the sandbox; one that ends over it says so itself.
async fn warm_up(sandbox: &Sandbox, deadline: Deadline) {
    if let Err(error) = sandbox.run(Command::bash(":"), CallOptions::until(deadline)).await {
        tracing::debug!(%error, "a spare could not be warmed up");
    }
}

/// Somebody wants what was begun, until this is dropped.
struct Wanted(Arc<AtomicBool>);

impl Default for Wanted {
    fn default() -> Self {
        Self(Arc::new(AtomicBool::new(true)))
    }
}

impl Drop for Wanted {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

impl fmt::Debug for Spare {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Spare")
            .field("spec", &self.spec)
            .field("workspace", &self.workspace)
            .field("failure", &self.failure())
            .finish_non_exhaustive()
    }
}
