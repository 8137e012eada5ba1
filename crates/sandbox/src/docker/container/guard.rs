//! [`ContainerGuard`]: owns a container and its host resources. It releases them in this order: the container, the
//! volume container, the changed owners, the sandbox directory.

use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use conjure_guest::protocol::{RuleStatus, Welcome};
use futures_util::future::BoxFuture;

use super::attach::StderrTail;
use super::container_handle::ContainerHandle;
use super::container_tracker::ContainerTracker;
use super::guest_stream::StreamTransport;
use super::init_process::{InitProcess, OomStatus};
use crate::connector::{SandboxGuard, WorkspaceListener};
use crate::content::ContentInstaller;
use crate::copy::CopyPlan;
use crate::docker::mount_check::ExpectedMounts;
use crate::error::SandboxError;
use crate::host_dirs::ContentDirs;
use crate::jail::{OwnershipLock, OwnershipTransfer};
use crate::settings::isolation::{Boundary, Isolation};

/// How long to wait for the rest of a guest's standard error after its end.
const STDERR_TIMEOUT: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(crate) struct ContainerGuard {
    tracker: Arc<ContainerTracker>,
    stderr_tail: StderrTail,
    isolation: Isolation,
    /// What to copy through the guest. `None` once it was taken.
    copy_plan: Option<CopyPlan>,
    /// How the guest ended, once that is known.
    how: Option<String>,
    stream: StreamTransport,
    /// `None`: only the engine reports the end of the container.
    init_process: Option<InitProcess>,
    handshake: HandshakeState,
    watch: WatchState,
    /// `None` once everything was released.
    resources: Option<ContainerResources>,
}

/// Whether the guest's stream is still open while the guard waits for the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WatchState {
    /// It is open.
    Open,
    /// It has ended or was closed.
    Closed,
}

/// Whether the handshake has succeeded, which proves that the watched process is the guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum HandshakeState {
    Pending,
    Done,
}

/// The pause before an unreachable engine is asked again.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// The resources to release after the end of a container.
pub(crate) struct ContainerResources {
    pub(crate) handle: ContainerHandle,
    /// The ownership changes, which are undone once no process runs in the container.
    pub(crate) ownership: OwnershipTransfer,
    /// The workspace's path on the host, if the engine mounts the host's directories.
    pub(crate) workspace: Option<String>,
    /// The lock on directories whose owner is changed.
    pub(crate) ownership_lock: OwnershipLock,
    /// The directories that must be mounted.
    pub(crate) expected_mounts: ExpectedMounts,
    /// `None` if they are not on this machine.
    pub(crate) content_dirs: Option<ContentDirs>,
    /// For an engine that cannot mount the host's directories: the container with the volume, which must outlive this
    /// container.
    pub(crate) volume_container: Option<ContainerHandle>,
    /// Keeps the files that are mounted in the container. They must exist as long as the container does.
    pub(crate) _mounted_files: Arc<dyn Any + Send + Sync>,
}

impl fmt::Debug for ContainerResources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ContainerResources").field("container", &self.handle.name()).finish_non_exhaustive()
    }
}

impl ContainerResources {
    /// Restores the owners of directories that others may use next. No process may run in the container any more.
    async fn restore(&mut self) {
        self.ownership.restore().await;
        self.ownership_lock = OwnershipLock::default();
    }

    /// Removes the container, and then the other resources.
    pub(crate) async fn remove_all(&mut self) {
        if let Err(error) = self.handle.remove_retrying().await {
            // Dropping the handle tries again. Until then, commands may still run.
            tracing::warn!(%error, container = self.handle.name(), "a container could not be removed yet");
        }
        if let Some(volume_container) = &mut self.volume_container
            && let Err(error) = volume_container.remove_retrying().await
        {
            tracing::warn!(%error, container = volume_container.name(), "the resources of a container could not be removed yet");
        }
        self.restore().await;
        let Some(content_dirs) = self.content_dirs.clone() else { return };
        let removed = tokio::task::spawn_blocking(move || content_dirs.remove()).await;
        if let Ok(Err(error)) = removed {
            tracing::warn!(%error, "a container's directory was not removed; the next sweep removes it");
        }
    }
}

impl ContainerGuard {
    pub(crate) fn new(
        resources: ContainerResources,
        stderr_tail: StderrTail,
        isolation: Isolation,
        copy_plan: Option<CopyPlan>,
        stream: StreamTransport,
        init_process: Option<InitProcess>,
    ) -> Self {
        let tracker = Arc::clone(resources.handle.tracker());
        let (how, handshake, watch, resources) =
            (None, HandshakeState::Pending, WatchState::Open, Some(resources));
        Self {
            tracker,
            stderr_tail,
            isolation,
            copy_plan,
            how,
            stream,
            init_process,
            handshake,
            watch,
            resources,
        }
    }

    /// The init process, if the host knows that its end is the container's end. The handshake proves that. Before the
    /// handshake, the guard uses only the engine's report.
    fn watched(&self) -> Option<&InitProcess> {
        self.init_process.as_ref().filter(|_| self.handshake == HandshakeState::Done)
    }

    /// Waits until nothing runs in the container, and describes its end. Where the engine may know the reason, the
    /// engine's description is used.
    async fn how_it_ended(&self, name: &str, watch: WatchState) -> String {
        let engine_report = self.exit_from_engine(name, watch);
        tokio::pin!(engine_report);
        if let Some(first) = self.watched() {
            tokio::select! {
                biased;
                how = &mut engine_report => return how,
                () = first.ended() => match first.memory() {
                    OomStatus::NoKills => return self.exit_from_stderr("its first process ended".to_owned()),
                    OomStatus::Unknown => {}
                }
            }
        }
        engine_report.await
    }

    /// Like [`Self::how_it_ended`], but uses only the engine.
    async fn exit_from_engine(&self, name: &str, watch: WatchState) -> String {
        let how = self.watch(name, watch).await;
        // The end of standard error and the exit are reported independently.
        let _ = tokio::time::timeout(STDERR_TIMEOUT, self.stderr_tail.wait_closed()).await;
        self.exit_from_stderr(how)
    }

    fn exit_from_stderr(&self, how: String) -> String {
        match self.stderr_tail.text().as_str() {
            "" => how,
            complaint => format!("{how}: {complaint}"),
        }
    }

    /// Waits for the engine to report the end of the container, and describes it.
    async fn watch(&self, name: &str, watch: WatchState) -> String {
        loop {
            match self.tracker.engine.wait_stopped(name).await {
                Ok(()) => return self.describe(name).await,
                // If the engine is unreachable, the container keeps running. Then the end of its stream shows the
                // end.
                Err(error) if self.stream == StreamTransport::Socket && watch == WatchState::Open => {
                    tracing::debug!(%error, container = name, "an engine does not report a container");
                    tokio::time::sleep(RETRY_PAUSE).await;
                }
                Err(error) => return error.to_string(),
            }
        }
    }

    /// Describes how a stopped container has ended.
    async fn describe(&self, name: &str) -> String {
        let state = match self.tracker.engine.inspect(name).await {
            Ok(Some(found)) => found.state.unwrap_or_default(),
            Ok(None) => return "its container was removed by somebody else".to_owned(),
            Err(error) => return format!("its exit status is unknown: {error}"),
        };
        if let Some(error) = state.error.filter(|error| !error.is_empty()) {
            return error;
        }
        match (state.oom_killed, state.exit_code.unwrap_or_default()) {
            (Some(true), 137) => "the kernel killed it, because memory ran out".to_owned(),
            (_, code @ 129..=192) => format!("killed by signal {}", code - 128),
            (_, code) => format!("exit code {code}"),
        }
    }
}

impl SandboxGuard for ContainerGuard {
    fn confirmed_isolation(&mut self, welcome: &Welcome) -> Isolation {
        self.handshake = HandshakeState::Done;
        let syscalls = Boundary::enforced_if(welcome.rules.syscalls == RuleStatus::Enforced);
        let files = Boundary::enforced_if(welcome.rules.files == RuleStatus::Enforced);
        // Only this rule keeps commands from the output directory, which is on the host's disk.
        let disk = if files == Boundary::Enforced { self.isolation.disk } else { Boundary::Open };
        Isolation { syscalls, files, disk, ..self.isolation }
    }

    fn verify(&self, welcome: &Welcome) -> Result<(), SandboxError> {
        self.resources.as_ref().map_or(Ok(()), |resources| resources.expected_mounts.check(&welcome.roots))
    }

    fn content_installer(&self) -> Option<Arc<dyn ContentInstaller>> {
        let resources = self.resources.as_ref()?;
        Some(Arc::new(resources.content_dirs.clone()?))
    }

    fn workspace_listener(&self) -> Option<Arc<dyn WorkspaceListener>> {
        let resources = self.resources.as_ref()?;
        Some(resources.ownership.workspace_listener(resources.workspace.as_deref()?))
    }

    fn copy_plan(&mut self) -> Option<CopyPlan> {
        self.copy_plan.take()
    }

    fn wait(&mut self) -> BoxFuture<'_, String> {
        Box::pin(async {
            if let Some(how) = &self.how {
                return how.clone();
            }
            let Some(name) = self.resources.as_ref().map(|resources| resources.handle.name().to_owned())
            else {
                return "it was ended".to_owned();
            };
            let watch = std::mem::replace(&mut self.watch, WatchState::Closed);
            let how = self.how_it_ended(&name, watch).await;
            self.how = Some(how.clone());
            how
        })
    }

    fn kill(&mut self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            if let Some(resources) = &mut self.resources
                && let Err(error) = resources.handle.remove().await
            {
                tracing::warn!(%error, "a container could not be killed yet");
            }
        })
    }

    fn release(&mut self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            let is_over = self.watched().is_some_and(InitProcess::has_ended);
            match &mut self.resources {
                Some(resources) if is_over => resources.restore().await,
                _ => self.remove_leftovers().await,
            }
        })
    }

    fn remove_leftovers(&mut self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            if let Some(resources) = &mut self.resources {
                resources.remove_all().await;
            }
            self.resources = None;
        })
    }
}

impl Drop for ContainerGuard {
    /// Removes the resources in the background, because the caller does not wait for the end.
    fn drop(&mut self) {
        if let Some(mut resources) = self.resources.take() {
            self.tracker.run(async move { resources.remove_all().await });
        }
    }
}
