//! `conjure sessions …`: lists, shows, exports, resumes, forks and deletes recorded sessions.

mod command;

mod find;
mod list;
mod show;
mod turn_list;

mod export;

mod fork;

mod resume;
mod resume_request;

pub(crate) use command::sessions;
pub(crate) use export::session_text;
pub(crate) use resume::{ResumePlan, prepare_resume};
pub(crate) use resume_request::{ResumeAction, ResumeRequest};
