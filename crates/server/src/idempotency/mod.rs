//! `Idempotency-Key`: a creation that is repeated with the same key happens only once.
//!
//! [`answer_once`] is the middleware of routes that honour the header. The answers are rows of the tenant, so they survive a restart.

mod key;
mod layer;
mod running;
mod stored_answers;

pub(crate) use layer::{answer_once, refuse_key};
pub(crate) use running::RunningKeys;
pub(crate) use stored_answers::StoredAnswers;
