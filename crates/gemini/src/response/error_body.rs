//! Reads errors: `{"error": {"code", "message", "status", "details"}}`, as a body or within a stream.
//!
//! - Some bodies have the error in a list of one element.
//! - A gateway writes the error in OpenAI's form: `{"error": {"message", "type", "param", "code": "400"}}`.
//! - A wrong key is a 400 with the reason `API_KEY_INVALID`, not a 401.
//! - `RetryInfo` among the details says how long to wait.

use std::time::Duration;

use conjure_conversation::ApiErrorKind;
use conjure_model_http::{ServiceError, error_kind_of_status};
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

/// The longest wait that a `retryDelay` may ask for. A longer one is treated as an error of the service.
const MAX_RETRY_DELAY: Duration = Duration::from_secs(86_400);

#[derive(Deserialize)]
struct ErrorBody<'a> {
    #[serde(borrow)]
    error: &'a RawValue,
}

/// The members of an error, each of any type.
#[derive(Default, Deserialize)]
#[serde(default)]
struct ErrorMembers {
    code: Value,
    message: Value,
    status: Value,
    #[serde(rename = "type")]
    kind: Value,
    details: Value,
}

/// The error in this body, if it has one. `http` is the status of the response; `None` for an error in a stream.
pub(crate) fn read_error(http: Option<u16>, body: &str) -> Option<ServiceError> {
    let list: Vec<&RawValue>;
    let body = if body.trim_start().starts_with('[') {
        list = serde_json::from_str(body).ok()?;
        match list.as_slice() {
            [only] => only.get(),
            _ => return None,
        }
    } else {
        body
    };
    let ErrorBody { error } = serde_json::from_str(body).ok()?;
    read_members(http, error.get())
}

/// The error that these members describe. `None` for JSON `null`.
pub(crate) fn read_members(http: Option<u16>, json: &str) -> Option<ServiceError> {
    let error: Value = serde_json::from_str(json).ok()?;
    let members = match error {
        Value::Null => return None,
        Value::String(message) => ErrorMembers { message: Value::String(message), ..ErrorMembers::default() },
        other => serde_json::from_value(other).unwrap_or_default(),
    };
    let code = members.code.as_u64().or_else(|| members.code.as_str()?.parse().ok());
    let status = http.filter(|status| *status >= 400).or(code.and_then(|code| u16::try_from(code).ok()));
    let name = members.status.as_str().or(members.kind.as_str());
    let reason = detail(&members.details, "google.rpc.ErrorInfo").and_then(|info| info["reason"].as_str());
    let delay = detail(&members.details, "google.rpc.RetryInfo").and_then(|info| info["retryDelay"].as_str());
    let message = members.message.as_str().filter(|text| !text.is_empty());
    let message = message.or(name).unwrap_or("the error has no message");
    let error = ServiceError::new(error_kind(reason, members.status.as_str(), status), message)
        .with_code(reason.or(name).map(str::to_owned))
        .with_retry_after(delay.and_then(retry_delay));
    Some(error)
}

/// The first detail of this type.
fn detail<'a>(details: &'a Value, name: &str) -> Option<&'a Value> {
    let is_it = |detail: &&Value| detail["@type"].as_str().is_some_and(|kind| kind.ends_with(name));
    details.as_array()?.iter().find(is_it)
}

/// The type of an error, by its reason, the name of its status, and its status code.
fn error_kind(reason: Option<&str>, name: Option<&str>, status: Option<u16>) -> ApiErrorKind {
    if matches!(reason, Some("API_KEY_INVALID" | "API_KEY_EXPIRED")) {
        return ApiErrorKind::Authentication;
    }
    match name {
        Some("UNAUTHENTICATED") => ApiErrorKind::Authentication,
        Some("PERMISSION_DENIED") => ApiErrorKind::Permission,
        Some("NOT_FOUND") => ApiErrorKind::NotFound,
        Some("RESOURCE_EXHAUSTED") => ApiErrorKind::RateLimit,
        Some("INVALID_ARGUMENT" | "FAILED_PRECONDITION" | "OUT_OF_RANGE") => ApiErrorKind::InvalidRequest,
        Some("DEADLINE_EXCEEDED") => ApiErrorKind::Timeout,
        Some("UNAVAILABLE") => ApiErrorKind::Overloaded,
        _ => match status {
            Some(503) => ApiErrorKind::Overloaded,
            Some(status) => error_kind_of_status(status),
            None => ApiErrorKind::Api,
        },
    }
}

/// Parses a duration in JSON: `37s`, `1.5s`.
fn retry_delay(text: &str) -> Option<Duration> {
    let seconds: f64 = text.strip_suffix('s')?.parse().ok()?;
    let wait = Duration::try_from_secs_f64(seconds).ok()?;
    (!wait.is_zero()).then(|| wait.min(MAX_RETRY_DELAY))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(status: u16, body: &Value) -> ServiceError {
        read_error(Some(status), &body.to_string()).unwrap()
    }

    #[test]
    fn an_error_with_a_retry_delay() {
        let body = json!({"error": {"code": 429, "message": "Quota exceeded.", "status": "RESOURCE_EXHAUSTED",
            "details": [{"@type": "type.googleapis.com/google.rpc.QuotaFailure", "violations": []},
                {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "37s"}]}});
        let expected = ServiceError::new(ApiErrorKind::RateLimit, "Quota exceeded.")
            .with_code(Some("RESOURCE_EXHAUSTED".to_owned()))
            .with_retry_after(Some(Duration::from_secs(37)));
        assert_eq!(read(429, &body), expected);
        // In a list of one element, and within a stream, where the status is 200.
        assert_eq!(read(429, &json!([body])), expected);
        assert_eq!(read(200, &body), expected);
        assert_eq!(read_error(None, &body.to_string()), Some(expected));
    }

    #[test]
    fn retry_delays_are_json_durations() {
        for (text, millis) in [("37s", 37_000), ("0.25s", 250), ("1.5s", 1500), ("1000000000s", 86_400_000)] {
            assert_eq!(retry_delay(text), Some(Duration::from_millis(millis)), "{text}");
        }
        for text in ["0s", "37", "-1s", "s", "NaNs", "infs", "1m"] {
            assert_eq!(retry_delay(text), None, "{text}");
        }
    }

    #[test]
    fn a_wrong_key_is_a_400_and_a_failed_authentication() {
        let body = json!({"error": {"code": 400, "message": "API key not valid. Please pass a valid API key.",
            "status": "INVALID_ARGUMENT", "details": [{"@type": "type.googleapis.com/google.rpc.ErrorInfo",
            "reason": "API_KEY_INVALID", "domain": "googleapis.com"}]}});
        let error = read(400, &body);
        assert_eq!(error.kind, ApiErrorKind::Authentication);
        assert_eq!(error.code.as_deref(), Some("API_KEY_INVALID"));
        assert!(error.message.starts_with("API key not valid"), "{error:?}");
    }

    #[test]
    fn statuses_have_their_types() {
        for (status, name, kind) in [
            (400, "INVALID_ARGUMENT", ApiErrorKind::InvalidRequest),
            (400, "FAILED_PRECONDITION", ApiErrorKind::InvalidRequest),
            (401, "UNAUTHENTICATED", ApiErrorKind::Authentication),
            (403, "PERMISSION_DENIED", ApiErrorKind::Permission),
            (404, "NOT_FOUND", ApiErrorKind::NotFound),
            (429, "RESOURCE_EXHAUSTED", ApiErrorKind::RateLimit),
            (500, "INTERNAL", ApiErrorKind::Api),
            (503, "UNAVAILABLE", ApiErrorKind::Overloaded),
            (504, "DEADLINE_EXCEEDED", ApiErrorKind::Timeout),
        ] {
            let body = json!({"error": {"code": status, "message": "m", "status": name}});
            assert_eq!(read(status, &body).kind, kind, "{name}");
            // The number alone, and the number in the body alone.
            let bare = json!({"error": {"code": status, "message": "m"}});
            assert_eq!(read(status, &bare).kind, kind, "{status}");
            assert_eq!(read_error(None, &bare.to_string()).unwrap().kind, kind, "{status}");
        }
    }

    #[test]
    fn an_error_of_a_gateway_has_the_form_of_openai() {
        let body = json!({"error": {"message": "bad model", "type": "invalid_request_error", "param": null,
            "code": "400"}});
        let error = read_error(None, &body.to_string()).unwrap();
        assert_eq!(error.kind, ApiErrorKind::InvalidRequest);
        assert_eq!(error.message, "bad model");
        assert_eq!(
            read(429, &json!({"error": {"message": "slow", "code": "x"}})).kind,
            ApiErrorKind::RateLimit
        );
        assert_eq!(read(500, &json!({"error": "broken"})).message, "broken");
        let strange = read(500, &json!({"error": {"message": 3, "code": [], "details": {"a": 1}}}));
        assert_eq!((strange.kind, strange.message.as_str()), (ApiErrorKind::Api, "the error has no message"));
    }

    #[test]
    fn a_body_without_an_error_is_none() {
        for body in ["", "<html>", "{}", "[]", "3", r#"{"error":null}"#, r#"[{"error":{}},{"error":{}}]"#] {
            assert_eq!(read_error(Some(500), body), None, "{body}");
        }
    }
}
