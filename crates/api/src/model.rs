//! The models of a server.

use serde::Serialize;

use crate::Time;

/// A model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "type", rename = "model")]
pub struct ModelInfo {
    /// The name by which agents and requests refer to the model.
    pub id: String,
    /// When it was published; the Unix epoch if that is unknown.
    pub created_at: Time,
    /// A display name.
    pub display_name: String,
    /// Whether it may be used.
    pub lifecycle: Lifecycle,
    /// The maximum number of input tokens; null if unknown.
    pub max_input_tokens: Option<u64>,
    /// The maximum number of output tokens; null if unknown.
    pub max_tokens: Option<u64>,
}

/// Whether a model may be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Lifecycle {
    /// The model may be used.
    Active,
}
