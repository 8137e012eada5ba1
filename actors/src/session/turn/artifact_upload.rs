//! Uploads a session's artifacts to the service that runs its hosted skills, each once, before the model is called.
//!
//! The turn driver asks which artifacts must be uploaded, and submits the results ([`PreCallHook`]). For a URL, the
//! resource is fetched first and the fetch is recorded, as for a tool.
//!
//! A finished upload is recorded. An upload that a crash interrupts is repeated, so the service may have a file that no
//! session names. The model gets one message about a failure. The next turn tries the upload again, unless it can never
//! succeed; the incarnation remembers such artifacts in memory.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use conjure_artifact::{
    ArtifactError, ArtifactErrorKind, ArtifactUploader, ArtifactUri, ReferenceResolver, ResolvedLocation,
    ResolvedReference, Retryable,
};
use conjure_base::{Clock as _, Deadline, SystemClock, lock};
use conjure_conversation::{
    Artifact, Block, CommandKind, FetchedArtifact, PreCallHook, SessionState, UploadedArtifact,
};
use conjure_journal::SessionKey;
use futures_util::stream::{self, BoxStream};
use futures_util::{Stream, StreamExt};
use tokio_util::sync::CancellationToken;

/// How long all uploads before one model call may take together.
const TOTAL_TIMEOUT: Duration = Duration::from_secs(600);
/// How many artifacts are uploaded at a time.
const CONCURRENCY: usize = 4;

/// Uploads the artifacts that the service does not have yet, during one drive of a turn. Clones share their state.
#[derive(Clone)]
pub(crate) struct ArtifactUploadHook {
    key: Arc<SessionKey>,
    uploads: ArtifactUploader,
    resolver: ReferenceResolver,
    cancel: CancellationToken,
    /// Artifacts that this drive has tried. Each is tried once, so a service that refuses one cannot block the model
    /// call forever.
    attempted: Arc<Mutex<Vec<Arc<Artifact>>>>,
}

impl ArtifactUploadHook {
    pub(crate) fn new(
        key: &Arc<SessionKey>,
        uploads: &ArtifactUploader,
        resolver: &ReferenceResolver,
        cancel: &CancellationToken,
    ) -> Self {
        Self {
            key: Arc::clone(key),
            uploads: uploads.clone(),
            resolver: resolver.clone(),
            cancel: cancel.clone(),
            attempted: Arc::default(),
        }
    }

    fn attempted(&self) -> MutexGuard<'_, Vec<Arc<Artifact>>> {
        lock(&self.attempted)
    }

    fn should_attempt(&self, artifact: &Artifact) -> bool {
        let is_same = |other: &Arc<Artifact>| {
            (&other.name, &other.source, &other.content)
                == (&artifact.name, &artifact.source, &artifact.content)
        };
        self.uploads.failure(artifact) != Some(Retryable::No) && !self.attempted().iter().any(is_same)
    }

    fn upload_all(self, due: Vec<Arc<Artifact>>) -> impl Stream<Item = CommandKind> + Send + 'static {
        let deadline = SystemClock.deadline(TOTAL_TIMEOUT);
        let upload = move |artifact| {
            let hook = self.clone();
            async move { hook.upload(artifact, deadline).await }
        };
        stream::iter(due).map(upload).buffer_unordered(CONCURRENCY).flat_map(stream::iter)
    }

    /// Uploads one artifact. Returns the commands to record, in order.
    async fn upload(self, mut artifact: Arc<Artifact>, deadline: Deadline) -> Vec<CommandKind> {
        let mut commands = Vec::new();
        if artifact.content.is_none() {
            match with_deadline(deadline, self.fetch(&artifact, deadline)).await {
                Ok(fetched) => {
                    artifact = Arc::new(with_content(&artifact, &fetched));
                    self.attempted().push(Arc::clone(&artifact));
                    commands.push(CommandKind::FetchArtifact { fetched: Box::new(fetched) });
                }
                Err(error) => {
                    let reason = fetch_error_text(&error);
                    commands.extend(self.record_failure(&artifact, &error, &reason));
                    return commands;
                }
            }
        }
        match with_deadline(deadline, self.uploads.upload(&artifact)).await {
            Ok(block) => commands.extend(artifact.content.as_ref().map(|content| {
                let uploaded =
                    UploadedArtifact { name: artifact.name.clone(), digest: content.digest, block };
                CommandKind::AttachUpload { uploaded: Box::new(uploaded) }
            })),
            Err(error) => commands.extend(self.record_failure(&artifact, &error, upload_error_text(&error))),
        }
        commands
    }

    /// Fetches the artifact's URL.
    async fn fetch(
        &self,
        artifact: &Arc<Artifact>,
        deadline: Deadline,
    ) -> Result<FetchedArtifact, ArtifactError> {
        let uri = ArtifactUri::File { name: artifact.name.clone() };
        let artifacts = std::slice::from_ref(artifact);
        let resolved = self.resolver.resolve(&uri, artifacts, deadline, &self.cancel).await?;
        match resolved {
            ResolvedReference {
                newly_fetched: Some(fetched),
                location: ResolvedLocation::Stored { .. },
                ..
            } => Ok(fetched),
            _ => Err(ArtifactError::FileNotFound { name: artifact.name.to_string() }),
        }
    }

    /// The command that records a failure for the model; `None` if the model already got a message about it.
    fn record_failure(
        &self,
        artifact: &Artifact,
        error: &ArtifactError,
        reason: &str,
    ) -> Option<CommandKind> {
        tracing::warn!(session = %self.key, artifact = %artifact.name, %error, "an artifact was not uploaded to the service");
        let is_reported = self.uploads.failure(artifact).is_some();
        let retry = if error.is_retryable() { Retryable::Yes } else { Retryable::No };
        self.uploads.record_failure(artifact, retry);
        let text =
            format!("[The artifact `{}` could not be put into the container: {reason}.]", artifact.name);
        (!is_reported).then(|| CommandKind::Steer { input: vec![Block::text(text)] })
    }
}

impl PreCallHook for ArtifactUploadHook {
    fn before_model_call(&self, state: &SessionState) -> Option<BoxStream<'static, CommandKind>> {
        if !state.accepts_uploads() {
            return None;
        }
        let to_be_fetched = state.view().artifacts().iter().filter(|artifact| artifact.content.is_none());
        let due = state.pending_uploads().chain(to_be_fetched);
        let due: Vec<Arc<Artifact>> = due.filter(|artifact| self.should_attempt(artifact)).cloned().collect();
        if due.is_empty() {
            return None;
        }
        self.attempted().extend(due.iter().cloned());
        Some(self.clone().upload_all(due).boxed())
    }
}

async fn with_deadline<T>(
    deadline: Deadline,
    work: impl Future<Output = Result<T, ArtifactError>>,
) -> Result<T, ArtifactError> {
    tokio::select! {
        biased;
        () = SystemClock.sleep_until(deadline) => {
            Err(ArtifactError::TimedOut { what: "uploading artifacts to the service".to_owned(), waited: TOTAL_TIMEOUT })
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

/// The text for the model about a URL that cannot be fetched: the same as for an artifact that a tool call names.
fn fetch_error_text(error: &ArtifactError) -> String {
    match error.kind() {
        ArtifactErrorKind::Store | ArtifactErrorKind::Unreadable => {
            "its content could not be stored".to_owned()
        }
        _ => error.to_string(),
    }
}

/// The text for the model about an artifact that the service refused. It contains no address and no text of the
/// service.
fn upload_error_text(error: &ArtifactError) -> &'static str {
    match error.kind() {
        ArtifactErrorKind::TooLarge => "it exceeds the service's size limit",
        ArtifactErrorKind::UploadFailed => "the service did not take it",
        ArtifactErrorKind::TimedOut => "it took too long",
        ArtifactErrorKind::Store | ArtifactErrorKind::Unreadable => "its content could not be read",
        _ => "it cannot be given to the service",
    }
}
