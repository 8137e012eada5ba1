//! Reads errors of the service, and of other servers that speak the Messages API.
//!
//! - Anthropic: `{"type": "error", "error": {"type", "message", "details": {"error_code"}}, "request_id"}`.
//! - llama.cpp in a stream: `{"code": 500, "message", "type": "server_error"}`.
//! - llama.cpp in a response, and servers in front of OpenAI's API: `{"error": {"code", "message", "type"}}`.

use conjure_conversation::ApiErrorKind;
use conjure_model_http::{ServiceError, error_kind_of_status};
use serde::Deserialize;
use serde_json::Value;

/// The maximum number of characters that are quoted of an error of an unknown form.
const MAX_QUOTED_CHARS: usize = 500;

#[derive(Deserialize)]
struct Body {
    error: Option<Value>,
    request_id: Option<String>,
    #[serde(flatten)]
    flat: Detail,
}

#[derive(Default, Deserialize)]
struct Detail {
    #[serde(default, rename = "type")]
    kind: Value,
    #[serde(default)]
    message: Value,
    #[serde(default)]
    code: Value,
    #[serde(default)]
    details: Value,
}

/// The error of a response body with this status; `None` if it is not one.
pub(crate) fn from_response(status: u16, body: &[u8]) -> Option<ServiceError> {
    read(std::str::from_utf8(body).ok()?, error_kind_of_status(status))
}

/// The error of an event in a stream. An error of an unknown form is quoted.
pub(crate) fn of_event(data: &str) -> ServiceError {
    read(data, ApiErrorKind::Api).unwrap_or_else(|| {
        ServiceError::new(ApiErrorKind::Api, data.chars().take(MAX_QUOTED_CHARS).collect::<String>())
    })
}

/// Whether the data of an event without a type is an error.
pub(crate) fn is_error(data: &str) -> bool {
    read(data, ApiErrorKind::Api).is_some()
}

/// Reads an error. `otherwise` is the kind of an error that names no known type.
fn read(body: &str, otherwise: ApiErrorKind) -> Option<ServiceError> {
    let Body { error, request_id, flat } = serde_json::from_str::<Body>(body).ok()?;
    let detail = match error {
        None | Some(Value::Null) => {
            // A message without a code may be anything, so it does not count.
            let is_flat = flat.message.is_string() && flat.code.is_number();
            match flat.kind.as_str() {
                Some("error") => Detail { kind: Value::Null, ..flat },
                _ if is_flat => flat,
                _ => return None,
            }
        }
        Some(Value::String(message)) => Detail { message: message.into(), ..Detail::default() },
        Some(error @ Value::Object(_)) => serde_json::from_value(error).ok()?,
        Some(_) => return None,
    };
    // The code is a number, or a number in a string.
    let status = detail.code.to_string().trim_matches('"').parse::<u16>().ok();
    let of_status = status.filter(|status| (400..600).contains(status)).map(error_kind_of_status);
    let kind = match detail.kind.as_str().map(|name| ApiErrorKind::from(name.to_owned())) {
        Some(ApiErrorKind::Unknown(name)) => of_status.unwrap_or(ApiErrorKind::Unknown(name)),
        Some(known) => known,
        None => of_status.unwrap_or(otherwise),
    };
    let message = detail.message.as_str().filter(|message| !message.is_empty());
    let code = detail.details["error_code"].as_str().or(detail.code.as_str());
    Some(
        ServiceError::new(kind, message.unwrap_or("the error has no message"))
            .with_code(code.map(str::to_owned))
            .with_request_id(request_id),
    )
}
