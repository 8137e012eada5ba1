//! How an event changes the state. Total: an event that does not fit is passed over, never a panic.

use std::collections::BTreeMap;
use std::sync::Arc;

use conjure_base::{CallId, Digest, TurnId};

use crate::compaction::{UnderWay, abandoned, compacted, failed};
use crate::content::{Block, BlockKind};
use crate::event::{Decision, Event, EventKind, ToolOutcome, TurnStop};
use crate::files::forget_files;
use crate::message::Role;
use crate::model::{CallEffects, ModelErrorKind, Response};
use crate::profile::PinnedSkill;
use crate::queue::QueuedInput;
use crate::service_tools::{ITS_CONTAINER_EXPIRED, NOT_AWAITED, is_call};
use crate::state::{CallStatus, FinishedTurn, OpenCall, Phase, State, Tail, Turn, assistant_may_say, millis};
use crate::stop::{AfterAnswer, StopReason};
use crate::tool::{ToolCall, ToolResult};
use crate::usage::Usage;

/// Adds one recorded event to the state.
pub fn apply(state: &mut State, event: &Event) {
    count_work(state, event);
    state.touched = event.at;
    match &event.kind {
        EventKind::Opened { profile } => state.profile = Some(Arc::new((**profile).clone())),
        EventKind::Queued { id, input, limits } => {
            state.queue.push_back(QueuedInput { id: *id, input: input.clone(), limits: limits.clone() });
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
                state.tail = Tail::Paused;
            }
        }
        EventKind::TurnStarted { turn, input, limits, queued } => {
            state.began = event.at;
            state.has_acted = false;
            state.summarized.clear();
            state.queue.retain(|waiting| Some(waiting.id) != *queued);
            let mut blocks = std::mem::take(&mut state.steering);
            blocks.extend_from_slice(input);
            state.push_user(blocks);
            state.turn = Some(Turn {
                id: *turn,
                limits: limits.clone(),
                usage: Usage::default(),
                phase: Phase::ModelDue,
                model_calls: 0,
                tool_calls: 0,
                pauses: 0,
                compactions: 0,
                worked: 0,
                last_at: event.at,
                repeats: BTreeMap::new(),
                denied: BTreeMap::new(),
            });
        }
        EventKind::ModelCallStarted { call, effects, .. } => {
            let effects = effects.unwrap_or_else(|| effects_of_old(state));
            if let Some(turn) = &mut state.turn {
                turn.model_calls = *call;
                turn.phase = Phase::Calling(effects);
            }
        }
        EventKind::ModelAnswered { response, .. } => answer(state, response),
        EventKind::ModelCallFailed { .. } | EventKind::ModelCallAbandoned { .. } => {
            // A container that is gone would fail every later call too.
            if let EventKind::ModelCallFailed { error, .. } = &event.kind
                && error.kind == ModelErrorKind::ContainerGone
            {
                state.container = None;
            }
            if let Some(turn) = &mut state.turn {
                turn.phase = Phase::ModelDue;
            }
            state.flush_steering();
        }
        EventKind::ContainerLost { note, .. } => {
            state.container = None;
            let again = state.uploaded.iter().map(|uploaded| uploaded.block.clone());
            let blocks: Vec<Block> = std::iter::once(note.clone()).chain(again).collect();
            if matches!(state.turn, Some(Turn { phase: Phase::Tools(_) | Phase::Closing(_), .. })) {
                // Behind the results, or with what the user says next.
                state.steering.splice(0..0, blocks);
                return;
            }
            // What was paused was going on in it.
            state.settle(ITS_CONTAINER_EXPIRED);
            state.tail = Tail::Whole;
            state.push_user(blocks);
            state.flush_steering();
        }
        EventKind::ModelTold { note } => {
            state.steering.push(note.clone());
            if matches!(state.turn, Some(Turn { phase: Phase::ModelDue, .. })) {
                state.flush_steering();
            }
        }
        EventKind::CompactionStarted { compaction, kept, regrowth, .. } => {
            if let Some(turn) = &mut state.turn {
                turn.compactions = *compaction;
                turn.phase = Phase::Compacting(UnderWay { kept: *kept, regrowth: *regrowth });
            }
        }
        EventKind::Compacted { kept, summary, usage, .. } => compacted(state, *kept, summary, usage),
        EventKind::CompactionFailed { usage, .. } => failed(state, usage),
        EventKind::CompactionAbandoned { .. } => abandoned(state),
        EventKind::BlockReplaced { message, block, replacement } => {
            let place = state.messages.get_mut(*message).map(Arc::make_mut);
            if let Some(content) = place.and_then(|message| message.content.get_mut(*block)) {
                let refused = std::mem::replace(content, replacement.clone());
                state.replaced.insert((*message, *block));
                // The service does not have that file any more: it is given the artifact again.
                state.uploaded.retain(|uploaded| uploaded.block != refused);
            }
        }
        EventKind::ApprovalRequested { call, reason } => {
            set_status(state, call, CallStatus::AwaitingApproval { reason: reason.clone() });
        }
        EventKind::ApprovalDecided { call, decision } => {
            if let Decision::Grant { grant } = decision {
                state.standing.grant(grant);
            }
            set_status(
                state,
                call,
                match decision {
                    Decision::Allow | Decision::Grant { .. } => CallStatus::Approved,
                    Decision::Deny { .. } => CallStatus::New,
                },
            );
        }
        EventKind::ToolStarted { call, idempotent } => {
            state.has_acted = true;
            set_status(state, call, CallStatus::Started { idempotent: *idempotent });
        }
        EventKind::ToolAbandoned { call } => set_status(state, call, CallStatus::Approved),
        EventKind::ToolFinished { result, outcome } => {
            if *outcome == ToolOutcome::Denied {
                count_denial(state, &result.tool_use_id);
            }
            // A call that has its result has had its effect: a late one changes nothing.
            if let Some(active) = &result.active_skills
                && state.open_call(&result.tool_use_id).is_some()
            {
                deliver(state, active);
                state.standing.activate(active);
            }
            if state.open_call(&result.tool_use_id).is_some() {
                result.fetched.iter().for_each(|fetched| state.standing.fetched(fetched));
            }
            set_status(state, &result.tool_use_id, CallStatus::Finished(result.clone()));
            hand_in_results(state);
        }
        EventKind::Steered { input } => {
            state.steering.extend_from_slice(input);
            if matches!(state.turn, Some(Turn { phase: Phase::ModelDue, .. })) {
                state.flush_steering();
            }
        }
        EventKind::TurnFinished { turn, stop, usage } => {
            let (model_calls, pauses, limits) = state
                .turn
                .take()
                .map(|turn| (turn.model_calls, turn.pauses, turn.limits))
                .unwrap_or_default();
            let (turn, stop, usage) = (*turn, stop.clone(), *usage);
            state.last = Some(FinishedTurn { turn, stop, model_calls, pauses, limits, usage });
        }
        EventKind::ArtifactRegistered { artifact } => state.standing.register(artifact),
        EventKind::ArtifactUnregistered { name } => {
            state.standing.unregister(name);
            state.uploaded.retain(|uploaded| uploaded.name != *name);
        }
        EventKind::ArtifactFetched { fetched } => state.standing.fetched(fetched),
        EventKind::ArtifactUploaded { uploaded } => {
            state.uploaded.retain(|other| other.name != uploaded.name);
            state.uploaded.push((**uploaded).clone());
            state.push_user(vec![uploaded.block.clone()]);
        }
        EventKind::FilesProduced { turn, files, .. } => {
            state.files_of = Some(*turn);
            if files.is_empty() {
                return;
            }
            let known = Arc::make_mut(&mut state.files);
            known.extend(files.iter().map(|file| ((file.source, file.id.clone()), file.clone())));
            forget_files(known);
        }
    }
}

/// What a call may have done of which a record of old does not say so: it goes by what the session was known to send.
fn effects_of_old(state: &State) -> CallEffects {
    let has_skills = state.profile.as_ref().is_some_and(|profile| !profile.hosted.is_empty());
    if state.container.is_some() || has_skills { CallEffects::Possible } else { CallEffects::None }
}

/// What an answer leads to. Decided from the state before the answer is applied.
pub(crate) enum Consequence {
    /// Its tools are to be run.
    RunTools,
    /// It is to be sent back unchanged.
    Resume,
    /// It is whole, but the user has added something meanwhile.
    GoOn,
    /// It ends the turn.
    Stop(TurnStop),
}

pub(crate) fn consequence(state: &State, response: &Response) -> Consequence {
    let has_calls = response.content.iter().any(|block| block.tool_call().is_some());
    match response.stop_reason.consequence() {
        // A paused answer with calls of ours cannot be resumed before they are answered: the service refuses
        // a call without a result. The answer is whole so far, so they run, and their results resume it.
        AfterAnswer::RunTools | AfterAnswer::Resume if has_calls => Consequence::RunTools,
        AfterAnswer::Resume => Consequence::Resume,
        AfterAnswer::RunTools | AfterAnswer::Stop if state.steering.is_empty() => {
            Consequence::Stop(TurnStop::Answered(response.stop_reason.clone()))
        }
        AfterAnswer::RunTools | AfterAnswer::Stop => Consequence::GoOn,
        AfterAnswer::StopWithoutTools => Consequence::Stop(match &response.stop_reason {
            StopReason::Refusal => TurnStop::Refused,
            reason => TurnStop::Cut(reason.clone()),
        }),
    }
}

/// Why the calls of an answer that ends its turn do not run; the model reads it.
pub(crate) fn why_not_run(reason: &StopReason) -> String {
    match reason.consequence() {
        AfterAnswer::StopWithoutTools => format!("not run: the answer was cut ({reason})"),
        _ => format!("not run: the answer said that it was complete ({reason})"),
    }
}

fn answer(state: &mut State, response: &Response) {
    let consequence = consequence(state, response);
    let is_cut = response.stop_reason.consequence() == AfterAnswer::StopWithoutTools;
    let may_say = |block: &&Block| assistant_may_say(block) && !(is_cut && is_unsigned_thinking(block));
    let content: Vec<Block> = response.content.iter().filter(may_say).cloned().collect();
    let calls: Vec<ToolCall> = content.iter().filter_map(Block::tool_call).cloned().collect();
    state.usage.add(&response.usage);
    state.gauge.measured(response.usage.total_input());
    state.has_acted |= response.container.is_some() || content.iter().any(is_call);
    if response.container.is_some() {
        state.container.clone_from(&response.container);
    }
    state.call_ids.extend(calls.iter().map(|call| call.id.clone()));
    state.push_assistant(content);
    // Of an answer that said nothing, nothing is awaited: what stands before the user's words was sent so.
    if is_cut && state.last_role() == Some(Role::Assistant) {
        state.settle(NOT_AWAITED);
    }
    state.standing.answer();
    state.tail = Tail::Whole;
    let Some(turn) = &mut state.turn else { return };
    turn.usage.add(&response.usage);
    match consequence {
        Consequence::RunTools => {
            turn.tool_calls = turn.tool_calls.saturating_add(u32::try_from(calls.len()).unwrap_or(u32::MAX));
            turn.repeats = repeats(turn, &calls);
            let open = |call| OpenCall { call, status: CallStatus::New };
            turn.phase = Phase::Tools(calls.into_iter().map(open).collect());
        }
        Consequence::Resume => {
            turn.pauses = turn.pauses.saturating_add(1);
            turn.phase = Phase::ModelDue;
            if state.last_role() == Some(Role::Assistant) {
                state.tail = Tail::Paused;
            }
        }
        Consequence::GoOn => {
            turn.phase = Phase::ModelDue;
            not_run(state, &calls, &response.stop_reason);
            state.flush_steering();
        }
        Consequence::Stop(stop) => {
            turn.phase = Phase::Closing(stop);
            not_run(state, &calls, &response.stop_reason);
        }
    }
}

/// Whether this is thinking that was cut before its signature: the service refuses it when it comes back.
fn is_unsigned_thinking(block: &Block) -> bool {
    #[derive(serde::Deserialize)]
    struct Signed {
        #[serde(default)]
        signature: String,
    }
    matches!(block.kind(), BlockKind::Thinking(_))
        && serde_json::from_str::<Signed>(block.json()).is_ok_and(|signed| signed.signature.is_empty())
}

/// Answers calls that never run.
fn not_run(state: &mut State, calls: &[ToolCall], reason: &StopReason) {
    let why = why_not_run(reason);
    let results = calls.iter().map(|call| Block::tool_result(&ToolResult::error(&call.id, why.as_str())));
    state.push_user(results.collect());
}

/// In how many answers in a row each of these calls was made, this one included.
pub(crate) fn repeats(turn: &Turn, calls: &[ToolCall]) -> BTreeMap<Digest, u32> {
    calls
        .iter()
        .map(|call| {
            let key = Digest::of(format!("{}\0{}", call.name, call.input.get()).as_bytes());
            (key, turn.repeats.get(&key).map_or(1, |count| count.saturating_add(1)))
        })
        .collect()
}

fn set_status(state: &mut State, call: &CallId, status: CallStatus) {
    let Some(Turn { phase: Phase::Tools(calls), .. }) = &mut state.turn else { return };
    if let Some(open) = calls.iter_mut().find(|open| open.call.id == *call) {
        open.status = status;
    }
}

/// How long the running turn has worked. When a driver ended is not recorded, only what its successor found: all since the
/// event before that is left out.
fn count_work(state: &mut State, event: &Event) {
    let Some(turn) = &mut state.turn else { return };
    let is_found = match &event.kind {
        EventKind::ModelCallAbandoned { .. }
        | EventKind::CompactionAbandoned { .. }
        | EventKind::ToolAbandoned { .. } => true,
        EventKind::ToolFinished { outcome, .. } => *outcome == ToolOutcome::Unknown,
        _ => false,
    };
    if turn.is_working() && !is_found {
        turn.worked = turn.worked.saturating_add(millis(event.at.since(turn.last_at)));
    }
    turn.last_at = event.at;
}

/// Where the results of the open calls will stand, there are those of the skills that were not active before.
fn deliver(state: &mut State, active: &[PinnedSkill]) {
    let place = state.messages.len();
    let before = state.standing.active_skills();
    let newly =
        active.iter().filter(|skill| !before.contains(skill)).map(|skill| (skill.name.clone(), place));
    state.delivered.extend(newly);
    state.delivered.retain(|name, _| active.iter().any(|skill| skill.name == *name));
}

fn count_denial(state: &mut State, call: &CallId) {
    let Some(name) = state.open_call(call).map(|open| open.call.name.clone()) else { return };
    if let Some(turn) = &mut state.turn {
        let denials = turn.denied.entry(name).or_default();
        if denials.last_call != turn.model_calls {
            denials.answers = denials.answers.saturating_add(1);
            denials.last_call = turn.model_calls;
        }
    }
}

/// Once every call has its result, they become the next user message, in call order, before what the user
/// added.
fn hand_in_results(state: &mut State) {
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
        turn.phase = Phase::ModelDue;
    }
    state.push_user(results);
    state.flush_steering();
}

/// The turn after the last one.
pub(crate) fn next_turn(state: &State) -> TurnId {
    state.last.as_ref().map_or(TurnId::FIRST, |last| last.turn.next())
}
