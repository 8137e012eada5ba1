//! The pure machine: what a command leads to, and what is to be done next.
//!
//! `decide` looks at the state and never changes it; the events that it returns belong together and are
//! recorded together. There is no clock, no randomness and no I/O in here.

use std::collections::HashSet;

use conjure_base::{CallId, ContainerId, Timestamp, TurnId};

use crate::apply::{Consequence, consequence, next_turn, repeats, why_not_run};
use crate::artifact::ARTIFACT_LIMIT;
use crate::command::{Command, CommandKind, InterruptCause, Rejection, StartedCall};
use crate::compaction;
use crate::content::{Block, BlockKind};
use crate::event::{Decision, Event, EventKind, ToolOutcome, TurnStop};
use crate::limits::{Limit, Limits};
use crate::message::{Message, Role};
use crate::model::{CallEffects, ModelError, ModelErrorKind, Response};
use crate::pairing;
use crate::queue::{queue, start_queued, unqueue};
use crate::service_tools::container_is_gone;
use crate::state::{CallStatus, OpenCall, Phase, State, Tail, Turn};
use crate::stop::StopReason;
use crate::tool::{ToolCall, ToolResult};

/// What the model is told in place of a container that is gone.
const CONTAINER_LOST: &str = "[The container in which code ran so far has expired, and a fresh one takes its place. What was in it is gone: \
    files, variables and what was running. Make again what is still needed.]";

/// What the model is told after a call that may have done something.
const EFFECTS_UNKNOWN: &str = "[The last request was under way when it broke off; what the service did for it is not known. Check before you \
    repeat it.]";

/// What a turn ends with whose call may have done something.
const OUTCOME_UNKNOWN: &str = "the call was under way when its host ended, and the service may have acted on it: whether it did, and \
    what came of it, is not known, so it was not sent again; send a message to go on, or an empty one to ask once more";

/// What is to be done next with a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Nothing: no turn is running.
    Idle,
    /// The model must be called with [`State::messages`].
    CallModel,
    /// The model's answer is awaited, or a summary.
    AwaitModel,
    /// Tools must be run: [`State::open_calls`].
    RunTools,
    /// Somebody must decide on [`State::approvals`].
    AwaitApproval,
    /// The record stops in the middle of what belongs together: [`CommandKind::Recover`] completes it.
    Recover,
}

/// What is to be done next.
#[must_use]
pub fn next(state: &State) -> Step {
    match state.turn.as_ref().map(|turn| &turn.phase) {
        None => Step::Idle,
        Some(Phase::ModelDue) => Step::CallModel,
        Some(Phase::Calling(_) | Phase::Compacting(_)) => Step::AwaitModel,
        Some(Phase::Tools(calls)) => {
            if calls.iter().any(|open| matches!(open.status, CallStatus::AwaitingApproval { .. })) {
                Step::AwaitApproval
            } else {
                Step::RunTools
            }
        }
        Some(Phase::Closing(_)) => Step::Recover,
    }
}

/// What a command leads to: events, to be recorded together and then applied. None at all when there is
/// nothing to change.
///
/// # Errors
/// Why the command does not fit the state, which stays as it is.
pub fn decide(state: &State, command: Command) -> Result<Vec<Event>, Rejection> {
    let at = command.at;
    let kinds = match command.kind {
        CommandKind::Open { profile } => {
            if *state != State::default() {
                return Err(Rejection::AlreadyBegun);
            }
            vec![EventKind::Opened { profile }]
        }
        CommandKind::Import { messages, container } => import(state, messages, container)?,
        CommandKind::StartTurn { input, limits } => start_turn(state, input, limits)?,
        CommandKind::StartModelCall { effects } => start_model_call(state, effects, at)?,
        CommandKind::AcceptAnswer { turn, call, response } => accept(state, turn, call, *response)?,
        CommandKind::FailModelCall { turn, call, error } => {
            let running = calling(state, turn, call)?;
            let after = match (&error.kind, state.container()) {
                (ModelErrorKind::Exhausted(limit), _) => finish(running, TurnStop::Limit(*limit)),
                (ModelErrorKind::ContainerGone, Some(container)) => {
                    let note = Block::text(CONTAINER_LOST);
                    EventKind::ContainerLost { turn, container: container.clone(), note }
                }
                (ModelErrorKind::OutcomeUnknown, _) => {
                    return Ok(recorded(unknown_effects(running, error), at));
                }
                _ => finish(running, TurnStop::ModelFailed(error.clone())),
            };
            vec![EventKind::ModelCallFailed { turn, call, error }, after]
        }
        CommandKind::RejectBlock { turn, call, error, message, block } => {
            calling(state, turn, call)?;
            let replacement = replacement(state, message, block, &error.message)?;
            vec![
                EventKind::ModelCallFailed { turn, call, error },
                EventKind::BlockReplaced { message, block, replacement },
            ]
        }
        CommandKind::StartCompaction { policy } => {
            let running = running(state)?;
            match exhausted(running, at) {
                Some(limit) if running.phase == Phase::ModelDue => {
                    vec![finish(running, TurnStop::Limit(limit))]
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
        CommandKind::DenyTool { call, reason } => {
            match &open_call(state, &call)?.status {
                CallStatus::New | CallStatus::Approved => {}
                other => return Err(wrong_status(call, other)),
            }
            vec![denied(&call, &reason)]
        }
        CommandKind::StartTools { calls } => start_tools(state, calls)?,
        CommandKind::FinishTool { result, outcome } => finish_tool(state, result, outcome)?,
        CommandKind::Steer { input } => {
            running(state)?;
            let input = user_input(input)?;
            if input.is_empty() {
                return Err(Rejection::EmptyInput);
            }
            vec![EventKind::Steered { input }]
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
            // An answer that ended the turn by itself has done so, whatever came a moment later.
            let running = running(state)?;
            match &running.phase {
                Phase::Closing(stop) => vec![finish(running, stop.clone())],
                _ => close(state, running, stop),
            }
        }
        CommandKind::Recover => recover(state),
        CommandKind::RegisterArtifact { artifact } => {
            let standing = state.standing();
            if standing.artifact(&artifact.name).is_some() {
                return Err(Rejection::ArtifactExists { name: artifact.name });
            }
            if standing.artifacts().len() >= ARTIFACT_LIMIT {
                return Err(Rejection::TooManyArtifacts { limit: ARTIFACT_LIMIT });
            }
            vec![EventKind::ArtifactRegistered { artifact }]
        }
        CommandKind::UnregisterArtifact { name } => {
            if state.standing().artifact(&name).is_none() {
                return Err(Rejection::NoArtifact { name });
            }
            vec![EventKind::ArtifactUnregistered { name }]
        }
        CommandKind::ClearArtifacts => state
            .standing()
            .artifacts()
            .iter()
            .map(|artifact| EventKind::ArtifactUnregistered { name: artifact.name.clone() })
            .collect(),
        CommandKind::FetchArtifact { fetched } => {
            if state.standing().artifact(&fetched.name).is_none() {
                return Err(Rejection::NoArtifact { name: fetched.name });
            }
            vec![EventKind::ArtifactFetched { fetched }]
        }
        CommandKind::AttachUpload { uploaded } => {
            running(state)?;
            if !state.uploads_due().any(|artifact| {
                artifact.name == uploaded.name
                    && artifact.content.as_ref().is_some_and(|content| content.digest == uploaded.digest)
            }) {
                return Err(Rejection::NoArtifact { name: uploaded.name });
            }
            // Behind what was paused, or beside calls that run, a block of the user's would be out of its place.
            if !state.takes_uploads() {
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
    Ok(recorded(kinds, at))
}

fn recorded(kinds: Vec<EventKind>, at: Timestamp) -> Vec<Event> {
    kinds.into_iter().map(|kind| Event { at, kind }).collect()
}

fn running(state: &State) -> Result<&Turn, Rejection> {
    state.turn.as_ref().ok_or(Rejection::NoTurn)
}

/// The running turn, when this is its model call under way.
fn calling(state: &State, turn: TurnId, call: u32) -> Result<&Turn, Rejection> {
    let running = running(state)?;
    if running.id == turn && running.model_calls == call && matches!(running.phase, Phase::Calling(_)) {
        Ok(running)
    } else {
        Err(Rejection::StaleModelCall)
    }
}

fn open_call<'a>(state: &'a State, call: &CallId) -> Result<&'a OpenCall, Rejection> {
    state.open_call(call).ok_or_else(|| Rejection::NoOpenCall { call: call.clone() })
}

const fn wrong_status(call: CallId, status: &CallStatus) -> Rejection {
    Rejection::WrongStatus { call, status: status.describe() }
}

fn import(
    state: &State,
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

fn start_turn(state: &State, input: Vec<Block>, limits: Limits) -> Result<Vec<EventKind>, Rejection> {
    if state.turn.is_some() {
        return Err(Rejection::TurnRunning);
    }
    let input = user_input(input)?;
    let awaits_answer = state.last_role() == Some(Role::User) || state.tail == Tail::Paused;
    if input.is_empty() && state.steering.is_empty() && !awaits_answer {
        return Err(Rejection::EmptyInput);
    }
    Ok(vec![EventKind::TurnStarted { turn: next_turn(state), input, limits, queued: None }])
}

/// What the user may say: no block of the model or of a tool; texts of nothing but white space, which the
/// service refuses, are left out.
pub(crate) fn user_input(input: Vec<Block>) -> Result<Vec<Block>, Rejection> {
    let mut kept = Vec::with_capacity(input.len());
    for block in input {
        let foreign = match block.kind() {
            BlockKind::Text(text) if text.trim().is_empty() => continue,
            BlockKind::ToolUse(_) => "tool_use",
            BlockKind::ToolResult { .. } => "tool_result",
            BlockKind::Thinking(_) => "thinking",
            _ => {
                kept.push(block);
                continue;
            }
        };
        return Err(Rejection::ForeignBlock { kind: foreign.to_owned() });
    }
    Ok(kept)
}

fn start_model_call(
    state: &State,
    effects: CallEffects,
    now: Timestamp,
) -> Result<Vec<EventKind>, Rejection> {
    let turn = running(state)?;
    if turn.phase != Phase::ModelDue {
        return Err(Rejection::ModelCallNotDue);
    }
    Ok(match exhausted(turn, now) {
        Some(limit) => vec![finish(turn, TurnStop::Limit(limit))],
        None => {
            let call = turn.model_calls.saturating_add(1);
            vec![EventKind::ModelCallStarted { turn: turn.id, call, effects: Some(effects) }]
        }
    })
}

/// The limit that forbids a further model call.
fn exhausted(turn: &Turn, now: Timestamp) -> Option<Limit> {
    let limits = &turn.limits;
    let reached = |used: u64, limit: Option<u64>| limit.is_some_and(|limit| used >= limit);
    if turn.denied.values().any(|denials| denials.answers >= limits.denied_calls) {
        Some(Limit::DeniedCalls)
    } else if turn.model_calls >= limits.model_calls {
        Some(Limit::ModelCalls)
    } else if turn.pauses > limits.pauses {
        Some(Limit::Pauses)
    } else if reached(turn.usage.total(), limits.tokens) {
        Some(Limit::Tokens)
    } else if reached(turn.usage.cost_micros, limits.cost_micros) {
        Some(Limit::Cost)
    } else if limits.wall_clock.is_some_and(|limit| turn.elapsed(now) >= limit) {
        Some(Limit::WallClock)
    } else {
        None
    }
}

fn accept(
    state: &State,
    turn: TurnId,
    call: u32,
    mut response: Response,
) -> Result<Vec<EventKind>, Rejection> {
    let running = calling(state, turn, call)?;
    make_ids_unique(state, &mut response.content);
    let mut usage = running.usage;
    usage.add(&response.usage);
    let after = match consequence(state, &response) {
        Consequence::Resume | Consequence::GoOn => Vec::new(),
        Consequence::Stop(stop) => vec![EventKind::TurnFinished { turn, stop, usage }],
        Consequence::RunTools => {
            let calls: Vec<ToolCall> =
                response.content.iter().filter_map(Block::tool_call).cloned().collect();
            match too_many_calls(running, &calls) {
                None => Vec::new(),
                Some(limit) => {
                    let stop = TurnStop::Limit(limit);
                    let mut kinds: Vec<EventKind> =
                        calls.iter().map(|call| not_run(&call.id, &stop)).collect();
                    kinds.push(EventKind::TurnFinished { turn, stop, usage });
                    kinds
                }
            }
        }
    };
    let container = response.container.as_ref().or(state.container());
    let lost = container.filter(|_| container_is_gone(&response.content)).map(|container| {
        EventKind::ContainerLost { turn, container: container.clone(), note: Block::text(CONTAINER_LOST) }
    });
    let answered = EventKind::ModelAnswered { turn, call, response: Box::new(response) };
    Ok(std::iter::once(answered).chain(lost).chain(after).collect())
}

fn too_many_calls(turn: &Turn, calls: &[ToolCall]) -> Option<Limit> {
    let total = u64::from(turn.tool_calls).saturating_add(calls.len() as u64);
    if total > u64::from(turn.limits.tool_calls) {
        Some(Limit::ToolCalls)
    } else if repeats(turn, calls).values().any(|count| *count > turn.limits.identical_calls) {
        Some(Limit::IdenticalCalls)
    } else {
        None
    }
}

/// The service refuses a request in which two calls have one id, and some gateways number the calls of every
/// answer from zero. Such a call gets a fresh id; the rest of its block stays as it is, to the byte.
fn make_ids_unique(state: &State, content: &mut [Block]) {
    let mut here: HashSet<CallId> = HashSet::new();
    for block in content {
        let Some(call) = block.tool_call() else { continue };
        let taken = |id: &CallId| state.call_ids.contains(id) || here.contains(id);
        let mut id = call.id.clone();
        // Counting on from the number of ids ends after few steps, also when a model makes thousands.
        let mut number = state.call_ids.len().saturating_add(here.len());
        while taken(&id) {
            id = CallId::new(format!("{}_{number}", call.id));
            number = number.saturating_add(1);
        }
        if id != call.id {
            *block = block.with_call_id(&id);
        }
        here.insert(id);
    }
}

/// What stands in place of a block that the service refused. A result stays a result, so that its call is
/// still answered; a call stays, since without it its result would answer nothing.
fn replacement(state: &State, message: usize, block: usize, why: &str) -> Result<Block, Rejection> {
    let refused = Rejection::NotReplaceable { message, block };
    let content = state.messages.get(message).and_then(|message| message.content.get(block));
    let Some(content) = content.filter(|_| !state.replaced.contains(&(message, block))) else {
        return Err(refused);
    };
    let why: String = why.chars().take(500).collect();
    let text = format!("[left out: the service refused this content: {why}]");
    match content.kind() {
        BlockKind::ToolUse(_) => Err(refused),
        BlockKind::ToolResult { tool_use_id, .. } => {
            Ok(Block::tool_result(&ToolResult::error(&CallId::new(tool_use_id.as_str()), text)))
        }
        _ => Ok(Block::text(text)),
    }
}

fn decide_approval(state: &State, call: CallId, decision: Decision) -> Result<Vec<EventKind>, Rejection> {
    match &open_call(state, &call)?.status {
        CallStatus::AwaitingApproval { .. } => {}
        other => return Err(wrong_status(call, other)),
    }
    let result = match &decision {
        Decision::Allow | Decision::Grant { .. } => None,
        Decision::Deny { reason } => Some(denied(&call, reason)),
    };
    Ok(std::iter::once(EventKind::ApprovalDecided { call, decision }).chain(result).collect())
}

fn denied(call: &CallId, reason: &str) -> EventKind {
    EventKind::ToolFinished {
        result: ToolResult::error(call, format!("denied: {reason}")),
        outcome: ToolOutcome::Denied,
    }
}

fn start_tools(state: &State, calls: Vec<StartedCall>) -> Result<Vec<EventKind>, Rejection> {
    let mut named = HashSet::new();
    for started in &calls {
        match &open_call(state, &started.call)?.status {
            CallStatus::New | CallStatus::Approved if named.insert(&started.call) => {}
            CallStatus::New | CallStatus::Approved => {
                return Err(Rejection::WrongStatus { call: started.call.clone(), status: "named twice" });
            }
            other => return Err(wrong_status(started.call.clone(), other)),
        }
    }
    Ok(calls
        .into_iter()
        .map(|StartedCall { call, idempotent }| EventKind::ToolStarted { call, idempotent })
        .collect())
}

fn finish_tool(
    state: &State,
    mut result: ToolResult,
    outcome: ToolOutcome,
) -> Result<Vec<EventKind>, Rejection> {
    match &open_call(state, &result.tool_use_id)?.status {
        CallStatus::Started { .. } => {}
        other => return Err(wrong_status(result.tool_use_id, other)),
    }
    // The service refuses an error without content.
    if result.is_error && result.has_no_content() {
        result = ToolResult::error(&result.tool_use_id, "the tool failed and did not say why");
    }
    Ok(vec![EventKind::ToolFinished { result, outcome }])
}

fn recover(state: &State) -> Vec<EventKind> {
    let Some(turn) = &state.turn else { return Vec::new() };
    match &turn.phase {
        Phase::ModelDue => Vec::new(),
        Phase::Calling(CallEffects::Possible) => {
            let error = ModelError::new(ModelErrorKind::OutcomeUnknown, OUTCOME_UNKNOWN);
            unknown_effects(turn, error)
        }
        Phase::Calling(CallEffects::None) => {
            vec![EventKind::ModelCallAbandoned { turn: turn.id, call: turn.model_calls }]
        }
        Phase::Compacting(_) => {
            vec![EventKind::CompactionAbandoned { turn: turn.id, compaction: turn.compactions }]
        }
        Phase::Closing(stop) => vec![finish(turn, stop.clone())],
        Phase::Tools(calls) => calls
            .iter()
            .filter_map(|open| match open.status {
                CallStatus::Started { idempotent: true } => {
                    Some(EventKind::ToolAbandoned { call: open.call.id.clone() })
                }
                CallStatus::Started { idempotent: false } => Some(unknown(&open.call.id)),
                _ => None,
            })
            .collect(),
    }
}

/// Ends the turn after a model call that may have done something; the model is told before it is called again.
fn unknown_effects(turn: &Turn, error: ModelError) -> Vec<EventKind> {
    vec![
        EventKind::ModelCallFailed { turn: turn.id, call: turn.model_calls, error: error.clone() },
        EventKind::ModelTold { note: Block::text(EFFECTS_UNKNOWN) },
        finish(turn, TurnStop::ModelFailed(error)),
    ]
}

/// Ends the turn: every open call gets its result first, and of a model call that may have done something the model is told.
fn close(state: &State, turn: &Turn, stop: TurnStop) -> Vec<EventKind> {
    let mut kinds: Vec<EventKind> = state
        .open_calls()
        .iter()
        .filter_map(|open| match open.status {
            CallStatus::Finished(_) => None,
            CallStatus::Started { .. } => Some(unknown(&open.call.id)),
            _ => Some(not_run(&open.call.id, &stop)),
        })
        .collect();
    match turn.phase {
        Phase::Compacting(_) => {
            kinds.push(EventKind::CompactionAbandoned { turn: turn.id, compaction: turn.compactions });
        }
        Phase::Calling(CallEffects::Possible) => {
            kinds.push(EventKind::ModelTold { note: Block::text(EFFECTS_UNKNOWN) });
        }
        _ => {}
    }
    kinds.push(finish(turn, stop));
    kinds
}

const fn finish(turn: &Turn, stop: TurnStop) -> EventKind {
    EventKind::TurnFinished { turn: turn.id, stop, usage: turn.usage }
}

fn not_run(call: &CallId, stop: &TurnStop) -> EventKind {
    EventKind::ToolFinished {
        result: ToolResult::error(call, format!("not run: {stop}")),
        outcome: ToolOutcome::NotRun,
    }
}

fn unknown(call: &CallId) -> EventKind {
    EventKind::ToolFinished {
        result: ToolResult::error(
            call,
            "interrupted, outcome unknown: the call was running when its driver ended, and what it did is not \
             known; check before you repeat it",
        ),
        outcome: ToolOutcome::Unknown,
    }
}

/// The results that an answer's calls get when they never run, for whoever reads events without a state.
pub(crate) fn results_of_cut_answer(response: &Response) -> Vec<ToolResult> {
    let runs =
        matches!(response.stop_reason, StopReason::ToolUse | StopReason::PauseTurn | StopReason::Compaction);
    if runs {
        return Vec::new();
    }
    let why = why_not_run(&response.stop_reason);
    response
        .content
        .iter()
        .filter_map(Block::tool_call)
        .map(|call| ToolResult::error(&call.id, why.as_str()))
        .collect()
}
