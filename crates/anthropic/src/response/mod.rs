//! Reads the responses of the Messages API: streamed events, messages, errors.

pub(crate) mod block;
pub(crate) mod container_gone;
pub(crate) mod effects;
pub(crate) mod error_body;
pub(crate) mod events;
pub(crate) mod message_accumulator;
pub(crate) mod wire_message;
