//! The `conjure` command, run as a user would.

mod approvals;
mod bad_data;
mod bad_input;
mod chat;
mod doctor;
#[cfg(feature = "docker")]
mod image;
mod models;
pub(crate) mod run;
mod secrets;
mod sessions;
mod skills;
mod untrusted_text;
