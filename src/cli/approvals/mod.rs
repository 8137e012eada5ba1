//! Which tool calls run, and asking a person about the others.

mod grant;
mod person;
mod question;
mod rules;

pub(crate) use grant::{always, granted};
pub(crate) use person::{Answer, Person};
pub(crate) use question::input_lines;
pub(crate) use rules::{Rules, RulesArgs};
