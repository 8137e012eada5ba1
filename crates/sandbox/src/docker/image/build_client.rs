//! [`BuildClient`]: the requests of an image build to the engine, with timeouts.

use std::collections::HashMap;
use std::convert::Infallible;
use std::io;
use std::time::Duration;

use bollard::Docker;
use bollard::errors::Error;
use bollard::models::ImageInspect;
use bollard::query_parameters::{
    BuildImageOptionsBuilder, CreateImageOptionsBuilder, ListContainersOptionsBuilder,
    ListImagesOptionsBuilder, PruneImagesOptionsBuilder, RemoveContainerOptionsBuilder,
    RemoveImageOptionsBuilder, TagImageOptionsBuilder,
};
use bytes::Bytes;
use conjure_base::{Clock as _, Deadline, SystemClock};
use futures_util::{Stream, TryStreamExt as _};

use super::build_log::{LineJoiner, is_of_the_step, without_colours};
use super::error::{ImageError, ImageErrorKind, ROOM_THERE};
use super::libpod_import;
use super::name::ImageName;
use super::progress::ProgressReporter;
use super::provisional_tag;
use crate::docker::engine::address::EngineAddress;
use crate::docker::engine::engine_client::{first, reach};
use crate::docker::engine::engine_info::EngineKind;
use crate::docker::engine::error_map::{self, is_absent, timed_out};
use crate::error::SandboxError;

/// The timeout of a query that is cheap for the engine.
const QUERY_TIMEOUT: Duration = Duration::from_secs(20);

/// The interval of checks for running steps of an aborted build.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// The label of everything that a build creates. Its value is the build's number.
pub(super) const LABEL: &str = "io.conjure.build";

/// A client of an engine that has answered.
#[derive(Debug, Clone)]
pub(super) struct BuildClient {
    client: Docker,
    address: EngineAddress,
    kind: EngineKind,
    /// The engine's name of its architecture, such as `amd64`.
    pub(super) architecture: String,
}

impl BuildClient {
    /// Connects to the first of these addresses that answers; without any, to the first of the usual ones.
    pub(super) async fn find(addresses: &[EngineAddress], deadline: Deadline) -> Result<Self, ImageError> {
        // Requests of a build may take as long as the build.
        let timeout = SystemClock.remaining(deadline) + QUERY_TIMEOUT;
        let found = first(addresses, async |address: EngineAddress| {
            let (client, version) = reach(&address, timeout).await?;
            let kind = EngineKind::from_version(&version);
            Ok(Self { client, address, kind, architecture: version.arch.unwrap_or_default() })
        });
        found.await.map_err(unavailable)
    }

    /// The image of this name, if it exists.
    pub(super) async fn image(&self, name: &str) -> Result<Option<ImageInspect>, ImageError> {
        let doing = "inspect an image";
        for name in self.kind.names_for(name) {
            match query_raw(&self.address, doing, self.client.inspect_image(&name)).await? {
                Ok(image) => return Ok(Some(image)),
                Err(error) if is_absent(&error) => {}
                Err(error) => return Err(explained(&self.address, doing, &error)),
            }
        }
        Ok(None)
    }

    /// Lets the engine pull an image from its registry.
    pub(super) async fn pull(&self, name: &str, progress: &ProgressReporter<'_>) -> Result<(), ImageError> {
        let (image, tag) = parts(name);
        let options = CreateImageOptionsBuilder::new().from_image(image).tag(tag).build();
        let mut answers = std::pin::pin!(self.client.create_image(Some(options), None, None));
        while let Some(info) =
            answers.try_next().await.map_err(|error| not_pulled(&self.address, name, &error))?
        {
            // Progress of single layers is reported too often, so it is skipped.
            if info.progress_detail.is_none_or(|detail| detail.current.is_none()) {
                let id = info.id.map(|id| format!("{id}: ")).unwrap_or_default();
                progress.line(&format!("{id}{}", info.status.unwrap_or_default()));
            }
        }
        Ok(())
    }

    /// Lets the engine create an image from a tar archive of a complete system. An incomplete archive creates none.
    pub(super) async fn import(
        &self,
        name: &ImageName,
        changes: Vec<String>,
        archive: impl Stream<Item = io::Result<Bytes>> + Send + 'static,
    ) -> Result<(), ImageError> {
        let client = match self.kind {
            EngineKind::Docker => self.client.clone(),
            EngineKind::Podman => libpod_import::import_client(&self.client, name, &changes),
        };
        let options = CreateImageOptionsBuilder::new()
            .from_src("-")
            .repo(name.repository())
            .tag(name.tag())
            .changes(changes)
            .build();
        let body = bollard::body_try_stream(archive);
        let answers = client.create_image(Some(options), Some(body), None);
        let taken = answers.try_collect::<Vec<_>>().await;
        taken.map(drop).map_err(|error| explained(&self.address, "take the image", &error))
    }

    /// Lets the engine build an image. It uses no cached layers: when another
    /// build that shares them fails, they are removed. The label with the number of the build makes all layers after the third new anyway.
    pub(super) async fn build(
        &self,
        name: &ImageName,
        arguments: HashMap<&str, &str>,
        context: Vec<u8>,
        tell: impl Fn(String),
    ) -> Result<(), ImageError> {
        let options = BuildImageOptionsBuilder::new()
            .dockerfile("Dockerfile")
            .t(&name.to_string())
            .rm(true)
            .forcerm(true)
            .nocache(true)
            .buildargs(&arguments)
            .build();
        let body = bollard::body_full(context.into());
        let mut answers = std::pin::pin!(self.client.build_image(options, None, Some(body)));
        let (mut lines, mut last) = (LineJoiner::default(), String::new());
        let mut reported = |line: &str| {
            let line = without_colours(line);
            if is_of_the_step(&line) {
                line.trim().clone_into(&mut last);
            }
            tell(line);
        };
        let ended = loop {
            match answers.try_next().await {
                Ok(Some(info)) => lines.add(&info.stream.unwrap_or_default(), &mut reported),
                Ok(None) => break Ok(()),
                Err(error) => break Err(error),
            }
        };
        lines.end(&mut reported);
        ended.map_err(|error| not_built(&self.address, &error, &last))
    }

    /// The name under which the engine builds the image. It is provisional for engines on which an aborted build
    /// cannot be stopped.
    pub(super) fn build_name(&self, name: &ImageName, number: &str) -> Result<ImageName, ImageError> {
        match self.kind {
            EngineKind::Docker => Ok(name.clone()),
            // Podman's service does not list the containers that run the steps of a build, so they cannot be killed.
            EngineKind::Podman => provisional_tag::for_build(number)
                .map_err(|error| ImageError::io("identify the building process", &error)),
        }
    }

    /// Removes provisional images of dead processes.
    pub(super) async fn sweep_provisional_tags(&self) -> Result<(), ImageError> {
        let options = ListImagesOptionsBuilder::new().build();
        let found = query(&self.address, "list images", self.client.list_images(Some(options))).await?;
        let now = i64::try_from(SystemClock.timestamp().millis() / 1000).unwrap_or(i64::MAX);
        let named = found
            .into_iter()
            .flat_map(|image| image.repo_tags.into_iter().map(move |name| (name, image.created)));
        for (name, _) in named.filter(|(name, created)| provisional_tag::is_abandoned(name, *created, now)) {
            match name.parse() {
                Ok(name) => self.untag(&name).await?,
                Err(reason) => tracing::debug!(reason, "an image that is not needed was not removed"),
            }
        }
        Ok(())
    }

    /// Gives an image another name. If another image has that name, it loses it.
    pub(super) async fn name(&self, image: &ImageName, name: &ImageName) -> Result<(), ImageError> {
        let name = name.qualified();
        let options = TagImageOptionsBuilder::new().repo(name.repository()).tag(name.tag()).build();
        query(&self.address, "name an image", self.client.tag_image(&image.to_string(), Some(options))).await
    }

    /// Removes a name from an image. If it was the last name, the image is removed.
    pub(super) async fn untag(&self, name: &ImageName) -> Result<(), ImageError> {
        let (options, name) = (RemoveImageOptionsBuilder::new().build(), name.to_string());
        let removed = self.client.remove_image(&name, Some(options), None);
        match with_timeout(&self.address, QUERY_TIMEOUT * 6, "remove an image", removed).await? {
            Err(error) if !is_absent(&error) => Err(explained(&self.address, "remove an image", &error)),
            _ => Ok(()),
        }
    }

    /// Removes an image without a name, unless it is in use. An image with a name is kept: engines would remove it
    /// with its last name, which another user may need.
    pub(super) async fn remove_unnamed_image(&self, id: &str) {
        let names = match self.image(id).await {
            Ok(found) => found.and_then(|image| image.repo_tags).unwrap_or_default(),
            Err(error) => {
                tracing::debug!(%error, "the image that had the name was not removed");
                return;
            }
        };
        if !names.is_empty() {
            tracing::debug!(?names, "the image that had the name keeps another name");
            return;
        }
        let options = RemoveImageOptionsBuilder::new().build();
        if let Err(error) =
            query(&self.address, "remove an image", self.client.remove_image(id, Some(options), None)).await
        {
            tracing::debug!(%error, "the image that had the name is still used");
        }
    }

    /// Kills the steps of this build while it is polled, so the build fails and ends. Closing the connection is not
    /// enough: the engine notices that late, and the time of the end would be unknown.
    pub(super) async fn kill_build_steps(&self, number: &str) -> Infallible {
        let label = format!("{LABEL}={number}");
        loop {
            // A container that is not running yet is killed in a later iteration. One that has ended needs nothing.
            for id in self.containers(&label).await.unwrap_or_default() {
                let _ = query(&self.address, "kill a container", self.client.kill_container(&id, None)).await;
            }
            SystemClock.sleep_until(SystemClock.deadline(POLL_INTERVAL)).await;
        }
    }

    /// Removes the leftovers of this build, which has ended: containers, and images without a name.
    pub(super) async fn remove_leftovers(&self, number: &str) -> Result<(), ImageError> {
        let label = format!("{LABEL}={number}");
        for id in self.containers(&label).await? {
            let options = RemoveContainerOptionsBuilder::new().force(true).v(true).build();
            query(&self.address, "remove a container", self.client.remove_container(&id, Some(options)))
                .await?;
        }
        let filters = HashMap::from([("dangling", vec!["true"]), ("label", vec![label.as_str()])]);
        let options = PruneImagesOptionsBuilder::new().filters(&filters).build();
        let pruned = with_timeout(
            &self.address,
            QUERY_TIMEOUT * 6,
            "remove images",
            self.client.prune_images(Some(options)),
        )
        .await?;
        pruned.map(drop).map_err(|error| explained(&self.address, "remove images", &error))
    }

    async fn containers(&self, label: &str) -> Result<Vec<String>, ImageError> {
        let filters = HashMap::from([("label", vec![label])]);
        let options = ListContainersOptionsBuilder::new().all(true).filters(&filters).build();
        let found =
            query(&self.address, "list containers", self.client.list_containers(Some(options))).await?;
        Ok(found.into_iter().filter_map(|container| container.id).collect())
    }
}

/// Splits an image's name into name and tag or digest, as engines expect them.
fn parts(name: &str) -> (&str, &str) {
    match (name.split_once('@'), name.rsplit_once(':')) {
        (Some(pinned), _) => pinned,
        (None, Some((image, tag))) if !tag.contains('/') => (image, tag),
        _ => (name, "latest"),
    }
}

async fn query<T>(
    address: &EngineAddress,
    doing: &str,
    asked: impl Future<Output = Result<T, Error>>,
) -> Result<T, ImageError> {
    query_raw(address, doing, asked).await?.map_err(|error| explained(address, doing, &error))
}

async fn query_raw<T>(
    address: &EngineAddress,
    doing: &str,
    asked: impl Future<Output = T>,
) -> Result<T, ImageError> {
    with_timeout(address, QUERY_TIMEOUT, doing, asked).await
}

async fn with_timeout<T>(
    address: &EngineAddress,
    time: Duration,
    doing: &str,
    asked: impl Future<Output = T>,
) -> Result<T, ImageError> {
    let up = SystemClock.sleep_until(SystemClock.deadline(time));
    tokio::select! {
        answer = asked => Ok(answer),
        () = up => Err(unavailable(timed_out(address, doing, time))),
    }
}

/// The error when no engine can be used, with a hint.
#[expect(clippy::needless_pass_by_value, reason = "it stands where a function of an error does")]
fn unavailable(error: SandboxError) -> ImageError {
    ImageError::new(ImageErrorKind::EngineUnavailable, error.to_string())
}

fn explained(address: &EngineAddress, doing: &str, error: &Error) -> ImageError {
    match error {
        Error::DockerResponseServerError { message, .. } | Error::DockerStreamError { error: message } => {
            refused(format!("the engine does not {doing}: {}", message.trim()))
        }
        error => unavailable(error_map::explained(address, doing, error)),
    }
}

fn not_pulled(address: &EngineAddress, name: &str, error: &Error) -> ImageError {
    let (Error::DockerResponseServerError { message, .. } | Error::DockerStreamError { error: message }) =
        error
    else {
        return explained(address, "fetch the base", error);
    };
    let lower = message.to_ascii_lowercase();
    if lower.contains("no space left") {
        return refused(format!("the engine cannot fetch `{name}`: {message}"));
    }
    ImageError::new(
        ImageErrorKind::BaseNotFound,
        format!("the engine has no image `{name}`, and no registry gives it: {message}"),
    )
    .with_hint("look at the name and at the engine's way to the registry; `--from debian` needs no registry")
}

fn not_built(address: &EngineAddress, error: &Error, last: &str) -> ImageError {
    match error {
        Error::DockerStreamError { error } => {
            // The engine's message quotes the whole step, so only the exit code is used.
            let code =
                error.rsplit("returned a non-zero code: ").next().filter(|code| code.len() < error.len());
            let reason =
                code.map_or_else(|| error.trim().to_owned(), |code| format!("exit code {}", code.trim()));
            let last = if last.is_empty() { String::new() } else { format!(": {last}") };
            refused(format!("a step of the Dockerfile failed with {reason}{last}"))
        }
        error => explained(address, "build the image", error),
    }
}

fn refused(message: String) -> ImageError {
    if message.to_ascii_lowercase().contains("no space left on device") {
        ImageError::new(ImageErrorKind::NoSpace, message).with_hint(ROOM_THERE)
    } else {
        ImageError::new(ImageErrorKind::Refused, message)
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::os::unix::net::UnixListener;
    use std::sync::{Arc, Mutex};

    use super::*;

    fn address() -> EngineAddress {
        EngineAddress::Unix("/run/engine".into())
    }

    /// The requests to an engine that has an image with these names: method and path of each.
    async fn asked_to_discard(names: &str) -> Vec<String> {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("engine");
        let listener = UnixListener::bind(&socket).unwrap();
        let body = format!(r#"{{"Id":"sha256:1","RepoTags":{names}}}"#);
        let asked = Arc::new(Mutex::new(Vec::new()));
        let heard = Arc::clone(&asked);
        std::thread::spawn(move || {
            while let Ok((mut stream, _)) = listener.accept() {
                let mut request = [0; 4096];
                let length = stream.read(&mut request).unwrap();
                let text = String::from_utf8_lossy(&request[..length]).into_owned();
                let method = text.split(' ').next().unwrap().to_owned();
                let answer = if method == "GET" { body.as_str() } else { "[]" };
                heard.lock().unwrap().push(method);
                let length = answer.len();
                let head =
                    format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n");
                stream.write_all(format!("{head}{answer}").as_bytes()).unwrap();
            }
        });
        let client =
            Docker::connect_with_unix(socket.to_str().unwrap(), 10, bollard::API_DEFAULT_VERSION).unwrap();
        let engine =
            BuildClient { client, address: address(), kind: EngineKind::Docker, architecture: String::new() };
        engine.remove_unnamed_image("sha256:1").await;
        let asked = asked.lock().unwrap();
        asked.clone()
    }

    #[tokio::test]
    async fn an_image_that_has_another_name_is_not_discarded() {
        assert_eq!(asked_to_discard(r#"["conjure/sandbox:backup"]"#).await, ["GET"]);
        assert_eq!(asked_to_discard("[]").await, ["GET", "DELETE"]);
        assert_eq!(asked_to_discard("null").await, ["GET", "DELETE"]);
    }

    #[test]
    fn a_name_has_a_tag_or_is_pinned() {
        assert_eq!(parts("ubuntu:24.04"), ("ubuntu", "24.04"));
        assert_eq!(parts("ubuntu"), ("ubuntu", "latest"));
        assert_eq!(parts("host:5000/ubuntu"), ("host:5000/ubuntu", "latest"));
        assert_eq!(parts("ubuntu@sha256:12ab"), ("ubuntu", "sha256:12ab"));
        assert_eq!(parts("host:5000/ubuntu:24.04@sha256:12ab"), ("host:5000/ubuntu:24.04", "sha256:12ab"));
    }

    #[test]
    fn a_step_that_fails_is_told_with_its_own_last_words() {
        let error = Error::DockerStreamError {
            error: "The command '/bin/sh -c apt-get update' returned a non-zero code: 127".to_owned(),
        };
        let reported = not_built(&address(), &error, "/bin/sh: apt-get: not found").to_string();
        assert_eq!(
            reported,
            "a step of the Dockerfile failed with exit code 127: /bin/sh: apt-get: not found"
        );
        assert!(is_of_the_step("E: no") && !is_of_the_step(" ---> 81f2") && !is_of_the_step(""));
        assert_eq!(without_colours("\u{1b}[91mmkdir: no\u{1b}[0m."), "mkdir: no.");
    }

    #[test]
    fn a_full_disk_of_the_engines_is_told_with_where_it_is() {
        let error = Error::DockerStreamError { error: "write /x: no space left on device".to_owned() };
        for reported in [
            explained(&address(), "take the image", &error),
            not_built(&address(), &error, ""),
            not_pulled(&address(), "a:b", &error),
        ] {
            assert_eq!(reported.kind(), ImageErrorKind::NoSpace, "{reported}");
            assert_eq!(reported.hint(), Some(ROOM_THERE));
        }
        let error =
            Error::DockerStreamError { error: "Get \"https://registry\": dial tcp: timeout".to_owned() };
        assert_eq!(not_pulled(&address(), "a:b", &error).kind(), ImageErrorKind::BaseNotFound);
    }
}
