//! The fixture of the container tests: an image, a connector whose containers are labelled, and a sandbox.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use bollard::errors::Error;
use bollard::models::{
    ContainerCreateBody, ContainerInspectResponse, ContainerSummary, HostConfig, ResourcesUlimits,
};
use bollard::query_parameters::{
    CreateContainerOptions, InspectContainerOptions, ListImagesOptions, LogsOptionsBuilder,
    RemoveContainerOptionsBuilder, StartContainerOptions, WaitContainerOptions,
};
use conjure_sandbox::{
    Command, CommandEnd, CommandOutcome, Docker, DockerOptions, EngineAddress, EngineKind, ExecutionContext,
    Executor, Sandbox, SandboxError,
};
use futures_util::{StreamExt as _, TryStreamExt as _};
use tempfile::TempDir;

use crate::support::engine::client;
use crate::support::image::{Content, DEBIAN, TestImage, test_image_of};
use crate::support::{PatientClock, host, opened, options, soon, test_parameters, text};

/// The label that tells the containers of a test.
const LABEL: &str = "conjure-test";

/// An image, and connectors for it. What a test leaves of its containers fails it.
pub(crate) struct ContainerFixture {
    engine: EngineAddress,
    mark: String,
    image: Image,
    /// Given back last.
    _turn: Option<Turn>,
}

/// So many tests have an engine at a time, however many processors there are: each of its questions waits for the others.
const AT_ONCE: usize = 4;

/// How many have one, and who waits.
static TURNS: (Mutex<usize>, Condvar) = (Mutex::new(0), Condvar::new());

/// One that has an engine.
struct Turn;

impl Turn {
    fn take() -> Self {
        let running = TURNS.0.lock().unwrap_or_else(PoisonError::into_inner);
        *TURNS
            .1
            .wait_while(running, |running| *running >= AT_ONCE)
            .unwrap_or_else(PoisonError::into_inner) += 1;
        Self
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        *TURNS.0.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
        TURNS.1.notify_one();
    }
}

enum Image {
    Own(TestImage),
    /// Of the test that started this process: it removes it.
    OfParent(String),
}

/// A sandbox, and its workspace.
pub(crate) struct Container {
    pub(crate) sandbox: Sandbox,
    pub(crate) workspace: TempDir,
}

impl ContainerFixture {
    /// With a small Debian; `None` where there is no engine and none is required.
    pub(crate) fn new() -> Option<Self> {
        Self::of(&DEBIAN)
    }

    pub(crate) fn of(content: &'static Content) -> Option<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let engine = crate::engine::address()?;
        // One of a process that a test has started has the turn of that test.
        let turn = test_parameters().is_none().then(Turn::take);
        let image = match test_parameters() {
            Some(_) => image_of_parent(&engine, content),
            None => {
                let image = test_image_of(&engine, content)?;
                crate::engine::keep(&image);
                Image::Own(image)
            }
        };
        let mark = format!("{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        Some(Self { engine, mark, image, _turn: turn })
    }

    pub(crate) fn options(&self) -> DockerOptions {
        let engine = vec![self.engine.clone()];
        let labels = [(LABEL.to_owned(), self.mark.clone())].into();
        let image = match &self.image {
            Image::Own(image) => image.name().to_owned(),
            Image::OfParent(name) => name.clone(),
        };
        DockerOptions { engine, image, labels, ..DockerOptions::default() }
    }

    /// The engine itself.
    pub(crate) async fn engine(&self) -> bollard::Docker {
        client(&self.engine).await.unwrap()
    }

    pub(crate) fn connector(&self) -> Docker {
        Docker::new(self.options(), host())
    }

    pub(crate) async fn container(&self) -> Container {
        self.container_with(&self.connector(), |_| {}).await
    }

    pub(crate) async fn container_with(
        &self,
        connector: &Docker,
        change: impl FnOnce(&mut ExecutionContext),
    ) -> Container {
        let workspace = tempfile::tempdir().unwrap();
        let mut context = ExecutionContext::new(workspace.path());
        change(&mut context);
        let sandbox = opened(|| open(connector, &context)).await;
        Container { sandbox, workspace }
    }

    /// The containers of this test, whatever their state.
    pub(crate) async fn containers(&self) -> Vec<ContainerSummary> {
        self.labelled(&format!("{LABEL}={}", self.mark)).await
    }

    /// The engine's containers that bear this label, those that are half there among them.
    pub(crate) async fn labelled(&self, label: &str) -> Vec<ContainerSummary> {
        // Podman lists none while one goes.
        for _ in 0..200 {
            match crate::engine::labelled(&self.engine, label).await {
                Err(Error::DockerResponseServerError { message, .. })
                    if ["not known", "no such container"].iter().any(|text| message.contains(text)) =>
                {
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
                found => return found.unwrap(),
            }
        }
        panic!("containers cannot be listed");
    }

    /// What a program says in a container of the image that is no sandbox: under the engine's filter alone, by no user of the
    /// image's.
    pub(crate) async fn output_without_guest(&self, program: &[&str]) -> String {
        let engine = self.engine().await;
        let options = self.options();
        let profile = conjure_sandbox::seccomp_profile().to_string();
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), &profile).unwrap();
        let security = match self.connector().check_environment().await.unwrap().engine {
            EngineKind::Podman => format!("seccomp={}", file.path().display()),
            _ => format!("seccomp={profile}"),
        };
        // Podman would set more than everybody may have.
        let ulimits = [("nproc", 1000), ("nofile", 1024)].map(|(name, max)| ResourcesUlimits {
            name: Some(name.to_owned()),
            soft: Some(max),
            hard: Some(max),
        });
        let host_config = HostConfig {
            security_opt: Some(vec!["no-new-privileges".to_owned(), security]),
            cap_drop: Some(vec!["ALL".to_owned()]),
            ulimits: Some(ulimits.into()),
            network_mode: Some("none".to_owned()),
            ..HostConfig::default()
        };
        let body = ContainerCreateBody {
            image: Some(options.image),
            labels: Some(options.labels.into_iter().collect()),
            user: Some("4321:4321".to_owned()),
            cmd: Some(program.iter().map(|part| (*part).to_owned()).collect()),
            host_config: Some(host_config),
            ..ContainerCreateBody::default()
        };
        let name = engine.create_container(None::<CreateContainerOptions>, body).await.unwrap().id;
        engine.start_container(&name, None::<StartContainerOptions>).await.unwrap();
        let ended = engine.wait_container(&name, None::<WaitContainerOptions>).collect::<Vec<_>>().await;
        let logs = LogsOptionsBuilder::new().stdout(true).stderr(true).build();
        let log: Vec<_> = engine.logs(&name, Some(logs)).try_collect().await.unwrap();
        let log: String = log.iter().map(ToString::to_string).collect();
        self.remove_all();
        assert!(ended.iter().all(Result::is_ok), "{ended:?}: {log}");
        log
    }

    /// The one container of this test, as the engine has it.
    pub(crate) async fn inspected(&self) -> ContainerInspectResponse {
        let all = self.containers().await;
        assert_eq!(all.len(), 1);
        let id = all[0].id.as_deref().unwrap();
        self.engine().await.inspect_container(id, None::<InspectContainerOptions>).await.unwrap()
    }

    /// Ends when the engine has no container of this test any more.
    pub(crate) async fn until_nothing_is_left(&self) {
        for _ in 0..1200 {
            if self.containers().await.is_empty() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("containers are left: {:?}", self.containers().await);
    }
}

impl ContainerFixture {
    /// Removes the containers of this test, and waits until they are gone: somebody else may be at it.
    pub(crate) fn remove_all(&self) {
        apart(async {
            for container in self.containers().await {
                let options = RemoveContainerOptionsBuilder::new().force(true).v(true).build();
                let name = container.id.unwrap();
                if let Err(error) = self.engine().await.remove_container(&name, Some(options)).await {
                    // Another process removed it first.
                    eprintln!("a container of a test: {error}");
                }
            }
            self.until_nothing_is_left().await;
        });
    }
}

impl Drop for ContainerFixture {
    /// Removes leftovers of a failed test, so that the image can be removed; a test with leftovers fails.
    fn drop(&mut self) {
        let leftovers = apart(self.containers());
        self.remove_all();
        assert!(
            leftovers.is_empty() || std::thread::panicking() || test_parameters().is_some(),
            "left behind: {leftovers:?}"
        );
    }
}

/// Waits for it on a thread and a runtime of its own: also where there is a runtime already, or none any more.
pub(crate) fn apart<T: Send>(work: impl Future<Output = T> + Send) -> T {
    let run = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work);
    std::thread::scope(|scope| scope.spawn(run).join()).unwrap()
}

/// The image with this content of the test that started this process.
fn image_of_parent(engine: &EngineAddress, content: &Content) -> Image {
    let start = content.name_of(std::os::unix::process::parent_id());
    let all =
        apart(async { client(engine).await.unwrap().list_images(None::<ListImagesOptions>).await.unwrap() });
    let mut names = all.into_iter().flat_map(|image| image.repo_tags);
    let own = names.find(|name| name.contains(&start));
    Image::OfParent(own.unwrap())
}

impl Container {
    pub(crate) async fn run(&self, argv: &[&str]) -> Result<CommandOutcome, SandboxError> {
        self.sandbox.run(Command::new(argv.iter().copied()), options()).await
    }

    /// The output of a script, which must succeed.
    pub(crate) async fn sh(&self, script: &str) -> String {
        let outcome = self.run(&["sh", "-c", script]).await.unwrap();
        let text = text(&outcome);
        assert_eq!(outcome.end, CommandEnd::Exited(0), "{text}");
        text
    }
}

pub(crate) async fn open(connector: &Docker, context: &ExecutionContext) -> Result<Sandbox, SandboxError> {
    Sandbox::open(connector, context, Arc::new(PatientClock), soon(600)).await
}
