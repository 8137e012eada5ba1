//! When a session's artifacts are gone because nobody used it.

use conjure_artifact::ArtifactOptions;
use conjure_base::Timestamp;
use conjure_conversation::State;

/// Whether a session has artifacts that expired as nobody used it for so long. A turn that runs, or waits for a person, uses it.
#[must_use]
pub fn have_expired(state: &State, options: &ArtifactOptions, now: Timestamp) -> bool {
    let is_used = state.turn().is_some() || state.standing().artifacts().is_empty();
    !is_used && options.are_expired(state.touched(), now)
}
