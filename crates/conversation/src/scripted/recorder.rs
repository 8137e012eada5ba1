//! Records the responses of a model as a script.
//!
//! The recording is in memory and in its file. After each call the file is replaced atomically, so a reader always sees a valid script of
//! all completed calls. The file is not synced: a power failure may lose the last calls.

use std::ffi::OsStr;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use conjure_base::{ContainerId, Digest, Redactor, lock};
use futures_util::Stream;
use serde::Serialize;
use serde_json::Value;

use crate::content::block::Block;
use crate::content::stop_reason::StopReason;
use crate::model::Usage;
use crate::model::{Model, ModelError, ModelEvent, ModelStream, Request, Response};

use super::error::ScriptError;
use super::recording_file::RecordingFile;
use super::redaction::RecordingRedactor;
use super::script::{MAX_TURNS, ScriptFormat, VERSION};
use super::script_turn::error_type;

/// The maximum number of bytes around the turns of a recording, and between two turns.
const FRAME_BYTES: usize = 64;
const SEPARATOR_BYTES: usize = 2;

/// A model that forwards each call to another model and records the response.
///
/// Responses are recorded byte for byte, with the digest of their request, so a replay can be [strict](super::ScriptedModel::strict).
/// Requests are not recorded. Secrets are redacted ([`Recorder::with_redactor`]). A failed write does not disturb the conversation;
/// [`Recorder::finish`] reports it.
#[derive(Debug)]
pub struct Recorder<M> {
    model: M,
    recording: Arc<Mutex<Recording>>,
    redactor: RecordingRedactor,
}

/// Why a recording is incomplete.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum RecordError {
    /// The path is not valid for a recording.
    #[error("{0}")]
    Path(Arc<ScriptError>),
    /// The file cannot be written.
    #[error("cannot write the recording `{}`: {source}; check its directory, its permissions and the disk", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        source: Arc<io::Error>,
    },
    /// The conversation is longer than the limit of a script; its beginning is recorded. JSON may be longer than YAML.
    #[error("the recording `{}` ends early: a script may have {limit} bytes and {MAX_TURNS} turns; a `.json` file may have more than a `.yaml`", path.display())]
    TooLong {
        /// The file.
        path: PathBuf,
        /// The limit of its format, in bytes.
        limit: usize,
    },
}

impl<M: Model> Recorder<M> {
    /// Records the calls of `model` in a file. The extension (`.yaml`, `.yml`, `.json`) sets the format.
    ///
    /// An existing file is replaced at once by a script without turns. This function and the end of each call block while they write a
    /// file of at most [`ScriptFormat::max_bytes`].
    ///
    /// # Errors
    /// When the path has another extension, is not a regular file, or cannot be written.
    pub fn create(model: M, path: impl AsRef<Path>) -> Result<Self, RecordError> {
        Self::open(model, path.as_ref(), RecordingFile::at_path)
    }

    /// Records the calls of `model` in the file `name` of an open directory. All writes stay in that directory; a link of that name is
    /// refused. `display_path` is the path in messages.
    ///
    /// # Errors
    /// As [`Recorder::create`].
    pub fn create_in(
        model: M,
        dir: OwnedFd,
        name: impl AsRef<OsStr>,
        display_path: impl AsRef<Path>,
    ) -> Result<Self, RecordError> {
        Self::open(model, display_path.as_ref(), |display_path| {
            RecordingFile::in_dir(dir, name.as_ref(), display_path)
        })
    }

    fn open(
        model: M,
        path: &Path,
        file: impl FnOnce(&Path) -> Result<RecordingFile, ScriptError>,
    ) -> Result<Self, RecordError> {
        let refused = |error| RecordError::Path(Arc::new(error));
        let format = ScriptFormat::from_path(path).map_err(refused)?;
        let file = file(path).map_err(refused)?;
        let path = path.to_owned();
        let mut recording = Recording { path, file, format, turns: Vec::new(), bytes: 0, failure: None };
        recording.write()?;
        Ok(Self { model, recording: Arc::new(Mutex::new(recording)), redactor: RecordingRedactor::default() })
    }
}

impl<M> Recorder<M> {
    /// Sets the redactor for the recording. The conversation itself uses the unredacted responses. A replay has the redaction marks, and
    /// still works in its strict form.
    #[must_use]
    pub fn with_redactor(mut self, redactor: Redactor) -> Self {
        self.redactor = RecordingRedactor::new(redactor);
        self
    }

    /// Checks that all calls so far were written.
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
            sent: Some(self.redactor.digest(&request)),
            redactor: self.redactor.clone(),
            inner: self.model.stream(request),
            recording: Arc::clone(&self.recording),
            call: None,
        })
    }

    fn inner(&self) -> Option<&dyn Model> {
        Some(&self.model)
    }
}

/// One running call. If it is dropped before its end, it is recorded as a stream that was truncated there.
struct RecordedStream {
    /// Taken at the first poll; a stream that is never polled is not recorded.
    sent: Option<Digest>,
    redactor: RecordingRedactor,
    inner: ModelStream,
    recording: Arc<Mutex<Recording>>,
    call: Option<RecordedCall>,
}

/// The received part of a running call.
struct RecordedCall {
    /// Its turn in the recording.
    index: usize,
    sent: Digest,
    /// The received deltas, by block. They are used only when no complete response follows.
    shown: Vec<(usize, ShownText)>,
    started: bool,
}

/// The received text of a block.
enum ShownText {
    Text(String),
    Thinking(String),
}

impl Stream for RecordedStream {
    type Item = Result<ModelEvent, ModelError>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        if let Some(sent) = this.sent.take() {
            let index = lock(&this.recording).begin();
            this.call = Some(RecordedCall { index, sent, shown: Vec::new(), started: false });
        }
        let polled = this.inner.as_mut().poll_next(context);
        if let (Poll::Ready(event), Some(call)) = (&polled, &mut this.call) {
            let turn = match event {
                Some(Ok(ModelEvent::Finished(response))) => {
                    Some(RecordedTurn::from_response(call.sent, response, &this.redactor))
                }
                Some(Ok(event)) => {
                    call.observe(event);
                    None
                }
                Some(Err(error)) => Some(call.to_failed_turn(error, &this.redactor)),
                None => Some(call.to_truncated_turn(&this.redactor)),
            };
            if let Some(turn) = turn {
                lock(&this.recording).end(call.index, &turn);
                this.call = None;
            }
        }
        polled
    }
}

impl Drop for RecordedStream {
    fn drop(&mut self) {
        if let Some(call) = self.call.take() {
            lock(&self.recording).end(call.index, &call.to_truncated_turn(&self.redactor));
        }
    }
}

impl RecordedCall {
    /// Records a delta. Truncated inputs of tools are left out, because they are not valid blocks.
    fn observe(&mut self, event: &ModelEvent) {
        // These come before the response.
        if matches!(event, ModelEvent::Queued | ModelEvent::Sent | ModelEvent::UsageReported(_)) {
            return;
        }
        self.started = true;
        let (index, shown) = match event {
            ModelEvent::TextDelta { index, text } => (*index, ShownText::Text(text.clone())),
            ModelEvent::ThinkingDelta { index, text } => (*index, ShownText::Thinking(text.clone())),
            _ => return,
        };
        match (self.shown.last_mut(), shown) {
            (Some((last, ShownText::Text(so_far))), ShownText::Text(text)) if *last == index => {
                so_far.push_str(&text)
            }
            (Some((last, ShownText::Thinking(so_far))), ShownText::Thinking(text)) if *last == index => {
                so_far.push_str(&text);
            }
            (_, shown) => self.shown.push((index, shown)),
        }
    }

    /// The received blocks, each as one piece.
    fn blocks(&self, redactor: &RecordingRedactor) -> Vec<RawBlock> {
        let json = |(_, shown): &(usize, ShownText)| match shown {
            ShownText::Text(text) => Block::text(redactor.head(text)).json().to_owned(),
            ShownText::Thinking(text) => {
                format!(r#"{{"type":"thinking","thinking":{}}}"#, Value::from(redactor.head(text)))
            }
        };
        self.shown.iter().map(json).map(|raw| RawBlock { raw }).collect()
    }

    fn to_truncated_turn(&self, redactor: &RecordingRedactor) -> RecordedTurn {
        let content = self.blocks(redactor);
        RecordedTurn {
            cut_after: Some(content.len()),
            pieces: Some(1),
            content: Some(content),
            ..RecordedTurn::new(self.sent)
        }
    }

    fn to_failed_turn(&self, error: &ModelError, redactor: &RecordingRedactor) -> RecordedTurn {
        let content = self.started.then(|| self.blocks(redactor));
        RecordedTurn {
            error: Some(RecordedError {
                r#type: redactor.text(&error_type(&error.kind)),
                message: redactor.text(&error.message),
                retry_after_ms: error
                    .retry_after
                    .map(|after| u64::try_from(after.as_millis()).unwrap_or(u64::MAX)),
                after_pieces: content.as_ref().map(Vec::len),
                request_id: error.request_id.as_deref().map(|id| redactor.text(id)),
            }),
            pieces: content.is_some().then_some(1),
            content,
            ..RecordedTurn::new(self.sent)
        }
    }
}

/// The recorded script.
#[derive(Debug)]
struct Recording {
    /// The path for messages.
    path: PathBuf,
    file: RecordingFile,
    format: ScriptFormat,
    /// The text of each turn; `None` while its call is running.
    turns: Vec<Option<String>>,
    bytes: usize,
    failure: Option<RecordError>,
}

impl Recording {
    /// Reserves the turn of a new call. Turns are in the order in which calls began.
    fn begin(&mut self) -> usize {
        self.turns.push(None);
        self.turns.len() - 1
    }

    /// Writes the turn of a call that ended.
    fn end(&mut self, index: usize, turn: &RecordedTurn) {
        if let Err(error) = self.append(index, turn) {
            tracing::warn!(%error, "the conversation is no longer recorded");
            self.failure.get_or_insert(error);
        }
    }

    fn append(&mut self, index: usize, turn: &RecordedTurn) -> Result<(), RecordError> {
        let text = turn.text(self.format).map_err(|error| self.write_error(error))?;
        let too_long = self.bytes + text.len() > self.format.max_bytes() - FRAME_BYTES || index >= MAX_TURNS;
        // A script with a gap would answer the wrong calls, so nothing is appended after a skipped turn.
        if too_long || matches!(self.failure, Some(RecordError::TooLong { .. })) {
            return Err(RecordError::TooLong { path: self.path.clone(), limit: self.format.max_bytes() });
        }
        self.bytes += text.len() + SEPARATOR_BYTES;
        if let Some(slot) = self.turns.get_mut(index) {
            *slot = Some(text);
        }
        self.write()
    }

    /// Replaces the whole file atomically.
    fn write(&mut self) -> Result<(), RecordError> {
        self.file.replace(self.text().as_bytes()).map_err(|error| self.write_error(error))?;
        // This also wrote the turns that an earlier call failed to write.
        self.failure = None;
        Ok(())
    }

    fn write_error(&self, source: io::Error) -> RecordError {
        RecordError::Write { path: self.path.clone(), source: Arc::new(source) }
    }

    /// The script up to the first turn that is still running.
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

/// A turn in the file: the fields of the format that a recording uses.
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
    /// Also written when it is null, because null is a stop reason.
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
    const fn new(sent: Digest) -> Self {
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

    fn from_response(sent: Digest, response: &Response, redactor: &RecordingRedactor) -> Self {
        let raw = |block: &Block| RawBlock { raw: redactor.block(block).into_owned() };
        let text = |text: &Option<String>| text.as_deref().map(|text| redactor.text(text));
        Self {
            id: text(&response.id),
            model: text(&response.model),
            request_id: text(&response.request_id),
            container: response.container.clone(),
            content: Some(response.content.iter().map(raw).collect()),
            stop_reason: Some(response.stop_reason.clone()),
            usage: Some(response.usage),
            ..Self::new(sent)
        }
    }

    /// The turn's text in the list of turns.
    fn text(&self, format: ScriptFormat) -> io::Result<String> {
        match format {
            ScriptFormat::Yaml => serde_yaml::to_string(&[self]).map_err(io::Error::other),
            ScriptFormat::Json => serde_json::to_string(self).map_err(io::Error::other),
        }
    }
}
