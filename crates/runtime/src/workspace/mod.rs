//! The folder that a session works in, and the files that are produced in it.

mod session_workspace;
mod snapshot;

pub use session_workspace::SessionWorkspace;
pub use snapshot::{ProducedFile, ProducedFiles, WorkspaceSnapshot};

pub(crate) use session_workspace::temporary_data;
