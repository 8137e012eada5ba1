//! The content of messages: content blocks, and responses in the form of their model service.

pub(crate) mod block;
pub(crate) mod message;
pub(crate) mod native;
pub mod pairing;
pub(crate) mod rejected_block;
pub(crate) mod response_helpers;
pub(crate) mod stop_reason;
