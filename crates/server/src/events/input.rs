//! The questions of a tool to the user during a call, in the API's terms.
//!
//! The API has no events for such questions. So each question becomes a custom tool call for the client, and the answer is the result of
//! that call. A client that does not know the tool answers with an error, which cancels the questions.

use std::collections::BTreeMap;

use conjure_api::{ContentBlock, EventKind};
use conjure_conversation::{EventId, InputAnswers, InputQuestion, ResultContent};
use serde_json::json;

use crate::http::ApiError;

/// The name of the custom tool: MCP's method name. The name is not valid for the agent's own custom tools.
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

/// The answers in a tool result of the client.
///
/// # Errors
/// 400 for content without answers.
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
