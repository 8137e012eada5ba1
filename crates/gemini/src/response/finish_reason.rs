//! Converts the service's finish reason to a [`StopReason`].
//!
//! There is no reason for tool calls: an answer with calls ends with `STOP`, so the calls decide. Reasons of the service's filters become
//! refusals. Every other reason is kept as text.

use conjure_conversation::StopReason;

/// The reasons of filters, which refuse what the answer says or was about to say.
const FILTERS: [&str; 12] = [
    "SAFETY",
    "RECITATION",
    "LANGUAGE",
    "BLOCKLIST",
    "PROHIBITED_CONTENT",
    "SPII",
    "IMAGE_SAFETY",
    "IMAGE_PROHIBITED_CONTENT",
    "IMAGE_RECITATION",
    "ESCALATION",
    "PUP_LIMITED_DISABLED",
    "MODEL_ARMOR",
];

/// The reason of an answer that is not finished. The service continues it when it gets the token of that answer.
pub(crate) const CONTINUATION: &str = "CONTINUATION";

/// The content of an answer that its stop reason depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AnswerContent {
    /// Tool calls.
    Calls,
    /// No calls.
    NoCalls,
    /// A continuation token, and content that can be continued.
    Continued,
}

/// The stop reason of a `finishReason`, which may be in upper or lower case.
pub(crate) fn stop_reason(reason: &str, content: AnswerContent) -> StopReason {
    let reason = reason.to_ascii_uppercase();
    match (reason.as_str(), content) {
        ("STOP", AnswerContent::Calls) => StopReason::ToolUse,
        ("STOP", _) => StopReason::EndTurn,
        ("MAX_TOKENS", _) => StopReason::MaxTokens,
        (CONTINUATION, AnswerContent::Continued) => StopReason::PauseTurn,
        (filter, _) if FILTERS.contains(&filter) => StopReason::Refusal,
        _ => StopReason::Unknown(reason),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_finish_reason_is_mapped() {
        let stop = |reason| stop_reason(reason, AnswerContent::NoCalls);
        assert_eq!(stop("STOP"), StopReason::EndTurn);
        assert_eq!(stop("stop"), StopReason::EndTurn);
        assert_eq!(stop_reason("STOP", AnswerContent::Calls), StopReason::ToolUse);
        assert_eq!(stop("MAX_TOKENS"), StopReason::MaxTokens);
        // A cut answer with calls does not run them.
        assert_eq!(stop_reason("MAX_TOKENS", AnswerContent::Calls), StopReason::MaxTokens);
        for filter in FILTERS {
            assert_eq!(stop(filter), StopReason::Refusal, "{filter}");
        }
        for other in [
            "FINISH_REASON_UNSPECIFIED",
            "OTHER",
            "MALFORMED_FUNCTION_CALL",
            "UNEXPECTED_TOOL_CALL",
            "TOO_MANY_TOOL_CALLS",
            "MISSING_THOUGHT_SIGNATURE",
            "MALFORMED_RESPONSE",
            "IMAGE_OTHER",
            "NO_IMAGE",
            "OF_NEXT_YEAR",
            "CONTINUATION",
        ] {
            assert_eq!(stop(other), StopReason::Unknown(other.to_owned()));
        }
        assert_eq!(stop_reason("CONTINUATION", AnswerContent::Continued), StopReason::PauseTurn);
    }
}
