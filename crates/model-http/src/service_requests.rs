//! The parts of a call, for requests to the same service that are not model calls: files, skills, lists of models.
//!
//! Such a request asks the [`Limiter`] for a [`Permit`], sends through the [`Transport`], and reports the response to the permit. It
//! retries by the rules of [`RetryAdvice`](crate::RetryAdvice) and [`backoff`].

pub use crate::calls::attempt_error::{AttemptError, PossibleEffects, RetryDecision, not_admitted};
pub use crate::calls::error_builder::ErrorBuilder;
pub use crate::connection::limiter::{Limiter, MAX_CLOSED, NotAdmitted, Permit, QueueTicket};
pub use crate::connection::retry_policy::{backoff, is_limit, retry_after};
pub use crate::connection::transport::{TimeoutKind, Transport};
pub use conjure_base::Jitter;
