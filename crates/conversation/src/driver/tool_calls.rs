//! The tool calls of one response: all are authorised first, then they run in batches.

use std::sync::Arc;

use futures_util::StreamExt;
use futures_util::future::{Either, select};

use super::turn::{DriveError, TurnDriver};
use crate::command::{CommandKind, StartedCall};
use crate::machine::{Step, next};
use crate::session_state::CallStatus;
use crate::tool::ToolCall;
use crate::tool_batch::{ToolBatch, authorize, batches, traits};
use crate::tool_runner::{Authorization, CallContext};

impl TurnDriver<'_> {
    /// Runs the open calls. All are authorised before the first one runs. So when one needs an approval, no call of the response has run
    /// yet, and a later call never runs before one that it may build on.
    pub(super) async fn run_tools(&mut self) -> Result<(), DriveError> {
        let Some(calls) = self.authorize_all().await? else { return Ok(()) };
        self.extend_deadline();
        if next(self.conversation.state()) != Step::RunTools {
            return Ok(());
        }
        let tools = self.services.tools;
        let traits: Vec<_> = calls.iter().map(|call| traits(tools, call)).collect();
        let access: Vec<_> = traits.iter().map(|traits| traits.concurrency).collect();
        for range in batches(&access) {
            if self.is_cancelled_or_expired() {
                return Ok(());
            }
            let started = range
                .clone()
                .map(|place| StartedCall {
                    call: calls[place].id.clone(),
                    idempotent: traits[place].idempotent,
                })
                .collect();
            self.conversation.submit(CommandKind::StartTools { calls: started }).await?;
            let batch: Vec<(usize, &ToolCall)> = range.map(|place| (place, &calls[place])).collect();
            self.run_batch(&batch).await?;
        }
        Ok(())
    }

    /// The calls that may run, in order; `None` when the turn was interrupted meanwhile.
    async fn authorize_all(&mut self) -> Result<Option<Vec<ToolCall>>, DriveError> {
        let open = self.conversation.state().open_calls().to_vec();
        let view = self.conversation.state().view().clone();
        let mut allowed = Vec::with_capacity(open.len());
        for open in open {
            match open.status {
                CallStatus::New => {}
                CallStatus::Approved => {
                    allowed.push(open.call);
                    continue;
                }
                _ => continue,
            }
            let cancelled = self.cancel.clone().cancelled_owned();
            let over = select(Box::pin(cancelled), self.conversation.clock().sleep_until(self.deadline));
            let asked = Box::pin(authorize(self.services.tools, &open.call, &view));
            let authorization = match select(asked, over).await {
                Either::Left((authorization, _)) => authorization,
                Either::Right(_) => return Ok(None),
            };
            let call = open.call.id.clone();
            match authorization {
                Authorization::Allow => allowed.push(open.call),
                Authorization::Deny { reason } => {
                    self.conversation.submit(CommandKind::DenyTool { call, reason }).await?;
                }
                Authorization::Ask { reason } => {
                    self.conversation.submit(CommandKind::RequestApproval { call, reason }).await?;
                }
            }
        }
        Ok(Some(allowed))
    }

    async fn run_batch(&mut self, calls: &[(usize, &ToolCall)]) -> Result<(), DriveError> {
        let view = self.conversation.state().view().clone();
        let context = CallContext { deadline: self.deadline, cancel: self.cancel.clone(), view };
        let clock = Arc::clone(self.conversation.clock());
        let mut batch = ToolBatch::start(self.services.tools, calls, &context, &*clock, self.grace);
        loop {
            let ended = match select(Box::pin(batch.next()), self.inbox.next()).await {
                Either::Left((ended, _)) => Either::Left(ended),
                Either::Right((message, _)) => Either::Right(message),
            };
            match ended {
                Either::Left(None) => return Ok(()),
                Either::Left(Some((_, result, outcome))) => {
                    self.conversation.submit(CommandKind::FinishTool { result, outcome }).await?;
                }
                Either::Right(message) => self.accept_inbox(message).await?,
            }
        }
    }
}
