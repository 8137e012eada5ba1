//! The scripted model: answers each call with the next turn of its script.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use conjure_base::{Clock, SystemClock};
use futures_util::stream::{self, StreamExt as _};

use crate::hosted::{HostedFiles, Hosting};
use crate::model::{Model, ModelError, ModelErrorKind, ModelEvent, ModelStream, Request};

use super::error::ScriptError;
use super::expect::check_digest;
use super::load::Script;
use super::pieces::deltas;
use super::sent::Sent;
use super::template::Scene;
use super::turn::Ending;

/// A model whose words come from a script.
///
/// Each call, once its stream is first polled, takes the next turn, whether it then ends well, fails or is
/// abandoned. The position lives in memory only: a program that revives a session asks its journal how many calls
/// were made, and goes on with [`ScriptedModel::starting_at`]. Clones share the position; each session has a
/// model of its own.
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
    clock: Arc<dyn Clock>,
    digests: Digests,
}

/// Whether the recorded digests of requests are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Digests {
    Ignored,
    Compared,
}

impl ScriptedModel {
    /// A model that begins with the script's first turn.
    #[must_use]
    pub fn new(script: impl Into<Arc<Script>>) -> Self {
        Self {
            script: script.into(),
            position: Arc::default(),
            clock: Arc::new(SystemClock),
            digests: Digests::Ignored,
        }
    }

    /// A model that plays the script of a file. Blocks while it reads.
    ///
    /// # Errors
    /// As [`Script::from_file`].
    pub fn from_file(path: impl AsRef<Path>) -> Result<Self, ScriptError> {
        Script::from_file(path).map(Self::new)
    }

    /// The model, but its next call takes the turn at `position`, from 0: so many calls were answered before.
    #[must_use]
    pub fn starting_at(mut self, position: usize) -> Self {
        self.position = Arc::new(AtomicUsize::new(position));
        self
    }

    /// The model, but delays are measured with this clock.
    #[must_use]
    pub fn with_clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// The model, but each request must have the digest that was recorded for its turn (`sent`); a turn without
    /// one fails.
    #[must_use]
    pub const fn strict(mut self) -> Self {
        self.digests = Digests::Compared;
        self
    }

    /// How many turns were taken.
    #[must_use]
    pub fn position(&self) -> usize {
        self.position.load(Ordering::Relaxed)
    }

    /// What it plays.
    #[must_use]
    pub fn script(&self) -> &Script {
        &self.script
    }

    /// Takes the next turn and answers with it. The delay comes last, so that a request that is not as expected
    /// is told at once.
    async fn answer(self, request: Request) -> Vec<Result<ModelEvent, ModelError>> {
        let place = self.position.fetch_add(1, Ordering::Relaxed);
        match self.events(place, &request) {
            Ok(events) => {
                let delay = self.script.turn(place).map(|turn| turn.delay).unwrap_or_default();
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

    fn events(&self, place: usize, request: &Request) -> Result<Vec<Result<ModelEvent, ModelError>>, String> {
        let Some(turn) = self.script.turn(place) else {
            return Err(format!(
                "its end: it has {} turns, and the model was called for number {}; add a turn, or end the \
                 conversation with a turn that calls no tool",
                self.script.len(),
                place.saturating_add(1)
            ));
        };
        let in_turn = |reason| format!("turn {}, {reason}", place + 1);
        let sent = Sent::new(request);
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
        if let Ending::Failed(error) = &turn.ending {
            return Ok(vec![Err(error.clone())]);
        }
        let response = turn.answer(&mut Scene::new(sent)).map_err(in_turn)?;
        let shown = match &turn.ending {
            Ending::Cut { after_pieces } | Ending::Broken { after_pieces, .. } => *after_pieces,
            Ending::Finished | Ending::Failed(_) => usize::MAX,
        };
        let mut events = vec![Ok(ModelEvent::Started)];
        events.extend(deltas(&response.content, turn.pieces).take(shown).map(Ok));
        match &turn.ending {
            Ending::Finished => events.push(Ok(ModelEvent::Finished(Box::new(response)))),
            Ending::Broken { error, .. } => events.push(Err(error.clone())),
            Ending::Cut { .. } | Ending::Failed(_) => {}
        }
        Ok(events)
    }
}

impl Model for ScriptedModel {
    fn stream(&self, request: Request) -> ModelStream {
        Box::pin(stream::once(self.clone().answer(request)).flat_map(stream::iter))
    }

    /// A script may play any service.
    fn hosting(&self) -> Hosting {
        Hosting::Skills
    }

    /// Whatever a script says was made, nobody has made.
    fn hosted_files(&self) -> HostedFiles {
        HostedFiles::Nowhere
    }
}
