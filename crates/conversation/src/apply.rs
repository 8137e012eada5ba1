//! How an event changes the state. The function is total: it ignores an event that does not fit, and never panics.

use std::collections::BTreeMap;
use std::sync::Arc;

use conjure_base::{CallId, ContainerId, Digest, TurnId};

use crate::block::{Block, BlockKind};
use crate::call_answer::{decision_digest, input_digest, result_digest};
use crate::compaction::{RunningCompaction, apply_abandoned, apply_compacted, apply_failed};
use crate::event::{CallOutcome, Decision, Event, EventKind, TurnStop};
use crate::input_request::{InputAnswers, InputRequest, ProvidedInput};
use crate::message::Role;
use crate::model::Usage;
use crate::model::{ModelErrorKind, Response, SideEffects};
use crate::pinned_skill::PinnedSkill;
use crate::queue::QueuedInput;
use crate::server_tools::{ITS_CONTAINER_EXPIRED, NOT_AWAITED, is_server_tool_call};
use crate::session_file::drop_oldest_files;
use crate::session_state::{
    CallStatus, FinishedTurn, LastMessage, OpenCall, RunningTurn, SessionState, TurnPhase, is_sendable,
    millis,
};
use crate::stop_reason::{AfterResponse, StopReason};
use crate::tool::{ToolCall, ToolResult};

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
            // The paused response was using it.
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

/// Leaves to the original what waits in the queue, and what lies at the model's service. Artifacts are uploaded again when they are
/// needed.
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

/// What a response leads to. It is decided before the response is applied.
pub(crate) enum ResponseEffect {
    /// Run its tool calls.
    RunTools,
    /// Send it back unchanged.
    Resume,
    /// It is complete, but the user has added something meanwhile.
    Continue,
    /// It ends the turn.
    Stop(TurnStop),
}

pub(crate) fn response_effect(state: &SessionState, response: &Response) -> ResponseEffect {
    let has_calls = response.content.iter().any(|block| block.tool_call().is_some());
    match response.stop_reason.after_response() {
        // A paused answer with calls of ours cannot be resumed before they are answered: the service refuses
        // a call without a result. The answer is whole so far, so they run, and their results resume it.
        AfterResponse::RunTools | AfterResponse::Resume if has_calls => ResponseEffect::RunTools,
        AfterResponse::Resume => ResponseEffect::Resume,
        AfterResponse::RunTools | AfterResponse::Stop if state.steering.is_empty() => {
            ResponseEffect::Stop(TurnStop::Answered(response.stop_reason.clone()))
        }
        AfterResponse::RunTools | AfterResponse::Stop => ResponseEffect::Continue,
        AfterResponse::StopWithoutTools => ResponseEffect::Stop(match &response.stop_reason {
            StopReason::Refusal => TurnStop::Refused,
            reason => TurnStop::Truncated(reason.clone()),
        }),
    }
}

/// Why the calls of a response that ends its turn do not run. The model reads this text.
pub(crate) fn skip_reason(reason: &StopReason) -> String {
    match reason.after_response() {
        AfterResponse::StopWithoutTools => format!("not run: the answer was cut ({reason})"),
        _ => format!("not run: the answer said that it was complete ({reason})"),
    }
}

fn apply_response(state: &mut SessionState, response: &Response) {
    let consequence = response_effect(state, response);
    let is_cut = response.stop_reason.after_response() == AfterResponse::StopWithoutTools;
    let may_say = |block: &&Block| is_sendable(block) && !(is_cut && is_unsigned_thinking(block));
    let content: Vec<Block> = response.content.iter().filter(may_say).cloned().collect();
    let calls: Vec<ToolCall> = content.iter().filter_map(Block::tool_call).cloned().collect();
    state.usage.add(&response.usage);
    state.history_size.record_input(response.usage.total_input());
    state.has_run_tools |= response.container.is_some() || content.iter().any(is_server_tool_call);
    if response.container.is_some() {
        state.container.clone_from(&response.container);
    }
    state.call_ids.extend(calls.iter().map(|call| call.id.clone()));
    // A native form that says more than the blocks that are kept must not be sent back.
    let native = response.native.clone().filter(|_| !is_cut && content.len() == response.content.len());
    state.push_assistant(content, native);
    // An empty response adds no message, so the last message is not the assistant's.
    if is_cut && state.last_role() == Some(Role::Assistant) {
        state.replace_unfinished(NOT_AWAITED);
    }
    state.view.record_response();
    state.last_message = LastMessage::Complete;
    let Some(turn) = &mut state.turn else { return };
    turn.usage.add(&response.usage);
    match consequence {
        ResponseEffect::RunTools => {
            turn.tool_calls = turn.tool_calls.saturating_add(u32::try_from(calls.len()).unwrap_or(u32::MAX));
            turn.repeats = count_repeats(turn, &calls);
            let open = |call| OpenCall { call, status: CallStatus::New, rounds: 0, provided_input: None };
            turn.phase = TurnPhase::Tools(calls.into_iter().map(open).collect());
        }
        ResponseEffect::Resume => {
            turn.pauses = turn.pauses.saturating_add(1);
            turn.phase = TurnPhase::CallModel;
            if state.last_role() == Some(Role::Assistant) {
                state.last_message = LastMessage::Paused;
            }
        }
        ResponseEffect::Continue => {
            turn.phase = TurnPhase::CallModel;
            push_skipped_results(state, &calls, &response.stop_reason);
            state.flush_steering();
        }
        ResponseEffect::Stop(stop) => {
            turn.phase = TurnPhase::Finishing(stop);
            push_skipped_results(state, &calls, &response.stop_reason);
        }
    }
}

/// Whether this is thinking that was truncated before its signature. The service refuses such a block in a request.
fn is_unsigned_thinking(block: &Block) -> bool {
    #[derive(serde::Deserialize)]
    struct Signed {
        #[serde(default)]
        signature: String,
    }
    matches!(block.kind(), BlockKind::Thinking(_))
        && serde_json::from_str::<Signed>(block.json()).is_ok_and(|signed| signed.signature.is_empty())
}

/// Adds what the model reads after the next results.
fn add_input(state: &mut SessionState, input: &[Block]) {
    state.steering.extend_from_slice(input);
    if matches!(state.turn, Some(RunningTurn { phase: TurnPhase::CallModel, .. })) {
        state.flush_steering();
    }
}

/// Adds the results of calls that never run.
fn push_skipped_results(state: &mut SessionState, calls: &[ToolCall], reason: &StopReason) {
    let why = skip_reason(reason);
    let results = calls.iter().map(|call| Block::tool_result(&ToolResult::error(&call.id, why.as_str())));
    state.push_user(results.collect());
}

/// In how many consecutive responses each of these calls was made, this one included.
pub(crate) fn count_repeats(turn: &RunningTurn, calls: &[ToolCall]) -> BTreeMap<Digest, u32> {
    calls
        .iter()
        .map(|call| {
            let key = Digest::of_bytes(format!("{}\0{}", call.name, call.input.get()).as_bytes());
            (key, turn.repeats.get(&key).map_or(1, |count| count.saturating_add(1)))
        })
        .collect()
}

/// The turn goes on: somebody has acted, or a call runs or has ended.
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

/// The call may run again, with the answers.
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
