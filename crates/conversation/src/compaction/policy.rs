//! The compaction policy, and the size of the history that it decides by.

use serde::{Deserialize, Serialize};

use crate::model::ModelError;

/// When a history is compacted, and how many messages stay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CompactionPolicy {
    pub(super) threshold: u64,
    pub(super) keep: usize,
    pub(super) regrowth: u64,
}

impl CompactionPolicy {
    /// Compacts before a model call once the input of a response reached `threshold` tokens.
    ///
    /// The input is that of [`Usage::total_input`](crate::Usage::total_input).
    ///
    /// At least the last six messages stay. The next attempt waits until the input has grown by a quarter of the threshold. A model that
    /// reports no usage is never compacted.
    #[must_use]
    pub const fn with_threshold(threshold: u64) -> Self {
        Self { threshold, keep: 6, regrowth: threshold / 4 }
    }

    /// Sets another, usually lower, threshold. The regrowth is reduced to a quarter of it if it is larger. The kept messages stay
    /// as they are.
    #[must_use]
    pub const fn with_lower_threshold(mut self, threshold: u64) -> Self {
        self.threshold = threshold;
        if self.regrowth > threshold / 4 {
            self.regrowth = threshold / 4;
        }
        self
    }

    /// Sets the minimum number of last messages that stay; at least one does.
    #[must_use]
    pub const fn with_kept_messages(mut self, messages: usize) -> Self {
        self.keep = messages;
        self
    }

    /// Sets by how many tokens the input must grow before the next attempt; at least by one.
    #[must_use]
    pub const fn with_regrowth(mut self, tokens: u64) -> Self {
        self.regrowth = tokens;
        self
    }

    /// The number of input tokens from which it compacts.
    #[must_use]
    pub const fn threshold(&self) -> u64 {
        self.threshold
    }
}

/// Why a compaction changed nothing.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum CompactionError {
    /// The summarizer failed.
    #[error("the summarizer failed: {0}")]
    Summarizer(ModelError),
    /// The summary holds no text.
    #[error("the summary holds no text")]
    Empty,
    /// The summary, with the text that must follow it, is not smaller than what it would replace.
    #[error("the summary of {after} bytes is not smaller than the {before} bytes that it would replace")]
    NoProgress {
        /// Bytes of the content that it would replace.
        before: u64,
        /// Bytes of the replacement.
        after: u64,
    },
}

/// The size of a history, as the service counts it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct HistorySize {
    /// Input tokens of the last response; `None` after a compaction.
    pub(super) input_tokens: Option<u64>,
    /// The number of input tokens from which the next attempt may start.
    pub(super) next_attempt_at: u64,
    /// By how much the history must grow after the last compaction, until the next response measures its size.
    pub(super) pending_regrowth: Option<u64>,
    /// How many consecutive attempts were abandoned.
    pub(super) abandoned: u32,
}

/// After this many consecutive abandoned attempts the next one waits for the history to grow. Otherwise a summary that takes longer than
/// a turn would keep every turn from calling the model.
pub(super) const MAX_ABANDONED: u32 = 2;

impl HistorySize {
    /// Records the input tokens of a response.
    pub(crate) const fn record_input(&mut self, input: u64) {
        if let Some(regrowth) = self.pending_regrowth.take() {
            self.next_attempt_at = input.saturating_add(regrowth);
        }
        self.input_tokens = Some(input);
    }

    /// Delays the next attempt until the history has grown by `regrowth` tokens.
    pub(super) fn wait_for(&mut self, regrowth: u64) {
        self.next_attempt_at = self.input_tokens.unwrap_or_default().saturating_add(regrowth);
        self.abandoned = 0;
    }
}

/// A running compaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RunningCompaction {
    /// How many of the last messages stay.
    pub(crate) kept: usize,
    pub(crate) regrowth: u64,
}
