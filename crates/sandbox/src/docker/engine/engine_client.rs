//! [`EngineClient`]: client of an engine's API. Every request has a deadline, and every failure gets a message with its
//! cause.
//!
//! State: the client, which opens a connection for each request and keeps none.

use std::future::Future;
use std::time::Duration;

use bollard::Docker as Client;
use bollard::container::AttachContainerResults;
use bollard::errors::Error;
use bollard::models::{ContainerCreateBody, ContainerInspectResponse, ImageInspect, SystemVersion};
use bollard::query_parameters::{
    AttachContainerOptions, CreateContainerOptions, InspectContainerOptions, RemoveContainerOptions,
    StartContainerOptions, UploadToContainerOptionsBuilder, WaitContainerOptions,
};
use conjure_base::{Clock as _, SystemClock};
use futures_util::StreamExt as _;
use tokio::io::AsyncWrite;

use super::address::EngineAddress;
use super::engine_info::EngineInfo;
use super::error_map::{
    Effect, effect, explained, is_absent, is_conflict, malformed_answer, no_engine, no_image, timed_out,
    vanished_meanwhile,
};
use super::list_containers::{ListedContainer, list_by_label};
use super::transport;
use crate::docker::container::attach::AttachReader;
use crate::docker::container::guest_stream::{GuestListener, GuestStreams};
use crate::error::{SandboxError, SandboxErrorKind};
use crate::guest_process::unavailable;

/// The timeout of a request that is cheap for the engine.
const QUERY_TIMEOUT: Duration = Duration::from_secs(10);

/// The timeout of a request that makes the engine work.
const WORK_TIMEOUT: Duration = Duration::from_secs(60);

/// How long to wait for another removal of the same container, in steps.
const REMOVAL_STEP: Duration = Duration::from_millis(50);
const REMOVAL_STEPS: u32 = 200;

/// How long a list is retried while containers disappear.
const LIST_RETRY_TIMEOUT: Duration = Duration::from_secs(10);

/// The pause between two checks whether a container has ended, for an engine that does not wait for the end. It
/// doubles each time.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// A failed creation of a container.
#[derive(Debug)]
pub(crate) struct CreateError {
    pub(crate) error: SandboxError,
    pub(crate) effect: Effect,
}

/// The result of a removal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RemoveOutcome {
    /// A container was removed.
    Now,
    /// There was no container of that name.
    NotThere,
}

/// A client of an engine that has answered.
#[derive(Debug)]
pub(crate) struct EngineClient {
    client: Client,
    address: EngineAddress,
    info: EngineInfo,
}

impl EngineClient {
    /// Connects to the first of these addresses whose engine answers and is usable.
    ///
    /// # Errors
    /// `EngineUnavailable`, with the failure of the most likely address.
    pub(crate) async fn find(addresses: &[EngineAddress]) -> Result<Self, SandboxError> {
        first(addresses, Self::connect).await
    }

    async fn connect(address: EngineAddress) -> Result<Self, SandboxError> {
        let (client, version) = reach(&address, WORK_TIMEOUT).await?;
        let info = answer(&address, "report its capabilities", QUERY_TIMEOUT, client.info()).await?;
        let info = EngineInfo::from_answers(&address, version, info)?;
        tracing::debug!(%address, engine = info.name(), "found a container engine");
        Ok(Self { client, address, info })
    }

    pub(crate) const fn address(&self) -> &EngineAddress {
        &self.address
    }

    pub(crate) const fn info(&self) -> &EngineInfo {
        &self.info
    }

    /// Inspects the image of this name or digest.
    pub(crate) async fn image(&self, image: &str) -> Result<ImageInspect, SandboxError> {
        let doing = "inspect the image";
        for name in self.info.kind.names_for(image) {
            match with_timeout(&self.address, doing, QUERY_TIMEOUT, self.client.inspect_image(&name)).await? {
                Err(error) if is_absent(&error) => {}
                asked => return asked.map_err(|error| explained(&self.address, doing, &error)),
            }
        }
        Err(no_image(image))
    }

    /// Creates a container of this name. Returns the engine's warnings.
    ///
    /// # Errors
    /// The error tells whether a container may exist nevertheless, now or later.
    pub(crate) async fn create(
        &self,
        name: &str,
        body: ContainerCreateBody,
    ) -> Result<Vec<String>, CreateError> {
        let doing = "make a container";
        let image = body.image.clone().unwrap_or_default();
        let options =
            CreateContainerOptions { name: Some(name.to_owned()), ..CreateContainerOptions::default() };
        let asked = self.client.create_container(Some(options), body);
        let answer = with_timeout(&self.address, doing, WORK_TIMEOUT, asked).await;
        // The engine continues to process a request that timed out.
        let answer = answer.map_err(|error| CreateError { error, effect: Effect::Unknown })?;
        let created = answer.map_err(|error| {
            let effect = effect(&error);
            let error = match &error {
                // The image was removed meanwhile.
                Error::DockerResponseServerError { status_code: 404, message }
                    if message.contains("image") =>
                {
                    no_image(&image)
                }
                error => explained(&self.address, doing, error),
            };
            CreateError { error, effect }
        })?;
        Ok(created.warnings)
    }

    /// Attaches to a container before its start, so that no output is missed.
    pub(crate) async fn attach(&self, name: &str) -> Result<AttachContainerResults, SandboxError> {
        let options = AttachContainerOptions {
            stream: true,
            stdin: true,
            stdout: true,
            stderr: true,
            ..AttachContainerOptions::default()
        };
        let asked = self.client.attach_container(name, Some(options));
        answer(&self.address, "give a container's streams", WORK_TIMEOUT, asked).await
    }

    /// Unpacks an archive into a volume of a container, at `path`.
    pub(crate) async fn upload(&self, name: &str, path: &str, archive: Vec<u8>) -> Result<(), SandboxError> {
        let options = UploadToContainerOptionsBuilder::new().path(path).build();
        let asked = self.client.upload_to_container(name, Some(options), bollard::body_full(archive.into()));
        answer(&self.address, "take a container's files", WORK_TIMEOUT, asked).await
    }

    pub(crate) async fn start(&self, name: &str) -> Result<(), SandboxError> {
        let asked = self.client.start_container(name, None::<StartContainerOptions>);
        answer(&self.address, "start a container", WORK_TIMEOUT, asked).await
    }

    /// Waits for the guest of a started container, and returns its streams.
    pub(crate) async fn accept_guest(
        &self,
        listener: GuestListener,
        output: AttachReader,
        input: Box<dyn AsyncWrite + Send + Unpin>,
    ) -> Result<GuestStreams, SandboxError> {
        let doing = "have its container greet";
        let met =
            with_timeout(&self.address, doing, WORK_TIMEOUT, listener.accept_guest(output, input)).await?;
        met.map_err(|error| unavailable("the guest in the container cannot be reached", error))
    }

    /// Inspects a container; `None` when it does not exist.
    pub(crate) async fn inspect(&self, name: &str) -> Result<Option<ContainerInspectResponse>, SandboxError> {
        let doing = "inspect a container";
        let asked = self.client.inspect_container(name, None::<InspectContainerOptions>);
        match with_timeout(&self.address, doing, QUERY_TIMEOUT, asked).await? {
            Ok(found) => Ok(Some(found)),
            Err(error) if is_absent(&error) => Ok(None),
            Err(error) => Err(explained(&self.address, doing, &error)),
        }
    }

    /// Waits until a started container has stopped, without a deadline.
    ///
    /// # Errors
    /// When the engine cannot be reached any more.
    pub(crate) async fn wait_stopped(&self, name: &str) -> Result<(), SandboxError> {
        let mut pause = FIRST_PAUSE;
        loop {
            let options = WaitContainerOptions { condition: "not-running".to_owned() };
            let mut waiting = Box::pin(self.client.wait_container(name, Some(options)));
            match waiting.next().await {
                // An exit code other than 0 is reported as an error.
                Some(Ok(_) | Err(Error::DockerContainerWaitError { .. })) => return Ok(()),
                Some(Err(error)) if is_absent(&error) => return Ok(()),
                // Some engines send no response headers before the end, which takes longer than the client waits.
                Some(Err(Error::RequestTimeoutError)) => {}
                Some(Err(error)) => return Err(explained(&self.address, "wait for a container", &error)),
                None => {
                    let still = self.inspect(name).await?.and_then(|found| found.state?.running);
                    if still != Some(true) {
                        return Ok(());
                    }
                }
            }
            // The engine may have answered at once, so the pause prevents a busy loop.
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Kills and removes a container with its anonymous volumes, in whatever state it is.
    pub(crate) async fn remove(&self, name: &str) -> Result<RemoveOutcome, SandboxError> {
        let doing = "remove a container";
        for _ in 0..REMOVAL_STEPS {
            let options = RemoveContainerOptions { force: true, v: true, link: false };
            let asked = self.client.remove_container(name, Some(options));
            match with_timeout(&self.address, doing, WORK_TIMEOUT, asked).await? {
                Ok(()) => return Ok(RemoveOutcome::Now),
                Err(error) if is_absent(&error) => return Ok(RemoveOutcome::NotThere),
                // Another removal or a start is under way.
                Err(error) if is_conflict(&error) => tokio::time::sleep(REMOVAL_STEP).await,
                Err(error) => return Err(explained(&self.address, doing, &error)),
            }
        }
        let message = format!("the engine does not {doing}: `{name}` is being removed and does not go");
        Err(SandboxError::new(SandboxErrorKind::Unavailable, message))
    }

    /// Like [`Self::remove`], for a container that the engine may still be creating. It removes the container only
    /// once it is listed. Podman (4.3) removes the storage of an unlisted container, reports success, and then
    /// creates the rest.
    pub(crate) async fn remove_when_shown(&self, name: &str) -> Result<RemoveOutcome, SandboxError> {
        if self.is_listed(name).await? { self.remove(name).await } else { Ok(RemoveOutcome::NotThere) }
    }

    /// Whether the engine has a container of this name, even a broken one.
    async fn is_listed(&self, name: &str) -> Result<bool, SandboxError> {
        let doing = "inspect a container";
        let asked = self.client.inspect_container(name, None::<InspectContainerOptions>);
        match with_timeout(&self.address, doing, WORK_TIMEOUT, asked).await? {
            Err(error) if is_absent(&error) => Ok(false),
            Ok(_)
            | Err(
                Error::DockerResponseServerError { .. }
                | Error::JsonDataError { .. }
                | Error::JsonSerdeError { .. },
            ) => Ok(true),
            Err(error) => Err(explained(&self.address, doing, &error)),
        }
    }

    /// Lists all containers with this label, whatever their state.
    pub(crate) async fn list_by_label(&self, label: &str) -> Result<Vec<ListedContainer>, SandboxError> {
        let doing = "list containers";
        let late = SystemClock.deadline(LIST_RETRY_TIMEOUT);
        loop {
            let asked = list_by_label(&self.client, self.info.kind, label);
            match with_timeout(&self.address, doing, WORK_TIMEOUT, asked).await? {
                Ok(found) => return Ok(found),
                // Podman inspects each container, and one that disappears meanwhile fails the whole list.
                Err(error) if vanished_meanwhile(&error) && !SystemClock.remaining(late).is_zero() => {
                    tokio::time::sleep(REMOVAL_STEP).await;
                }
                Err(error) => return Err(explained(&self.address, doing, &error)),
            }
        }
    }
}

/// Returns the first success of `at` for these addresses; without addresses, for the usual ones.
///
/// # Errors
/// `EngineUnavailable`, with the failure of the most likely address.
pub(crate) async fn first<T, F: Future<Output = Result<T, SandboxError>>>(
    addresses: &[EngineAddress],
    at: impl Fn(EngineAddress) -> F,
) -> Result<T, SandboxError> {
    let usual;
    let addresses = if addresses.is_empty() {
        usual = EngineAddress::candidates(None, None).map_err(no_engine)?;
        &usual
    } else {
        addresses
    };
    let mut refusals: Vec<SandboxError> = Vec::new();
    for address in addresses {
        match at(address.clone()).await {
            Ok(found) => return Ok(found),
            Err(refusal) => refusals.push(refusal),
        }
    }
    // The error of an engine that exists and does not answer is more useful than that of a missing one.
    let telling = refusals.iter().position(|refusal| !refusal.to_string().contains("nothing is at"));
    Err(refusals.swap_remove(telling.unwrap_or(0)))
}

/// Connects to the engine at this address, with its API version. Returns the client and the version. Requests time
/// out after `timeout`.
pub(crate) async fn reach(
    address: &EngineAddress,
    timeout: Duration,
) -> Result<(Client, SystemVersion), SandboxError> {
    let client =
        transport::client(address, timeout).map_err(|error| explained(address, "be connected to", &error))?;
    let doing = "report its version";
    let client = match with_timeout(address, doing, QUERY_TIMEOUT, client.negotiate_version()).await? {
        Err(error @ Error::DockerResponseServerError { .. }) => {
            return Err(malformed_answer(address, &error));
        }
        asked => asked.map_err(|error| explained(address, doing, &error))?,
    };
    match with_timeout(address, doing, QUERY_TIMEOUT, client.version()).await? {
        Ok(version) => Ok((client, version)),
        // Engines do not refuse that, but a proxy in front of one may.
        Err(error @ Error::DockerResponseServerError { .. }) => Err(malformed_answer(address, &error)),
        Err(error) => Err(explained(address, doing, &error)),
    }
}

/// Waits for the response of the engine within the timeout. Adds a message to its failure.
async fn answer<T>(
    address: &EngineAddress,
    doing: &str,
    timeout: Duration,
    asked: impl Future<Output = Result<T, Error>>,
) -> Result<T, SandboxError> {
    with_timeout(address, doing, timeout, asked).await?.map_err(|error| explained(address, doing, &error))
}

/// Waits for the response of the engine within the timeout.
async fn with_timeout<T>(
    address: &EngineAddress,
    doing: &str,
    timeout: Duration,
    asked: impl Future<Output = T>,
) -> Result<T, SandboxError> {
    tokio::time::timeout(timeout, asked).await.map_err(|_| timed_out(address, doing, timeout))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::docker::engine::fake_engine::{FakeReply, scripted};

    #[tokio::test]
    async fn an_engine_that_does_not_wait_for_a_container_is_not_asked_without_a_pause() {
        let asked = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&asked);
        let (engine, _dir) = scripted(move |request| {
            counter.fetch_add(1, Ordering::Relaxed);
            let has_ended = counter.load(Ordering::Relaxed) > 8;
            FakeReply::Answer(match request.contains("/wait") {
                true => String::new(),
                false => format!(r#"{{"State":{{"Running":{}}}}}"#, !has_ended),
            })
        })
        .await;
        let begun = SystemClock.deadline(QUERY_TIMEOUT);
        engine.wait_stopped("one").await.unwrap();
        // Five times two questions, after pauses of 50, 100, 200 and 400 ms.
        assert_eq!(asked.load(Ordering::Relaxed), 10);
        assert!(QUERY_TIMEOUT - SystemClock.remaining(begun) >= Duration::from_millis(750));
    }
}
