//! Estimates how long a session's turns take, so that a caller that found the message queue full knows when to try again.
//!
//! A place in the queue becomes free when the running turn ends, so the advice is the remaining time of a usual turn.
//! State: a moving average and the start of the running turn, in memory. A crash of the process loses both, and the next
//! advice is a guess.

use std::time::Duration;

use conjure_base::{Clock, Deadline, SystemClock};

/// The usual duration, before any turn was measured.
const FIRST_GUESS: Duration = Duration::from_millis(250);

/// The longest advice, and the longest duration that is measured. A turn that waits for a person takes as long as the
/// person does.
const LONGEST: Duration = Duration::from_secs(60);

/// The estimated duration of a session's turns.
#[derive(Debug, Default)]
pub(crate) struct TurnDurationEstimate {
    /// The moving average of the measured durations.
    usual: Option<Duration>,
    /// The time at which the running turn reaches the age [`LONGEST`].
    measured_until: Option<Deadline>,
}

impl TurnDurationEstimate {
    /// Starts the measurement of a turn.
    pub(crate) fn start(&mut self) {
        self.measured_until = Some(SystemClock.deadline(LONGEST));
    }

    /// Ends the measurement of the turn. Does nothing if its start was not observed, for example because the turn began
    /// in another process.
    pub(crate) fn finish(&mut self) {
        let Some(measured_until) = self.measured_until.take() else { return };
        let took = age(measured_until);
        // The new duration weighs a quarter: sessions have few turns, and their durations differ.
        self.usual =
            Some(self.usual.map_or(took, |usual| (usual.saturating_mul(3).saturating_add(took)) / 4));
    }

    /// The estimated time until the running turn ends, or a usual turn's duration if none runs. A turn that has run
    /// longer than usual is expected to run as long again.
    pub(crate) fn retry_after(&self) -> Duration {
        let usual = self.usual.unwrap_or(FIRST_GUESS);
        let ran = self.measured_until.map(age).unwrap_or_default();
        let left = if ran < usual { usual.saturating_sub(ran) } else { ran };
        left.clamp(Duration::from_millis(1), LONGEST)
    }
}

/// The age of a turn that reaches [`LONGEST`] at this time.
fn age(measured_until: Deadline) -> Duration {
    LONGEST.saturating_sub(SystemClock.remaining(measured_until))
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn pass(millis: u64) {
        tokio::time::advance(Duration::from_millis(millis)).await;
    }

    #[tokio::test(start_paused = true)]
    async fn the_advice_is_what_is_left_of_a_usual_turn() {
        let mut turn_duration = TurnDurationEstimate::default();
        assert_eq!(turn_duration.retry_after(), FIRST_GUESS);
        turn_duration.start();
        pass(100).await;
        assert_eq!(turn_duration.retry_after(), Duration::from_millis(150));
        pass(900).await;
        assert_eq!(
            turn_duration.retry_after(),
            Duration::from_secs(1),
            "nothing was measured, and it has taken that long"
        );
        pass(1_000).await;
        turn_duration.finish();
        assert_eq!(
            turn_duration.retry_after(),
            Duration::from_secs(2),
            "nothing runs: a whole turn is to come"
        );
        turn_duration.start();
        pass(1_500).await;
        assert_eq!(turn_duration.retry_after(), Duration::from_millis(500));
        pass(500).await;
        assert_eq!(turn_duration.retry_after(), Duration::from_secs(2), "longer than usual, so nobody knows");
        pass(4_000).await;
        turn_duration.finish();
        assert_eq!(turn_duration.retry_after(), Duration::from_secs(3));
    }

    #[tokio::test(start_paused = true)]
    async fn a_turn_that_waits_for_days_makes_no_advice_of_days_and_an_unseen_beginning_none() {
        let mut turn_duration = TurnDurationEstimate::default();
        turn_duration.finish();
        assert_eq!(turn_duration.retry_after(), FIRST_GUESS);
        turn_duration.start();
        pass(86_400_000).await;
        assert_eq!(turn_duration.retry_after(), LONGEST);
        turn_duration.finish();
        assert_eq!(turn_duration.retry_after(), LONGEST);
        for _ in 0..40 {
            turn_duration.start();
            turn_duration.finish();
        }
        assert!(turn_duration.retry_after() < Duration::from_secs(1), "{:?}", turn_duration.retry_after());
        assert!(turn_duration.retry_after() > Duration::ZERO);
    }
}
