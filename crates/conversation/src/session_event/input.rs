//! The session events of the questions that a running tool asks, and of their answers.
//!
//! They have the form of a tool whose result the client provides, so a client that answers its own tools can answer these as well.

use std::collections::BTreeMap;

use conjure_base::{CallId, SessionId};
use serde::Serialize;

use super::event_id::EventId;
use super::types::{ELICITATION, SessionEventKind};
use crate::block::Block;
use crate::input_request::{InputAnswers, InputQuestion, InputRequest};
use crate::tool::{ToolCall, ToolResult};

/// What the event of the questions has as its input.
#[derive(Serialize)]
struct Questions<'a> {
    asked_by: &'a str,
    questions: &'a BTreeMap<String, InputQuestion>,
}

pub(super) fn input_questions(call: &CallId, request: &InputRequest) -> SessionEventKind {
    let questions = Questions { asked_by: &request.asked_by, questions: &request.questions };
    let ToolCall { id: call_id, name, input } =
        ToolCall::new(call.as_str(), ELICITATION, &serde_json::json!(questions));
    SessionEventKind::AgentCustomToolUse { call_id, name, input }
}

pub(super) fn input_answers(
    session: SessionId,
    call: &CallId,
    round: u32,
    answers: &InputAnswers,
) -> SessionEventKind {
    let text = serde_json::json!(answers).to_string();
    SessionEventKind::UserCustomToolResult {
        custom_tool_use_id: EventId::for_input(session, call.clone(), round),
        call_id: call.clone(),
        result: Block::tool_result(&ToolResult::text_result(call, text)),
        is_error: false,
    }
}
