//! Deletes the files of sessions at their models' services when the sessions are deleted here.
//!
//! The record of a session names its files. Before the record is removed, the files are written to a cleanup note
//! (`note_store`). The note is removed when the files are deleted at the service. So a service that is down delays no
//! deletion here.
//!
//! A crash leaves the record, the note, or both. A note counts only if the record is deleted. So a session keeps its
//! files if its deletion was refused or interrupted. Skills that were uploaded for a tenant use the same notes
//! (`delete_skills`).

mod batch_result;
mod deletion_report;

mod cleanup_note;
mod note_store;
mod remote_files;

mod delete_files;
#[cfg(feature = "anthropic")]
mod delete_skills;
mod on_delete;

pub(super) use batch_result::BatchResult;
pub(super) use delete_files::{CircuitBreaker, process_note};
pub(super) use note_store::NoteStore;
pub(super) use on_delete::{DeleteCondition, RemoteLeftovers, STOP_TIMEOUT};

pub use deletion_report::{DeletionReport, RemainingFiles, RemainingSkills, RemoteSkillOutcome};
