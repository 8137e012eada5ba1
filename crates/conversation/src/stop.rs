//! Why an answer ended, and what follows: the closed stop table.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Why the model stopped. Texts that we do not know are kept; see [`StopReason::consequence`] for what follows.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(from = "Option<String>", into = "Option<String>")]
pub enum StopReason {
    /// The model is done.
    EndTurn,
    /// A stop sequence of the request was met.
    StopSequence,
    /// The model wants tools run.
    ToolUse,
    /// The service paused a long turn; the answer goes back unchanged to resume it.
    PauseTurn,
    /// The service compacted the context; resumed like a pause.
    Compaction,
    /// The answer was cut at the token limit.
    MaxTokens,
    /// The answer was cut at the end of the context window.
    ContextWindowExceeded,
    /// The model refused.
    Refusal,
    /// The answer gave no reason.
    Missing,
    /// A reason that this version does not know.
    Unknown(String),
}

/// What follows an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AfterAnswer {
    /// Run the tools of the answer; without any, stop.
    RunTools,
    /// Send the answer back unchanged, with no user text.
    Resume,
    /// Stop; the answer is whole.
    Stop,
    /// Stop; the answer was cut or refused, so its tool calls never run.
    StopWithoutTools,
}

impl StopReason {
    /// The closed table: every reason has exactly one consequence.
    #[must_use]
    pub const fn consequence(&self) -> AfterAnswer {
        match self {
            Self::ToolUse => AfterAnswer::RunTools,
            Self::PauseTurn | Self::Compaction => AfterAnswer::Resume,
            Self::EndTurn | Self::StopSequence => AfterAnswer::Stop,
            Self::MaxTokens
            | Self::ContextWindowExceeded
            | Self::Refusal
            | Self::Missing
            | Self::Unknown(_) => AfterAnswer::StopWithoutTools,
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
