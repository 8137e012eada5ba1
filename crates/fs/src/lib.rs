//! File operations that several crates need: directory handles, regular files beneath them, staged files, file locks,
//! the removal of trees, and blocking work.
//!
//! A tool may create a link wherever it may write, at any moment. So all functions here work with open handles. Where
//! a path is resolved, the kernel decides which links are followed. Nothing here knows who owns the files.

mod absent;
mod blocking;
mod dir_handle;
mod file_lock;
mod regular_file;
mod remove_tree;
mod rename;
mod staged_file;
mod stat;

pub use absent::{ignore_absent, names_in};
pub use blocking::{BlockingError, run_blocking};
pub use dir_handle::{DirEntry, DirHandle, EntryKind, ensure_dir, ensure_file, entries, sync_dir};
pub use file_lock::{FileLock, LockWait, TEMPORARY_DIR_LOCK};
pub use regular_file::{Links, OpenError, RegularFile, open_beneath, read_head};
pub use remove_tree::{RemoveError, TreeRemoval, has_name};
pub use rename::{rename_dir_new, rename_file_new};
pub use staged_file::{StagedFile, replace_file};
pub use stat::{dir_id, file_id, file_size, fingerprint};
