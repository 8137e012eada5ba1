//! The methods of [`Runtime`](super::Runtime) that open, find, read, fork and delete sessions, and those for a tenant's
//! files, models and credentials.

#[cfg(feature = "vaults")]
mod check_credential;
#[cfg(feature = "vaults")]
mod logins;
#[cfg(feature = "anthropic")]
mod messages_service;
mod models;
mod named_files;
mod open_workbench;
mod records;
pub(crate) mod sessions;
mod workspace_files;

#[cfg(feature = "vaults")]
pub use check_credential::{CredentialCheck, RenewalOutcome};
#[cfg(feature = "anthropic")]
pub use messages_service::MessagesService;
pub use named_files::{FileUpload, StoredFile};
pub use workspace_files::WorkspaceFile;
