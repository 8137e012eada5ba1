//! [`Docker`]: creates sandboxes that are containers.
//!
//! A connector has the directory of its containers' files, and shares the engine with the other connectors of the
//! process ([`ContainerEngine`]). It searches for the engine and opens the directory when the first container is
//! requested. It tries again later if that failed.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;
use std::sync::Arc;

use conjure_base::{Clock as _, SystemClock};
use conjure_egress::{Egress, EgressPolicy};
use futures_util::future::BoxFuture;
use tokio::sync::OnceCell;

use super::image_command::ImageCommand;
use super::image_info::ImageInfo;
use super::options::DockerOptions;
use super::runtime_files::RuntimeFiles;
use super::volume_container::create_body;
use crate::connector::{Connector, StartedSandbox};
use crate::data_dir::DataDir;
use crate::docker::container::container_handle::ContainerHandle;
use crate::docker::container::container_plan::{ContainerPlan, PlanInputs, RemoteEnginePlan};
use crate::docker::container::container_spec::{BindMount, ContainerSpec};
use crate::docker::container::container_start::start;
use crate::docker::container::container_start::{CreatePlan, VolumeFill};
use crate::docker::container::container_tracker::ContainerTracker;
use crate::docker::container::guard::ContainerResources;
use crate::docker::container::guest_stream::GuestListener;
use crate::docker::container::owner_labels::dir_label;
use crate::docker::engine::address::EngineAddress;
use crate::docker::engine::capabilities::{check_architecture, check_runtime, max_processes};
use crate::docker::engine::container_engine::{ContainerEngine, ContainerSweepReport};
use crate::docker::engine::engine_client::EngineClient;
use crate::docker::engine::engine_info::{DockerEnvironment, EngineKind, SwapSupport};
use crate::docker::engine::error_map::{no_engine, no_image};
use crate::egress;
use crate::error::{SandboxError, SandboxErrorKind};
use crate::guest_process::{safe_env, unavailable, utf8_path};
use crate::host_dirs::ContentDirs;
use crate::jail::{OwnershipLock, WORKSPACE, run_chown};
use crate::settings::context::ExecutionContext;
use crate::settings::isolation::{Boundary, Isolation};
use crate::settings::layout::Layout;

/// Runs the guest as the first process of a container, with Docker Engine 20.10 or later or Podman 4.0 or later,
/// rootless too.
///
/// Any image works. It must contain the programs of commands, so `bash_tool` needs an image with `bash`. Commands
/// see:
///
/// - the image, read-only;
/// - `/workspace`, writable;
/// - `/tmp` and a home in memory;
/// - `/output`, the host's directory for output that was cut, read-only;
/// - skills at `/mnt/skills` and artifacts at `/artifacts`.
///
/// There is no network interface but loopback. Commands reach what the context's policy allows through a proxy on the
/// host, which they find by the usual variables. All capabilities are dropped, nothing gains privileges, two
/// system-call filters and Landlock apply, and the engine limits the resources of the container as a whole.
///
/// `Sandbox::isolation` shows which boundaries the engine does not enforce. If the context's floor requires one of
/// them, that is an error. An engine at a TCP address, or one that maps users, cannot mount the host's directories.
/// Then all content is copied through the guest, with the same layout ([`crate::HostAccess`]). The workspace must be
/// a session's own ([`DataDir::workspace`]). Its files are copied in at the start, and copied out by
/// [`crate::Executor::copy_out`]. Volumes, allowed paths and read-only directories outside the content directories
/// are refused.
///
/// A container is removed when its sandbox ends, even if all futures and handles are dropped. [`Docker::sweep`]
/// removes the containers of a killed process; the first container on an engine starts a sweep, too. Clones share the
/// connector. A process with several connectors should give all of them one [`ContainerEngine`]. Then the process
/// searches for the engine once, and starts no more containers at a time than the machine has processors.
#[derive(Debug, Clone)]
pub struct Docker {
    engine: ContainerEngine,
    inner: Arc<Inner>,
    /// The egress settings that all containers share.
    egress: Egress,
    /// The data directory of their sandbox directories; `None`: a temporary one that is removed with the connector.
    data: Option<DataDir>,
    runtime_files: Arc<OnceCell<RuntimeFiles>>,
}

#[derive(Debug)]
struct Inner {
    options: DockerOptions,
    /// The host's variables that commands may see.
    environment: BTreeMap<String, String>,
}

impl Docker {
    /// Creates a connector. It does not search for the engine yet. Of the host's variables, commands see only the
    /// time zone.
    pub fn new(
        options: DockerOptions,
        host_environment: impl IntoIterator<Item = (OsString, OsString)>,
    ) -> Self {
        let engine = ContainerEngine::new(options.engine.clone());
        let inner = Inner { options, environment: safe_env(host_environment) };
        Self {
            engine,
            inner: Arc::new(inner),
            egress: Egress::new(EgressPolicy::None),
            data: None,
            runtime_files: Arc::default(),
        }
    }

    /// Uses this engine instead of the one of the options. Other connectors can share it.
    #[must_use]
    pub fn with_engine(mut self, engine: ContainerEngine) -> Self {
        self.engine = engine;
        self
    }

    /// Uses this data directory for its directories and content. The engine must be able to reach it.
    #[must_use]
    pub fn with_data(mut self, data: DataDir) -> Self {
        (self.data, self.runtime_files) = (Some(data), Arc::default());
        self
    }

    /// Uses the resolver, the observer, the limits and the address policy of this egress for the connections of
    /// commands. Its network policy and its connection permits are not used: each container has the policy of its
    /// context, and its own permits.
    #[must_use]
    pub fn with_egress(mut self, egress: Egress) -> Self {
        self.egress = egress;
        self
    }

    /// Checks the engine, the image and the runtime, and describes them.
    ///
    /// # Errors
    /// `EngineUnavailable`: no engine can be used; `ImageNotFound`: the engine lacks the image; `Unavailable`: no
    /// container can be created from it here. Each error has a hint.
    pub async fn check_environment(&self) -> Result<DockerEnvironment, SandboxError> {
        let tracker = self.engine.find().await?;
        let (engine, options) = (&tracker.engine, &self.inner.options);
        let info = engine.info();
        let image = self.inner.image(engine).await?;
        options.runtime.iter().try_for_each(|runtime| check_runtime(info, runtime))?;
        Ok(DockerEnvironment {
            engine: info.kind,
            version: info.version.clone(),
            address: engine.address().clone(),
            is_rootless: info.is_rootless,
            host_access: info.host_access(engine.address()),
            image_id: image.id,
            runtime: options.runtime.clone().unwrap_or_else(|| info.default_runtime.clone()),
            isolation: info.isolation(Boundary::Open, SwapSupport::detect(engine.address())),
        })
    }

    /// Returns what the image starts by default. A sandbox does not start it.
    ///
    /// # Errors
    /// `EngineUnavailable`: no engine can be used; `ImageNotFound`: the engine lacks the image.
    pub async fn image_command(&self) -> Result<ImageCommand, SandboxError> {
        let tracker = self.engine.find().await?;
        let image = tracker.engine.image(&self.inner.options.image).await?;
        Ok(ImageCommand::from_inspect(image, tracker.engine.info().kind))
    }

    /// As [`ContainerEngine::sweep`].
    ///
    /// # Errors
    /// When the engine does not answer. The result lists containers that could not be removed.
    pub async fn sweep(&self) -> Result<ContainerSweepReport, SandboxError> {
        if let Some(data) = &self.data {
            self.engine.add_sandbox_dirs(data.sandboxes());
        }
        self.engine.sweep().await
    }

    async fn runtime_files(&self) -> Result<&RuntimeFiles, SandboxError> {
        let created = self.runtime_files.get_or_try_init(|| async {
            let data = self.data.clone();
            let files = tokio::task::spawn_blocking(move || {
                RuntimeFiles::make(data.map_or_else(DataDir::temporary, Ok)?)
            });
            files.await.map_err(|error| unavailable("its preparation failed", error))?
        });
        created.await
    }

    /// Resolves directories, and creates the sandbox directory of the container.
    async fn prepare(
        &self,
        tracker: &Arc<ContainerTracker>,
        image: &ImageInfo,
        context: &ExecutionContext,
    ) -> Result<ContainerPlan, SandboxError> {
        self.runtime_files().await?;
        let (inner, runtime_files, tracker) =
            (Arc::clone(&self.inner), Arc::clone(&self.runtime_files), Arc::clone(tracker));
        let (image, context) = (image.clone(), context.clone());
        let prepared = tokio::task::spawn_blocking(move || {
            let runtime_files = runtime_files.get().ok_or_else(|| no_engine("no search was made"))?;
            let inputs = PlanInputs {
                address: tracker.engine.address(),
                info: tracker.engine.info(),
                image: &image,
                options: &inner.options,
                runtime_files,
                environment: &inner.environment,
                context: &context,
            };
            inputs.prepare()
        });
        prepared.await.map_err(|error| unavailable("its preparation failed", error))?
    }
}

impl Connector for Docker {
    /// The boundaries of a container of an ordinary engine. This does not ask the engine.
    fn isolation(&self) -> Isolation {
        Isolation::FULL
    }

    fn layout(&self, context: &ExecutionContext) -> Result<Layout, SandboxError> {
        crate::docker::container::container_plan::layout(&self.inner.options, context)
    }

    fn connect<'a>(
        &'a self,
        context: &'a ExecutionContext,
    ) -> BoxFuture<'a, Result<StartedSandbox, SandboxError>> {
        Box::pin(async move {
            let inner = &self.inner;
            let proxy = egress::proxy(&self.egress, context)?;
            // Sweeps on this engine check the locks of these directories from now on.
            let runtime_files = self.runtime_files().await?;
            self.engine.add_sandbox_dirs(runtime_files.data.sandboxes());
            let tracker = self.engine.tracker().await?;
            let image = inner.image(&tracker.engine).await?;
            let info = tracker.engine.info();
            inner.options.runtime.iter().try_for_each(|runtime| check_runtime(info, runtime))?;
            let prepared = self.prepare(&tracker, &image, context).await?;
            let ContainerPlan {
                hello,
                layout,
                mounts,
                expected_mounts,
                tmpfs,
                user,
                sandbox_dir,
                remote,
                to_restore,
                disk,
            } = prepared;
            let ownership_lock =
                to_restore.iter().map(|to_restore| to_restore.dir.as_str()).chain(user.ownership.dirs());
            let ownership_lock = OwnershipLock::lock(ownership_lock).await?;
            for to_restore in &to_restore {
                run_chown(to_restore).await?;
            }
            let seccomp = match info.kind {
                EngineKind::Docker => crate::docker::container::seccomp_profile::profile().to_string(),
                EngineKind::Podman => utf8_path(&runtime_files.seccomp)?,
            };
            let spec = ContainerSpec {
                engine: info.kind,
                image: &image,
                limits: &context.limits,
                user: &user.user,
                ids: user.ids,
                user_namespace: user.user_namespace,
                runtime: inner.options.runtime.as_deref(),
                seccomp: &seccomp,
                mounts: &mounts,
                tmpfs: &tmpfs,
                has_ipv6: !tracker.engine.address().is_local() || Path::new("/proc/sys/net/ipv6").exists(),
                max_processes: max_processes(),
            };
            let now = SystemClock.timestamp().millis() / 1000;
            let dir_label_value = sandbox_dir
                .as_ref()
                .and_then(|sandbox_dir| dir_label(runtime_files.data.sandboxes(), sandbox_dir));
            let digest = spec.digest(&inner.options, context.tenant.as_ref());
            let labels = self.engine.host()?.labels(&inner.options, context, dir_label_value, &digest, now);
            let remote = remote.map(|RemoteEnginePlan { archive, copy_plan }| {
                (VolumeFill { volume_container: create_body(&image.id, labels.clone()), archive }, copy_plan)
            });
            let (volume_fill, copy_plan) = remote.unzip();
            let mut body = spec.body(labels);
            let guest_listener = sandbox_dir
                .as_ref()
                .and_then(|sandbox_dir| listen(tracker.engine.address(), &sandbox_dir.output()));
            if guest_listener.is_some() {
                body.cmd = Some(GuestListener::arguments());
            }
            let isolation = Isolation {
                disk,
                ..info.isolation(user.identity, SwapSupport::detect(tracker.engine.address()))
            };
            // A container is created only when it can start at once.
            let permit = self.engine.admit_start().await?;
            let resources = ContainerResources {
                handle: ContainerHandle::reserve(&tracker),
                ownership: user.ownership,
                workspace: sandbox_dir.is_some().then(|| source_of(&mounts, WORKSPACE)).flatten(),
                ownership_lock,
                expected_mounts,
                content_dirs: sandbox_dir.map(ContentDirs::new),
                volume_container: volume_fill.is_some().then(|| ContainerHandle::reserve(&tracker)),
                _mounted_files: Arc::clone(&self.runtime_files) as _,
            };
            let create_plan = CreatePlan { body, volume_fill, isolation, copy_plan, guest_listener };
            let started =
                start(resources, create_plan, permit).await.map_err(|error| match error.kind() {
                    // The error names the image of the options; the request had its digest.
                    SandboxErrorKind::ImageNotFound => no_image(&inner.options.image),
                    _ => error,
                })?;
            Ok(StartedSandbox {
                reader: started.streams.reader,
                writer: started.streams.writer,
                hello,
                layout,
                proxy,
                guard: Box::new(started.guard),
            })
        })
    }
}

impl Inner {
    async fn image(&self, engine: &EngineClient) -> Result<ImageInfo, SandboxError> {
        let image = engine.image(&self.options.image).await?;
        image.architecture.as_deref().map_or(Ok(()), check_architecture)?;
        ImageInfo::from_inspect(image)
    }
}

/// The host path that is mounted at this target.
fn source_of(bound: &[BindMount], target: &str) -> Option<String> {
    bound.iter().find(|mount| mount.target == target).map(|mount| mount.source.clone())
}

/// Listens for the guest. Without a socket, the attach streams are used.
fn listen(engine: &EngineAddress, output: &Path) -> Option<GuestListener> {
    let arranged = engine.is_local().then(|| GuestListener::listen(output))?;
    arranged.inspect_err(|error| tracing::debug!(%error, "a socket for a container cannot be created")).ok()
}
