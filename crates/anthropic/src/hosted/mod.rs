//! What the service hosts: skills and files that it keeps, containers that its own tools run in.
//!
//! Two clients, [`Skills`] and [`Files`], speak to the service under the key, the limiter and the connections of a
//! [`Client`](crate::Client). The rest stands alone, over any client of the Messages API: what a request says of a
//! container ([`container_config`], [`code_execution_tool`], [`beta_headers`]), what an answer says of the files that
//! were made in it ([`extract_file_ids`]), and the loop that resumes a paused answer ([`run`]).
//!
//! A third, [`SkillSync`], keeps the skills of a folder in step with the service, and a file of what it has uploaded.
//!
//! **What is absent.** No state but the clients' shared one, and that file: which skills a session uses is the session's to
//! know. No upload happens by itself.

mod bundle;
mod container;
mod download;
mod error;
mod exchange;
mod file_ids;
mod files;
mod ids;
mod limits;
mod media_type;
mod multipart;
mod outputs;
mod page;
mod pause;
mod record;
mod removal;
mod skills;
mod sync;
mod uploads;
mod wishes;

pub use conjure_conversation::{HostedSkill, HostedSource, LATEST};

pub use bundle::{BundleFile, SkillBundle};
pub use container::{
    CodeExecution, ContainerError, MOST_SKILLS, SkillSource, beta_headers, code_execution_tool,
    container_config, container_config_of, container_upload, with_container_id,
};
pub use download::Download;
pub use error::{HostedError, HostedErrorKind};
pub use file_ids::{extract_file_ids, produced_files, uploaded_file};
pub use files::{FileUpload, Files};
pub use ids::{FileId, SkillId, VersionId};
pub use limits::HostedLimits;
#[cfg(feature = "fake")]
pub(crate) use media_type::of_name as media_type_of;
pub use multipart::Progress;
pub use outputs::HostedOutputs;
pub use page::{Items, Page, PageToken};
pub use pause::{MOST_PAUSES, OnPause, Paused, Run, RunError, RunOptions, run};
pub use record::{FileRecord, SkillRecord, VersionRecord};
pub use removal::HostedRemoval;
pub use skills::{Skills, Upload};
pub use sync::{
    Absent, Deleted, Forgotten, PlannedSkill, Pushed, SkillFailure, SkillSync, Step, SyncError,
    SyncErrorKind, SyncEvent, SyncPlan, SyncReport, SyncedSkill,
};
pub use uploads::HostedUploads;
pub use wishes::Hosted;
