//! Giving a session's artifacts to the service that runs its hosted skills: before the model is called in a turn, each once.
//!
//! What was given is recorded. What a crash cuts off is given again, so a file may lie with the service that no session names. What
//! fails is told to the model once; it is tried again in the next turn, but for what the service will never take. Which that is, the
//! incarnation of the session remembers.

use std::sync::Arc;
use std::time::Duration;

use conjure_artifact::{ArtifactError, ArtifactErrorKind, Retry, Uploads};
use conjure_base::{Clock as _, SystemClock};
use conjure_conversation::{
    Artifact, Block, CommandKind, Conversation, LedgerError, SubmitError, UploadedArtifact,
};
use conjure_journal::SessionKey;
use futures_util::future::BoxFuture;
use futures_util::{FutureExt, StreamExt, stream};
use tokio_util::sync::CancellationToken;

/// How long all that is given in a turn may take together.
const FOR_ALL: Duration = Duration::from_secs(600);
/// How many artifacts are on their way at a time.
const AT_A_TIME: usize = 4;

/// Gives the service what it was not given yet. Returns early when `cancel` is cancelled, and at once where the next call resumes a pause.
pub(crate) async fn give_artifacts(
    conversation: &mut Conversation,
    key: &SessionKey,
    uploads: &Uploads,
    cancel: &CancellationToken,
) -> Result<(), LedgerError> {
    if !conversation.state().takes_uploads() {
        return Ok(());
    }
    let is_hopeful = |artifact: &&Arc<Artifact>| uploads.failure(artifact) != Some(Retry::Useless);
    let due: Vec<Arc<Artifact>> = conversation.state().uploads_due().filter(is_hopeful).cloned().collect();
    let on_their_way: Vec<BoxFuture<'static, _>> =
        due.iter().map(|artifact| upload(uploads.clone(), artifact.clone()).boxed()).collect();
    let mut given = stream::iter(on_their_way).buffer_unordered(AT_A_TIME);
    let mut late = due;
    let over = SystemClock.deadline(FOR_ALL);
    loop {
        let (artifact, result) = tokio::select! {
            biased;
            () = cancel.cancelled() => return Ok(()),
            next = given.next() => match next {
                Some(next) => next,
                None => return Ok(()),
            },
            () = SystemClock.sleep_until(over) => break,
        };
        late.retain(|other| other.name != artifact.name);
        let command = match (result, &artifact.content) {
            (Ok(block), Some(content)) => {
                let uploaded =
                    UploadedArtifact { name: artifact.name.clone(), digest: content.digest, block };
                Some(CommandKind::AttachUpload { uploaded: Box::new(uploaded) })
            }
            (Ok(_), None) => None,
            (Err(error), _) => {
                tracing::warn!(session = %key, artifact = %artifact.name, %error, "an artifact was not given to the service");
                let retry = if error.is_retryable() { Retry::MayHelp } else { Retry::Useless };
                failed(uploads, &artifact, retry, why(&error))
            }
        };
        submit(conversation, key, command).await?;
    }
    for artifact in late {
        tracing::warn!(session = %key, artifact = %artifact.name, "an artifact was not given to the service in time");
        submit(conversation, key, failed(uploads, &artifact, Retry::MayHelp, TOO_LONG)).await?;
    }
    Ok(())
}

async fn upload(uploads: Uploads, artifact: Arc<Artifact>) -> (Arc<Artifact>, Result<Block, ArtifactError>) {
    let result = uploads.upload(&artifact).await;
    (artifact, result)
}

const TOO_LONG: &str = "it took too long";

/// What the model is told of a failure; nothing where it was told before.
fn failed(uploads: &Uploads, artifact: &Artifact, retry: Retry, why: &str) -> Option<CommandKind> {
    let is_told = uploads.failure(artifact).is_some();
    uploads.note_failure(artifact, retry);
    let text = format!("[The artifact `{}` could not be put into the container: {why}.]", artifact.name);
    (!is_told).then(|| CommandKind::Steer { input: vec![Block::text(text)] })
}

/// What the model is told of an error: neither addresses nor words of the service's.
fn why(error: &ArtifactError) -> &'static str {
    match error.kind() {
        ArtifactErrorKind::TooLarge => "it is larger than the service takes",
        ArtifactErrorKind::UploadFailed => "the service did not take it",
        ArtifactErrorKind::TimedOut => TOO_LONG,
        ArtifactErrorKind::Store | ArtifactErrorKind::Unreadable => "its content could not be read",
        _ => "it cannot be given to the service",
    }
}

async fn submit(
    conversation: &mut Conversation,
    key: &SessionKey,
    command: Option<CommandKind>,
) -> Result<(), LedgerError> {
    let Some(command) = command else { return Ok(()) };
    match conversation.submit(command).await {
        Ok(()) => Ok(()),
        // Unregistered, or fetched anew, in between.
        Err(SubmitError::Rejected(rejection)) => {
            tracing::debug!(session = %key, %rejection, "an artifact that was given is not wanted any more");
            Ok(())
        }
        Err(SubmitError::Ledger(error)) => Err(error),
        Err(other) => Err(LedgerError::Failed { reason: other.to_string() }),
    }
}
