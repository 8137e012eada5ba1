//! Creates and starts a container by its plan, and removes it if that fails.

use std::sync::Arc;

use bollard::container::AttachContainerResults;
use bollard::models::ContainerCreateBody;
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use super::attach::{AttachReader, StderrTail};
use super::container_handle::ContainerHandle;
use super::guard::{ContainerGuard, ContainerResources};
use super::guest_stream::{GuestListener, GuestStreams};
use super::init_process::InitProcess;
use crate::copy::CopyPlan;
use crate::docker::engine::capabilities::actual_isolation;
use crate::docker::engine::engine_client::EngineClient;
use crate::docker::volume_container::{VOLUME, locate, volume_of};
use crate::error::{SandboxError, SandboxErrorKind};
use crate::guest_process::unavailable;
use crate::settings::isolation::Isolation;

/// A started container and its streams.
pub(crate) struct StartedContainer {
    pub(crate) streams: GuestStreams,
    pub(crate) guard: ContainerGuard,
}

/// The container to create, and what its start needs.
pub(crate) struct CreatePlan {
    pub(crate) body: ContainerCreateBody,
    /// For an engine that cannot mount the host's directories.
    pub(crate) volume_fill: Option<VolumeFill>,
    pub(crate) isolation: Isolation,
    pub(crate) copy_plan: Option<CopyPlan>,
    /// The socket for its guest, if one could be created.
    pub(crate) guest_listener: Option<GuestListener>,
}

/// The volume container, and the archive that fills it.
pub(crate) struct VolumeFill {
    pub(crate) volume_container: ContainerCreateBody,
    pub(crate) archive: Vec<u8>,
}

/// Creates and starts a container, in a task, because a request to the engine cannot be cancelled. If the caller
/// drops the future, the container is removed as soon as the engine can do it.
pub(crate) async fn start(
    mut resources: ContainerResources,
    mut create_plan: CreatePlan,
    permit: OwnedSemaphorePermit,
) -> Result<StartedContainer, SandboxError> {
    let tracker = Arc::clone(resources.handle.tracker());
    let (sender, receiver) = oneshot::channel();
    let task_tracker = Arc::clone(&tracker);
    tracker.run(async move {
        let tracker = task_tracker;
        let copy_plan = create_plan.copy_plan.take();
        let created = make(&mut resources, create_plan, || sender.is_closed()).await;
        drop(permit);
        let result = match created {
            Ok((streams, stderr_tail, isolation)) => {
                let init_process = match streams.peer_pid {
                    Some(peer_pid) => {
                        InitProcess::for_container(&tracker.engine, resources.handle.name(), peer_pid).await
                    }
                    None => None,
                };
                let transport = streams.transport;
                let guard = ContainerGuard::new(
                    resources,
                    stderr_tail,
                    isolation,
                    copy_plan,
                    transport,
                    init_process,
                );
                Ok(StartedContainer { streams, guard })
            }
            Err(error) => {
                // The container is removed before the error is returned.
                resources.remove_all().await;
                Err(error)
            }
        };
        // If the receiver was dropped, the container is dropped here, and so removed.
        let _ = sender.send(result);
    });
    receiver.await.unwrap_or_else(|error| Err(unavailable("the container's start was dropped", error)))
}

async fn make(
    resources: &mut ContainerResources,
    create_plan: CreatePlan,
    is_cancelled: impl Fn() -> bool,
) -> Result<(GuestStreams, StderrTail, Isolation), SandboxError> {
    let check_not_cancelled = || {
        let cancelled =
            || SandboxError::new(SandboxErrorKind::Cancelled, "the caller stopped waiting for the container");
        if is_cancelled() { Err(cancelled()) } else { Ok(()) }
    };
    let tracker = Arc::clone(resources.handle.tracker());
    resources.ownership.transfer().await?;
    check_not_cancelled()?;
    let CreatePlan { mut body, volume_fill, isolation, guest_listener, .. } = create_plan;
    if let (Some(volume_fill), Some(volume_container)) = (volume_fill, &mut resources.volume_container) {
        let engine = tracker.engine.info().kind;
        locate(&mut body, engine, &fill(volume_container, volume_fill, &tracker.engine).await?);
        check_not_cancelled()?;
    }
    let mut begun = create_and_start(resources, body.clone(), &check_not_cancelled).await;
    if let Err(error) = &begun
        && resources.volume_container.is_some()
        && error.to_string().contains("disable_ipv6")
    {
        // The engine's machine has no IPv6. Only this failure shows that.
        resources.handle.remove().await?;
        resources.handle = ContainerHandle::reserve(&tracker);
        if let Some(config) = &mut body.host_config {
            config.sysctls = None;
        }
        begun = create_and_start(resources, body, &check_not_cancelled).await;
    }
    let (warnings, streams) = begun?;
    let isolation = actual_isolation(isolation, &warnings);
    let stderr_tail = StderrTail::default();
    let output = AttachReader::new(streams.output, stderr_tail.clone());
    let input = Box::new(streams.input);
    let mut streams = match guest_listener {
        Some(guest_listener) => tracker.engine.accept_guest(guest_listener, output, input).await?,
        None => GuestStreams::of_engine(output, input),
    };
    if let Some(mut output) = streams.stderr_tail.take() {
        // Reads until the container ends or is removed.
        tracker.run(async move {
            let copied = tokio::io::copy(&mut output, &mut tokio::io::sink()).await;
            tracing::trace!(?copied, "the standard error of a guest has ended");
        });
    }
    Ok((streams, stderr_tail, isolation))
}

/// Creates and starts the container. Returns the engine's warnings and the attach streams.
async fn create_and_start(
    resources: &mut ContainerResources,
    body: ContainerCreateBody,
    check_not_cancelled: impl Fn() -> Result<(), SandboxError>,
) -> Result<(Vec<String>, AttachContainerResults), SandboxError> {
    let tracker = Arc::clone(resources.handle.tracker());
    let warnings = resources.handle.create(body).await?;
    let handle: &ContainerHandle = &resources.handle;
    check_not_cancelled()?;
    let streams = tracker.engine.attach(handle.name()).await?;
    check_not_cancelled()?;
    tracker.engine.start(handle.name()).await?;
    Ok((warnings, streams))
}

/// Creates the volume container and fills it. Returns the path of the volume on the engine's machine.
async fn fill(
    volume_container: &mut ContainerHandle,
    volume_fill: VolumeFill,
    engine: &EngineClient,
) -> Result<String, SandboxError> {
    volume_container.create(volume_fill.volume_container).await?;
    engine.upload(volume_container.name(), VOLUME, volume_fill.archive).await?;
    let found = engine.inspect(volume_container.name()).await?;
    volume_of(found.and_then(|found| found.mounts))
}
