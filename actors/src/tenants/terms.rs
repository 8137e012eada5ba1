//! What a tenant may have in the tree.

use std::time::Duration;

use super::budget::Budget;

/// What a tenant may have in the tree, and how its sessions are treated there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Terms {
    /// How many of its sessions may be live at a time; those that are put away do not count. 0: none ever.
    pub live_sessions: u64,
    /// How many of its sessions may be recorded, in all. 0: none ever.
    pub recorded_sessions: u64,
    /// How many messages may wait for their turn, in each session. 0: none ever.
    pub queued_messages: usize,
    /// When an idle session is put away; `None`: as the runtime's options say.
    pub idle_after: Option<Duration>,
    /// What its model calls may come to.
    pub budget: Budget,
}

impl Default for Terms {
    /// Whatever it likes.
    fn default() -> Self {
        Self {
            live_sessions: u64::MAX,
            recorded_sessions: u64::MAX,
            queued_messages: usize::MAX,
            idle_after: None,
            budget: Budget::default(),
        }
    }
}
