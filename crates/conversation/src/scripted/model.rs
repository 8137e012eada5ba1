//! The scripted model: answers each call with the next turn of its script.

use std::iter;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use conjure_base::{Clock, SystemClock};
use futures_util::stream::{self, StreamExt as _};

use crate::content::block::{Block, BlockKind};
use crate::content::message::Role;
use crate::model::{Model, ModelError, ModelErrorKind, ModelEvent, ModelStream, Request};
use crate::session::hosted::{HostedFiles, HostedSupport};

use super::error::ScriptError;
use super::expectation::check_digest;
use super::request_view::RequestView;
use super::script::Script;
use super::script_turn::StreamEnd;
use super::template::RenderContext;

/// A model that answers from a script.
///
/// Each call takes the next turn when its stream is first polled, also if it fails or is abandoned. The position is in memory only: a
/// program that revives a session reads from its journal how many calls were made, and sets it with [`ScriptedModel::starting_at`].
/// Clones share the position, so each session needs its own model.
///
/// ```
/// use conjure_conversation::scripted::{Script, ScriptFormat, ScriptedModel};
///
/// let script = Script::from_text(
///     "{version: 1, turns: [{content: 'You said: {{user}}'}]}",
///     ScriptFormat::Yaml,
///     "an example",
/// )?;
/// let model = ScriptedModel::new(script);
/// assert_eq!(model.position(), 0);
/// # Ok::<(), conjure_conversation::scripted::ScriptError>(())
/// ```
#[derive(Debug, Clone)]
pub struct ScriptedModel {
    script: Arc<Script>,
    position: Arc<AtomicUsize>,
    progress: Progress,
    clock: Arc<dyn Clock>,
    digests: Digests,
}

/// How the next turn is determined.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Progress {
    /// By the number of calls that were made.
    Calls,
    /// By the number of responses in the history of the request.
    History,
}

/// Whether the recorded digests of requests are checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Digests {
    Ignored,
    Compared,
}

impl ScriptedModel {
    /// A model that starts with the first turn of the script.
    #[must_use]
    pub fn new(script: impl Into<Arc<Script>>) -> Self {
        Self {
            script: script.into(),
            position: Arc::default(),
            progress: Progress::Calls,
            clock: Arc::new(SystemClock),
            digests: Digests::Ignored,
        }
    }

    /// A model that answers from a script file. Blocks while it reads the file.
    ///
    /// # Errors
    /// As [`Script::from_file`].
    pub fn from_file(path: impl AsRef<Path>) -> Result<Self, ScriptError> {
        Script::from_file(path).map(Self::new)
    }

    /// Sets the position of the next turn, from 0.
    #[must_use]
    pub fn starting_at(mut self, position: usize) -> Self {
        self.position = Arc::new(AtomicUsize::new(position));
        self
    }

    /// Plays the script from its beginning for each session: the next turn follows from the number of responses in the history of the request. So
    /// one model serves many sessions, and continues after a restart. A compaction removes responses, and so moves back in the
    /// script.
    #[must_use]
    pub const fn by_history(mut self) -> Self {
        self.progress = Progress::History;
        self
    }

    /// Sets the clock for delays.
    #[must_use]
    pub fn with_clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Makes the model strict: each request must have the digest that was recorded for its turn (`sent`). A turn without one fails.
    #[must_use]
    pub const fn strict(mut self) -> Self {
        self.digests = Digests::Compared;
        self
    }

    /// How many turns were used.
    #[must_use]
    pub fn position(&self) -> usize {
        self.position.load(Ordering::Relaxed)
    }

    /// The script.
    #[must_use]
    pub fn script(&self) -> &Script {
        &self.script
    }

    /// Takes the next turn and answers with it. The delay comes last, so that an unexpected request fails at once.
    async fn answer(self, request: Request) -> Vec<Result<ModelEvent, ModelError>> {
        let calls = self.position.fetch_add(1, Ordering::Relaxed);
        let index = match self.progress {
            Progress::Calls => calls,
            Progress::History => {
                request.messages.iter().filter(|message| message.role == Role::Assistant).count()
            }
        };
        match self.events(index, &request) {
            Ok(events) => {
                let delay = self.script.turn(index).map(|turn| turn.delay).unwrap_or_default();
                if !delay.is_zero() {
                    self.clock.sleep_until(self.clock.deadline(delay)).await;
                }
                events
            }
            Err(reason) => {
                let message = format!("script `{}`, {reason}", self.script.label());
                vec![Err(ModelError::new(ModelErrorKind::Script, message))]
            }
        }
    }

    fn events(&self, index: usize, request: &Request) -> Result<Vec<Result<ModelEvent, ModelError>>, String> {
        let Some(turn) = self.script.turn(index) else {
            return Err(format!(
                "its end: it has {} turns, and the model was called for number {}; add a turn, or end the \
                 conversation with a turn that calls no tool",
                self.script.len(),
                index.saturating_add(1)
            ));
        };
        let in_turn = |reason| format!("turn {}, {reason}", index + 1);
        let sent = RequestView::new(request);
        turn.expect.check(&sent).map_err(in_turn)?;
        if self.digests == Digests::Compared {
            let expected = turn.sent.as_ref().ok_or_else(|| {
                in_turn(
                    "sent: the turn has no digest to compare; record it anew, or do not play it strictly"
                        .to_owned(),
                )
            })?;
            check_digest("sent", expected, &sent).map_err(in_turn)?;
        }
        if let StreamEnd::Failed(error) = &turn.end {
            return Ok(vec![Err(error.clone())]);
        }
        let response = turn.response(&mut RenderContext::new(sent)).map_err(in_turn)?;
        let shown = match &turn.end {
            StreamEnd::Truncated { after_pieces } | StreamEnd::FailedMidway { after_pieces, .. } => {
                *after_pieces
            }
            StreamEnd::Complete | StreamEnd::Failed(_) => usize::MAX,
        };
        let mut events = vec![Ok(ModelEvent::Started)];
        events.extend(stream_deltas(&response.content, turn.pieces).take(shown).map(Ok));
        match &turn.end {
            StreamEnd::Complete => events.push(Ok(ModelEvent::Finished(Box::new(response)))),
            StreamEnd::FailedMidway { error, .. } => events.push(Err(error.clone())),
            StreamEnd::Truncated { .. } | StreamEnd::Failed(_) => {}
        }
        Ok(events)
    }
}

impl Model for ScriptedModel {
    fn stream(&self, request: Request) -> ModelStream {
        Box::pin(stream::once(self.clone().answer(request)).flat_map(stream::iter))
    }

    /// A script may imitate any service.
    fn hosted_support(&self) -> HostedSupport {
        HostedSupport::Skills
    }

    /// The files in a script do not exist.
    fn hosted_files(&self) -> HostedFiles {
        HostedFiles::None
    }
}

/// The deltas of a response, block by block, each text in at most `pieces` pieces. The joined pieces of a block equal its text, thinking or
/// input, byte for byte.
pub(super) fn stream_deltas(content: &[Block], pieces: usize) -> impl Iterator<Item = ModelEvent> {
    content.iter().enumerate().flat_map(move |(index, block)| block_deltas(index, block, pieces))
}

fn block_deltas(index: usize, block: &Block, pieces: usize) -> Vec<ModelEvent> {
    match block.kind() {
        BlockKind::Text(text) => {
            split(text, pieces).map(|piece| ModelEvent::TextDelta { index, text: piece.to_owned() }).collect()
        }
        BlockKind::Thinking(text) => split(text, pieces)
            .map(|piece| ModelEvent::ThinkingDelta { index, text: piece.to_owned() })
            .collect(),
        BlockKind::ToolUse(call) => iter::once(ModelEvent::ToolUseStarted { index, name: call.name.clone() })
            .chain(
                split(call.input.get(), pieces)
                    .map(|piece| ModelEvent::ToolInputDelta { index, partial_json: piece.to_owned() }),
            )
            .collect(),
        BlockKind::ToolResult { .. } | BlockKind::Other(_) => Vec::new(),
    }
}

/// Splits a text into at most `pieces` non-empty pieces of about the same size, between characters.
fn split(text: &str, pieces: usize) -> impl Iterator<Item = &str> {
    let size = text.len().div_ceil(pieces.max(1)).max(1);
    let mut rest = text;
    iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let end = (size..rest.len()).find(|offset| rest.is_char_boundary(*offset)).unwrap_or(rest.len());
        let (piece, after) = rest.split_at(end);
        rest = after;
        Some(piece)
    })
}
