//! An engine that answers: every question to it has a deadline, and every answer that is a failure is explained.
//!
//! State: the client, which opens a connection for each question and keeps none.

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
use super::attach::AttachReader;
use super::facts::EngineFacts;
use super::failure::{
    Effect, effect, explained, is_absent, is_conflict, is_outrun, no_engine, no_image, nonsense, silent,
};
use super::listing::{Found, labelled};
use super::meeting::{Meeting, Streams};
use super::transport;
use crate::error::{SandboxError, SandboxErrorKind};
use crate::guest_process::unavailable;

/// A question that costs an engine next to nothing.
const SOON: Duration = Duration::from_secs(10);

/// What makes an engine work: it may have much to do.
const WORK: Duration = Duration::from_secs(60);

/// How long a removal that another one has begun is waited for, in steps.
const REMOVAL_STEP: Duration = Duration::from_millis(50);
const REMOVAL_STEPS: u32 = 200;

/// How long a list is asked for again in which containers go.
const LISTING: Duration = Duration::from_secs(10);

/// Between two questions whether a container has ended, where the engine does not wait for it: first this time, then twice as
/// much, and so on.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// A container that was asked for in vain.
#[derive(Debug)]
pub(super) struct NotMade {
    pub(super) error: SandboxError,
    pub(super) effect: Effect,
}

/// What a removal found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Removed {
    /// A container, which is gone now.
    Now,
    /// No container of that name.
    NotThere,
}

/// An engine that answers.
#[derive(Debug)]
pub(super) struct Engine {
    client: Client,
    address: EngineAddress,
    facts: EngineFacts,
}

impl Engine {
    /// The first of these that answers and can be used.
    ///
    /// # Errors
    /// `EngineUnavailable`, with the reason of the likeliest one.
    pub(super) async fn find(addresses: &[EngineAddress]) -> Result<Self, SandboxError> {
        first(addresses, Self::at).await
    }

    async fn at(address: EngineAddress) -> Result<Self, SandboxError> {
        let (client, version) = reach(&address, WORK).await?;
        let info = answer(&address, "tell what it can", SOON, client.info()).await?;
        let facts = EngineFacts::of(&address, version, info)?;
        tracing::debug!(%address, engine = facts.name(), "found a container engine");
        Ok(Self { client, address, facts })
    }

    pub(super) const fn address(&self) -> &EngineAddress {
        &self.address
    }

    pub(super) const fn facts(&self) -> &EngineFacts {
        &self.facts
    }

    /// The image of this name or digest.
    pub(super) async fn image(&self, image: &str) -> Result<ImageInspect, SandboxError> {
        let doing = "look at the image";
        for name in self.facts.kind.names_of(image) {
            match within(&self.address, doing, SOON, self.client.inspect_image(&name)).await? {
                Err(error) if is_absent(&error) => {}
                asked => return asked.map_err(|error| explained(&self.address, doing, &error)),
            }
        }
        Err(no_image(image))
    }

    /// Makes a container of this name; what the engine has to say to it is yielded.
    ///
    /// # Errors
    /// With whether there may be a container all the same, now or later.
    pub(super) async fn create(&self, name: &str, body: ContainerCreateBody) -> Result<Vec<String>, NotMade> {
        let doing = "make a container";
        let image = body.image.clone().unwrap_or_default();
        let options =
            CreateContainerOptions { name: Some(name.to_owned()), ..CreateContainerOptions::default() };
        let asked = self.client.create_container(Some(options), body);
        let answer = within(&self.address, doing, WORK, asked).await;
        // What it was asked it goes on doing.
        let answer = answer.map_err(|error| NotMade { error, effect: Effect::Unknown })?;
        let made = answer.map_err(|error| {
            let effect = effect(&error);
            let error = match &error {
                // It was removed just now.
                Error::DockerResponseServerError { status_code: 404, message }
                    if message.contains("image") =>
                {
                    no_image(&image)
                }
                error => explained(&self.address, doing, error),
            };
            NotMade { error, effect }
        })?;
        Ok(made.warnings)
    }

    /// The streams of a container that has not been started yet: nothing that it says is missed.
    pub(super) async fn attach(&self, name: &str) -> Result<AttachContainerResults, SandboxError> {
        let options = AttachContainerOptions {
            stream: true,
            stdin: true,
            stdout: true,
            stderr: true,
            ..AttachContainerOptions::default()
        };
        let asked = self.client.attach_container(name, Some(options));
        answer(&self.address, "give a container's streams", WORK, asked).await
    }

    /// Puts what is in an archive into a volume of a container, at `path`.
    pub(super) async fn put(&self, name: &str, path: &str, archive: Vec<u8>) -> Result<(), SandboxError> {
        let options = UploadToContainerOptionsBuilder::new().path(path).build();
        let asked = self.client.upload_to_container(name, Some(options), bollard::body_full(archive.into()));
        answer(&self.address, "take a container's files", WORK, asked).await
    }

    pub(super) async fn start(&self, name: &str) -> Result<(), SandboxError> {
        let asked = self.client.start_container(name, None::<StartContainerOptions>);
        answer(&self.address, "start a container", WORK, asked).await
    }

    /// The stream to the guest of a container that was started.
    pub(super) async fn meet(
        &self,
        meeting: Meeting,
        output: AttachReader,
        input: Box<dyn AsyncWrite + Send + Unpin>,
    ) -> Result<Streams, SandboxError> {
        let doing = "have its container greet";
        let met = within(&self.address, doing, WORK, meeting.meet(output, input)).await?;
        met.map_err(|error| unavailable("the guest in the container cannot be reached", error))
    }

    /// A container as it is now; `None` when it is not there.
    pub(super) async fn inspect(&self, name: &str) -> Result<Option<ContainerInspectResponse>, SandboxError> {
        let doing = "look at a container";
        let asked = self.client.inspect_container(name, None::<InspectContainerOptions>);
        match within(&self.address, doing, SOON, asked).await? {
            Ok(found) => Ok(Some(found)),
            Err(error) if is_absent(&error) => Ok(None),
            Err(error) => Err(explained(&self.address, doing, &error)),
        }
    }

    /// Waits until a container that was started does not run, however long that takes.
    ///
    /// # Errors
    /// When the engine cannot be asked any more.
    pub(super) async fn ended(&self, name: &str) -> Result<(), SandboxError> {
        let mut pause = FIRST_PAUSE;
        loop {
            let options = WaitContainerOptions { condition: "not-running".to_owned() };
            let mut waiting = Box::pin(self.client.wait_container(name, Some(options)));
            match waiting.next().await {
                // An exit code that is not 0 comes as an error.
                Some(Ok(_) | Err(Error::DockerContainerWaitError { .. })) => return Ok(()),
                Some(Err(error)) if is_absent(&error) => return Ok(()),
                // Some engines answer only when it has ended, which is later than the client waits.
                Some(Err(Error::RequestTimeoutError)) => {}
                Some(Err(error)) => return Err(explained(&self.address, "wait for a container", &error)),
                None => {
                    let still = self.inspect(name).await?.and_then(|found| found.state?.running);
                    if still != Some(true) {
                        return Ok(());
                    }
                }
            }
            // It may have answered at once.
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Kills and removes a container, with the volumes that are nobody else's, in whatever state it is.
    pub(super) async fn remove(&self, name: &str) -> Result<Removed, SandboxError> {
        let doing = "remove a container";
        for _ in 0..REMOVAL_STEPS {
            let options = RemoveContainerOptions { force: true, v: true, link: false };
            let asked = self.client.remove_container(name, Some(options));
            match within(&self.address, doing, WORK, asked).await? {
                Ok(()) => return Ok(Removed::Now),
                Err(error) if is_absent(&error) => return Ok(Removed::NotThere),
                // Another removal is at it, or its start is.
                Err(error) if is_conflict(&error) => tokio::time::sleep(REMOVAL_STEP).await,
                Err(error) => return Err(explained(&self.address, doing, &error)),
            }
        }
        let message = format!("the engine does not {doing}: `{name}` is being removed and does not go");
        Err(SandboxError::new(SandboxErrorKind::Unavailable, message))
    }

    /// As [`Self::remove`], of one that it may be making still: only when it shows it. Podman removes the storage of one that
    /// it makes and does not show yet, says that this was all, and then makes the rest (4.3).
    pub(super) async fn remove_when_shown(&self, name: &str) -> Result<Removed, SandboxError> {
        if self.shows(name).await? { self.remove(name).await } else { Ok(Removed::NotThere) }
    }

    /// Whether it has a container of this name: one also that is broken, or that nobody understands.
    async fn shows(&self, name: &str) -> Result<bool, SandboxError> {
        let doing = "look at a container";
        let asked = self.client.inspect_container(name, None::<InspectContainerOptions>);
        match within(&self.address, doing, WORK, asked).await? {
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

    /// All containers that bear this label, whatever their state.
    pub(super) async fn labelled(&self, label: &str) -> Result<Vec<Found>, SandboxError> {
        let doing = "list containers";
        let late = SystemClock.deadline(LISTING);
        loop {
            let asked = labelled(&self.client, self.facts.kind, label);
            match within(&self.address, doing, WORK, asked).await? {
                Ok(found) => return Ok(found),
                // Podman looks at each that there was, and one that goes meanwhile fails it for all.
                Err(error) if is_outrun(&error) && !SystemClock.remaining(late).is_zero() => {
                    tokio::time::sleep(REMOVAL_STEP).await;
                }
                Err(error) => return Err(explained(&self.address, doing, &error)),
            }
        }
    }
}

/// What the first of these addresses gives that gives anything; of none, the first of the usual ones.
///
/// # Errors
/// `EngineUnavailable`, with the reason of the likeliest one.
pub(super) async fn first<T, F: Future<Output = Result<T, SandboxError>>>(
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
    // What is there and does not answer tells more than what is not there.
    let telling = refusals.iter().position(|refusal| !refusal.to_string().contains("nothing is at"));
    Err(refusals.swap_remove(telling.unwrap_or(0)))
}

/// A client of the engine at this address, which speaks its version, and what it says that it is. What is asked of it may
/// take as long as `patience`.
pub(super) async fn reach(
    address: &EngineAddress,
    patience: Duration,
) -> Result<(Client, SystemVersion), SandboxError> {
    let client = transport::client(address, patience)
        .map_err(|error| explained(address, "be connected to", &error))?;
    let doing = "tell its version";
    let client = match within(address, doing, SOON, client.negotiate_version()).await? {
        Err(error @ Error::DockerResponseServerError { .. }) => return Err(nonsense(address, &error)),
        asked => asked.map_err(|error| explained(address, doing, &error))?,
    };
    match within(address, doing, SOON, client.version()).await? {
        Ok(version) => Ok((client, version)),
        // Engines do not refuse that, but what stands before one does.
        Err(error @ Error::DockerResponseServerError { .. }) => Err(nonsense(address, &error)),
        Err(error) => Err(explained(address, doing, &error)),
    }
}

/// The engine's answer, its failure explained.
async fn answer<T>(
    address: &EngineAddress,
    doing: &str,
    patience: Duration,
    asked: impl Future<Output = Result<T, Error>>,
) -> Result<T, SandboxError> {
    within(address, doing, patience, asked).await?.map_err(|error| explained(address, doing, &error))
}

/// The engine's answer, in time.
async fn within<T>(
    address: &EngineAddress,
    doing: &str,
    patience: Duration,
    asked: impl Future<Output = T>,
) -> Result<T, SandboxError> {
    tokio::time::timeout(patience, asked).await.map_err(|_| silent(address, doing, patience))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::super::scripted::{Reply, scripted};
    use super::*;

    #[tokio::test]
    async fn an_engine_that_does_not_wait_for_a_container_is_not_asked_without_a_pause() {
        let asked = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&asked);
        let (engine, _folder) = scripted(move |request| {
            counter.fetch_add(1, Ordering::Relaxed);
            let has_ended = counter.load(Ordering::Relaxed) > 8;
            Reply::Answer(match request.contains("/wait") {
                true => String::new(),
                false => format!(r#"{{"State":{{"Running":{}}}}}"#, !has_ended),
            })
        })
        .await;
        let begun = SystemClock.deadline(SOON);
        engine.ended("one").await.unwrap();
        // Five times two questions, after pauses of 50, 100, 200 and 400 ms.
        assert_eq!(asked.load(Ordering::Relaxed), 10);
        assert!(SOON - SystemClock.remaining(begun) >= Duration::from_millis(750));
    }
}
