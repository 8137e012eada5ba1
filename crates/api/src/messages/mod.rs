//! The requests of `POST /v1/messages`.

pub(crate) mod message_create;
pub(crate) mod message_options;
