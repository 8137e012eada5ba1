//! The image, built by the engine from `docker/Dockerfile`.

use std::collections::HashMap;
use std::ffi::OsString;
use std::sync::Arc;
use std::time::Duration;

use conjure_base::{Clock as _, SystemClock};

use super::archive::Archive;
use super::engine::{Engine, LABEL};
use super::error::ImageError;
use super::lists;
use super::options::{ImageOptions, ImagePackages};
use super::progress::News;
use super::site::Site;

/// What an image is made of where nothing is named (specification 9.3).
const BASE: &str = "ubuntu:24.04";

/// Where machines keep what they trust.
const TRUSTED: [&str; 3] =
    ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/ca-bundle.pem"];

/// What of the host's variables is for builds too; the engine keeps it out of the image.
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

/// Clearing up takes no longer.
const PATIENCE: Duration = Duration::from_secs(180);

/// The base of the image.
pub(super) fn base(options: &ImageOptions) -> &str {
    options.base.as_deref().unwrap_or(BASE)
}

/// Sees to it that the engine has the base.
pub(super) async fn have_base(engine: &Engine, base: &str, news: &News<'_>) -> Result<(), ImageError> {
    if engine.image(base).await?.is_some() {
        return Ok(());
    }
    news.step(format!("fetching `{base}` from its registry"));
    engine.pull(base, news).await
}

/// Builds the image of a base that the engine has.
pub(super) async fn build(
    site: &Arc<Site>,
    engine: &Engine,
    options: &ImageOptions,
    news: &News<'_>,
) -> Result<(), ImageError> {
    let base = base(options);
    news.step(format!("building `{}` on `{base}`, by the engine ({LABEL}={})", options.name, site.number()));
    let add = options.add.join(" ");
    let proxies = options.environment.iter().filter_map(proxy);
    let arguments: HashMap<&str, &str> = [
        ("BASE", base),
        ("BUILD", site.number()),
        ("PACKAGES", options.packages.name()),
        ("ADD", add.as_str()),
    ]
    .into_iter()
    .chain(proxies)
    .collect();
    let leavings = Leavings { site: Arc::clone(site), engine: options.engine.clone() };
    let built = engine.build(&options.name, arguments, context(options.packages), news).await;
    drop(leavings);
    site.is_clear().await;
    built
}

fn proxy((name, value): &(OsString, OsString)) -> Option<(&str, &str)> {
    let (name, value) = (name.to_str()?, value.to_str()?);
    PROXIES.contains(&name).then_some((name, value))
}

/// What the engine gets to build of.
fn context(packages: ImagePackages) -> Vec<u8> {
    let name = packages.name();
    // Without any, the base's own are what `pip` trusts.
    let trusted = TRUSTED.iter().find_map(|path| std::fs::read(path).ok()).unwrap_or_default();
    Archive::default()
        .file("Dockerfile", lists::DOCKERFILE.as_bytes())
        .file("setup.sh", lists::SETUP.as_bytes())
        .file(&format!("packages/{name}.txt"), lists::packages(packages).as_bytes())
        .file(&format!("wheels/{name}.txt"), lists::wheels(packages).as_bytes())
        .file("certificates/machine.pem", &trusted)
        .finish()
}

/// What a build leaves in the engine; removed when this is dropped.
struct Leavings {
    site: Arc<Site>,
    engine: Option<String>,
}

impl Drop for Leavings {
    fn drop(&mut self) {
        let number = self.site.number().to_owned();
        let engine = self.engine.take();
        self.site.clear_up(move || {
            let cleared = in_runtime(async {
                let deadline = SystemClock.deadline(PATIENCE);
                Engine::find(engine.as_deref(), deadline).await?.clear_up(&number).await
            });
            if let Err(error) = cleared {
                tracing::warn!(%error, number, "what a build of an image left in the engine is still there");
            }
        });
    }
}

/// A runtime of the thread's own: the build's may be no more.
fn in_runtime(work: impl Future<Output = Result<(), ImageError>>) -> Result<(), ImageError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(|error| ImageError::io("start a runtime", &error))?.block_on(work)
}
