//! The tool calls of one response: all calls are authorised first, then the allowed ones run.
//!
//! A call may wait for a decision, for input, or for its result from outside. It keeps the other calls from running only if it is a
//! barrier. When nothing more can run, the turn is parked.

use std::sync::Arc;

use conjure_base::CallId;
use futures_util::StreamExt;
use futures_util::future::{Either, select};

use super::tool_batch::{CallPhase, ToolBatch, authorize, awaits, startable, traits};
use super::turn::{DriveError, TurnDriver};
use crate::machine::command::{CommandKind, StartedCall};
use crate::machine::{Step, next};
use crate::state::open_call::CallStatus;
use crate::tools::tool::ToolCall;
use crate::tools::tool_progress::ProgressSink;
use crate::tools::tool_runner::{Authorization, AwaitedResult, CallContext, CallTraits, ToolRunOutcome};

/// A call of the response, and what the tool runner reports about it.
struct ResponseCall {
    call: ToolCall,
    traits: CallTraits,
    awaits: Option<AwaitedResult>,
    /// Whether the policy has allowed the call in this pass. The recorded events do not show this.
    is_allowed: bool,
}

impl TurnDriver<'_> {
    /// Runs the open calls until nothing more can run. All are authorised before the first one runs.
    pub(super) async fn run_tools(&mut self) -> Result<(), DriveError> {
        let Some(calls) = self.authorize_all().await? else { return Ok(()) };
        self.extend_deadline();
        if next(self.conversation.state()) != Step::RunTools {
            return Ok(());
        }
        self.run_calls(&calls).await?;
        if self.is_cancelled_or_expired() || next(self.conversation.state()) != Step::RunTools {
            return Ok(());
        }
        // This also ends the calls whose results were not provided in time.
        self.conversation.submit(CommandKind::Recover).await?;
        let waits = !self.conversation.state().pending_actions().is_empty();
        if waits && next(self.conversation.state()) == Step::RunTools {
            self.conversation.submit(CommandKind::AwaitAction).await?;
        }
        Ok(())
    }

    /// Authorises the open calls and returns them in order; `None` when the turn was interrupted meanwhile.
    async fn authorize_all(&mut self) -> Result<Option<Vec<ResponseCall>>, DriveError> {
        let open = self.conversation.state().open_calls().to_vec();
        let view = self.conversation.state().view().clone();
        let tools = self.services.tools;
        let mut calls = Vec::with_capacity(open.len());
        for open in open {
            let (traits, awaits) = (traits(tools, &open.call), awaits(tools, &open.call));
            let mut call = ResponseCall { call: open.call, traits, awaits, is_allowed: false };
            if open.status == CallStatus::New {
                let cancelled = self.cancel.clone().cancelled_owned();
                let turn_end =
                    select(Box::pin(cancelled), self.conversation.clock().sleep_until(self.deadline));
                let asked = Box::pin(authorize(tools, &call.call, &view));
                let authorization = match select(asked, turn_end).await {
                    Either::Left((authorization, _)) => authorization,
                    Either::Right(_) => return Ok(None),
                };
                let id = call.call.id.clone();
                match authorization {
                    Authorization::Allow => call.is_allowed = true,
                    Authorization::Deny { reason } => {
                        self.conversation.submit(CommandKind::DenyTool { call: id, reason }).await?;
                    }
                    Authorization::Ask { reason } => {
                        self.conversation.submit(CommandKind::RequestApproval { call: id, reason }).await?;
                    }
                }
            }
            calls.push(call);
        }
        Ok(Some(calls))
    }

    async fn run_calls(&mut self, calls: &[ResponseCall]) -> Result<(), DriveError> {
        let view = self.conversation.state().view().clone();
        let observer = Arc::clone(self.conversation.observer());
        let context = CallContext {
            deadline: self.deadline,
            cancel: self.cancel.clone(),
            view,
            provided_input: None,
            progress: ProgressSink::new(move |progress| observer.on_tool_progress(&progress)),
        };
        let clock = Arc::clone(self.conversation.clock());
        let mut batch = ToolBatch::new(self.services.tools, &context, &*clock, self.grace);
        loop {
            if !self.is_cancelled_or_expired() {
                self.request_results(calls).await?;
                let places = startable(&self.phases(calls));
                if !places.is_empty() {
                    let started = places.iter().map(|place| StartedCall {
                        call: calls[*place].call.id.clone(),
                        idempotent: calls[*place].traits.idempotent,
                    });
                    let started = started.collect();
                    self.conversation.submit(CommandKind::StartTools { calls: started }).await?;
                    for place in places {
                        let (state, call) = (self.conversation.state(), &calls[place].call);
                        let input = state.open_call(&call.id).and_then(|open| open.provided_input.clone());
                        batch.add(place, call, state.view(), input);
                    }
                }
            }
            if batch.is_empty() {
                return Ok(());
            }
            let ended = match select(Box::pin(batch.next()), self.inbox.next()).await {
                Either::Left((ended, _)) => Either::Left(ended),
                Either::Right((message, _)) => Either::Right(message),
            };
            match ended {
                Either::Left(None) => {}
                Either::Left(Some((_, ToolRunOutcome::Ended(result), outcome))) => {
                    self.conversation.submit(CommandKind::FinishTool { result, outcome }).await?;
                }
                Either::Left(Some((place, ToolRunOutcome::InputRequired(request), _))) => {
                    let call = calls[place].call.id.clone();
                    self.conversation.submit(CommandKind::RequireInput { call, request }).await?;
                }
                Either::Right(message) => self.accept_inbox(message).await?,
            }
        }
    }

    /// Requests the results that come from outside.
    async fn request_results(&mut self, calls: &[ResponseCall]) -> Result<(), DriveError> {
        for call in calls {
            let Some(awaited) = call.awaits else { continue };
            if !self.may_run(call) {
                continue;
            }
            let now = self.conversation.clock().timestamp();
            let deadline = awaited.timeout.map(|timeout| now.saturating_add(timeout));
            let call = call.call.id.clone();
            let request = CommandKind::RequestResult { call, from: awaited.from, deadline };
            self.conversation.submit(request).await?;
        }
        Ok(())
    }

    /// Whether a call is authorised and has not started.
    fn may_run(&self, call: &ResponseCall) -> bool {
        match self.status(&call.call.id) {
            Some(CallStatus::New) => call.is_allowed,
            Some(CallStatus::Approved) => true,
            _ => false,
        }
    }

    fn phases(&self, calls: &[ResponseCall]) -> Vec<CallPhase> {
        calls
            .iter()
            .map(|call| {
                let concurrency = call.traits.concurrency;
                match self.status(&call.call.id) {
                    _ if call.awaits.is_some() => CallPhase::Ended,
                    Some(CallStatus::AwaitingApproval { .. } | CallStatus::AwaitingInput { .. }) => {
                        CallPhase::Waiting(concurrency)
                    }
                    Some(CallStatus::Started { .. }) => CallPhase::Running(concurrency),
                    _ if self.may_run(call) => CallPhase::Ready(concurrency),
                    _ => CallPhase::Ended,
                }
            })
            .collect()
    }

    fn status(&self, call: &CallId) -> Option<&CallStatus> {
        self.conversation.state().open_call(call).map(|open| &open.status)
    }
}
