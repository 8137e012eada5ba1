//! Follows one turn: sends the session's events to the editor, and asks the editor's user for approvals.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use agent_client_protocol::v1::ConnectionTo;
use agent_client_protocol::v1::schema::{
    PermissionOption, PermissionOptionKind, RequestPermissionOutcome, RequestPermissionRequest,
    SessionNotification, SessionUpdate, StopReason, ToolCall, ToolCallUpdate, ToolCallUpdateFields,
};
use agent_client_protocol::{Client, Error};
use conjure_actors::session::{Session, TurnEvent, TurnHandle, Update};
use conjure_conversation::{
    Decision, EventId, Grant, GrantScope, InputAnswers, Limit, ModelEvent, SessionEventKind,
    SessionStopReason, StopReason as ModelStop, TurnStop,
};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::updates::{self, ShownText};

/// The ids of the options that the user can select.
const ALLOW: &str = "allow";
const ALWAYS: &str = "always";
const REJECT: &str = "reject";

/// Follows a turn to its end.
pub(crate) struct TurnFollower {
    pub(crate) session: Session,
    pub(crate) connection: ConnectionTo<Client>,
    pub(crate) cwd: Arc<Path>,
    pub(crate) cancel: CancellationToken,
    /// The tool calls so far, by the id of their event.
    pub(crate) calls: HashMap<EventId, ToolCall>,
    /// The text of the current response that the editor has received.
    pub(crate) shown: ShownText,
}

impl TurnFollower {
    pub(crate) async fn follow(mut self, mut turn: TurnHandle) -> Result<StopReason, Error> {
        let mut is_cancelled = false;
        loop {
            let event = tokio::select! {
                biased;
                () = self.cancel.cancelled(), if !is_cancelled => {
                    is_cancelled = true;
                    // The loop continues until the turn's last event arrives.
                    self.session.interrupt().await.map_err(failed)?;
                    continue;
                }
                event = turn.next() => event,
            };
            match event {
                None => return Err(failed("the session ended before its turn")),
                Some(Err(error)) => return Err(failed(error)),
                Some(Ok(TurnEvent::Update(update))) => self.send_update(update).await?,
                Some(Ok(TurnEvent::Ended { stop, .. })) => return self.stop_reason(stop),
                Some(Ok(_)) => return Ok(StopReason::Cancelled),
            }
        }
    }

    async fn send_update(&mut self, update: Update) -> Result<(), Error> {
        match update {
            Update::Preview(ModelEvent::Started) => {
                self.shown = ShownText::default();
                Ok(())
            }
            Update::Preview(ModelEvent::TextDelta { index, text }) => {
                self.shown.add(index, &text);
                self.send(updates::message(text))
            }
            Update::Preview(ModelEvent::ThinkingDelta { index, text }) => {
                self.shown.add(index, &text);
                self.send(updates::thought(text))
            }
            Update::ToolProgress(progress) => self.send(updates::progress(&progress)),
            Update::Recorded(event) => {
                if let SessionEventKind::SessionStatusIdle {
                    stop_reason: SessionStopReason::RequiresAction { event_ids, .. },
                    ..
                } = &event.kind
                {
                    return self.ask(event_ids).await;
                }
                for update in updates::of_event(&event.kind, &self.cwd, Some(&mut self.shown)) {
                    if let SessionUpdate::ToolCall(call) = &update {
                        self.calls.insert(event.id.clone(), call.clone());
                    }
                    self.send(update)?;
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Asks the user about these calls, one after the other.
    async fn ask(&self, calls: &[EventId]) -> Result<(), Error> {
        for event in calls {
            if event.input_in(self.session.id()).is_some() {
                // The protocol has no stable way to show a form, so the tool gets no answers.
                self.session.provide_input_event(event, InputAnswers::new()).await.map_err(failed)?;
                continue;
            }
            let Some(call) = self.calls.get(event) else { continue };
            let decision = tokio::select! {
                biased;
                () = self.cancel.cancelled() => return Ok(()),
                // If the editor cannot ask the user, the turn is interrupted.
                decision = self.decision(call) => decision.unwrap_or(None),
            };
            match decision {
                Some(decision) => self.session.decide_event(event, decision).await.map_err(failed)?,
                // The user cancelled the turn instead of deciding.
                None => return self.session.interrupt().await.map(drop).map_err(failed),
            }
        }
        Ok(())
    }

    /// Returns the user's decision. `None` if the user cancelled the turn.
    async fn decision(&self, call: &ToolCall) -> Result<Option<Decision>, Error> {
        let name = call.name.clone().unwrap_or_default();
        let mut options = vec![PermissionOption::new(ALLOW, "Allow", PermissionOptionKind::AllowOnce)];
        // A permanent grant for a command would allow everything that the command can run. Each skill of an MCP server needs a decision of
        // its own.
        let can_grant =
            !matches!(name.as_str(), "bash" | "bash_tool" | "skills_run_script" | "mcp_load_skill" | "");
        if can_grant {
            let text = format!("Always allow {name} in this session");
            options.push(PermissionOption::new(ALWAYS, text, PermissionOptionKind::AllowAlways));
        }
        options.push(PermissionOption::new(REJECT, "Reject", PermissionOptionKind::RejectOnce));
        let fields = ToolCallUpdateFields::new()
            .title(call.title.clone())
            .kind(call.kind)
            .content(updates::question_content(call))
            .locations(call.locations.clone())
            .raw_input(call.raw_input.clone().unwrap_or(Value::Null));
        let asked = ToolCallUpdate::new(call.tool_call_id.clone(), fields);
        let request = RequestPermissionRequest::new(self.session.id().to_string(), asked, options);
        let answer = self.connection.send_request(request).block_task().await?;
        let RequestPermissionOutcome::Selected(selected) = answer.outcome else { return Ok(None) };
        Ok(Some(match &*selected.option_id.0 {
            ALLOW => Decision::Allow,
            ALWAYS if can_grant => {
                Decision::Grant { grant: Grant { rule: name, scope: GrantScope::Session } }
            }
            _ => Decision::Deny { reason: "the user has rejected this call".to_owned() },
        }))
    }

    pub(crate) fn send(&self, update: SessionUpdate) -> Result<(), Error> {
        self.connection.send_notification(SessionNotification::new(self.session.id().to_string(), update))
    }

    fn stop_reason(&self, stop: TurnStop) -> Result<StopReason, Error> {
        Ok(match stop {
            TurnStop::Truncated(ModelStop::MaxTokens) => StopReason::MaxTokens,
            TurnStop::Refused => StopReason::Refusal,
            TurnStop::Interrupted => StopReason::Cancelled,
            TurnStop::Limit(Limit::ModelCalls) => StopReason::MaxTurnRequests,
            TurnStop::Limit(_) => StopReason::MaxTokens,
            TurnStop::ModelFailed(error) => return Err(failed(error)),
            TurnStop::Answered(_) => StopReason::EndTurn,
            // The editor shows the reason to the user as a message.
            other => {
                self.send(updates::message(format!("[The turn ended: {other}]")))?;
                StopReason::EndTurn
            }
        })
    }
}

/// An internal error, which the editor shows.
pub(crate) fn failed(error: impl std::fmt::Display) -> Error {
    Error::internal_error().data(Value::from(error.to_string()))
}
