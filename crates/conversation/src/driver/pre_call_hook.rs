//! The driver's step that runs the hook before each model call.
//!
//! The artifact upload is such a hook. Its work is part of the turn: meanwhile the driver accepts what is sent to the session, and
//! the turn's time limits end the work. Its duration counts as the turn's time. A crash loses results that were not submitted; the
//! driver then asks the hook for them again.

use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::{Either, select};
use futures_util::stream::BoxStream;

use super::turn::{DriveError, TurnDriver};
use crate::driver::conversation::SubmitError;
use crate::machine::command::CommandKind;

/// Longer than any hook runs.
const YEAR: Duration = Duration::from_secs(365 * 24 * 3600);

impl TurnDriver<'_> {
    /// Runs the hook's work. Returns early when the turn must end; the caller checks that itself.
    pub(super) async fn run_pre_call_hook(
        &mut self,
        mut work: BoxStream<'static, CommandKind>,
    ) -> Result<(), DriveError> {
        let in_a_year = self.conversation.clock().deadline(YEAR);
        let cancelled = self.cancel.clone().cancelled_owned();
        let mut turn_end = select(Box::pin(cancelled), self.conversation.clock().sleep_until(self.deadline));
        loop {
            let command = match select(&mut turn_end, select(work.next(), self.inbox.next())).await {
                Either::Left(_) | Either::Right((Either::Left((None, _)), _)) => break,
                Either::Right((Either::Right((message, _)), _)) => {
                    self.accept_inbox(message).await?;
                    continue;
                }
                Either::Right((Either::Left((Some(command), _)), _)) => command,
            };
            match self.conversation.submit(command).await {
                Err(SubmitError::Rejected(rejection)) => {
                    tracing::debug!(%rejection, "the result of the pre-call hook was rejected");
                }
                other => other?,
            }
        }
        let took = YEAR.saturating_sub(self.conversation.clock().remaining(in_a_year));
        self.hook_time = self.hook_time.saturating_add(took);
        Ok(())
    }
}
