//! Skills, files and containers that the service hosts.
//!
//! - [`Skills`] and [`Files`] are clients of the Skills and Files APIs. They share the key, the rate limiter and the connections of a
//!   [`Client`](crate::Client).
//! - [`SkillSync`] uploads a directory of skills, and keeps an index file of what it has uploaded.
//! - The rest works with any client of the Messages API: the container of a request ([`container_config`], [`code_execution_tool`],
//!   [`beta_headers`]), the produced files of a response ([`extract_file_ids`]), and the loop that resumes a paused response
//!   ([`run_until_complete`]).
//!
//! There is no other state. Nothing is uploaded unless the caller asks for it.

mod bundle;
mod container;
mod error;
pub(crate) mod hosted_options;
mod ids;
mod limits;
mod page;
mod request;
mod resume_loop;
mod skills;
mod sync;
mod transfer;

pub use conjure_conversation::{HostedSkill, HostedSource, LATEST};

pub use bundle::{BundleFile, SkillBundle};
pub use container::{
    ContainerError, MAX_SKILLS, SkillSource, beta_headers, code_execution_tool, container_config,
    container_config_with_limit, container_upload, with_container_id,
};
pub use error::{HostedError, HostedErrorKind};
pub use ids::{FileId, SkillId, VersionId};
pub use limits::HostedLimits;
pub use page::Items;
pub use resume_loop::{
    MAX_PAUSES, OnPause, ResumeError, ResumeOptions, ResumedResponse, UnfinishedRun, run_until_complete,
};
pub use skills::{Skills, Upload};
pub use sync::{
    Deleted, ForgetOutcome, MissingLocally, PlannedAction, PlannedSkill, PushResult, SkillFailure, SkillSync,
    SyncError, SyncErrorKind, SyncEvent, SyncPlan, SyncReport, SyncedSkill,
};
pub use transfer::download::Download;
pub use transfer::file_ids::{extract_file_ids, produced_files, uploaded_file};
pub use transfer::files::Files;
pub use transfer::metadata::{FileMetadata, SkillMetadata, VersionMetadata};
pub use transfer::multipart::Progress;
pub use transfer::session_files::{HostedFileDeletion, HostedOutputs, HostedUploads};
