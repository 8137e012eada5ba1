//! `Idempotency-Key`: a creation that is repeated with the same key happens only once.
//!
//! [`answer_once`] is the middleware of routes that honour the header. The answers are rows of the tenant, so they survive a restart.

mod expiry;
mod key;
mod layer;
mod running;
mod stored_answers;

pub(crate) use expiry::keep_deleting_expired;
pub(crate) use layer::{answer_once, refuse_key};
pub(crate) use running::RunningKeys;
