//! Giving a session's artifacts to the service that runs its hosted skills: before the model is called, each once.
//!
//! The turn's driver asks what there is to give, and submits what comes of it ([`Preparation`]). What a URL leads to is fetched for it, as it
//! is for a tool, and recorded as that is.
//!
//! What was given is recorded. What a crash cuts off is given again, so a file may lie with the service that no session names. What
//! fails is told to the model once; it is tried again in the next turn, but for what is never going to succeed. Which that is, the
//! incarnation of the session remembers.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use conjure_artifact::{
    ArtifactError, ArtifactErrorKind, ArtifactUri, Resolved, ResolvedPlace, Resolver, Retry, Uploads,
};
use conjure_base::{Clock as _, Deadline, SystemClock};
use conjure_conversation::{
    Artifact, Block, CommandKind, FetchedArtifact, Preparation, State, UploadedArtifact,
};
use conjure_journal::SessionKey;
use futures_util::stream::{self, BoxStream};
use futures_util::{Stream, StreamExt};
use tokio_util::sync::CancellationToken;

/// How long all that is given at a time may take together.
const FOR_ALL: Duration = Duration::from_secs(600);
/// How many artifacts are on their way at a time.
const AT_A_TIME: usize = 4;

/// Gives what the service was not given yet, in one drive of a turn. Clones are the same.
#[derive(Clone)]
pub(crate) struct Giving {
    key: Arc<SessionKey>,
    uploads: Uploads,
    resolver: Resolver,
    cancel: CancellationToken,
    /// Each is tried once in a drive: what the service refuses over and over would keep the model from ever being called.
    tried: Arc<Mutex<Vec<Arc<Artifact>>>>,
}

impl Giving {
    pub(crate) fn new(
        key: &Arc<SessionKey>,
        uploads: &Uploads,
        resolver: &Resolver,
        cancel: &CancellationToken,
    ) -> Self {
        Self {
            key: Arc::clone(key),
            uploads: uploads.clone(),
            resolver: resolver.clone(),
            cancel: cancel.clone(),
            tried: Arc::default(),
        }
    }

    fn tried(&self) -> MutexGuard<'_, Vec<Arc<Artifact>>> {
        self.tried.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_to_be_tried(&self, artifact: &Artifact) -> bool {
        let is_same = |other: &Arc<Artifact>| {
            (&other.name, &other.source, &other.content)
                == (&artifact.name, &artifact.source, &artifact.content)
        };
        self.uploads.failure(artifact) != Some(Retry::Useless) && !self.tried().iter().any(is_same)
    }

    fn give_all(self, due: Vec<Arc<Artifact>>) -> impl Stream<Item = CommandKind> + Send + 'static {
        let over = SystemClock.deadline(FOR_ALL);
        let give = move |artifact| {
            let giving = self.clone();
            async move { giving.give(artifact, over).await }
        };
        stream::iter(due).map(give).buffer_unordered(AT_A_TIME).flat_map(stream::iter)
    }

    /// Gives one. What is to be recorded of it, in this order.
    async fn give(self, mut artifact: Arc<Artifact>, over: Deadline) -> Vec<CommandKind> {
        let mut commands = Vec::new();
        if artifact.content.is_none() {
            match in_time(over, self.fetch(&artifact, over)).await {
                Ok(fetched) => {
                    artifact = Arc::new(with_content(&artifact, &fetched));
                    self.tried().push(Arc::clone(&artifact));
                    commands.push(CommandKind::FetchArtifact { fetched: Box::new(fetched) });
                }
                Err(error) => {
                    let why = why_not_fetched(&error);
                    commands.extend(self.failed(&artifact, &error, &why));
                    return commands;
                }
            }
        }
        match in_time(over, self.uploads.upload(&artifact)).await {
            Ok(block) => commands.extend(artifact.content.as_ref().map(|content| {
                let uploaded =
                    UploadedArtifact { name: artifact.name.clone(), digest: content.digest, block };
                CommandKind::AttachUpload { uploaded: Box::new(uploaded) }
            })),
            Err(error) => commands.extend(self.failed(&artifact, &error, why_not_given(&error))),
        }
        commands
    }

    /// What the artifact's URL leads to.
    async fn fetch(
        &self,
        artifact: &Arc<Artifact>,
        over: Deadline,
    ) -> Result<FetchedArtifact, ArtifactError> {
        let uri = ArtifactUri::File { name: artifact.name.clone() };
        let artifacts = std::slice::from_ref(artifact);
        let resolved = self.resolver.resolve(&uri, artifacts, over, &self.cancel).await?;
        match resolved {
            Resolved { fetched: Some(fetched), place: ResolvedPlace::Stored { .. }, .. } => Ok(fetched),
            _ => Err(ArtifactError::FileNotFound { name: artifact.name.to_string() }),
        }
    }

    /// What the model is told of a failure; nothing where it was told before.
    fn failed(&self, artifact: &Artifact, error: &ArtifactError, why: &str) -> Option<CommandKind> {
        tracing::warn!(session = %self.key, artifact = %artifact.name, %error, "an artifact was not given to the service");
        let is_told = self.uploads.failure(artifact).is_some();
        let retry = if error.is_retryable() { Retry::MayHelp } else { Retry::Useless };
        self.uploads.note_failure(artifact, retry);
        let text = format!("[The artifact `{}` could not be put into the container: {why}.]", artifact.name);
        (!is_told).then(|| CommandKind::Steer { input: vec![Block::text(text)] })
    }
}

impl Preparation for Giving {
    fn begin(&self, state: &State) -> Option<BoxStream<'static, CommandKind>> {
        if !state.takes_uploads() {
            return None;
        }
        let to_be_fetched = state.standing().artifacts().iter().filter(|artifact| artifact.content.is_none());
        let due = state.uploads_due().chain(to_be_fetched);
        let due: Vec<Arc<Artifact>> = due.filter(|artifact| self.is_to_be_tried(artifact)).cloned().collect();
        if due.is_empty() {
            return None;
        }
        self.tried().extend(due.iter().cloned());
        Some(self.clone().give_all(due).boxed())
    }
}

async fn in_time<T>(
    over: Deadline,
    work: impl Future<Output = Result<T, ArtifactError>>,
) -> Result<T, ArtifactError> {
    tokio::select! {
        biased;
        () = SystemClock.sleep_until(over) => {
            Err(ArtifactError::TimedOut { what: "giving artifacts to the service".to_owned(), waited: FOR_ALL })
        }
        done = work => done,
    }
}

fn with_content(artifact: &Artifact, fetched: &FetchedArtifact) -> Artifact {
    Artifact {
        content_type: artifact.content_type_of_fetched(&fetched.content_type).to_owned(),
        content: Some(fetched.content.clone()),
        ..artifact.clone()
    }
}

/// What the model is told of a URL that led nowhere: the same as where it names the artifact in a call.
fn why_not_fetched(error: &ArtifactError) -> String {
    match error.kind() {
        ArtifactErrorKind::Store | ArtifactErrorKind::Unreadable => {
            "its content could not be kept".to_owned()
        }
        _ => error.to_string(),
    }
}

/// What the model is told of an artifact that was not taken: neither addresses nor words of the service's.
fn why_not_given(error: &ArtifactError) -> &'static str {
    match error.kind() {
        ArtifactErrorKind::TooLarge => "it is larger than the service takes",
        ArtifactErrorKind::UploadFailed => "the service did not take it",
        ArtifactErrorKind::TimedOut => "it took too long",
        ArtifactErrorKind::Store | ArtifactErrorKind::Unreadable => "its content could not be read",
        _ => "it cannot be given to the service",
    }
}
