//! The running actors of supervisors and workers.

pub(super) mod actor_slot;
pub(super) mod idle_timer;
pub(super) mod incarnation;
pub(super) mod lifecycle_events;
pub(super) mod node;
pub(super) mod supervisor_actor;
pub(super) mod supervisor_message;
pub(super) mod supervisor_state;
pub(super) mod timer;
pub(super) mod unwind;
pub(super) mod worker_actor;
