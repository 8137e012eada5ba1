//! The four runtime tools for the skills of a session (runtime specification): `skills.load`, `skills.unload`, `skills.read` and
//! `skills.run_script`.
//!
//! The session's event log says which skills are active; the list comes with each call (`SkillCallContext::session_view`). A load or unload
//! returns the new list with its result. An embedder's own tool cannot change the list. The tools hold no conversation state, so a
//! crash loses only running calls. All calls except scripts are idempotent.

mod skill_tools;

mod approval;
mod dispatch;
mod error;
mod interpreters;
mod load;
mod preflight;
pub(crate) mod read;
mod request;
mod script;

pub use interpreters::Interpreters;
pub(crate) use request::{Script, SkillRequest};
pub use skill_tools::{AllowedToolsPolicy, MAX_ACTIVE_SKILLS, SkillTools};
pub(crate) use skill_tools::{DispatchOutcome, ScriptSupport, SkillCallContext};

#[cfg(test)]
mod tests;
