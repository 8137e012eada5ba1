//! The data directory of a runtime: its layout, the locks between processes, intent records, pinned content, and the journal.

pub(super) mod data_layout;
mod migration;
pub(super) mod temp_data_dir;

pub(super) mod process_lock;
pub(super) mod tenant_lock;
pub(super) mod tenant_map;

pub(super) mod intents;

pub(super) mod artifact_pins;
pub(super) mod named_files;
pub(super) mod pinned_skills;

pub(super) mod journal_storage;
#[cfg(feature = "vaults")]
pub(super) mod vaults;
