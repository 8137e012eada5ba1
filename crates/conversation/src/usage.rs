//! What model calls consumed.

use serde::{Deserialize, Serialize};

/// Tokens of one answer, or summed over many. All counts are tokens.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Usage {
    /// Input that was neither read from nor written to the cache.
    pub input_tokens: u64,
    /// What the model wrote.
    pub output_tokens: u64,
    /// Input written to the cache.
    pub cache_creation_input_tokens: u64,
    /// Input read from the cache.
    pub cache_read_input_tokens: u64,
    /// Cost in millionths of a dollar, where the client knows prices; else 0.
    pub cost_micros: u64,
}

impl Usage {
    /// All input: uncached, written to the cache and read from it.
    #[must_use]
    pub const fn total_input(&self) -> u64 {
        self.input_tokens
            .saturating_add(self.cache_creation_input_tokens)
            .saturating_add(self.cache_read_input_tokens)
    }

    /// All tokens, in and out.
    #[must_use]
    pub const fn total(&self) -> u64 {
        self.total_input().saturating_add(self.output_tokens)
    }

    /// Adds another answer's usage.
    pub const fn add(&mut self, other: &Self) {
        self.input_tokens = self.input_tokens.saturating_add(other.input_tokens);
        self.output_tokens = self.output_tokens.saturating_add(other.output_tokens);
        self.cache_creation_input_tokens =
            self.cache_creation_input_tokens.saturating_add(other.cache_creation_input_tokens);
        self.cache_read_input_tokens =
            self.cache_read_input_tokens.saturating_add(other.cache_read_input_tokens);
        self.cost_micros = self.cost_micros.saturating_add(other.cost_micros);
    }
}
