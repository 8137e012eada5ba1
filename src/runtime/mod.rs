//! The supervised runtime, as a host embeds it: [`Runtime::spawn`] starts it, [`Runtime::open`] opens a session.
//!
//! The tree itself is `conjure-actors`; what is here makes it of a configuration: the journal in the data folder, the
//! models by their names, the sandboxes, the skills that a session was opened with and keeps.

mod error;
mod models;
mod options;
mod spec;

#[cfg(feature = "sqlite")]
mod disk;
mod gate;
mod home;
mod hosted;
mod hosts;
mod marks;
mod pins;
mod slots;
mod storage;
mod temporary;

mod artifacts;
mod gist;
mod given;
mod inputs;
mod kept;
mod outfit;
mod pools;
mod records;
mod sandboxes;
mod skills;
mod tenants;

mod handle;
mod remains;
mod work;

mod broken_off;
mod chores;
mod start;
mod sweep;

mod deleting;
mod finding;
mod opening;
mod reading;

pub use error::{RuntimeError, UnknownSkill};
pub use given::Given;
pub use handle::Runtime;
pub use inputs::{InputFault, redactor_of_inputs};
pub use options::RuntimeOptions;
pub use records::{Contents, SessionContents, SessionList, SessionSummary};
pub use remains::{Deletion, LeftAtService, SkillFate, SkillsAtService};
pub use sandboxes::ExecutorFactory;
pub use spec::SessionSpec;
pub use tenants::{DiskUsage, Tenant, TenantPolicy, TenantUsage};
