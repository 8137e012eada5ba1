//! The methods of [`Runtime`](super::Runtime) that work on one session: opening, finding, reading and deleting it. And those on a tenant's
//! files and models.

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
