//! `conjure models`: which models are configured, and which services answer.

mod command;
mod service_state;

pub(crate) use command::models;
pub(crate) use service_state::{ServiceState, service_states};
