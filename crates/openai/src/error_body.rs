//! Reads errors in the form of OpenAI and compatible servers: `{"error": {"message", "type", "param", "code"}}`.
//!
//! Servers differ: the code is a string or a number, `error` may be a string, FastAPI writes `detail`, a gateway may wrap the object in a
//! list. The cause is found by code, then by type, then by status.

use conjure_conversation::ApiErrorKind;
use conjure_model_http::{RetryAdvice, ServiceError, error_kind_of_status};
use serde_json::Value;

/// The text that is added to the error of a server that cannot call tools.
const NO_TOOLS_HINT: &str = "; the model or its server has no tool calls: choose a model that has them, or turn them on in the server \
                             (vLLM: `--enable-auto-tool-choice --tool-call-parser`, llama.cpp: `--jinja`)";

/// The error in a body with this status; `None` if the body has none.
pub(crate) fn read_error_body(status: u16, body: &[u8]) -> Option<ServiceError> {
    let body: Value = serde_json::from_slice(body).ok()?;
    let body = match body {
        Value::Array(mut list) if !list.is_empty() => list.swap_remove(0),
        other => other,
    };
    service_error(&body, Some(status))
}

/// The error that an object reports, in its member `error` or itself. `status` is the status of the response, if that is an error status.
pub(crate) fn service_error(object: &Value, status: Option<u16>) -> Option<ServiceError> {
    let error = match &object["error"] {
        Value::Null => object,
        error => error,
    };
    let field_text = |name: &str| match &error[name] {
        Value::String(text) if !text.is_empty() => Some(text.clone()),
        _ => None,
    };
    let mut message = error.as_str().map(str::to_owned).or_else(|| field_text("message"));
    if message.is_none() && !object["error"].is_object() {
        message = match &error["detail"] {
            Value::Null => return None,
            Value::String(text) => Some(text.clone()),
            other => Some(other.to_string()),
        };
    }
    let number = error["code"].as_u64().and_then(|code| u16::try_from(code).ok());
    let status = status.filter(|status| *status >= 400).or(number.filter(|code| (400..600).contains(code)));
    let (code, kind) = (field_text("code"), field_text("type"));
    let (api_kind, retry) = classify(code.as_deref(), kind.as_deref(), status);
    let mut message = message.unwrap_or_else(|| "the error has no message".to_owned());
    // A gateway puts the message of the provider behind it only here.
    if let Some(raw) = error["metadata"]["raw"].as_str() {
        message = format!("{message} ({raw})");
    }
    if lacks_tools(&message) {
        message.push_str(NO_TOOLS_HINT);
    }
    let code = code.or_else(|| number.map(|code| code.to_string())).or(kind);
    Some(ServiceError::new(api_kind, message).with_code(code).with_retry(retry))
}

/// Whether a JSON object in a stream is an error. It is one if it has a member `error`, or if it has a message, a code or type, and no
/// output.
pub(crate) fn is_error_object(object: &Value) -> bool {
    !object["error"].is_null()
        || (object["message"].is_string()
            && object.get("choices").is_none()
            && !(object["code"].is_null() && object["type"].is_null()))
}

fn classify(code: Option<&str>, kind: Option<&str>, status: Option<u16>) -> (ApiErrorKind, RetryAdvice) {
    use ApiErrorKind as Kind;
    let by_name = |name: &str| {
        Some(match name {
            // The account has no credit. The status is that of a rate limit, but waiting does not help.
            "insufficient_quota" | "billing_hard_limit_reached" => (Kind::Billing, RetryAdvice::GiveUp),
            "rate_limit_exceeded" | "rate_limit_error" | "rate_limit" | "requests" | "tokens" => {
                (Kind::RateLimit, RetryAdvice::ByStatus)
            }
            "slow_down" | "server_is_overloaded" | "overloaded_error" | "engine_overloaded" => {
                (Kind::Overloaded, RetryAdvice::ByStatus)
            }
            "context_length_exceeded" | "exceed_context_size_error" | "string_above_max_length" => {
                (Kind::InvalidRequest, RetryAdvice::GiveUp)
            }
            // The model wrote an invalid call, which the server refused. The next attempt may be better.
            "tool_use_failed" => (Kind::Api, RetryAdvice::Retry),
            "invalid_api_key" | "authentication_error" | "AuthenticationError" => {
                (Kind::Authentication, RetryAdvice::GiveUp)
            }
            "model_not_found" | "not_found_error" | "NotFoundError" => (Kind::NotFound, RetryAdvice::GiveUp),
            "permission_error" | "permission_denied" => (Kind::Permission, RetryAdvice::GiveUp),
            "invalid_prompt" | "misalignment_policy_violation" | "content_policy_violation" => {
                (Kind::InvalidRequest, RetryAdvice::GiveUp)
            }
            _ => return None,
        })
    };
    if let Some(known) = code.and_then(by_name).or_else(|| kind.and_then(by_name)) {
        return known;
    }
    let kind = match (status, kind) {
        (Some(503), _) => Kind::Overloaded,
        (Some(status), _) => error_kind_of_status(status),
        (None, Some("invalid_request_error" | "BadRequestError")) => Kind::InvalidRequest,
        (None, _) => Kind::Api,
    };
    (kind, RetryAdvice::ByStatus)
}

/// Whether a message says that the model or the server cannot call tools.
fn lacks_tools(message: &str) -> bool {
    let message = message.to_lowercase();
    let refuses = ["does not support", "doesn't support", "not supported", "requires --", "support tool use"];
    message.contains("tool") && refuses.iter().any(|words| message.contains(words))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(status: u16, body: &Value) -> ServiceError {
        read_error_body(status, body.to_string().as_bytes()).unwrap()
    }

    #[test]
    fn the_code_decides_before_type_and_status() {
        use ApiErrorKind as Kind;
        use RetryAdvice::{ByStatus, GiveUp, Retry};
        for (status, code, kind, expected, retry) in [
            (429, json!("rate_limit_exceeded"), json!("requests"), Kind::RateLimit, ByStatus),
            (429, json!("insufficient_quota"), json!("insufficient_quota"), Kind::Billing, GiveUp),
            (429, json!("slow_down"), Value::Null, Kind::Overloaded, ByStatus),
            (429, json!("rate_limit_exceeded"), json!("tokens"), Kind::RateLimit, ByStatus),
            (503, json!("server_is_overloaded"), json!("server_error"), Kind::Overloaded, ByStatus),
            (503, Value::Null, json!("server_error"), Kind::Overloaded, ByStatus),
            (
                400,
                json!("context_length_exceeded"),
                json!("invalid_request_error"),
                Kind::InvalidRequest,
                GiveUp,
            ),
            (400, json!(400), json!("exceed_context_size_error"), Kind::InvalidRequest, GiveUp),
            (400, json!("tool_use_failed"), json!("invalid_request_error"), Kind::Api, Retry),
            (400, json!(400), json!("BadRequestError"), Kind::InvalidRequest, ByStatus),
            (401, json!("invalid_api_key"), json!("invalid_request_error"), Kind::Authentication, GiveUp),
            (402, json!(402), Value::Null, Kind::Billing, ByStatus),
            (404, json!(404), json!("not_found_error"), Kind::NotFound, GiveUp),
            (500, json!(500), json!("server_error"), Kind::Api, ByStatus),
            (502, json!(502), Value::Null, Kind::Api, ByStatus),
        ] {
            let body = json!({"error": {"message": "so it is", "type": kind, "param": null, "code": code}});
            let error = read(status, &body);
            assert_eq!((error.kind, error.retry), (expected, retry), "{body}");
            assert_eq!(error.message, "so it is");
        }
        let error =
            read(400, &json!({"error": {"message": "m", "code": 400, "type": "exceed_context_size_error"}}));
        assert_eq!(error.code.as_deref(), Some("400"));
    }

    #[test]
    fn an_error_under_status_200_or_in_a_stream_has_the_status_of_its_code() {
        let error = read(
            200,
            &json!({"error": {"code": 502, "message": "Provider returned error", "metadata": {"raw": "oops"}}}),
        );
        assert_eq!(
            (error.kind, error.message.as_str()),
            (ApiErrorKind::Api, "Provider returned error (oops)")
        );
        let limited = service_error(&json!({"error": {"code": 429, "message": "wait"}}), None).unwrap();
        assert_eq!(limited.kind, ApiErrorKind::RateLimit);
        // llama.cpp, without the member `error`.
        let bare = json!({"code": 500, "message": "Unexpected empty grammar stack", "type": "server_error"});
        assert!(is_error_object(&bare));
        assert_eq!(service_error(&bare, None).unwrap().message, "Unexpected empty grammar stack");
        assert!(!is_error_object(&json!({"choices": [], "message": "x", "type": "y"})));
        assert!(!is_error_object(&json!({"error": null, "id": "x"})));
    }

    #[test]
    fn other_error_formats_are_parsed_and_non_errors_are_none() {
        for (body, message) in [
            (json!({"error": "model is required"}), "model is required"),
            (json!({"detail": "Not Found"}), "Not Found"),
            (json!({"detail": [{"msg": "field required"}]}), r#"[{"msg":"field required"}]"#),
            (json!({"object": "error", "message": "old vLLM", "code": 40301}), "old vLLM"),
            (json!([{"error": {"code": 400, "message": "a list"}}]), "a list"),
            (json!({"error": {"code": 400}}), "the error has no message"),
        ] {
            assert_eq!(read(400, &body).message, message);
        }
        for body in ["", "<html>", "{}", "[]", "7", r#"{"id":"x"}"#] {
            assert!(read_error_body(500, body.as_bytes()).is_none(), "{body}");
        }
    }

    #[test]
    fn missing_tool_support_is_reported() {
        for message in [
            "registry.ollama.ai/library/gemma:2b does not support tools",
            "\"auto\" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set",
            "tools param requires --jinja flag",
            "No endpoints found that support tool use.",
        ] {
            let error = read(400, &json!({"error": {"message": message}}));
            assert!(
                error.message.starts_with(message) && error.message.contains("has no tool calls"),
                "{error:?}"
            );
        }
        assert!(
            !read(400, &json!({"error": {"message": "stop is not supported"}}))
                .message
                .contains("tool calls")
        );
    }
}
