//! The command dispatch, the next step, and the commands that start a turn or a model call.

use conjure_base::{ContainerId, Timestamp};

use super::checks::{open_call, running_model_call, running_turn, user_input, wrong_status};
use super::external_answers::{await_action, decide_approval, provide_input, provide_result};
use super::model_change::set_model;
use super::profile::update_profile;
use super::queue_commands::queue;
use super::queue_commands::{start_queued, unqueue};
use super::recovery::{finish_turn, recover, turn_finished, unknown_effects};
use super::response::{CONTAINER_LOST, accept_response, replacement};
use super::tool_calls::{denied_result, finish_tool, require_input, start_tools};
use crate::compaction;
use crate::content::block::Block;
use crate::content::message::{Message, Role};
use crate::content::pairing;
use crate::events::event::{Event, EventKind};
use crate::events::turn_stop::TurnStop;
use crate::machine::command::{Command, CommandKind, InterruptCause, Rejection};
use crate::model::{ModelErrorKind, SideEffects};
use crate::session::artifact::ARTIFACT_LIMIT;
use crate::state::apply::next_turn;
use crate::state::limits::{Limit, Limits};
use crate::state::open_call::CallStatus;
use crate::state::running_turn::{RunningTurn, TurnPhase};
use crate::state::session_state::{LastMessage, SessionState};
use crate::tools::tool_server::tool_servers_note;

/// The next step of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// No turn is running.
    Idle,
    /// Call the model with [`SessionState::messages`].
    CallModel,
    /// Wait for the model's response, or for a summary.
    AwaitModel,
    /// Run the calls in [`SessionState::open_calls`].
    RunTools,
    /// Wait for an action on one of [`SessionState::pending_actions`].
    AwaitAction,
    /// The recorded events are incomplete: [`CommandKind::Recover`] completes them.
    Recover,
}

/// Returns the next step.
#[must_use]
pub fn next(state: &SessionState) -> Step {
    match state.turn.as_ref().map(|turn| &turn.phase) {
        None => Step::Idle,
        Some(TurnPhase::CallModel) => Step::CallModel,
        Some(TurnPhase::AwaitingModel(_) | TurnPhase::Compacting(_)) => Step::AwaitModel,
        Some(TurnPhase::Tools(calls)) => {
            let is_parked = state.turn.as_ref().is_some_and(|turn| turn.is_parked);
            if is_parked && calls.iter().any(|open| open.status.is_waiting()) {
                Step::AwaitAction
            } else {
                Step::RunTools
            }
        }
        Some(TurnPhase::Finishing(_)) => Step::Recover,
    }
}

/// Decides a command: returns the events to be recorded together and then applied. They are empty when nothing changes.
///
/// # Errors
/// When the command does not fit the state.
pub fn decide(state: &SessionState, command: Command) -> Result<Vec<Event>, Rejection> {
    let at = command.at;
    let kinds = match command.kind {
        CommandKind::Open { profile } => {
            if *state != SessionState::default() {
                return Err(Rejection::AlreadyOpened);
            }
            vec![EventKind::Opened { profile }]
        }
        CommandKind::Import { messages, container } => import(state, messages, container)?,
        CommandKind::SetModel { model, hosted } => set_model(state, model, hosted)?,
        CommandKind::UpdateProfile { change } => update_profile(state, change)?,
        CommandKind::StartTurn { input, limits } => start_turn(state, input, limits)?,
        CommandKind::StartModelCall { effects } => start_model_call(state, effects, at)?,
        CommandKind::AcceptResponse { turn, call, response } => {
            accept_response(state, turn, call, *response)?
        }
        CommandKind::FailModelCall { turn, call, error } => {
            let running = running_model_call(state, turn, call)?;
            let after = match (&error.kind, state.container()) {
                (ModelErrorKind::Exhausted(limit), _) => turn_finished(running, TurnStop::Limit(*limit)),
                (ModelErrorKind::ContainerGone, Some(container)) => {
                    let note = Block::text(CONTAINER_LOST);
                    EventKind::ContainerLost { turn, container: container.clone(), note }
                }
                (ModelErrorKind::OutcomeUnknown, _) => {
                    return Ok(events_at(unknown_effects(running, error), at));
                }
                _ => turn_finished(running, TurnStop::ModelFailed(error.clone())),
            };
            vec![EventKind::ModelCallFailed { turn, call, error }, after]
        }
        CommandKind::RejectBlock { turn, call, error, message, block } => {
            running_model_call(state, turn, call)?;
            let replacement = replacement(state, message, block, &error.message)?;
            vec![
                EventKind::ModelCallFailed { turn, call, error },
                EventKind::BlockReplaced { message, block, replacement },
            ]
        }
        CommandKind::StartCompaction { policy } => {
            let running = running_turn(state)?;
            match reached_limit(state, running, at) {
                Some(limit) if running.phase == TurnPhase::CallModel => {
                    vec![turn_finished(running, TurnStop::Limit(limit))]
                }
                _ => compaction::start(state, &policy)?,
            }
        }
        CommandKind::Compact { turn, compaction, summary, preserved } => {
            compaction::finish(state, (turn, compaction), summary, preserved)?
        }
        CommandKind::FailCompaction { turn, compaction, error } => {
            compaction::fail(state, (turn, compaction), error)?
        }
        CommandKind::RequestApproval { call, reason } => {
            match &open_call(state, &call)?.status {
                CallStatus::New => {}
                other => return Err(wrong_status(call, other)),
            }
            vec![EventKind::ApprovalRequested { call, reason }]
        }
        CommandKind::Decide { call, decision } => decide_approval(state, call, decision)?,
        CommandKind::RequestResult { call, from, deadline } => {
            match &open_call(state, &call)?.status {
                CallStatus::New | CallStatus::Approved => {}
                other => return Err(wrong_status(call, other)),
            }
            vec![EventKind::ResultRequested { call, from, deadline }]
        }
        CommandKind::ProvideResult { call, content, is_error } => {
            provide_result(state, call, content, is_error)?
        }
        CommandKind::RequireInput { call, request } => require_input(state, call, request)?,
        CommandKind::ProvideInput { call, round, answers } => provide_input(state, call, round, answers)?,
        CommandKind::AwaitAction => await_action(state)?,
        CommandKind::DenyTool { call, reason } => {
            match &open_call(state, &call)?.status {
                CallStatus::New | CallStatus::Approved => {}
                other => return Err(wrong_status(call, other)),
            }
            vec![denied_result(&call, &reason)]
        }
        CommandKind::StartTools { calls } => start_tools(state, calls)?,
        CommandKind::FinishTool { result, outcome } => finish_tool(state, result, outcome)?,
        CommandKind::Steer { input } => {
            running_turn(state)?;
            let input = user_input(input)?;
            if input.is_empty() {
                return Err(Rejection::EmptyInput);
            }
            vec![EventKind::Steered { input }]
        }
        CommandKind::ReportToolServers { failures } => {
            running_turn(state)?;
            if failures.is_empty() {
                return Err(Rejection::EmptyInput);
            }
            let note = Block::text(tool_servers_note(&failures));
            vec![EventKind::ToolServersFailed { failures, note }]
        }
        CommandKind::Queue { input, limits } => queue(state, input, limits)?,
        CommandKind::StartQueued { limits } => start_queued(state, limits)?,
        CommandKind::Unqueue { id } => unqueue(state, id)?,
        CommandKind::Interrupt { cause } => {
            let stop = match cause {
                InterruptCause::Cancelled => TurnStop::Interrupted,
                InterruptCause::Deadline => TurnStop::Deadline,
                InterruptCause::WallClock => TurnStop::Limit(Limit::WallClock),
            };
            // A response that has ended the turn wins over a later interruption.
            let running = running_turn(state)?;
            match &running.phase {
                TurnPhase::Finishing(stop) => vec![turn_finished(running, stop.clone())],
                _ => finish_turn(state, running, stop),
            }
        }
        CommandKind::Recover => recover(state, at),
        CommandKind::RegisterArtifact { artifact } => {
            let view = state.view();
            if view.artifact(&artifact.name).is_some() {
                return Err(Rejection::ArtifactExists { name: artifact.name });
            }
            if view.artifacts().len() >= ARTIFACT_LIMIT {
                return Err(Rejection::TooManyArtifacts { limit: ARTIFACT_LIMIT });
            }
            vec![EventKind::ArtifactRegistered { artifact }]
        }
        CommandKind::UnregisterArtifact { name } => {
            if state.view().artifact(&name).is_none() {
                return Err(Rejection::NoArtifact { name });
            }
            vec![EventKind::ArtifactUnregistered { name }]
        }
        CommandKind::ClearArtifacts => state
            .view()
            .artifacts()
            .iter()
            .map(|artifact| EventKind::ArtifactUnregistered { name: artifact.name.clone() })
            .collect(),
        CommandKind::FetchArtifact { fetched } => {
            if state.view().artifact(&fetched.name).is_none() {
                return Err(Rejection::NoArtifact { name: fetched.name });
            }
            vec![EventKind::ArtifactFetched { fetched }]
        }
        CommandKind::AttachUpload { uploaded } => {
            running_turn(state)?;
            if !state.pending_uploads().any(|artifact| {
                artifact.name == uploaded.name
                    && artifact.content.as_ref().is_some_and(|content| content.digest == uploaded.digest)
            }) {
                return Err(Rejection::NoArtifact { name: uploaded.name });
            }
            // After a paused response, and beside running calls, a block of the user is not allowed.
            if !state.accepts_uploads() {
                return Err(Rejection::ModelCallNotDue);
            }
            vec![EventKind::ArtifactUploaded { uploaded }]
        }
        CommandKind::ProduceFiles { turn, files, completeness } => {
            if state.turn.is_some() || state.files_due().is_none_or(|(due, _)| due != turn) {
                return Err(Rejection::FilesNotDue { turn });
            }
            vec![EventKind::FilesProduced { turn, files, completeness }]
        }
    };
    Ok(events_at(kinds, at))
}

fn events_at(kinds: Vec<EventKind>, at: Timestamp) -> Vec<Event> {
    kinds.into_iter().map(|kind| Event { at, kind }).collect()
}

fn import(
    state: &SessionState,
    messages: Vec<Message>,
    container: Option<ContainerId>,
) -> Result<Vec<EventKind>, Rejection> {
    let is_new = state.messages.is_empty() && state.container.is_none();
    if !is_new || state.turn.is_some() || state.last.is_some() {
        return Err(Rejection::HistoryPresent);
    }
    pairing::check_history(&messages)?;
    let is_nothing = messages.is_empty() && container.is_none();
    Ok(if is_nothing { Vec::new() } else { vec![EventKind::Imported { messages, container }] })
}

fn start_turn(state: &SessionState, input: Vec<Block>, limits: Limits) -> Result<Vec<EventKind>, Rejection> {
    if state.turn.is_some() {
        return Err(Rejection::TurnRunning);
    }
    let input = user_input(input)?;
    let awaits_answer = state.last_role() == Some(Role::User) || state.last_message == LastMessage::Paused;
    if input.is_empty() && state.steering.is_empty() && !awaits_answer {
        return Err(Rejection::EmptyInput);
    }
    Ok(vec![EventKind::TurnStarted { turn: next_turn(state), input, limits, queued: None, queued_at: None }])
}

fn start_model_call(
    state: &SessionState,
    effects: SideEffects,
    now: Timestamp,
) -> Result<Vec<EventKind>, Rejection> {
    let turn = running_turn(state)?;
    if turn.phase != TurnPhase::CallModel {
        return Err(Rejection::ModelCallNotDue);
    }
    Ok(match reached_limit(state, turn, now) {
        Some(limit) => vec![turn_finished(turn, TurnStop::Limit(limit))],
        None => {
            let call = turn.model_calls.saturating_add(1);
            vec![EventKind::ModelCallStarted { turn: turn.id, call, effects: Some(effects) }]
        }
    })
}

/// The limit that forbids another model call.
fn reached_limit(state: &SessionState, turn: &RunningTurn, now: Timestamp) -> Option<Limit> {
    let limits = &turn.limits;
    let max_cost = state.profile().and_then(|profile| profile.max_cost_micros);
    let reached = |used: u64, limit: Option<u64>| limit.is_some_and(|limit| used >= limit);
    if turn.denials.values().any(|denials| denials.responses >= limits.denied_calls) {
        Some(Limit::DeniedCalls)
    } else if turn.model_calls >= limits.model_calls {
        Some(Limit::ModelCalls)
    } else if turn.pauses > limits.pauses {
        Some(Limit::Pauses)
    } else if reached(turn.usage.total(), limits.tokens) {
        Some(Limit::Tokens)
    } else if reached(turn.usage.cost_micros, limits.cost_micros)
        || reached(state.usage().cost_micros, max_cost)
    {
        Some(Limit::Cost)
    } else if limits.wall_clock.is_some_and(|limit| turn.elapsed(now) >= limit) {
        Some(Limit::WallClock)
    } else {
        None
    }
}
