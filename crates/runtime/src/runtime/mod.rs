//! The supervised runtime: [`Runtime::spawn`] starts it, [`Runtime::open`] opens a session.
//!
//! The actors are those of `conjure-actors`. This module builds them from a configuration:
//!
//! - `data`: the layout of the data directory, its locks, intent records, pinned skills and artifacts, and the journal in it.
//! - `session`: what one session is built from: its spec, its secrets and inputs, its model, tools and sandbox.
//! - `operations`: opening, finding, reading and deleting sessions.
//! - `tenants`: policies, disk quotas, usage, and the deletion of a tenant.
//! - `maintenance`: the periodic background tasks.
//! - `remote_cleanup`: the deletion of files and skills at models' services.

mod error;
mod handle;
mod model_registry;
mod options;
mod sandbox_kinds;
mod task_set;
mod warm_pools;

mod data;
mod session;
mod tenants;

mod operations;

mod recover_intents;
mod resume_unfinished;
mod start;
mod sweep;

mod maintenance;
mod remote_cleanup;

#[cfg(feature = "vaults")]
pub use data::vaults::Vaults;
pub use error::{RuntimeError, UnknownSkill};
pub use handle::Runtime;
#[cfg(feature = "anthropic")]
pub use operations::MessagesService;
#[cfg(feature = "vaults")]
pub use operations::{CredentialCheck, RenewalOutcome};
pub use operations::{FileUpload, StoredFile, WorkspaceFile};
pub use options::RuntimeOptions;
pub use remote_cleanup::{DeletionReport, RemainingFiles, RemainingSkills, RemoteSkillOutcome};
pub use resume_unfinished::ResumeReport;
pub use sandbox_kinds::ExecutorFactory;
pub use session::input::input_error::InputError;
pub use session::input::inputs::redactor_of_inputs;
pub use session::input::session_secrets::SessionSecrets;
pub use session::python::python_requirement::{PythonRequirement, PythonRequirementError};
pub use session::readers::event_reader::{EventCursor, EventOrder, EventQuery, SessionEventPage};
pub use session::readers::session_reader::{SessionBody, SessionContents, SessionList, SessionSummary};
pub use session::spec::SessionSpec;
pub use tenants::{DiskUsage, Tenant, TenantPolicy, TenantUsage};
