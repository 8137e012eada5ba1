//! The directory that a session works in, and the files that its turns produce.

mod copy_tree;
mod noted_workspaces;
mod session_workspace;
mod snapshot;

pub use noted_workspaces::noted_workspaces;
pub use session_workspace::SessionWorkspace;
pub use snapshot::{ProducedFile, ProducedFiles, WorkspaceSnapshot};

pub(crate) use copy_tree::{CopyBounds, CopyError, copy_tree};
pub(crate) use noted_workspaces::{TENANTS, note_workspace};
pub(crate) use session_workspace::{open_real, temporary_data};
