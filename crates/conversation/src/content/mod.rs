//! What messages consist of: content blocks, and what the model's service said in its own form.

pub(crate) mod block;
pub(crate) mod message;
pub(crate) mod native;
pub mod pairing;
pub(crate) mod rejected_block;
pub(crate) mod response_helpers;
pub(crate) mod stop_reason;
