//! Models that a server offers.

use serde::Serialize;

use crate::Time;

/// A model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "type", rename = "model")]
pub struct ModelInfo {
    /// The name by which agents and requests name it.
    pub id: String,
    /// When it was published; the epoch when nobody knows.
    pub created_at: Time,
    /// A name for people.
    pub display_name: String,
    /// Whether it may be used.
    pub lifecycle: Lifecycle,
    /// Tokens that a request may have; null when nobody knows.
    pub max_input_tokens: Option<u64>,
    /// Tokens that an answer may have; null when nobody knows.
    pub max_tokens: Option<u64>,
}

/// Whether a model may be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Lifecycle {
    /// It may.
    Active,
}
