//! Images that are really built, by this machine's engine and from Debian packages, and leftovers of builds.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail by panic")]

use std::collections::HashMap;
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::{Arc, Mutex};

use bollard::query_parameters::{
    ListContainersOptionsBuilder, ListImagesOptionsBuilder, RemoveImageOptionsBuilder,
};
use conjure_sandbox::{
    BuiltImage, EngineAddress, ImageError, ImageErrorKind, ImageOptions, ImagePackages, ImageProgress,
    ImageSource, build_image,
};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

use crate::container::{docker, output_of_image};
use crate::support::image::test_image;
use crate::support::{bearing, soon};

/// A build of a small image, under a name of the test's own and with a directory for temporary files of its own. What is built
/// goes with it, also when the test fails.
struct Build {
    options: ImageOptions,
    cancelled: CancellationToken,
    temporary: TempDir,
    progress: Mutex<Vec<ImageProgress>>,
}

/// Longer than a build takes on a slow machine.
const PATIENCE: u64 = 1200;

impl Build {
    fn of(name: &str, source: ImageSource) -> Self {
        let temporary = tempfile::tempdir().unwrap();
        // The programs of a build need the network's settings.
        let variables = std::env::vars_os();
        let name = format!("conjure-test-{name}:{}", std::process::id());
        let options = ImageOptions {
            name: name.parse().unwrap(),
            source,
            packages: ImagePackages::Minimal,
            temporary: Some(temporary.path().to_owned()),
            ..ImageOptions::new(variables)
        };
        Self { options, cancelled: CancellationToken::new(), temporary, progress: Mutex::default() }
    }

    fn name(&self) -> String {
        self.options.name.to_string()
    }

    async fn run(&self) -> Result<BuiltImage, ImageError> {
        self.run_until(|_| false).await
    }

    /// Cancels the build when this is told.
    async fn run_until(
        &self,
        is_enough: impl Fn(&ImageProgress) -> bool + Send + Sync,
    ) -> Result<BuiltImage, ImageError> {
        let mut listener = |news: ImageProgress| {
            if is_enough(&news) {
                self.cancelled.cancel();
            }
            self.progress.lock().unwrap().push(news);
        };
        build_image(&self.options, soon(PATIENCE), &self.cancelled, &mut listener).await
    }

    fn progress(&self) -> String {
        format!("{:#?}", self.progress.lock().unwrap())
    }

    fn assert_no_directory_is_left(&self) {
        let leftovers: Vec<_> = std::fs::read_dir(self.temporary.path()).unwrap().collect();
        assert!(leftovers.is_empty(), "{leftovers:?}");
    }

    /// Asserts that a build left nothing on this machine or in the engine, except its image.
    async fn assert_nothing_is_left(&self) {
        self.assert_no_directory_is_left();
        let mark = self.temporary.path().to_str().unwrap();
        assert!(bearing(mark).is_empty(), "{:?}", bearing(mark));
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
        assert!(!mounts.contains(mark));
        let progress = self.progress();
        // Else the engine has had nothing to do with it but to take a whole image.
        let Some(label) = progress.split(['(', ')']).find(|word| word.starts_with("io.conjure.build="))
        else {
            return;
        };
        let docker = docker().await;
        let filters = HashMap::from([("label", vec![label])]);
        let containers = ListContainersOptionsBuilder::new().all(true).filters(&filters).build();
        let containers = docker.list_containers(Some(containers)).await.unwrap();
        assert!(containers.is_empty(), "{containers:?}");
        let filters = HashMap::from([("label", vec![label]), ("dangling", vec!["true"])]);
        let images = ListImagesOptionsBuilder::new().filters(&filters).build();
        let images = docker.list_images(Some(images)).await.unwrap();
        assert!(images.is_empty(), "{images:?}");
    }
}

impl Drop for Build {
    fn drop(&mut self) {
        let name = self.name();
        let remove = || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let options = RemoveImageOptionsBuilder::new().force(true).build();
                // Most tests build none.
                drop(docker().await.remove_image(&name, Some(options), None).await);
            });
        };
        std::thread::scope(|scope| drop(scope.spawn(remove).join()));
    }
}

/// True if the test continues without an image, because this machine cannot build one.
fn is_skipped(error: &ImageError) -> bool {
    let cannot = matches!(error.kind(), ImageErrorKind::Network | ImageErrorKind::MissingProgram);
    if cannot {
        test_support::skip(&error.to_string(), "apt-get install mmdebstrap, and reach Debian's packages");
    }
    cannot
}

/// The specification of the image (9.3), and the needs of every sandbox.
async fn assert_it_is_as_specified(image: &str) {
    let script = "id -un; id -u; id -g; pwd; touch /workspace/file && stat -c %U /workspace/file; echo $HOME; \
                  echo $PYTHONUNBUFFERED $NODE_ENV; bash -c 'echo $((1 + 1))'; \
                  python3 -c 'import json, ssl; print(json.dumps([1]))'; test -s /etc/ssl/certs/ca-certificates.crt; \
                  test ! -e /build; ls -A /tmp | wc -l; getent passwd 1000 | cut -d: -f1,7";
    let output = output_of_image(image, script).await;
    let expected =
        "sandbox 1000 1000 /workspace sandbox /home/sandbox 1 production 2 [1] 0 sandbox:/bin/bash";
    assert_eq!(output.split_whitespace().collect::<Vec<_>>().join(" "), expected);
}

#[tokio::test]
async fn an_image_of_debian_packages_is_as_specified_and_a_base_for_the_dockerfile() {
    if test_image().is_none() {
        return;
    }
    let debian = Build::of("debian", ImageSource::Debian);
    let built = match debian.run().await {
        Err(error) if is_skipped(&error) => return,
        built => built.unwrap_or_else(|error| panic!("{error}: {}", debian.progress())),
    };
    assert_eq!((built.source, built.name.to_string()), (ImageSource::Debian, debian.name()));
    assert!(built.id.starts_with("sha256:") && built.size > 50_000_000, "{built:?}");
    assert!(
        debian
            .progress
            .lock()
            .unwrap()
            .iter()
            .any(|news| matches!(news, ImageProgress::Sent(sent) if *sent > 50_000_000))
    );
    assert_it_is_as_specified(&debian.name()).await;
    debian.assert_nothing_is_left().await;

    // The engine has the base, so the Dockerfile fits, and no registry is asked.
    let mut dockerfile = Build::of("dockerfile", ImageSource::Fitting);
    dockerfile.options.base = Some(debian.name());
    let first = dockerfile.run().await.unwrap_or_else(|error| panic!("{error}: {}", dockerfile.progress()));
    assert_eq!(first.source, ImageSource::Dockerfile);
    assert_it_is_as_specified(&dockerfile.name()).await;
    dockerfile.assert_nothing_is_left().await;
    assert!(dockerfile.progress().contains("COPY --from=wheels"), "{}", dockerfile.progress());
}

#[tokio::test]
async fn a_failed_dockerfile_step_is_reported_and_leaves_nothing() {
    let Some(image) = test_image() else { return };
    // It has no apt.
    let mut build = Build::of("fails", ImageSource::Dockerfile);
    build.options.base = Some(image.name().to_owned());
    let error = build.run().await.unwrap_err();
    assert_eq!(error.kind(), ImageErrorKind::Refused, "{error}");
    let expected = "a step of the Dockerfile failed with exit code 127: /bin/sh: 1: apt-get: not found";
    assert_eq!(error.to_string(), expected);
    build.assert_nothing_is_left().await;
    assert!(docker().await.inspect_image(&build.name()).await.is_err());
}

#[tokio::test]
async fn a_build_by_the_engine_that_is_cancelled_leaves_nothing() {
    let Some(image) = test_image() else { return };
    let mut build = Build::of("cancelled", ImageSource::Dockerfile);
    build.options.base = Some(image.name().to_owned());
    let error =
        build.run_until(|news| matches!(news, ImageProgress::Line(line) if line.contains("RUN"))).await;
    assert_eq!(error.unwrap_err().kind(), ImageErrorKind::Cancelled);
    build.assert_nothing_is_left().await;
}

#[tokio::test]
async fn a_build_of_debian_packages_that_is_cancelled_leaves_nothing() {
    if test_image().is_none() {
        return;
    }
    let build = Build::of("given-up", ImageSource::Debian);
    let error = build.run_until(|news| matches!(news, ImageProgress::Line(_))).await.unwrap_err();
    if is_skipped(&error) {
        return;
    }
    assert_eq!(error.kind(), ImageErrorKind::Cancelled, "{error}");
    build.assert_nothing_is_left().await;
    assert!(docker().await.inspect_image(&build.name()).await.is_err());
}

#[tokio::test]
async fn a_failed_download_is_a_network_error_and_leaves_nothing() {
    if test_image().is_none() {
        return;
    }
    let mut build = Build::of("unreachable", ImageSource::Debian);
    // A port that nobody listens at.
    build.options.mirror = Some("http://127.0.0.1:1/debian".to_owned());
    let error = build.run().await.unwrap_err();
    if error.kind() == ImageErrorKind::MissingProgram && is_skipped(&error) {
        return;
    }
    assert_eq!(error.kind(), ImageErrorKind::Network, "{error}");
    assert!(error.hint().unwrap().contains("proxy"), "{error:?}");
    build.assert_nothing_is_left().await;
}

#[tokio::test]
async fn missing_requirements_are_reported_before_any_work() {
    if test_image().is_none() {
        return;
    }
    let mut build = Build::of("missing", ImageSource::Debian);
    build.options.environment = vec![("PATH".into(), Path::new("/nonexistent").into())];
    let error = build.run().await.unwrap_err();
    assert_eq!(error.kind(), ImageErrorKind::MissingProgram);
    assert_eq!(error.hint(), Some("install it: `apt-get install mmdebstrap`"));
    build.options.add = vec!["--no-such".to_owned()];
    assert_eq!(build.run().await.unwrap_err().kind(), ImageErrorKind::BadRequest);
    build.assert_nothing_is_left().await;
}

#[tokio::test]
async fn a_missing_engine_is_reported() {
    let mut build = Build::of("engineless", ImageSource::Debian);
    build.options.engine = vec!["unix:///nonexistent/engine.sock".parse().unwrap()];
    let error = build.run().await.unwrap_err();
    assert_eq!(error.kind(), ImageErrorKind::EngineUnavailable, "{error}");
    assert!(
        error.to_string().contains("nothing is at `unix:///nonexistent/engine.sock`; start Docker"),
        "{error}"
    );
}

/// Where nothing is said: an image of the base that the engine has, then one that a registry gives, then Debian packages.
#[tokio::test]
async fn a_missing_base_image_is_searched_in_every_source_in_order() {
    let mut build = Build::of("nowhere", ImageSource::Fitting);
    let (socket, asked) = (build.temporary.path().with_extension("socket"), Arc::new(Mutex::new(Vec::new())));
    engine_without_images(&socket, Arc::clone(&asked));
    build.options.engine = vec![EngineAddress::Unix(socket.clone())];
    // Debian packages are the last choice, and there is no program for them.
    build.options.environment = vec![("PATH".into(), "/nonexistent".into())];
    let error = build.run().await.unwrap_err();
    std::fs::remove_file(socket).unwrap();
    assert_eq!(error.kind(), ImageErrorKind::BaseNotFound, "{error}");
    let message = error.to_string();
    assert!(message.contains("no image `ubuntu:24.04`, and no registry gives it: no way"), "{message}");
    assert!(message.contains("and it cannot be made of Debian packages: "), "{message}");
    let asked = asked.lock().unwrap();
    let [.., base, fetched] = asked.as_slice() else { panic!("{asked:?}") };
    assert!(base.starts_with("GET ") && base.contains("/images/ubuntu:24.04/json"), "{asked:?}");
    assert!(fetched.starts_with("POST ") && fetched.contains("/images/create?"), "{asked:?}");
    build.assert_no_directory_is_left();
}

/// An engine that has no image and gets none.
fn engine_without_images(socket: &Path, asked: Arc<Mutex<Vec<String>>>) {
    let listener = UnixListener::bind(socket).unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            let mut request = [0; 4096];
            let length = stream.read(&mut request).unwrap_or(0);
            let first =
                String::from_utf8_lossy(&request[..length]).lines().next().unwrap_or_default().to_owned();
            let (status, body) = if first.contains("/version ") {
                ("200 OK", r#"{"Version":"20.10.24","ApiVersion":"1.41","MinAPIVersion":"1.12"}"#)
            } else {
                ("404 Not Found", r#"{"message":"no way"}"#)
            };
            asked.lock().unwrap().push(first);
            let head = "Content-Type: application/json\r\nConnection: close";
            let length = body.len();
            let _ = write!(stream, "HTTP/1.1 {status}\r\n{head}\r\nContent-Length: {length}\r\n\r\n{body}");
        }
    });
}
