//! The task that owns the conversation while a turn runs, and its work before and after the turn.

pub(super) mod artifact_upload;
pub(super) mod compaction_threshold;
pub(super) mod conversation_task;
pub(super) mod event_hub;
pub(super) mod pre_call_hooks;
pub(super) mod running_task;
pub(super) mod session_observer;
pub(super) mod turn_outputs;
pub(super) mod workspace_copy_out;
