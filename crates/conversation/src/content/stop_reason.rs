//! The stop reason of a response, and what follows it.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Why the model stopped. Unknown reasons keep their text; see [`StopReason::after_response`] for what follows.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(from = "Option<String>", into = "Option<String>")]
pub enum StopReason {
    /// The model is done.
    EndTurn,
    /// A stop sequence of the request was met.
    StopSequence,
    /// The model called tools.
    ToolUse,
    /// The service paused a long turn. The response is sent back unchanged to resume it.
    PauseTurn,
    /// The service compacted the context; resumed like a pause.
    Compaction,
    /// The response was truncated at the token limit.
    MaxTokens,
    /// The response was truncated at the end of the context window.
    ContextWindowExceeded,
    /// The model refused.
    Refusal,
    /// The response has no stop reason.
    Missing,
    /// A reason that this version does not know.
    Unknown(String),
}

/// What follows a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AfterResponse {
    /// Run the tools of the response; without any, stop.
    RunTools,
    /// Send the response back unchanged, without user text.
    Resume,
    /// Stop; the response is complete.
    Stop,
    /// Stop; the response was truncated or refused, so its tool calls never run.
    StopWithoutTools,
}

impl StopReason {
    /// What follows a response with this reason.
    #[must_use]
    pub const fn after_response(&self) -> AfterResponse {
        match self {
            Self::ToolUse => AfterResponse::RunTools,
            Self::PauseTurn | Self::Compaction => AfterResponse::Resume,
            Self::EndTurn | Self::StopSequence => AfterResponse::Stop,
            Self::MaxTokens
            | Self::ContextWindowExceeded
            | Self::Refusal
            | Self::Missing
            | Self::Unknown(_) => AfterResponse::StopWithoutTools,
        }
    }

    /// The text on the wire, or `None` where there was none.
    #[must_use]
    pub fn as_wire(&self) -> Option<&str> {
        Some(match self {
            Self::EndTurn => "end_turn",
            Self::StopSequence => "stop_sequence",
            Self::ToolUse => "tool_use",
            Self::PauseTurn => "pause_turn",
            Self::Compaction => "compaction",
            Self::MaxTokens => "max_tokens",
            Self::ContextWindowExceeded => "model_context_window_exceeded",
            Self::Refusal => "refusal",
            Self::Unknown(text) => text,
            Self::Missing => return None,
        })
    }
}

impl From<Option<String>> for StopReason {
    fn from(text: Option<String>) -> Self {
        match text.as_deref() {
            None => Self::Missing,
            Some("end_turn") => Self::EndTurn,
            Some("stop_sequence") => Self::StopSequence,
            Some("tool_use") => Self::ToolUse,
            Some("pause_turn") => Self::PauseTurn,
            Some("compaction") => Self::Compaction,
            Some("max_tokens") => Self::MaxTokens,
            Some("model_context_window_exceeded") => Self::ContextWindowExceeded,
            Some("refusal") => Self::Refusal,
            Some(other) => Self::Unknown(other.to_owned()),
        }
    }
}

impl From<StopReason> for Option<String> {
    fn from(reason: StopReason) -> Self {
        reason.as_wire().map(str::to_owned)
    }
}

impl fmt::Display for StopReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_wire().unwrap_or("no stop reason"))
    }
}
