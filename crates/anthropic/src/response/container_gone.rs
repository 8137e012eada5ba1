//! Recognises service errors that report a missing or expired container, by error code or by message.
//!
//! The messages are undocumented. So a message counts only if the request named a container and the message mentions it. Messages about
//! skills or files in the container do not count.

use conjure_conversation::ApiErrorKind;

/// Type, code and message of a service error.
#[derive(Debug)]
pub(crate) struct ServiceErrorText<'a> {
    pub(crate) kind: &'a ApiErrorKind,
    /// `error.details.error_code`, if present.
    pub(crate) code: Option<&'a str>,
    pub(crate) message: &'a str,
}

const CODES: [&str; 2] = ["container_expired", "container_not_found"];
const ENDS: [&str; 5] = ["not found", "does not exist", "no longer", "not exist", "unknown"];

impl ServiceErrorText<'_> {
    /// Whether the error says that this container, which the request named, is gone.
    pub(crate) fn is_container_gone(&self, container: &str) -> bool {
        if self.code.is_some_and(|code| CODES.contains(&code)) {
            return true;
        }
        match self.kind {
            ApiErrorKind::InvalidRequest | ApiErrorKind::NotFound => {}
            ApiErrorKind::Unknown(kind) => {
                if CODES.iter().any(|code| kind.starts_with(code)) {
                    return true;
                }
            }
            _ => return false,
        }
        let text = self.message.to_lowercase().replace("container_upload", "upload");
        let container_id = container.to_lowercase();
        let without_id = text.replace(&container_id, "");
        if without_id.contains("skill") || without_id.contains("file") {
            return false;
        }
        let mentions_container = text.contains(&container_id) || text.contains("container");
        mentions_container
            && (text.contains("expired")
                || (ENDS.iter().any(|end| text.contains(end))
                    && (text.contains(&container_id) || text.contains("container not"))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(kind: &str, code: Option<&str>, message: &str, expected: bool) {
        let kind = ApiErrorKind::from(kind.to_owned());
        let error = ServiceErrorText { kind: &kind, code, message };
        assert_eq!(error.is_container_gone("container_011abc"), expected, "{error:?}");
    }

    #[test]
    fn container_errors_are_recognized_by_code_and_message() {
        let invalid = "invalid_request_error";
        check(invalid, Some("container_expired"), "", true);
        check("not_found_error", Some("container_not_found"), "", true);
        check("container_expired_error", None, "", true);
        check(invalid, None, "container: Container has expired", true);
        check(invalid, None, "Container 'container_011abc' has expired. Create a new one.", true);
        check("not_found_error", None, "container_011abc not found", true);
        check("not_found_error", None, "Container not found", true);
        check(invalid, None, "container: container_011abc does not exist", true);

        check(invalid, Some("file_expired"), "The file in the container_upload has expired", false);
        check(invalid, None, "container.skills.0: skill `skill_1` not found", false);
        check(invalid, None, "messages.0.content.1.container_upload: file not found", false);
        check(invalid, None, "container.skills: List should have at most 8 items", false);
        check(invalid, None, "container: Input should be a string or an object", false);
        check(invalid, None, "max_tokens: Field required", false);
        check("overloaded_error", None, "container expired", false);
        check("authentication_error", None, "the token has expired", false);
    }
}
