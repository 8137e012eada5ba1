//! Why a turn ended.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::content::stop_reason::StopReason;
use crate::model::ModelError;
use crate::state::limits::Limit;

/// Why a turn ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum TurnStop {
    /// The model ended its turn; the response is complete.
    Answered(StopReason),
    /// The response was truncated, or ended for an unknown reason. Its tool calls did not run.
    #[serde(rename = "cut")]
    Truncated(StopReason),
    /// The model refused. The tool calls in the response did not run.
    Refused,
    /// A limit was reached.
    Limit(Limit),
    /// The model call failed.
    ModelFailed(ModelError),
    /// It was interrupted.
    Interrupted,
    /// The deadline of the whole run passed.
    Deadline,
}

impl fmt::Display for TurnStop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Answered(reason) => write!(f, "the model is done ({reason})"),
            Self::Truncated(reason) => write!(f, "the answer was cut ({reason})"),
            Self::Refused => f.write_str("the model refused"),
            Self::Limit(limit) => write!(f, "{limit} was reached"),
            Self::ModelFailed(error) => write!(f, "the model call failed: {error}"),
            Self::Interrupted => f.write_str("the turn was interrupted"),
            Self::Deadline => f.write_str("the deadline passed"),
        }
    }
}
