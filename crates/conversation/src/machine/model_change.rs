//! The change of a session's model between two turns.

use crate::events::event::EventKind;
use crate::machine::command::Rejection;
use crate::session::hosted::HostedSupport;
use crate::state::session_state::SessionState;

/// The events that change the model; none if the session has it already.
pub(super) fn set_model(
    state: &SessionState,
    model: String,
    hosted: HostedSupport,
) -> Result<Vec<EventKind>, Rejection> {
    if state.turn.is_some() {
        return Err(Rejection::TurnRunning);
    }
    let profile = state.profile.as_deref();
    let from = profile.and_then(|profile| profile.model.clone());
    if from.as_ref() == Some(&model) {
        return Ok(Vec::new());
    }
    let container = match hosted {
        HostedSupport::Skills => None,
        HostedSupport::None if profile.is_some_and(|profile| !profile.hosted.is_empty()) => {
            return Err(Rejection::NotHosting { model });
        }
        HostedSupport::None => state.container.clone(),
    };
    Ok(vec![EventKind::ModelChanged { from, to: model, container }])
}
