//! `conjure sessions …`: lists, shows, exports, resumes and deletes the sessions that were kept.

mod command;

mod find;
mod list;
mod show;
mod turn_list;

mod export;

mod resume;
mod resume_request;

pub(crate) use command::sessions;
