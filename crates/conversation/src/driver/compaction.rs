//! The driver's compaction step: it requests a summary of the first messages before it calls the model.
//!
//! It works like a model call: the driver records the intent before and the outcome after, the turn's deadline ends it, and what the
//! user adds meanwhile is recorded. If it fails, the turn continues with the unchanged history.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures_util::future::{BoxFuture, Either, select};
use futures_util::{FutureExt, StreamExt};
use tracing::Instrument;

use super::model_call::crash_error;
use super::turn::{DriveError, TurnDriver};
use crate::composer::Composer;
use crate::machine::command::CommandKind;
use crate::machine::{Step, next};
use crate::model::{ModelError, Request};
use crate::session::session_view::SessionView;
use crate::summary::{SUMMARY_PROMPT, Summary, request_summary};

/// The result of a request for a summary.
enum SummaryResult {
    Written(Summary, Option<String>),
    Failed(ModelError),
    Interrupted,
}

impl TurnDriver<'_> {
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
        // Otherwise a limit has ended the turn.
        let Some((turn, compaction)) = running.map(|turn| (turn.id(), turn.compactions())) else {
            return Ok(());
        };
        let span = tracing::info_span!("compact", gen_ai.operation.name = "chat", error.type = tracing::field::Empty);
        match self.write_summary(kept).instrument(span.clone()).await? {
            SummaryResult::Written(summary, preserved) => {
                let compact = CommandKind::Compact { turn, compaction, summary, preserved };
                Ok(self.conversation.submit(compact).await?)
            }
            SummaryResult::Failed(error) => {
                span.record("error.type", tracing::field::debug(&error.kind));
                Ok(self.conversation.submit(CommandKind::FailCompaction { turn, compaction, error }).await?)
            }
            SummaryResult::Interrupted => self.interrupt().await,
        }
    }

    /// Requests a summary of all but the last `kept` messages. Dropping the future abandons it.
    async fn write_summary(&mut self, kept: usize) -> Result<SummaryResult, DriveError> {
        let state = self.conversation.state();
        let Some(turn) = state.turn() else { return Ok(SummaryResult::Interrupted) };
        let composer = self.services.composer;
        let (view, before) = (state.view(), state.view_before(kept));
        let composed = std::panic::catch_unwind(AssertUnwindSafe(|| {
            (composer.compose(view), after_compaction(composer, &before))
        }));
        let Ok((composition, preserved)) = composed else {
            return Ok(SummaryResult::Failed(crash_error("the composer of the request has crashed")));
        };
        let replaced = state.messages().len().saturating_sub(kept);
        let part = Request {
            turn: turn.id(),
            call: turn.model_calls().saturating_add(1),
            instructions: composition.instructions,
            tools: composition.tools,
            messages: state.messages().iter().take(replaced).cloned().collect(),
            // The summary needs no container and no hosted skills.
            container: None,
            hosted: Arc::default(),
        };
        let summarizer = self.compaction.as_ref().and_then(|compaction| compaction.summarizer.clone());
        let model = self.services.model;
        // The summarizer may panic before its first await too.
        let writing: BoxFuture<'_, Result<Summary, ModelError>> = async move {
            match summarizer {
                Some(summarizer) => summarizer.summarize(part).await,
                None => request_summary(model, part, SUMMARY_PROMPT).await,
            }
        }
        .boxed();
        let mut writing = AssertUnwindSafe(writing).catch_unwind();
        let cancelled = self.cancel.clone().cancelled_owned();
        let mut turn_end = select(Box::pin(cancelled), self.conversation.clock().sleep_until(self.deadline));
        loop {
            match select(&mut turn_end, select(&mut writing, self.inbox.next())).await {
                Either::Left(_) => return Ok(SummaryResult::Interrupted),
                Either::Right((Either::Right((message, _)), _)) => self.accept_inbox(message).await?,
                Either::Right((Either::Left((written, _)), _)) => {
                    return Ok(match written {
                        Ok(Ok(summary)) => SummaryResult::Written(summary, preserved),
                        Ok(Err(error)) => SummaryResult::Failed(error),
                        Err(_panic) => SummaryResult::Failed(crash_error("the summariser has crashed")),
                    });
                }
            }
        }
    }
}

fn after_compaction(composer: &dyn Composer, view: &SessionView) -> Option<String> {
    if view.active_skills().is_empty() { None } else { composer.after_compaction(view) }
}
