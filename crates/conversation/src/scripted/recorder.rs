//! Writes down what a model answers, as a script that says the same again.
//!
//! The recording lives in memory and in its file. After each call the whole file is written anew beside itself,
//! under a name of its own, and renamed into place, so a reader, or the start after a crash, sees a readable script of all calls but
//! those under way. (A power cut may lose the last ones: a recording is not a journal, and is not synced.)

use std::ffi::OsStr;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use conjure_base::{ContainerId, Digest, Redactor};
use futures_util::Stream;
use serde::Serialize;
use serde_json::Value;

use crate::content::Block;
use crate::hosted::{HostedFiles, Hosting};
use crate::model::{CallEffects, Model, ModelError, ModelEvent, ModelStream, Request, Response};
use crate::stop::StopReason;
use crate::usage::Usage;

use super::error::ScriptError;
use super::load::{MAX_TURNS, ScriptFormat, VERSION};
use super::recording_file::RecordingFile;
use super::redacted::Redaction;
use super::turn::error_type;

/// What stands around the turns of a recording at most, and between two of them.
const FRAME_BYTES: usize = 64;
const SEPARATOR_BYTES: usize = 2;

/// A model that passes each call on to another one and writes the answer down.
///
/// Answers are kept byte for byte, with the digest of the request that they answer; so a replay can be
/// [strict](super::ScriptedModel::strict). What a call sent is not written: a recording holds the model's words
/// only, without the secrets that it is told of ([`Recorder::with_redactor`]). A failure to write never disturbs the
/// conversation; [`Recorder::finish`] tells it.
#[derive(Debug)]
pub struct Recorder<M> {
    model: M,
    recording: Arc<Mutex<Recording>>,
    redaction: Redaction,
}

/// Why a recording is not whole.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum RecordError {
    /// The path cannot be a recording's.
    #[error("{0}")]
    Path(Arc<ScriptError>),
    /// The file cannot be written.
    #[error("cannot write the recording `{}`: {source}; check its folder, its permissions and the disk", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: Arc<io::Error>,
    },
    /// The conversation is longer than a script may be; its beginning was kept. JSON may be longer than YAML.
    #[error("the recording `{}` ends early: a script may have {limit} bytes and {MAX_TURNS} turns; a `.json` file may have more than a `.yaml`", path.display())]
    TooLong {
        /// The file.
        path: PathBuf,
        /// What a script of its format may have, in bytes.
        limit: usize,
    },
}

impl<M: Model> Recorder<M> {
    /// Records the calls of `model` in a file, whose extension (`.yaml`, `.yml`, `.json`) tells its format. An
    /// existing file is replaced at once by a script without turns. Blocks while it writes, as each call does at
    /// its end, for the time of writing a file of at most [`ScriptFormat::max_bytes`].
    ///
    /// # Errors
    /// When the path has no such extension, is something else than a regular file, or cannot be written.
    pub fn create(model: M, path: impl AsRef<Path>) -> Result<Self, RecordError> {
        Self::of(model, path.as_ref(), RecordingFile::of)
    }

    /// Records the calls of `model` in the file `name` of an open folder. Nothing is written outside of it, wherever its path may lead
    /// by then; a link of that name is refused. `told` is the file's path in messages.
    ///
    /// # Errors
    /// As [`Recorder::create`].
    pub fn create_in(
        model: M,
        folder: OwnedFd,
        name: impl AsRef<OsStr>,
        told: impl AsRef<Path>,
    ) -> Result<Self, RecordError> {
        Self::of(model, told.as_ref(), |told| RecordingFile::within(folder, name.as_ref(), told))
    }

    fn of(
        model: M,
        path: &Path,
        file: impl FnOnce(&Path) -> Result<RecordingFile, ScriptError>,
    ) -> Result<Self, RecordError> {
        let refused = |error| RecordError::Path(Arc::new(error));
        let format = ScriptFormat::of(path).map_err(refused)?;
        let file = file(path).map_err(refused)?;
        let path = path.to_owned();
        let mut recording = Recording { path, file, format, turns: Vec::new(), bytes: 0, failure: None };
        recording.write()?;
        Ok(Self { model, recording: Arc::new(Mutex::new(recording)), redaction: Redaction::default() })
    }
}

impl<M> Recorder<M> {
    /// The file leaves the session, so these secrets are taken out of what is written to it. The conversation itself goes on
    /// with what the model said. A replay says the marks in their place; its strict form fits all the same.
    #[must_use]
    pub fn with_redactor(mut self, redactor: Redactor) -> Self {
        self.redaction = Redaction::by(redactor);
        self
    }

    /// Whether all calls so far were written.
    ///
    /// # Errors
    /// The first failure to write one.
    pub fn finish(&self) -> Result<(), RecordError> {
        lock(&self.recording).failure.clone().map_or(Ok(()), Err)
    }
}

impl<M: Model> Model for Recorder<M> {
    fn stream(&self, request: Request) -> ModelStream {
        Box::pin(RecordedStream {
            sent: Some(self.redaction.digest(&request)),
            redaction: self.redaction.clone(),
            inner: self.model.stream(request),
            recording: Arc::clone(&self.recording),
            call: None,
        })
    }

    fn hosting(&self) -> Hosting {
        self.model.hosting()
    }

    fn hosted_files(&self) -> HostedFiles {
        self.model.hosted_files()
    }

    fn effects(&self, request: &Request) -> CallEffects {
        self.model.effects(request)
    }
}

/// A panic while the lock was held leaves a whole state: turns are only ever replaced.
fn lock(recording: &Mutex<Recording>) -> MutexGuard<'_, Recording> {
    recording.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One call under way. Dropped before its end, it is recorded as a stream that was cut there.
struct RecordedStream {
    /// Until the first poll; a stream that is never polled is no call.
    sent: Option<Digest>,
    redaction: Redaction,
    inner: ModelStream,
    recording: Arc<Mutex<Recording>>,
    call: Option<Call>,
}

/// What is known of a call under way.
struct Call {
    /// Its turn in the recording.
    place: usize,
    sent: Digest,
    /// The pieces that were shown, by block; used only when no answer follows.
    shown: Vec<(usize, Shown)>,
    started: bool,
}

/// The text of a block as far as it was shown.
enum Shown {
    Text(String),
    Thinking(String),
}

impl Stream for RecordedStream {
    type Item = Result<ModelEvent, ModelError>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        if let Some(sent) = this.sent.take() {
            let place = lock(&this.recording).begin();
            this.call = Some(Call { place, sent, shown: Vec::new(), started: false });
        }
        let polled = this.inner.as_mut().poll_next(context);
        if let (Poll::Ready(event), Some(call)) = (&polled, &mut this.call) {
            let turn = match event {
                Some(Ok(ModelEvent::Finished(response))) => {
                    Some(RecordedTurn::answered(call.sent, response, &this.redaction))
                }
                Some(Ok(event)) => {
                    call.see(event);
                    None
                }
                Some(Err(error)) => Some(call.failed(error, &this.redaction)),
                None => Some(call.cut(&this.redaction)),
            };
            if let Some(turn) = turn {
                lock(&this.recording).end(call.place, &turn);
                this.call = None;
            }
        }
        polled
    }
}

impl Drop for RecordedStream {
    fn drop(&mut self) {
        if let Some(call) = self.call.take() {
            lock(&self.recording).end(call.place, &call.cut(&self.redaction));
        }
    }
}

impl Call {
    /// Remembers a piece. Inputs of tools that were cut are no blocks and are left out.
    fn see(&mut self, event: &ModelEvent) {
        // None of them says that an answer has begun.
        if matches!(event, ModelEvent::Waiting | ModelEvent::Sent | ModelEvent::Used(_)) {
            return;
        }
        self.started = true;
        let (index, shown) = match event {
            ModelEvent::TextDelta { index, text } => (*index, Shown::Text(text.clone())),
            ModelEvent::ThinkingDelta { index, text } => (*index, Shown::Thinking(text.clone())),
            _ => return,
        };
        match (self.shown.last_mut(), shown) {
            (Some((last, Shown::Text(so_far))), Shown::Text(text)) if *last == index => {
                so_far.push_str(&text)
            }
            (Some((last, Shown::Thinking(so_far))), Shown::Thinking(text)) if *last == index => {
                so_far.push_str(&text);
            }
            (_, shown) => self.shown.push((index, shown)),
        }
    }

    /// The blocks that were shown, each to be shown again in one piece.
    fn blocks(&self, redaction: &Redaction) -> Vec<RawBlock> {
        let json = |(_, shown): &(usize, Shown)| match shown {
            Shown::Text(text) => Block::text(redaction.head(text)).json().to_owned(),
            Shown::Thinking(text) => {
                format!(r#"{{"type":"thinking","thinking":{}}}"#, Value::from(redaction.head(text)))
            }
        };
        self.shown.iter().map(json).map(|raw| RawBlock { raw }).collect()
    }

    fn cut(&self, redaction: &Redaction) -> RecordedTurn {
        let content = self.blocks(redaction);
        RecordedTurn {
            cut_after: Some(content.len()),
            pieces: Some(1),
            content: Some(content),
            ..RecordedTurn::of(self.sent)
        }
    }

    fn failed(&self, error: &ModelError, redaction: &Redaction) -> RecordedTurn {
        let content = self.started.then(|| self.blocks(redaction));
        RecordedTurn {
            error: Some(RecordedError {
                r#type: redaction.text(&error_type(&error.kind)),
                message: redaction.text(&error.message),
                retry_after_ms: error
                    .retry_after
                    .map(|after| u64::try_from(after.as_millis()).unwrap_or(u64::MAX)),
                after_pieces: content.as_ref().map(Vec::len),
                request_id: error.request_id.as_deref().map(|id| redaction.text(id)),
            }),
            pieces: content.is_some().then_some(1),
            content,
            ..RecordedTurn::of(self.sent)
        }
    }
}

/// The script as far as it was recorded.
#[derive(Debug)]
struct Recording {
    /// As it was named, for messages.
    path: PathBuf,
    file: RecordingFile,
    format: ScriptFormat,
    /// The text of each turn, or none while the call is under way.
    turns: Vec<Option<String>>,
    bytes: usize,
    failure: Option<RecordError>,
}

impl Recording {
    /// Reserves the turn of a call that begins: turns stand in the order in which calls began.
    fn begin(&mut self) -> usize {
        self.turns.push(None);
        self.turns.len() - 1
    }

    /// Writes the turn of a call that ended.
    fn end(&mut self, place: usize, turn: &RecordedTurn) {
        if let Err(error) = self.keep(place, turn) {
            tracing::warn!(%error, "the conversation is no longer recorded");
            self.failure.get_or_insert(error);
        }
    }

    fn keep(&mut self, place: usize, turn: &RecordedTurn) -> Result<(), RecordError> {
        let text = turn.text(self.format).map_err(|error| self.unwritten(error))?;
        let too_long = self.bytes + text.len() > self.format.max_bytes() - FRAME_BYTES || place >= MAX_TURNS;
        // What was not kept leaves a gap, and a script with a gap would answer the wrong calls.
        if too_long || matches!(self.failure, Some(RecordError::TooLong { .. })) {
            return Err(RecordError::TooLong { path: self.path.clone(), limit: self.format.max_bytes() });
        }
        self.bytes += text.len() + SEPARATOR_BYTES;
        if let Some(slot) = self.turns.get_mut(place) {
            *slot = Some(text);
        }
        self.write()
    }

    /// Writes the whole file beside itself and renames it into place.
    fn write(&mut self) -> Result<(), RecordError> {
        self.file.replace(self.text().as_bytes()).map_err(|error| self.unwritten(error))?;
        // The whole recording was written, also what an earlier call failed to write.
        self.failure = None;
        Ok(())
    }

    fn unwritten(&self, source: io::Error) -> RecordError {
        RecordError::Write { path: self.path.clone(), source: Arc::new(source) }
    }

    /// The script of the turns up to the first one that is still under way.
    fn text(&self) -> String {
        let turns: Vec<&str> = self.turns.iter().map_while(Option::as_deref).collect();
        match self.format {
            ScriptFormat::Yaml if turns.is_empty() => format!("version: {VERSION}\nturns: []\n"),
            ScriptFormat::Yaml => format!("version: {VERSION}\nturns:\n{}", turns.concat()),
            ScriptFormat::Json => {
                format!("{{\"version\":{VERSION},\"turns\":[\n{}\n]}}\n", turns.join(",\n"))
            }
        }
    }
}

/// A turn as it is written: the fields of the format that a recording uses.
#[derive(Serialize)]
struct RecordedTurn {
    sent: Digest,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    model: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    request_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    container: Option<ContainerId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    content: Option<Vec<RawBlock>>,
    /// Written also where it is null: null is a stop reason, absent is not.
    #[serde(skip_serializing_if = "Option::is_none")]
    stop_reason: Option<StopReason>,
    #[serde(skip_serializing_if = "Option::is_none")]
    usage: Option<Usage>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<RecordedError>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cut_after: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pieces: Option<usize>,
}

#[derive(Serialize)]
struct RawBlock {
    raw: String,
}

#[derive(Serialize)]
struct RecordedError {
    r#type: String,
    message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_after_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    after_pieces: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    request_id: Option<String>,
}

impl RecordedTurn {
    const fn of(sent: Digest) -> Self {
        Self {
            sent,
            id: None,
            model: None,
            request_id: None,
            container: None,
            content: None,
            stop_reason: None,
            usage: None,
            error: None,
            cut_after: None,
            pieces: None,
        }
    }

    fn answered(sent: Digest, response: &Response, redaction: &Redaction) -> Self {
        let raw = |block: &Block| RawBlock { raw: redaction.block(block).into_owned() };
        let text = |text: &Option<String>| text.as_deref().map(|text| redaction.text(text));
        Self {
            id: text(&response.id),
            model: text(&response.model),
            request_id: text(&response.request_id),
            container: response.container.clone(),
            content: Some(response.content.iter().map(raw).collect()),
            stop_reason: Some(response.stop_reason.clone()),
            usage: Some(response.usage),
            ..Self::of(sent)
        }
    }

    /// The turn's text, to stand in the list of turns.
    fn text(&self, format: ScriptFormat) -> io::Result<String> {
        match format {
            ScriptFormat::Yaml => serde_yaml::to_string(&[self]).map_err(io::Error::other),
            ScriptFormat::Json => serde_json::to_string(self).map_err(io::Error::other),
        }
    }
}
