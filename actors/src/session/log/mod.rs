//! A session in the journal: its events, its lease, its row in the lists.

pub(super) mod audit;
pub(super) mod journal_event_log;
pub(super) mod journal_retry;
pub(super) mod lease;
pub(super) mod session_projection;
pub(super) mod session_row;
