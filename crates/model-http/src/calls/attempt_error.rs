//! [`AttemptError`]: the error of one attempt, with its retry decision.

use std::time::Duration;

use conjure_conversation::{ApiErrorKind, ModelError, ModelErrorKind};

/// The error of one attempt, with its retry decision.
#[derive(Debug)]
pub struct AttemptError {
    /// The error, without secrets.
    pub error: ModelError,
    /// The retry decision.
    pub next: RetryDecision,
    /// Whether the service may have started to process the request.
    pub effects: PossibleEffects,
}

/// Whether the service may have started to process the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PossibleEffects {
    /// It has not: there was no connection, or the service refused the request.
    None,
    /// Unknown.
    Possible,
}

/// What to do after a failed attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RetryDecision {
    /// Make another attempt, after the service's `retry-after` or our own backoff.
    Retry,
    /// Make another attempt as soon as the key's rate limiter admits it.
    RetryWhenAdmitted,
    /// Make no further attempt.
    GiveUp,
}

impl AttemptError {
    /// An error after which the service may have started to process the request.
    pub fn new(kind: ModelErrorKind, message: impl Into<String>, next: RetryDecision) -> Self {
        Self { error: ModelError::new(kind, message), next, effects: PossibleEffects::Possible }
    }

    /// The error of a timeout.
    pub fn timeout(message: impl Into<String>, next: RetryDecision) -> Self {
        Self::new(ModelErrorKind::Timeout, message, next)
    }
}

/// The error of a call that the rate limiter did not admit.
#[must_use]
pub fn not_admitted(wait: Duration) -> ModelError {
    let message = if wait.is_zero() {
        "the key was rate limited, and the calls that waited before this one have not been answered in the time that \
         it may wait"
            .to_owned()
    } else {
        let seconds = wait.as_secs_f64();
        format!("the key is rate limited for another {seconds:.1} s, longer than this call may wait")
    };
    ModelError {
        retry_after: (!wait.is_zero()).then_some(wait),
        ..ModelError::new(ModelErrorKind::Api(ApiErrorKind::RateLimit), message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limiter_error_names_a_wait_only_if_there_is_one() {
        let closed = not_admitted(Duration::from_millis(2500));
        assert_eq!(closed.retry_after, Some(Duration::from_millis(2500)));
        assert!(closed.message.contains("another 2.5 s"), "{closed}");
        let queued = not_admitted(Duration::ZERO);
        assert_eq!(queued.retry_after, None);
        assert!(
            queued.message.contains("have not been answered") && !queued.message.contains('0'),
            "{queued}"
        );
    }
}
