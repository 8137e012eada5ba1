//! Lets the engine build the image from `docker/Dockerfile`.

use std::collections::HashMap;
use std::ffi::OsString;
use std::sync::Arc;
use std::time::Duration;

use conjure_base::{Clock as _, Deadline, SystemClock};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::package_lists;
use crate::docker::image::build_client::{BuildClient, LABEL};
use crate::docker::image::build_dir::BuildDir;
use crate::docker::image::error::{ImageError, ImageErrorKind};
use crate::docker::image::options::{ImageOptions, ImagePackages};
use crate::docker::image::progress::ProgressReporter;
use crate::docker::tar::TarWriter;

/// The default base image (specification 9.3).
const BASE: &str = "ubuntu:24.04";

/// The paths at which machines store their trusted certificates.
const TRUSTED: [&str; 3] =
    ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/ca-bundle.pem"];

/// The variables of the host that builds get as well. The engine does not store them in the image.
const PROXIES: [&str; 8] = [
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "FTP_PROXY",
    "NO_PROXY",
    "http_proxy",
    "https_proxy",
    "ftp_proxy",
    "no_proxy",
];

/// How long an engine may take to end a build whose steps are killed.
const BUILD_END_TIMEOUT: Duration = Duration::from_secs(180);

/// The base of the image.
pub(crate) fn base(options: &ImageOptions) -> &str {
    options.base.as_deref().unwrap_or(BASE)
}

/// Pulls the base image if the engine does not have it.
pub(crate) async fn ensure_base(
    engine: &BuildClient,
    base: &str,
    progress: &ProgressReporter<'_>,
) -> Result<(), ImageError> {
    if engine.image(base).await?.is_some() {
        return Ok(());
    }
    progress.step(format!("fetching `{base}` from its registry"));
    engine.pull(base, progress).await
}

/// A message of a build's thread.
enum BuildMessage {
    Line(String),
    Ended(Result<(), ImageError>),
}

/// Builds the image from a base that the engine has.
///
/// A thread sends the request and stays until the engine has ended the build, also if this future is dropped. A
/// cleanup before that end could miss containers and images that the build creates later.
pub(crate) async fn build(
    build_dir: &Arc<BuildDir>,
    options: &ImageOptions,
    deadline: Deadline,
    progress: &ProgressReporter<'_>,
) -> Result<(), ImageError> {
    let base = base(options);
    progress.step(format!(
        "building `{}` on `{base}`, by the engine ({LABEL}={})",
        options.name,
        build_dir.number()
    ));
    let (sender, mut receiver) = mpsc::unbounded_channel();
    let given_up = CancellationToken::new();
    let _given_up_when_dropped = given_up.clone().drop_guard();
    let (options, number) = (options.clone(), build_dir.number().to_owned());
    build_dir.spawn_cleanup(move || {
        let tell = |line| drop(sender.send(BuildMessage::Line(line)));
        let built = in_runtime(run_build(&options, &number, deadline, &given_up, tell));
        // The receiver may have been dropped with the future.
        drop(sender.send(BuildMessage::Ended(built)));
    });
    while let Some(word) = receiver.recv().await {
        match word {
            BuildMessage::Line(line) => progress.line(&line),
            BuildMessage::Ended(built) => return built,
        }
    }
    Err(ImageError::new(ImageErrorKind::Io, "the thread of the build could not be started, or was lost"))
}

/// Runs the build in the engine to its end, and cleans up.
async fn run_build(
    options: &ImageOptions,
    number: &str,
    deadline: Deadline,
    given_up: &CancellationToken,
    tell: impl Fn(String),
) -> Result<(), ImageError> {
    let engine = BuildClient::find(&options.engine, deadline).await?;
    let add = options.add.join(" ");
    let named =
        [("BASE", base(options)), ("BUILD", number), ("PACKAGES", options.packages.name()), ("ADD", &add)];
    let arguments: HashMap<&str, &str> =
        named.into_iter().chain(options.environment.iter().filter_map(proxy)).collect();
    let kill_build_steps = async {
        given_up.cancelled().await;
        tokio::select! {
            never = engine.kill_build_steps(number) => match never {},
            () = SystemClock.sleep_until(SystemClock.deadline(BUILD_END_TIMEOUT)) => {}
        }
    };
    let build_name = engine.build_name(&options.name, number)?;
    if build_name != options.name
        && let Err(error) = engine.sweep_provisional_tags().await
    {
        tracing::debug!(%error, "leftovers of killed image builds are still there");
    }
    let mut built = tokio::select! {
        built = engine.build(&build_name, arguments, context(options.packages), tell) => built,
        () = kill_build_steps => Err(ImageError::new(ImageErrorKind::Refused, "the engine does not end the build")),
    };
    if build_name != options.name {
        if built.is_ok() && !given_up.is_cancelled() {
            built = engine.name(&build_name, &options.name).await;
        }
        if let Err(error) = engine.untag(&build_name).await {
            tracing::warn!(%error, image = %build_name, "an image that is not needed was not removed");
        }
    }
    if let Err(error) = engine.remove_leftovers(number).await {
        tracing::warn!(%error, number, "leftovers of an image build are still in the engine");
    }
    built
}

fn proxy((name, value): &(OsString, OsString)) -> Option<(&str, &str)> {
    let (name, value) = (name.to_str()?, value.to_str()?);
    PROXIES.contains(&name).then_some((name, value))
}

/// The build context for the engine.
fn context(packages: ImagePackages) -> Vec<u8> {
    let name = packages.name();
    // If this machine has none, the build uses the certificates of the base image.
    let trusted = TRUSTED.iter().find_map(|path| std::fs::read(path).ok()).unwrap_or_default();
    TarWriter::default()
        .file("Dockerfile", package_lists::DOCKERFILE.as_bytes())
        .file("setup.sh", package_lists::SETUP.as_bytes())
        .file(&format!("packages/{name}.txt"), package_lists::packages(packages).as_bytes())
        .file(&format!("wheels/{name}.txt"), package_lists::wheels(packages).as_bytes())
        .file("certificates/machine.pem", &trusted)
        .finish()
}

/// Runs work in a Tokio runtime of this thread, because the caller's runtime may have ended.
fn in_runtime(work: impl Future<Output = Result<(), ImageError>>) -> Result<(), ImageError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(|error| ImageError::io("start a runtime", &error))?.block_on(work)
}
