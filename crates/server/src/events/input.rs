//! What a tool asks a person in the middle of a call, in the API's terms.
//!
//! The API has no such events. So a question is shown as a custom tool that the client runs, and the answer is that tool's result. A client
//! that does not know the tool answers with an error, which cancels the questions.

use std::collections::BTreeMap;

use conjure_api::{ContentBlock, EventKind};
use conjure_conversation::{EventId, InputAnswers, InputQuestion, ResultContent};
use serde_json::json;

use crate::http::ApiError;

/// The name of the tool: the method of MCP. No custom tool can have it.
const ELICITATION: &str = "elicitation/create";

pub(super) fn api_questions(
    asked_by: &str,
    questions: &BTreeMap<String, InputQuestion>,
) -> Option<EventKind> {
    let input =
        serde_json::value::to_raw_value(&json!({"asked_by": asked_by, "questions": questions})).ok()?;
    Some(EventKind::AgentCustomToolUse { name: ELICITATION.to_owned(), input })
}

pub(super) fn api_answers(request: &EventId, answers: &InputAnswers) -> EventKind {
    EventKind::UserCustomToolResult {
        custom_tool_use_id: request.to_string(),
        content: Some(vec![ContentBlock::text(json!(answers).to_string())]),
        is_error: Some(false),
    }
}

/// The answers that a client gives as the result of the tool.
///
/// # Errors
/// 400 for content that has no answers.
pub(crate) fn input_answers(
    place: &str,
    content: &[ResultContent],
    is_error: bool,
) -> Result<InputAnswers, ApiError> {
    if is_error {
        return Ok(InputAnswers::new());
    }
    let texts = content.iter().filter_map(|part| match part {
        ResultContent::Text { text } => Some(text.as_str()),
        _ => None,
    });
    serde_json::from_str(&texts.collect::<String>()).map_err(|error| {
        ApiError::invalid(format!(
            "{place}.content: the answers must be a text with a JSON object that has, for each id of a question, \
             {{\"action\": \"accept\", \"content\": {{…}}}}, {{\"action\": \"decline\"}} or {{\"action\": \"cancel\"}}: {error}"
        ))
    })
}
