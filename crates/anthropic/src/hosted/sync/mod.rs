//! Synchronises a directory of skills with the service. Only new and changed skills are uploaded.
//!
//! A skill is matched with one of the service by the id in the upload index, else by its title among the custom skills. It has changed if
//! the digest of its files differs from the digest of the newest uploaded version.
//!
//! The newest version may not be the one in the index: a push was killed, the index was lost, or another client has uploaded. Then its
//! files are downloaded and hashed. So a repeated push uploads nothing twice.
//!
//! State: the upload index, updated after each upload. **After a crash** it lacks at most the uploads that were running. The next push
//! finds those at the service.
//!
//! **Limits.**
//!
//! - A request that was running in a crash may arrive after the next push has listed the skills.
//! - Two machines that push a skill for the first time at the same moment create two skills. A lock in the index's directory only excludes
//!   other pushes of the same machine. The next push reports the duplicate and sends neither.
//! - If the service does not return the files of a version that is not in the index, the skill is uploaded again, unless the index has the
//!   local digest.
//! - If the title of a skill was changed at the service, the skill is uploaded again as a second skill.
//!
//! A push deletes nothing. It reports a skill that is missing locally, and the skill stays at the service.

mod skill_sync;

mod error;
mod local_skills;
mod plan;
mod report;
mod upload_index;

pub use error::{SkillFailure, SyncError, SyncErrorKind};
pub use report::{
    MissingLocally, PlannedAction, PlannedSkill, PushResult, SyncEvent, SyncPlan, SyncReport, SyncedSkill,
};
pub use skill_sync::{Deleted, ForgetOutcome, SkillSync};
pub(in crate::hosted) use upload_index::IndexKey;
