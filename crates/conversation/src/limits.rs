//! What one turn may consume before it is stopped.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The breakers of a turn. Each stops it with [`crate::TurnStop::Limit`]; the history stays valid, so the next
/// turn can go on. They are recorded with the turn, so a reload does not change them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Limits {
    /// How often the model may be called.
    pub model_calls: u32,
    /// How many tool calls may run.
    pub tool_calls: u32,
    /// In how many consecutive answers the model may make the same call (same tool, same bytes of input).
    pub identical_calls: u32,
    /// In how many answers the model may ask for the same tool and be denied.
    pub denied_calls: u32,
    /// How often a paused answer is resumed.
    pub pauses: u32,
    /// Tokens of all answers, input and output; none: unlimited.
    pub tokens: Option<u64>,
    /// Cost in millionths of a dollar, where the model's client knows prices; none: unlimited.
    pub cost_micros: Option<u64>,
    /// How long its model and its tools may take together, and what is prepared for them, by the clock; none: unlimited. Not counted: how long it waits for a
    /// person, and while its host is down. A [`crate::ToolRunner::authorize`] that itself waits for somebody may take as long as
    /// is left, and that is not counted either.
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
    /// [`Limits::cost_micros`]
    Cost,
    /// [`Limits::wall_clock`]
    WallClock,
    /// What the tenant may use of tokens over all of its sessions, which whoever keeps the model says
    /// ([`crate::ModelErrorKind::Exhausted`]).
    TenantTokens,
    /// The same of money.
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
