//! The driver's part in what is to be done before a model call: it submits what comes of it, takes in what is sent meanwhile, and breaks it
//! off when the turn is over. How long it took counts in the turn's time.

use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::{Either, select};
use futures_util::stream::BoxStream;

use super::{DriveError, Driver};
use crate::command::CommandKind;
use crate::conversation::SubmitError;

/// Longer than any turn is prepared.
const YEAR: Duration = Duration::from_secs(365 * 24 * 3600);

impl Driver<'_> {
    /// Returns early when the turn is over, which the caller sees by itself.
    pub(super) async fn make_ready(
        &mut self,
        mut work: BoxStream<'static, CommandKind>,
    ) -> Result<(), DriveError> {
        let in_a_year = self.conversation.clock().deadline(YEAR);
        let cancelled = self.cancel.clone().cancelled_owned();
        let mut over = select(Box::pin(cancelled), self.conversation.clock().sleep_until(self.deadline));
        loop {
            let command = match select(&mut over, select(work.next(), self.inbox.next())).await {
                Either::Left(_) | Either::Right((Either::Left((None, _)), _)) => break,
                Either::Right((Either::Right((post, _)), _)) => {
                    self.take_in(post).await?;
                    continue;
                }
                Either::Right((Either::Left((Some(command), _)), _)) => command,
            };
            match self.conversation.submit(command).await {
                Err(SubmitError::Rejected(rejection)) => {
                    tracing::debug!(%rejection, "what was prepared for a model call is not wanted any more");
                }
                other => other?,
            }
        }
        let took = YEAR.saturating_sub(self.conversation.clock().remaining(in_a_year));
        self.prepared_for = self.prepared_for.saturating_add(took);
        Ok(())
    }
}
