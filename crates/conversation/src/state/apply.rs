//! How an event changes the state. The function is total: it ignores an event that does not fit, and never panics.

use std::collections::BTreeMap;
use std::sync::Arc;

use conjure_base::{CallId, ContainerId, TurnId};

use crate::compaction::{RunningCompaction, apply_abandoned, apply_compacted, apply_failed};
use crate::content::block::Block;
use crate::content::message::Role;
use crate::events::call_outcome::{CallOutcome, Decision};
use crate::events::event::{Event, EventKind};
use crate::model::Usage;
use crate::model::{ModelErrorKind, SideEffects};
use crate::session::pinned_skill::PinnedSkill;
use crate::session::queue::QueuedInput;
use crate::session::session_file::drop_oldest_files;
use crate::state::apply_response::apply_response;
use crate::state::open_call::{CallStatus, OpenCall};
use crate::state::running_turn::{FinishedTurn, RunningTurn, TurnPhase, millis};
use crate::state::session_state::{LastMessage, SessionState};
use crate::tools::call_answer::{decision_digest, input_digest, result_digest};
use crate::tools::input_request::{InputAnswers, InputRequest, ProvidedInput};
use crate::tools::server_tools::{ITS_CONTAINER_EXPIRED, NOT_AWAITED};

/// Adds one recorded event to the state.
pub fn apply(state: &mut SessionState, event: &Event) {
    add_elapsed(state, event);
    state.touched = event.at;
    match &event.kind {
        EventKind::Opened { profile } => state.profile = Some(Arc::new((**profile).clone())),
        EventKind::Queued { id, input, limits } => {
            let (input, limits) = (input.clone(), limits.clone());
            state.queue.push_back(QueuedInput { id: *id, at: event.at, input, limits });
            state.last_queued = state.last_queued.max(*id);
        }
        EventKind::Unqueued { id } => state.queue.retain(|queued| queued.id != *id),
        EventKind::Imported { messages, container } => {
            state.container.clone_from(container);
            for message in messages {
                state.call_ids.extend(message.tool_calls().map(|call| call.id.clone()));
                state.messages.push(message.clone().into());
            }
            if state.last_role() == Some(Role::Assistant) {
                state.last_message = LastMessage::Paused;
            }
        }
        EventKind::ModelChanged { to, container, .. } => apply_model_change(state, to, container.as_ref()),
        EventKind::ProfileChanged { change } => {
            let mut profile = state.profile.take().unwrap_or_default();
            change.apply_to(Arc::make_mut(&mut profile));
            state.profile = Some(profile);
        }
        EventKind::Forked { note, .. } => apply_fork(state, note.as_ref()),
        EventKind::TurnStarted { turn, input, limits, queued, .. } => {
            state.files_turn_began = event.at;
            state.has_run_tools = false;
            state.summarized_messages.clear();
            state.queue.retain(|waiting| Some(waiting.id) != *queued);
            let mut blocks = std::mem::take(&mut state.steering);
            blocks.extend_from_slice(input);
            state.push_user(blocks);
            state.turn = Some(RunningTurn {
                id: *turn,
                limits: limits.clone(),
                usage: Usage::default(),
                phase: TurnPhase::CallModel,
                model_calls: 0,
                tool_calls: 0,
                pauses: 0,
                compactions: 0,
                elapsed_ms: 0,
                last_event_at: event.at,
                is_parked: false,
                repeats: BTreeMap::new(),
                denials: BTreeMap::new(),
            });
        }
        EventKind::ModelCallStarted { call, effects, .. } => {
            let effects = effects.unwrap_or_else(|| effects_of_old_record(state));
            if let Some(turn) = &mut state.turn {
                turn.model_calls = *call;
                turn.phase = TurnPhase::AwaitingModel(effects);
            }
        }
        EventKind::ModelAnswered { response, .. } => apply_response(state, response),
        EventKind::ModelCallFailed { .. } | EventKind::ModelCallAbandoned { .. } => {
            // A lost container would fail every later call too.
            if let EventKind::ModelCallFailed { error, .. } = &event.kind
                && error.kind == ModelErrorKind::ContainerGone
            {
                state.container = None;
            }
            if let Some(turn) = &mut state.turn {
                turn.phase = TurnPhase::CallModel;
            }
            state.flush_steering();
        }
        EventKind::ContainerLost { note, .. } => {
            state.container = None;
            let again = state.uploaded.iter().map(|uploaded| uploaded.block.clone());
            let blocks: Vec<Block> = std::iter::once(note.clone()).chain(again).collect();
            if matches!(
                state.turn,
                Some(RunningTurn { phase: TurnPhase::Tools(_) | TurnPhase::Finishing(_), .. })
            ) {
                // The note follows the results, or goes with the next message of the user.
                state.steering.splice(0..0, blocks);
                return;
            }
            // The paused response was using the container.
            state.replace_unfinished(ITS_CONTAINER_EXPIRED);
            state.last_message = LastMessage::Complete;
            state.push_user(blocks);
            state.flush_steering();
        }
        EventKind::NoteAdded { note } => {
            state.steering.push(note.clone());
            if matches!(state.turn, Some(RunningTurn { phase: TurnPhase::CallModel, .. })) {
                state.flush_steering();
            }
        }
        EventKind::CompactionStarted { compaction, kept, regrowth, .. } => {
            if let Some(turn) = &mut state.turn {
                turn.compactions = *compaction;
                turn.phase = TurnPhase::Compacting(RunningCompaction { kept: *kept, regrowth: *regrowth });
            }
        }
        EventKind::Compacted { kept, summary, usage, .. } => apply_compacted(state, *kept, summary, usage),
        EventKind::CompactionFailed { usage, .. } => apply_failed(state, usage),
        EventKind::CompactionAbandoned { .. } => apply_abandoned(state),
        EventKind::BlockReplaced { message, block, replacement } => {
            let place = state.messages.get_mut(*message).map(Arc::make_mut);
            if let Some(content) = place.and_then(|message| message.content.get_mut(*block)) {
                let refused = std::mem::replace(content, replacement.clone());
                state.replaced.insert((*message, *block));
                // The service has lost that file, so the artifact is uploaded again.
                state.uploaded.retain(|uploaded| uploaded.block != refused);
            }
        }
        EventKind::ApprovalRequested { call, reason } => {
            set_status(state, call, CallStatus::AwaitingApproval { reason: reason.clone() });
        }
        EventKind::ApprovalDecided { call, decision } => {
            if let Decision::Grant { grant } = decision {
                state.view.add_grant(grant);
            }
            if state.open_call(call).is_some() {
                state.answers.entry(call.clone()).or_default().decision = Some(decision_digest(decision));
            }
            unpark(state);
            set_status(
                state,
                call,
                match decision {
                    Decision::Allow | Decision::Grant { .. } => CallStatus::Approved,
                    Decision::Deny { .. } => CallStatus::New,
                },
            );
        }
        EventKind::ResultRequested { call, from, deadline } => {
            set_status(state, call, CallStatus::AwaitingResult { from: *from, deadline: *deadline });
        }
        EventKind::ResultProvided { result, .. } => {
            if state.open_call(&result.tool_use_id).is_some() {
                let answers = state.answers.entry(result.tool_use_id.clone()).or_default();
                answers.result = Some(result_digest(&result.content, result.is_error));
            }
            unpark(state);
            set_status(state, &result.tool_use_id, CallStatus::Finished(result.clone()));
            push_tool_results(state);
        }
        EventKind::InputRequired { call, round, request } => {
            apply_input_required(state, call, *round, request)
        }
        EventKind::InputProvided { call, round, answers } => apply_input(state, call, *round, answers),
        EventKind::ActionRequired { .. } => {
            if let Some(turn) = &mut state.turn {
                turn.is_parked = true;
            }
        }
        EventKind::ToolStarted { call, idempotent } => {
            state.has_run_tools = true;
            state.has_started_tools = true;
            unpark(state);
            set_status(state, call, CallStatus::Started { idempotent: *idempotent });
        }
        EventKind::ToolAbandoned { call } => set_status(state, call, CallStatus::Approved),
        EventKind::ToolFinished { result, outcome } => {
            if *outcome == CallOutcome::Denied {
                count_denial(state, &result.tool_use_id);
            }
            // A call has one result: a late one changes nothing.
            if let Some(active) = &result.active_skills
                && state.open_call(&result.tool_use_id).is_some()
            {
                record_skill_delivery(state, active);
                state.view.set_active_skills(active);
            }
            if state.open_call(&result.tool_use_id).is_some() {
                result.fetched.iter().for_each(|fetched| state.view.update_fetched(fetched));
            }
            unpark(state);
            set_status(state, &result.tool_use_id, CallStatus::Finished(result.clone()));
            push_tool_results(state);
        }
        EventKind::Steered { input } => add_input(state, input),
        EventKind::ToolServersFailed { note, .. } => add_input(state, std::slice::from_ref(note)),
        EventKind::TurnFinished { turn, stop, usage } => {
            let (model_calls, pauses, limits) = state
                .turn
                .take()
                .map(|turn| (turn.model_calls, turn.pauses, turn.limits))
                .unwrap_or_default();
            let (turn, stop, usage) = (*turn, stop.clone(), *usage);
            state.last = Some(FinishedTurn { turn, stop, model_calls, pauses, limits, usage });
        }
        EventKind::ArtifactRegistered { artifact } => state.view.add_artifact(artifact),
        EventKind::ArtifactUnregistered { name } => {
            state.view.remove_artifact(name);
            state.uploaded.retain(|uploaded| uploaded.name != *name);
        }
        EventKind::ArtifactFetched { fetched } => state.view.update_fetched(fetched),
        EventKind::ArtifactUploaded { uploaded } => {
            state.uploaded.retain(|other| other.name != uploaded.name);
            state.uploaded.push((**uploaded).clone());
            state.push_user(vec![uploaded.block.clone()]);
        }
        EventKind::FilesProduced { turn, files, .. } => {
            state.files_recorded_for = Some(*turn);
            if files.is_empty() {
                return;
            }
            let known = Arc::make_mut(&mut state.files);
            known.extend(files.iter().map(|file| ((file.source, file.id.clone()), file.clone())));
            drop_oldest_files(known);
        }
    }
}

/// Sets the model, and forgets the container that its service does not have.
fn apply_model_change(state: &mut SessionState, model: &str, container: Option<&ContainerId>) {
    let mut profile = state.profile.take().unwrap_or_default();
    Arc::make_mut(&mut profile).set_model(model.to_owned());
    state.profile = Some(profile);
    if container.is_some() {
        state.container = None;
    }
    // The new model does not continue a response that another one paused.
    if state.last_message == LastMessage::Paused {
        state.replace_unfinished(NOT_AWAITED);
        state.last_message = LastMessage::Complete;
    }
}

/// Removes from a fork what belongs to the original: the queue, and the uploads and the container at the model's service. Artifacts
/// are uploaded again when they are needed.
fn apply_fork(state: &mut SessionState, note: Option<&Block>) {
    state.queue.clear();
    state.uploaded.clear();
    if state.container.take().is_some() && state.last_message == LastMessage::Paused {
        state.replace_unfinished(ITS_CONTAINER_EXPIRED);
        state.last_message = LastMessage::Complete;
    }
    state.steering.extend(note.cloned());
}

/// The possible side effects of a call whose event is too old to have them: they follow from what the session sent.
fn effects_of_old_record(state: &SessionState) -> SideEffects {
    let has_skills = state.profile.as_ref().is_some_and(|profile| !profile.hosted.is_empty());
    if state.container.is_some() || has_skills { SideEffects::Possible } else { SideEffects::None }
}

/// Adds input that the model reads after the next results.
fn add_input(state: &mut SessionState, input: &[Block]) {
    state.steering.extend_from_slice(input);
    if matches!(state.turn, Some(RunningTurn { phase: TurnPhase::CallModel, .. })) {
        state.flush_steering();
    }
}

/// Ends the waiting of a parked turn: an action came from outside, or a call runs or has ended.
const fn unpark(state: &mut SessionState) {
    if let Some(turn) = &mut state.turn {
        turn.is_parked = false;
    }
}

fn set_status(state: &mut SessionState, call: &CallId, status: CallStatus) {
    if let Some(open) = open_call_mut(state, call) {
        open.status = status;
    }
}

fn open_call_mut<'a>(state: &'a mut SessionState, call: &CallId) -> Option<&'a mut OpenCall> {
    let Some(RunningTurn { phase: TurnPhase::Tools(calls), .. }) = &mut state.turn else { return None };
    calls.iter_mut().find(|open| open.call.id == *call)
}

fn apply_input_required(state: &mut SessionState, call: &CallId, round: u32, request: &InputRequest) {
    if let Some(open) = open_call_mut(state, call) {
        open.rounds = round;
        open.status = CallStatus::AwaitingInput { round, request: Arc::new(request.clone()) };
    }
}

/// Lets the call run again, with the answers.
fn apply_input(state: &mut SessionState, call: &CallId, round: u32, answers: &InputAnswers) {
    unpark(state);
    let Some(open) = open_call_mut(state, call) else { return };
    if let CallStatus::AwaitingInput { request, .. } = &open.status {
        open.provided_input = Some(ProvidedInput { answers: answers.clone(), state: request.state.clone() });
        open.status = CallStatus::Approved;
        state.answers.entry(call.clone()).or_default().inputs.insert(round, input_digest(answers));
    }
}

/// Adds the time since the last event to the turn's time. The time when a driver ended is not recorded, so the time before an event
/// of recovery is left out.
fn add_elapsed(state: &mut SessionState, event: &Event) {
    let Some(turn) = &mut state.turn else { return };
    let is_recovery = match &event.kind {
        EventKind::ModelCallAbandoned { .. }
        | EventKind::CompactionAbandoned { .. }
        | EventKind::ToolAbandoned { .. } => true,
        EventKind::ToolFinished { outcome, .. } => *outcome == CallOutcome::Unknown,
        _ => false,
    };
    if turn.is_active() && !is_recovery {
        turn.elapsed_ms = turn.elapsed_ms.saturating_add(millis(event.at.duration_since(turn.last_event_at)));
    }
    turn.last_event_at = event.at;
}

/// Records in which message the results of newly loaded skills will be.
fn record_skill_delivery(state: &mut SessionState, active: &[PinnedSkill]) {
    let place = state.messages.len();
    let before = state.view.active_skills();
    let newly =
        active.iter().filter(|skill| !before.contains(skill)).map(|skill| (skill.name.clone(), place));
    state.skill_messages.extend(newly);
    state.skill_messages.retain(|name, _| active.iter().any(|skill| skill.name == *name));
}

fn count_denial(state: &mut SessionState, call: &CallId) {
    let Some(name) = state.open_call(call).map(|open| open.call.name.clone()) else { return };
    if let Some(turn) = &mut state.turn {
        let denials = turn.denials.entry(name).or_default();
        if denials.last_call != turn.model_calls {
            denials.responses = denials.responses.saturating_add(1);
            denials.last_call = turn.model_calls;
        }
    }
}

/// Once every call has its result, adds the results as the next user message, in call order, before what the user added.
fn push_tool_results(state: &mut SessionState) {
    let open = state.open_calls();
    if open.is_empty() || !open.iter().all(|open| matches!(open.status, CallStatus::Finished(_))) {
        return;
    }
    let results = open.iter().filter_map(|open| match &open.status {
        CallStatus::Finished(result) => Some(Block::tool_result(result)),
        _ => None,
    });
    let results = results.collect();
    if let Some(turn) = &mut state.turn {
        turn.phase = TurnPhase::CallModel;
    }
    state.push_user(results);
    state.flush_steering();
}

/// The turn after the last one.
pub(crate) fn next_turn(state: &SessionState) -> TurnId {
    state.last.as_ref().map_or(TurnId::FIRST, |last| last.turn.next())
}
