//! `conjure skills …`: lists, checks, shows, packs and uploads skills. It never runs code of a skill.

mod command;
mod load;

mod check;
mod inspect;
mod list;
mod pack;
#[cfg(feature = "anthropic")]
mod push;
#[cfg(feature = "anthropic")]
mod remote;
mod validate;

pub(crate) use command::skills;
pub(crate) use load::{inputs, load_configured};
