//! Synchronises a directory of skills with the service: new and changed skills are uploaded, nothing else is sent.
//!
//! A skill is matched with one of the service by the id in the upload index, else by its title among the custom skills. Whether it has
//! changed is decided by the digest of its files, compared with the digest of the newest uploaded version. If the newest version is not
//! the one in the index (a push was killed, the index is lost, somebody else has uploaded), its files are downloaded and hashed. So a
//! repeated push uploads nothing twice.
//!
//! State: the upload index, updated after each upload. **After a crash** it lacks at most the uploads that were running, and the next
//! push finds those at the service.
//!
//! **Limits.**
//!
//! - A request that was running in a crash may arrive after the next push has listed the skills.
//! - Two machines that push a skill for the first time at the same moment create two skills. A lock in the index's directory excludes
//!   pushes of one machine only. The next push reports the duplicate and sends neither.
//! - If the service does not return the files of a version that is not in the index, the skill is uploaded once more, unless the index
//!   has the local digest.
//! - A skill whose title was changed at the service is uploaded once more beside it.
//!
//! Nothing is deleted: a skill that is missing locally is reported, and stays at the service.

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
