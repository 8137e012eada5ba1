//! The change of a session's settings.

use crate::events::event::EventKind;
use crate::machine::command::Rejection;
use crate::session::profile_change::ProfileChange;
use crate::state::session_state::SessionState;

/// The events that change the settings; none if the session has them already.
pub(super) fn update_profile(
    state: &SessionState,
    change: Box<ProfileChange>,
) -> Result<Vec<EventKind>, Rejection> {
    let before = state.profile.as_deref().cloned().unwrap_or_default();
    let mut after = before.clone();
    change.apply_to(&mut after);
    if before == after {
        return Ok(Vec::new());
    }
    // A request of the running turn must continue the one before it.
    let is_prompt_changed =
        before.base_prompt != after.base_prompt || before.client_tools != after.client_tools;
    if is_prompt_changed && state.turn.is_some() {
        return Err(Rejection::TurnRunning);
    }
    Ok(vec![EventKind::ProfileChanged { change }])
}
