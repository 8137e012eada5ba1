//! [`Docker`]: makes sandboxes that are containers.
//!
//! A connector holds the folder that its containers are made of, and shares the engine with others of its host
//! ([`ContainerEngine`]). Both are looked for when the first container is asked for, and again when there was none.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;
use std::sync::Arc;

use bollard::container::AttachContainerResults;
use bollard::models::ContainerCreateBody;
use conjure_base::{Clock as _, SystemClock};
use conjure_egress::{Egress, Policy};
use futures_util::future::BoxFuture;
use tokio::sync::{OnceCell, OwnedSemaphorePermit, oneshot};

use super::ability::{check_architecture, check_runtime, honest, most_processes};
use super::address::EngineAddress;
use super::attach::{AttachReader, Complaints};
use super::engine::Engine;
use super::facts::{DockerEnvironment, EngineKind, Swap};
use super::failure::{no_engine, no_image};
use super::first_process::FirstProcess;
use super::guard::{ContainerGuard, Remains};
use super::held::{Held, Keeper};
use super::image_facts::ImageFacts;
use super::labels::place_of;
use super::meeting::{Meeting, Streams};
use super::options::DockerOptions;
use super::premises::Premises;
use super::prepare::{Elsewhere, Ingredients, Prepared};
use super::shared::ContainerEngine;
use super::spec::{Bound, Spec};
use super::stock::{VOLUME, locate, stock_body, volume_of};
use super::sweep::SweptContainers;
use crate::connector::{Connection, Connector};
use crate::context::ExecutionContext;
use crate::data::DataFolder;
use crate::egress;
use crate::error::{SandboxError, SandboxErrorKind};
use crate::guest_process::{safe, text, unavailable};
use crate::isolation::{Boundary, Isolation};
use crate::jail::{Lent, WORKSPACE, take_back};
use crate::places::Shelves;
use crate::transfer::Transfer;
use crate::types::Layout;

/// Runs the guest as the first process of a container, by Docker Engine 20.10 or later or Podman 4.0 or later, rootless too.
///
/// Any image works; what commands run must be in it, so `bash_tool` needs an image with `bash`. Commands see the image for
/// reading only; `/workspace`, which they may write; `/tmp` and a home in memory; `/output`, the host's folder for output that was cut, for reading; skills at `/mnt/skills`, artifacts
/// at `/artifacts`. There is no network interface but loopback; what the context's policy allows is reached through a proxy,
/// which commands find by the usual variables, and which runs on the host. All capabilities are dropped, nothing gains
/// privileges, two filters of system calls and Landlock hold, and the engine limits what all of it uses together.
///
/// What the engine does not enforce is open in `Sandbox::isolation`, and an error where the context's floor demands it.
/// An engine at a TCP address, and one that maps users, has none of the host's folders. Then all content travels through the
/// guest, and the layout is the same ([`crate::Sharing`]): the workspace must be a session's own ([`DataFolder::workspace`]),
/// its files go in at the start and come back by [`crate::Executor::bring_back`]; volumes, allowed paths and read-only folders
/// beside the shelves are refused.
///
/// Containers are removed when their sandbox is over, whatever is dropped and when; what a host that was killed leaves is
/// removed by [`Docker::sweep`], which also the first container on an engine calls for. Clones are the same connector. A host
/// that has several gives all of them one [`ContainerEngine`]: it is looked for once, and no more containers are started on it
/// at a time than it has processors for.
#[derive(Debug, Clone)]
pub struct Docker {
    engine: ContainerEngine,
    inner: Arc<Inner>,
    /// What the ways out of all containers have in common.
    egress: Egress,
    /// Where their places lie; `None`: in a temporary folder that goes with the last of the connector.
    data: Option<DataFolder>,
    premises: Arc<OnceCell<Premises>>,
}

#[derive(Debug)]
struct Inner {
    options: DockerOptions,
    /// Those of the host's variables that commands may see.
    environment: BTreeMap<String, String>,
}

impl Docker {
    /// A connector; nothing is looked for yet. Of the host's variables, commands see the time zone.
    pub fn new(
        options: DockerOptions,
        host_environment: impl IntoIterator<Item = (OsString, OsString)>,
    ) -> Self {
        let engine = ContainerEngine::at(options.engine.clone());
        let inner = Inner { options, environment: safe(host_environment) };
        Self {
            engine,
            inner: Arc::new(inner),
            egress: Egress::new(Policy::None),
            data: None,
            premises: Arc::default(),
        }
    }

    /// On this engine, which its other connectors share, instead of that which the options name.
    #[must_use]
    pub fn with_engine(mut self, engine: ContainerEngine) -> Self {
        self.engine = engine;
        self
    }

    /// With its folders and what skills hold in this data folder, which the engine must be able to reach.
    #[must_use]
    pub fn with_data(mut self, data: DataFolder) -> Self {
        (self.data, self.premises) = (Some(data), Arc::default());
        self
    }

    /// With another resolver, observer, bounds or check of addresses for the connections of commands. Its policy and its
    /// places are not used: each container has those of its context, and its own.
    #[must_use]
    pub fn with_egress(mut self, egress: Egress) -> Self {
        self.egress = egress;
        self
    }

    /// Looks for the engine, the image and the runtime, and says what it found.
    ///
    /// # Errors
    /// `EngineUnavailable`: no engine can be used; `ImageNotFound`: the engine is there, and the image is not;
    /// `Unavailable`: no container can be made of it here. Each says what helps.
    pub async fn check_environment(&self) -> Result<DockerEnvironment, SandboxError> {
        let keeper = self.engine.found().await?;
        let (engine, options) = (&keeper.engine, &self.inner.options);
        let facts = engine.facts();
        let image = self.inner.image(engine).await?;
        options.runtime.iter().try_for_each(|runtime| check_runtime(facts, runtime))?;
        Ok(DockerEnvironment {
            engine: facts.kind,
            version: facts.version.clone(),
            address: engine.address().clone(),
            is_rootless: facts.is_rootless,
            sharing: facts.sharing(engine.address()),
            image_id: image.id,
            runtime: options.runtime.clone().unwrap_or_else(|| facts.default_runtime.clone()),
            isolation: facts.isolation(Boundary::Open, Swap::of(engine.address())),
        })
    }

    /// As [`ContainerEngine::sweep`].
    ///
    /// # Errors
    /// When the engine cannot be asked. What cannot be removed is in the result.
    pub async fn sweep(&self) -> Result<SweptContainers, SandboxError> {
        if let Some(data) = &self.data {
            self.engine.learn(data.sandboxes());
        }
        self.engine.sweep().await
    }

    async fn premises(&self) -> Result<&Premises, SandboxError> {
        let made = self.premises.get_or_try_init(|| async {
            let data = self.data.clone();
            let made = tokio::task::spawn_blocking(move || {
                Premises::make(data.map_or_else(DataFolder::temporary, Ok)?)
            });
            made.await.map_err(|error| unavailable("its preparation failed", error))?
        });
        made.await
    }

    /// Looks at folders, and makes the container's place.
    async fn prepare(
        &self,
        keeper: &Arc<Keeper>,
        image: &ImageFacts,
        context: &ExecutionContext,
    ) -> Result<Prepared, SandboxError> {
        self.premises().await?;
        let (inner, premises, keeper) =
            (Arc::clone(&self.inner), Arc::clone(&self.premises), Arc::clone(keeper));
        let (image, context) = (image.clone(), context.clone());
        let prepared = tokio::task::spawn_blocking(move || {
            let premises = premises.get().ok_or_else(|| no_engine("it was not looked for"))?;
            let ingredients = Ingredients {
                address: keeper.engine.address(),
                facts: keeper.engine.facts(),
                image: &image,
                options: &inner.options,
                premises,
                environment: &inner.environment,
                context: &context,
            };
            ingredients.prepare()
        });
        prepared.await.map_err(|error| unavailable("its preparation failed", error))?
    }
}

impl Connector for Docker {
    /// As far as it is known without the engine: what containers of an ordinary one keep apart.
    fn isolation(&self) -> Isolation {
        Isolation::FULL
    }

    fn layout(&self, context: &ExecutionContext) -> Result<Layout, SandboxError> {
        super::prepare::layout(&self.inner.options, context)
    }

    fn connect<'a>(
        &'a self,
        context: &'a ExecutionContext,
    ) -> BoxFuture<'a, Result<Connection, SandboxError>> {
        Box::pin(async move {
            let inner = &self.inner;
            let proxy = egress::proxy(&self.egress, &context.network)?;
            // Whoever sweeps knows whose containers have their places here.
            let premises = self.premises().await?;
            self.engine.learn(premises.data.sandboxes());
            let keeper = self.engine.keeper().await?;
            let image = inner.image(&keeper.engine).await?;
            let facts = keeper.engine.facts();
            inner.options.runtime.iter().try_for_each(|runtime| check_runtime(facts, runtime))?;
            let prepared = self.prepare(&keeper, &image, context).await?;
            let Prepared { hello, layout, bound, meant, memory, people, place, elsewhere, left, disk } =
                prepared;
            let lent = left.iter().map(|left| left.folder.as_str()).chain(people.handed_over.folders());
            let lent = Lent::take(lent).await?;
            for left in &left {
                take_back(left).await?;
            }
            let seccomp = match facts.kind {
                EngineKind::Docker => super::seccomp::profile().to_string(),
                EngineKind::Podman => text(&premises.seccomp)?,
            };
            let spec = Spec {
                engine: facts.kind,
                image: &image,
                limits: &context.limits,
                user: &people.user,
                numbers: people.numbers,
                user_namespace: people.user_namespace,
                runtime: inner.options.runtime.as_deref(),
                seccomp: &seccomp,
                bound: &bound,
                memory: &memory,
                has_ipv6: !keeper.engine.address().is_local() || Path::new("/proc/sys/net/ipv6").exists(),
                most_processes: most_processes(),
            };
            let now = SystemClock.timestamp().millis() / 1000;
            let bears = place.as_ref().and_then(|place| place_of(premises.data.sandboxes(), place));
            let digest = spec.digest(&inner.options, context.tenant.as_ref());
            let labels = self.engine.host()?.labels(&inner.options, context, bears, &digest, now);
            let elsewhere = elsewhere.map(|Elsewhere { archive, transfer }| {
                (Filling { stock: stock_body(&image.id, labels.clone()), archive }, transfer)
            });
            let (filling, transfer) = elsewhere.unzip();
            let mut body = spec.body(labels);
            let meeting = place.as_ref().and_then(|place| arrange(keeper.engine.address(), &place.output()));
            if meeting.is_some() {
                body.cmd = Some(Meeting::arguments());
            }
            let isolation =
                Isolation { disk, ..facts.isolation(people.identity, Swap::of(keeper.engine.address())) };
            // Nobody begins who would have to wait for the others.
            let permit = self.engine.turn().await?;
            let remains = Remains {
                held: keeper.hold(),
                handed_over: people.handed_over,
                workspace: place.is_some().then(|| source_of(&bound, WORKSPACE)).flatten(),
                lent,
                meant,
                shelves: place.map(Shelves::new),
                stock: filling.is_some().then(|| keeper.hold()),
                _premises: Arc::clone(&self.premises) as _,
            };
            let recipe = Recipe { body, filling, isolation, transfer, meeting };
            let started = start(remains, recipe, permit).await.map_err(|error| match error.kind() {
                // By the name that it was asked for; it was made of what that was a moment ago.
                SandboxErrorKind::ImageNotFound => no_image(&inner.options.image),
                _ => error,
            })?;
            Ok(Connection {
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
    async fn image(&self, engine: &Engine) -> Result<ImageFacts, SandboxError> {
        let image = engine.image(&self.options.image).await?;
        image.architecture.as_deref().map_or(Ok(()), check_architecture)?;
        ImageFacts::of(image)
    }
}

/// What of the host's is at this place in a container.
fn source_of(bound: &[Bound], target: &str) -> Option<String> {
    bound.iter().find(|bound| bound.target == target).map(|bound| bound.source.clone())
}

/// A socket at which the guest is met. Where there can be none, the engine's streams do.
fn arrange(engine: &EngineAddress, output: &Path) -> Option<Meeting> {
    let arranged = engine.is_local().then(|| Meeting::arrange(output))?;
    arranged.inspect_err(|error| tracing::debug!(%error, "no socket can be had for a container")).ok()
}

/// A container that was started, and its streams.
struct Started {
    streams: Streams,
    guard: ContainerGuard,
}

/// What a container is made of.
struct Recipe {
    body: ContainerCreateBody,
    /// Where it has none of the host's folders.
    filling: Option<Filling>,
    isolation: Isolation,
    transfer: Option<Transfer>,
    /// Where its guest is met, when it can be met at a socket.
    meeting: Option<Meeting>,
}

/// The container that has its volume, and what goes there.
struct Filling {
    stock: ContainerCreateBody,
    archive: Vec<u8>,
}

/// Makes and starts a container. Where nobody waits for it any more, it is removed as soon as the engine can: a question
/// that was asked is not taken back, so what is asked runs to its end in a task.
async fn start(
    mut remains: Remains,
    mut recipe: Recipe,
    permit: OwnedSemaphorePermit,
) -> Result<Started, SandboxError> {
    let keeper = Arc::clone(remains.held.keeper());
    let (sender, receiver) = oneshot::channel();
    let its_keeper = Arc::clone(&keeper);
    keeper.run(async move {
        let keeper = its_keeper;
        let transfer = recipe.transfer.take();
        let made = make(&mut remains, recipe, || sender.is_closed()).await;
        drop(permit);
        let result = match made {
            Ok((streams, complaints, isolation)) => {
                let first_process = match streams.came {
                    Some(came) => FirstProcess::of_container(&keeper.engine, remains.held.name(), came).await,
                    None => None,
                };
                let way = streams.way;
                let guard = ContainerGuard::new(remains, complaints, isolation, transfer, way, first_process);
                Ok(Started { streams, guard })
            }
            Err(error) => {
                // Nothing is left of it when the error is told.
                remains.clear().await;
                Err(error)
            }
        };
        // One that nobody takes is removed when it is dropped.
        let _ = sender.send(result);
    });
    receiver.await.unwrap_or_else(|error| Err(unavailable("the container's start was dropped", error)))
}

async fn make(
    remains: &mut Remains,
    recipe: Recipe,
    is_unwanted: impl Fn() -> bool,
) -> Result<(Streams, Complaints, Isolation), SandboxError> {
    let wanted = || {
        let unwanted = || SandboxError::new(SandboxErrorKind::Cancelled, "nobody waits for the container");
        if is_unwanted() { Err(unwanted()) } else { Ok(()) }
    };
    let keeper = Arc::clone(remains.held.keeper());
    remains.handed_over.hand_over().await?;
    wanted()?;
    let Recipe { mut body, filling, isolation, meeting, .. } = recipe;
    if let (Some(filling), Some(stock)) = (filling, &mut remains.stock) {
        let engine = keeper.engine.facts().kind;
        locate(&mut body, engine, &fill(stock, filling, &keeper.engine).await?);
        wanted()?;
    }
    let mut begun = begin(remains, body.clone(), &wanted).await;
    if let Err(error) = &begun
        && remains.stock.is_some()
        && error.to_string().contains("disable_ipv6")
    {
        // The engine's machine has no IPv6, which nothing of it tells before.
        remains.held.remove().await?;
        remains.held = keeper.hold();
        if let Some(config) = &mut body.host_config {
            config.sysctls = None;
        }
        begun = begin(remains, body, &wanted).await;
    }
    let (warnings, streams) = begun?;
    let isolation = honest(isolation, &warnings);
    let complaints = Complaints::default();
    let output = AttachReader::new(streams.output, complaints.clone());
    let input = Box::new(streams.input);
    let mut streams = match meeting {
        Some(meeting) => keeper.engine.meet(meeting, output, input).await?,
        None => Streams::of_engine(output, input),
    };
    if let Some(mut output) = streams.complaints.take() {
        // Until the container's end, or its removal.
        keeper.run(async move {
            let said = tokio::io::copy(&mut output, &mut tokio::io::sink()).await;
            tracing::trace!(?said, "a guest complains no more");
        });
    }
    Ok((streams, complaints, isolation))
}

/// Makes the container and starts it. What the engine has to say, and the streams.
async fn begin(
    remains: &mut Remains,
    body: ContainerCreateBody,
    wanted: impl Fn() -> Result<(), SandboxError>,
) -> Result<(Vec<String>, AttachContainerResults), SandboxError> {
    let keeper = Arc::clone(remains.held.keeper());
    let warnings = remains.held.make(body).await?;
    let held: &Held = &remains.held;
    wanted()?;
    let streams = keeper.engine.attach(held.name()).await?;
    wanted()?;
    keeper.engine.start(held.name()).await?;
    Ok((warnings, streams))
}

/// Makes the container that has a volume, and fills it. Where the engine has that is yielded.
async fn fill(stock: &mut Held, filling: Filling, engine: &Engine) -> Result<String, SandboxError> {
    stock.make(filling.stock).await?;
    engine.put(stock.name(), VOLUME, filling.archive).await?;
    let found = engine.inspect(stock.name()).await?;
    volume_of(found.and_then(|found| found.mounts))
}
