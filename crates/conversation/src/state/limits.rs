//! The limits of a turn.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The limits of a turn. Each stops the turn with [`crate::TurnStop::Limit`]. The history stays valid, so the next turn can continue.
///
/// The limits are recorded with the turn, so a reload does not change them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Limits {
    /// How often the model may be called.
    pub model_calls: u32,
    /// How many tool calls may run.
    pub tool_calls: u32,
    /// In how many consecutive responses the model may make the same call (same tool, same bytes of input).
    pub identical_calls: u32,
    /// In how many responses the model may call the same tool and be denied.
    pub denied_calls: u32,
    /// How often a paused response is resumed.
    pub pauses: u32,
    /// Tokens of all responses, input and output; `None`: unlimited.
    pub tokens: Option<u64>,
    /// Cost in millionths of a dollar, if the model's client knows prices; `None`: unlimited.
    pub cost_micros: Option<u64>,
    /// How long its model calls, tool calls and pre-call hooks may take together; `None`: unlimited.
    ///
    /// The wait for an approval does not count, nor the time while the process is down. [`crate::ToolRunner::authorize`] may take as long
    /// as the remaining time, and does not count either.
    pub wall_clock: Option<Duration>,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            model_calls: 25,
            tool_calls: 250,
            identical_calls: 5,
            denied_calls: 3,
            pauses: 10,
            tokens: None,
            cost_micros: None,
            wall_clock: Some(Duration::from_secs(60 * 60)),
        }
    }
}

/// Which limit stopped a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Limit {
    /// [`Limits::model_calls`]
    ModelCalls,
    /// [`Limits::tool_calls`]
    ToolCalls,
    /// [`Limits::identical_calls`]
    IdenticalCalls,
    /// [`Limits::denied_calls`]
    DeniedCalls,
    /// [`Limits::pauses`]
    Pauses,
    /// [`Limits::tokens`]
    Tokens,
    /// [`Limits::cost_micros`], or [`crate::SessionProfile::max_cost_micros`] of all turns together
    Cost,
    /// [`Limits::wall_clock`]
    WallClock,
    /// The tenant's token budget over all of its sessions. The model reports it ([`crate::ModelErrorKind::Exhausted`]).
    TenantTokens,
    /// The tenant's money budget.
    TenantCost,
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ModelCalls => "the limit of model calls",
            Self::ToolCalls => "the limit of tool calls",
            Self::IdenticalCalls => "the limit of identical tool calls",
            Self::DeniedCalls => "the limit of denied tool calls",
            Self::Pauses => "the limit of pauses",
            Self::Tokens => "the limit of tokens",
            Self::Cost => "the limit of cost",
            Self::WallClock => "the limit of time",
            Self::TenantTokens => "the tenant's budget of tokens",
            Self::TenantCost => "the tenant's budget of money",
        })
    }
}
