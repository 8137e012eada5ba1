//! Images of Debian packages that are built for Podman, leftovers of such builds, and containers of the images.

use std::collections::HashMap;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::sync::Mutex;

use bollard::query_parameters::{
    ListImagesOptionsBuilder, RemoveImageOptionsBuilder, TagImageOptionsBuilder,
};
use conjure_base::{Clock as _, SystemClock};
use conjure_sandbox::{
    BuiltImage, Docker, DockerOptions, EngineAddress, ExecutionContext, Executor, ImageError, ImageErrorKind,
    ImageOptions, ImagePackages, ImageProgress, ImageSource, build_image,
};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

use crate::container_fixture::{Container, ContainerFixture, apart, open};
use crate::support::engine::client;
use crate::support::{bearing, soon};

/// Names the image that was built, for containers of a user who cannot build it.
pub(crate) const BUILT: &str = "CONJURE_TEST_BUILT";

/// The label of every image of a build.
const LABEL: &str = "io.conjure.build";

/// One at a time, for what is looked for afterwards could be another's.
static TURN: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

/// Longer than a build takes on a slow machine.
const PATIENCE: u64 = 1200;

/// A build of a small image for an engine, under a name of the test's own. What is built goes with it, also when the test
/// fails.
pub(crate) struct Build {
    engine: EngineAddress,
    options: ImageOptions,
    temporary: TempDir,
    progress: Mutex<Vec<String>>,
}

impl Build {
    pub(crate) fn of(name: &str, engine: &EngineAddress) -> Self {
        let temporary = tempfile::tempdir().unwrap();
        let name = format!("conjure-test-{name}:{}", std::process::id());
        let options = ImageOptions {
            name: name.parse().unwrap(),
            source: ImageSource::Debian,
            packages: ImagePackages::Minimal,
            engine: vec![engine.clone()],
            temporary: Some(temporary.path().to_owned()),
            // The programs of a build need the network's settings.
            ..ImageOptions::new(std::env::vars_os())
        };
        Self { engine: engine.clone(), options, temporary, progress: Mutex::default() }
    }

    pub(crate) fn name(&self) -> String {
        self.options.name.to_string()
    }

    /// The image; `None`, and a word about it, where this machine cannot build one and need not.
    pub(crate) async fn run(&self) -> Option<BuiltImage> {
        let mut listener = |news| self.progress.lock().unwrap().push(format!("{news:?}"));
        match build_image(&self.options, soon(PATIENCE), &CancellationToken::new(), &mut listener).await {
            Err(error) if is_skipped(&error) => None,
            built => {
                Some(built.unwrap_or_else(|error| panic!("{error}: {:#?}", self.progress.lock().unwrap())))
            }
        }
    }

    /// Gives the build up at the first word about it that is this.
    async fn run_until(
        &self,
        is_it: impl Fn(&ImageProgress) -> bool + Send + Sync,
        given_up: CancelPoint,
    ) -> Option<ImageError> {
        let (met, cancelled) = (CancellationToken::new(), CancellationToken::new());
        let mut listener = |news: ImageProgress| {
            if is_it(&news) {
                match given_up {
                    CancelPoint::Cancelled => cancelled.cancel(),
                    CancelPoint::Dropped => met.cancel(),
                }
            }
            self.progress.lock().unwrap().push(format!("{news:?}"));
        };
        tokio::select! {
            built = build_image(&self.options, soon(PATIENCE), &cancelled, &mut listener) => built.err(),
            () = met.cancelled() => None,
        }
    }

    /// Waits until nothing of it is on this machine or in the engine.
    async fn until_nothing_is_left(&self) {
        let deadline = soon(PATIENCE);
        loop {
            let leftovers = self.leftovers().await;
            if leftovers.is_empty() {
                return;
            }
            assert!(!SystemClock.remaining(deadline).is_zero(), "{leftovers}");
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    }

    /// The leftovers of a build, except an image of its name.
    async fn leftovers(&self) -> String {
        let files: Vec<PathBuf> = [self.temporary.path().to_owned(), crate::engine::files()]
            .iter()
            .flat_map(|dir| std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()))
            // The images of tests are imported in the other way, which leaves its copy of the archive.
            .filter(|path| !path.file_name().unwrap().to_str().unwrap().starts_with("api_load"))
            .collect();
        let programs = bearing(self.temporary.path().to_str().unwrap());
        let images = self.images().await;
        let images: Vec<_> = images
            .iter()
            .filter(|(_, names)| !names.iter().any(|name| name.ends_with(&self.name())))
            .collect();
        if files.is_empty() && programs.is_empty() && images.is_empty() {
            return String::new();
        }
        format!("left are {files:?}, {programs:?} and {images:?}")
    }

    /// The images that were built, with their names.
    async fn images(&self) -> Vec<(String, Vec<String>)> {
        let filters = HashMap::from([("label", vec![LABEL])]);
        let options = ListImagesOptionsBuilder::new().all(true).filters(&filters).build();
        let found = client(&self.engine).await.unwrap().list_images(Some(options)).await.unwrap();
        found.into_iter().map(|image| (image.id, image.repo_tags)).collect()
    }
}

impl Drop for Build {
    fn drop(&mut self) {
        apart(async {
            let options = RemoveImageOptionsBuilder::new().force(true).build();
            let engine = client(&self.engine).await.unwrap();
            // Some tests build none.
            drop(engine.remove_image(&self.name(), Some(options), None).await);
        });
    }
}

/// How a build is given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CancelPoint {
    Cancelled,
    Dropped,
}

fn is_skipped(error: &ImageError) -> bool {
    let cannot = matches!(error.kind(), ImageErrorKind::Network | ImageErrorKind::MissingProgram);
    if cannot {
        test_support::skip(&error.to_string(), "apt-get install mmdebstrap, and reach Debian's packages");
    }
    cannot
}

/// The name of an image that was built; of the user who cannot build one, that which was built for them.
#[expect(clippy::disallowed_methods, reason = "only these tests set it")]
fn built_for_us() -> Option<String> {
    std::env::var(BUILT).ok()
}

#[tokio::test]
async fn containers_run_in_an_image_of_debian_packages() {
    let Some(fixture) = ContainerFixture::new() else { return };
    if let Some(name) = built_for_us() {
        return assert_containers_run_in(&fixture, &name).await;
    }
    let _turn = TURN.lock().await;
    let build = Build::of("built", &fixture.options().engine[0]);
    let Some(first) = build.run().await else { return };
    assert_eq!((first.source, first.name.to_string()), (ImageSource::Debian, build.name()));
    assert!(first.size > 50_000_000, "{first:?}");
    assert_containers_run_in(&fixture, &build.name()).await;
    build.until_nothing_is_left().await;
    assert_the_engine_builds_on(&build.name(), &fixture.options().engine[0]).await;
    // One that is built under the same name takes its place.
    let second = build.run().await.unwrap();
    assert_ne!(second.id, first.id);
    let images = build.images().await;
    assert_eq!(images.len(), 1, "{images:?}");
    assert_eq!(images[0].0.trim_start_matches("sha256:"), second.id.trim_start_matches("sha256:"));
}

/// By the Dockerfile. The service ends no build that is given up, but nothing is left when it has ended by itself.
async fn assert_the_engine_builds_on(base: &str, engine: &EngineAddress) {
    let abandoned = format!("conjure-build-1:{}", unused_port());
    let (repository, tag) = abandoned.split_once(':').unwrap();
    let options = TagImageOptionsBuilder::new().repo(&format!("localhost/{repository}")).tag(tag).build();
    client(engine).await.unwrap().tag_image(base, Some(options)).await.unwrap();
    let mut build = Build::of("dockerfile", engine);
    build.options.source = ImageSource::Dockerfile;
    build.options.base = Some(base.to_owned());
    let begins =
        |news: &ImageProgress| matches!(news, ImageProgress::Line(line) if line.contains("[2/2] STEP 2/"));
    let error = build.run_until(begins, CancelPoint::Cancelled).await.unwrap();
    assert_eq!(error.kind(), ImageErrorKind::Cancelled, "{error}");
    let names = async || build.images().await.into_iter().flat_map(|(_, names)| names).collect::<Vec<_>>();
    assert_eq!(names().await, [format!("docker.io/library/{base}")]);
    assert_eq!(build.images().await.len(), 1);
    let Some(built) = build.run().await else { return };
    assert_eq!(built.source, ImageSource::Dockerfile);
    let mut names = names().await;
    names.sort();
    assert_eq!(names, [base, &build.name()].map(|name| format!("docker.io/library/{name}")));
}

/// A builder who is dead, as the names of images tell: a process with the number of this one, and another start.
fn unused_port() -> String {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    let namespace = std::fs::metadata("/proc/self/ns/pid").unwrap().ino();
    format!("{}.conjure-{namespace}-{}-1-0", boot.trim(), std::process::id())
}

/// As every sandbox's, and with what the image says.
async fn assert_containers_run_in(fixture: &ContainerFixture, name: &str) {
    let connector = Docker::new(DockerOptions { image: name.to_owned(), ..fixture.options() }, []);
    let workspace = tempfile::tempdir().unwrap();
    let sandbox = open(&connector, &ExecutionContext::new(workspace.path())).await.unwrap();
    let container = Container { sandbox, workspace };
    let script = "pwd; echo $PYTHONUNBUFFERED $NODE_ENV; echo $PATH; bash -c 'echo $((1 + 1))'; \
                  python3 -c 'import json, ssl; print(json.dumps([1]))'; \
                  getent passwd 1000 | cut -d: -f7; touch /workspace/file; test ! -w /etc";
    let output = container.sh(script).await;
    let path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
    let expected = format!("/workspace 1 production {path} 2 [1]");
    assert!(output.split_whitespace().collect::<Vec<_>>().join(" ").starts_with(&expected), "{output}");
    container.sandbox.cleanup().await;
}

#[tokio::test]
async fn a_cancelled_build_leaves_nothing() {
    let Some(fixture) = ContainerFixture::new() else { return };
    let _turn = TURN.lock().await;
    let build = Build::of("given-up", &fixture.options().engine[0]);
    let begins = |news: &ImageProgress| matches!(news, ImageProgress::Line(_));
    let is_sent = |news: &ImageProgress| matches!(news, ImageProgress::Sent(_));
    let error = build.run_until(begins, CancelPoint::Cancelled).await.unwrap();
    if is_skipped(&error) {
        return;
    }
    assert_eq!(error.kind(), ImageErrorKind::Cancelled, "{error}");
    build.until_nothing_is_left().await;
    let error = build.run_until(is_sent, CancelPoint::Cancelled).await.unwrap();
    assert_eq!(error.kind(), ImageErrorKind::Cancelled, "{error}");
    build.until_nothing_is_left().await;
    assert!(build.run_until(is_sent, CancelPoint::Dropped).await.is_none());
    build.until_nothing_is_left().await;
    assert_eq!(build.images().await, []);
}

#[tokio::test]
async fn a_build_that_fails_leaves_nothing() {
    let Some(fixture) = ContainerFixture::new() else { return };
    let _turn = TURN.lock().await;
    let mut build = Build::of("unreachable", &fixture.options().engine[0]);
    // A port that nobody listens at.
    build.options.mirror = Some("http://127.0.0.1:1/debian".to_owned());
    let error = build.run_until(|_| false, CancelPoint::Dropped).await.unwrap();
    assert!([ImageErrorKind::Network, ImageErrorKind::MissingProgram].contains(&error.kind()), "{error}");
    build.until_nothing_is_left().await;
    assert_eq!(build.images().await, []);
}
