//! How long the turns of a session take: when somebody whose message found its queue full may try again.
//!
//! A place comes free when the turn that runs is over, so the advice is what is left of a usual turn. State: a sliding average and
//! when the turn under way began, in memory; a crash forgets both, and the next refusal guesses.

use std::time::Duration;

use conjure_base::{Clock, Deadline, SystemClock};

/// What is told before any turn was measured.
const FIRST_GUESS: Duration = Duration::from_millis(250);

/// No advice is longer, and no turn is measured beyond it: one that waits for a person takes as long as the person does.
const LONGEST: Duration = Duration::from_secs(60);

/// How long turns take.
#[derive(Debug, Default)]
pub(crate) struct TurnDurationEstimate {
    /// On a sliding average.
    usual: Option<Duration>,
    /// When the turn under way is as old as one is measured.
    aged: Option<Deadline>,
}

impl TurnDurationEstimate {
    /// A turn begins.
    pub(crate) fn start(&mut self) {
        self.aged = Some(SystemClock.deadline(LONGEST));
    }

    /// The turn is over. One whose beginning was not seen, as another incarnation began it, says nothing.
    pub(crate) fn finish(&mut self) {
        let Some(aged) = self.aged.take() else { return };
        let took = age(aged);
        // A quarter of what is new: sessions have few turns, and these differ.
        self.usual =
            Some(self.usual.map_or(took, |usual| (usual.saturating_mul(3).saturating_add(took)) / 4));
    }

    /// When the turn under way may be over. One that takes longer than usual may take as long again.
    pub(crate) fn retry_after(&self) -> Duration {
        let usual = self.usual.unwrap_or(FIRST_GUESS);
        let ran = self.aged.map(age).unwrap_or_default();
        let left = if ran < usual { usual.saturating_sub(ran) } else { ran };
        left.clamp(Duration::from_millis(1), LONGEST)
    }
}

/// How old a turn is that will be [`LONGEST`] old then.
fn age(aged: Deadline) -> Duration {
    LONGEST.saturating_sub(SystemClock.remaining(aged))
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
