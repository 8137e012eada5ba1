//! The questions of a server during a call (`input_required`), and their answers.
//!
//! No connection or task waits for the answers. A server of the newest revision returns its state with the questions, and the client
//! repeats the call with the answers and that state. For older servers see [`WaitingCalls`](super::waiting_calls::WaitingCalls).

use std::collections::BTreeMap;

use conjure_base::text::truncate;
use conjure_conversation::{InputAnswer, InputForm, InputQuestion, InputRequest, ProvidedInput};
use rmcp::model::{
    CallToolRequestParams, ElicitRequestParams, InputRequest as ServerRequest, InputRequiredResult,
    InputResponses,
};
use serde_json::json;

use crate::client::transport::process_transport::printable;

/// The maximum number of questions in one result.
const MAX_QUESTIONS: usize = 20;

/// The maximum size of a question's id, in bytes.
const MAX_ID_BYTES: usize = 200;

/// The maximum length of a question, in characters. Longer questions are cut off.
const MAX_MESSAGE_CHARS: usize = 4_000;

/// The maximum size of a form's schema or of a URL, in bytes.
const MAX_FORM_BYTES: usize = 32_000;

/// The maximum size of the server's state, in bytes.
const MAX_STATE_BYTES: usize = 256_000;

/// Checks the number of questions and the size of the state.
///
/// # Errors
/// The limit that the server exceeds.
pub(in crate::client) fn check(asked: &InputRequiredResult) -> Result<(), String> {
    let count = asked.input_requests.as_ref().map_or(0, |requests| requests.len());
    if count > MAX_QUESTIONS {
        return Err(format!("asks {count} questions at once, and the maximum is {MAX_QUESTIONS}"));
    }
    if asked.request_state.as_ref().is_some_and(|state| state.len() > MAX_STATE_BYTES) {
        return Err(format!("leaves more than {MAX_STATE_BYTES} bytes of state with its questions"));
    }
    Ok(())
}

/// Converts the questions of the server with this name.
///
/// # Errors
/// The reason why a question is refused.
pub(in crate::client) fn questions(server: &str, asked: InputRequiredResult) -> Result<InputRequest, String> {
    let requests = asked.input_requests.unwrap_or_default();
    let mut questions = BTreeMap::new();
    for (id, request) in requests {
        if id.len() > MAX_ID_BYTES {
            return Err(format!("asks a question whose id has more than {MAX_ID_BYTES} bytes"));
        }
        let ServerRequest::Elicitation(request) = request else {
            return Err("asks a person and this client at once, which is not supported".to_owned());
        };
        questions.insert(id, question(request.params)?);
    }
    Ok(InputRequest { asked_by: server.to_owned(), questions, state: asked.request_state })
}

/// Converts one question to the user.
///
/// # Errors
/// The reason why the question is refused.
pub(in crate::client) fn question(asked: ElicitRequestParams) -> Result<InputQuestion, String> {
    let (message, form) = match asked {
        ElicitRequestParams::FormElicitationParams { message, requested_schema, .. } => {
            (message, InputForm::Form { requested_schema: json!(requested_schema) })
        }
        ElicitRequestParams::UrlElicitationParams { message, url, .. } => (message, InputForm::Url { url }),
        _ => return Err("asks in a way that is not known here".to_owned()),
    };
    let size = match &form {
        InputForm::Form { requested_schema } => requested_schema.to_string().len(),
        InputForm::Url { url } if !url.starts_with("https://") && !url.starts_with("http://") => {
            return Err("asks for a visit to an address that is no web page".to_owned());
        }
        InputForm::Url { url } => url.len(),
        _ => 0,
    };
    if size > MAX_FORM_BYTES {
        return Err(format!("asks with a form of {size} bytes, and the maximum is {MAX_FORM_BYTES}"));
    }
    Ok(InputQuestion { message: printable(&truncate(&message, MAX_MESSAGE_CHARS)), form })
}

/// The parameters of the repeated call, with the user's answers.
pub(in crate::client) fn with_input(
    params: CallToolRequestParams,
    provided: ProvidedInput,
) -> CallToolRequestParams {
    let responses: InputResponses = provided
        .answers
        .into_iter()
        .map(|(id, answer)| {
            let response = match answer {
                InputAnswer::Accept { content: Some(content) } => {
                    json!({"action": "accept", "content": content})
                }
                InputAnswer::Accept { content: None } => json!({"action": "accept"}),
                InputAnswer::Decline => json!({"action": "decline"}),
                InputAnswer::Cancel => json!({"action": "cancel"}),
            };
            (id, response)
        })
        .collect();
    retry_params(params, responses, provided.state)
}

/// The parameters of the repeated call, with these answers and the state that the server returned.
pub(in crate::client) fn retry_params(
    params: CallToolRequestParams,
    responses: InputResponses,
    state: Option<String>,
) -> CallToolRequestParams {
    let params = if responses.is_empty() { params } else { params.with_input_responses(responses) };
    match state {
        Some(state) => params.with_request_state(state),
        None => params,
    }
}
