//! The driver's part in a compaction: it has the beginning of the history summarised before the model is called.
//!
//! It is a model call in all but name: its intent is recorded before and its outcome after, it ends with the turn's time, and what
//! the user adds meanwhile is recorded. Whatever goes wrong with it, the turn goes on with the history as it is.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures_util::future::{BoxFuture, Either, select};
use futures_util::{FutureExt, StreamExt};
use tracing::Instrument;

use super::{DriveError, Driver, crashed};
use crate::command::CommandKind;
use crate::compose::Composer;
use crate::machine::{Step, next};
use crate::model::{ModelError, Request};
use crate::standing::Standing;
use crate::summary::{SUMMARY_PROMPT, Summary, ask};

/// What the writing of a summary came to.
enum Written {
    Well(Summary, Option<String>),
    Failed(ModelError),
    Interrupted,
}

impl Driver<'_> {
    pub(super) fn compaction_is_due(&self) -> bool {
        let state = self.conversation.state();
        self.compaction.as_ref().is_some_and(|compaction| state.compaction_due(&compaction.policy).is_some())
    }

    pub(super) async fn compact(&mut self) -> Result<(), DriveError> {
        let Some(policy) = self.compaction.as_ref().map(|compaction| compaction.policy) else {
            return Ok(());
        };
        let kept = self.conversation.state().compaction_due(&policy).unwrap_or_default();
        self.conversation.submit(CommandKind::StartCompaction { policy }).await?;
        let state = self.conversation.state();
        let running = state.turn().filter(|_| next(state) == Step::AwaitModel);
        // Else a limit has ended the turn instead.
        let Some((turn, compaction)) = running.map(|turn| (turn.id(), turn.compactions())) else {
            return Ok(());
        };
        let span = tracing::info_span!("compact", gen_ai.operation.name = "chat", error.type = tracing::field::Empty);
        match self.write_summary(kept).instrument(span.clone()).await? {
            Written::Well(summary, preserved) => {
                let compact = CommandKind::Compact { turn, compaction, summary, preserved };
                Ok(self.conversation.submit(compact).await?)
            }
            Written::Failed(error) => {
                span.record("error.type", tracing::field::debug(&error.kind));
                Ok(self.conversation.submit(CommandKind::FailCompaction { turn, compaction, error }).await?)
            }
            Written::Interrupted => self.interrupt().await,
        }
    }

    /// Has all but the last messages summarised. Dropping the future abandons it.
    async fn write_summary(&mut self, kept: usize) -> Result<Written, DriveError> {
        let state = self.conversation.state();
        let Some(turn) = state.turn() else { return Ok(Written::Interrupted) };
        let composer = self.rim.composer;
        let (standing, before) = (state.standing(), state.standing_before(kept));
        let composed = std::panic::catch_unwind(AssertUnwindSafe(|| {
            (composer.compose(standing), preserved(composer, &before))
        }));
        let Ok((composition, preserved)) = composed else {
            return Ok(Written::Failed(crashed("what composes the request has crashed")));
        };
        let replaced = state.messages().len().saturating_sub(kept);
        let part = Request {
            turn: turn.id(),
            call: turn.model_calls().saturating_add(1),
            instructions: composition.instructions,
            tools: composition.tools,
            messages: state.messages().iter().take(replaced).cloned().collect(),
            // A summary is written without them: it is to do nothing else.
            container: None,
            hosted: Arc::default(),
        };
        let summarizer = self.compaction.as_ref().and_then(|compaction| compaction.summarizer.clone());
        let model = self.rim.model;
        // What it does before its first await may panic as well as what it does later.
        let writing: BoxFuture<'_, Result<Summary, ModelError>> = async move {
            match summarizer {
                Some(summarizer) => summarizer.summarize(part).await,
                None => ask(model, part, SUMMARY_PROMPT).await,
            }
        }
        .boxed();
        let mut writing = AssertUnwindSafe(writing).catch_unwind();
        let cancelled = self.cancel.clone().cancelled_owned();
        let mut over = select(Box::pin(cancelled), self.conversation.clock().sleep_until(self.deadline));
        loop {
            match select(&mut over, select(&mut writing, self.inbox.next())).await {
                Either::Left(_) => return Ok(Written::Interrupted),
                Either::Right((Either::Right((post, _)), _)) => self.take_in(post).await?,
                Either::Right((Either::Left((written, _)), _)) => {
                    return Ok(match written {
                        Ok(Ok(summary)) => Written::Well(summary, preserved),
                        Ok(Err(error)) => Written::Failed(error),
                        Err(_panic) => Written::Failed(crashed("the summariser has crashed")),
                    });
                }
            }
        }
    }
}

fn preserved(composer: &dyn Composer, standing: &Standing) -> Option<String> {
    if standing.active_skills().is_empty() { None } else { composer.preserved(standing) }
}
