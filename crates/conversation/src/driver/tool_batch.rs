//! Runs the tool calls of one response: shared neighbours run concurrently, exclusive calls are barriers.
//!
//! Panics become results, and the wait for cancelled tools is bounded. There are no tasks: dropping a batch drops its tools.

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use conjure_base::{Clock, SystemClock};
use futures_util::future::{BoxFuture, Either, select};
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use super::batch_cancellation::{BatchPhase, CANCEL_GRACE, cancelled_or_expired};
use crate::events::call_outcome::CallOutcome;
use crate::session::session_view::SessionView;
use crate::tools::input_request::ProvidedInput;
use crate::tools::tool::{ToolCall, ToolEnding, ToolResult};
use crate::tools::tool_runner::{
    Authorization, AwaitedResult, CallConcurrency, CallContext, CallTraits, ToolRunOutcome, ToolRunner,
};

/// Runs the calls of one response and returns their results in call order (specification 5.10).
///
/// Each call is authorised first. No person can be asked here, so a call that needs an approval is denied, and one that asks for
/// input fails. After the context's deadline or cancellation no call is authorised or started any more, and running tools have
/// [`CANCEL_GRACE`] to end. A call that did not run or end by then gets a result that says so.
///
/// Must be polled within a Tokio runtime whose time driver is enabled.
pub async fn execute_tool_calls(
    runner: &dyn ToolRunner,
    calls: &[ToolCall],
    mut context: CallContext,
) -> Vec<ToolResult> {
    let mut results: Vec<Option<ToolResult>> = Vec::with_capacity(calls.len());
    let mut allowed: Vec<(usize, &ToolCall, CallTraits)> = Vec::new();
    let mut end = Box::pin(cancelled_or_expired(&context, &SystemClock));
    for (place, call) in calls.iter().enumerate() {
        // The deadline is polled first: an authorization that never returns must not keep the calls from ending.
        let Either::Right((authorization, _)) =
            select(&mut end, Box::pin(authorize(runner, call, &context.view))).await
        else {
            break;
        };
        results.push(match authorization {
            Authorization::Allow => {
                allowed.push((place, call, traits(runner, call)));
                None
            }
            Authorization::Deny { reason } | Authorization::Ask { reason } => {
                Some(ToolResult::error(&call.id, format!("denied: {reason}")))
            }
        });
    }
    results.resize(calls.len(), None);
    let mut phases: Vec<CallPhase> =
        allowed.iter().map(|(_, _, traits)| CallPhase::Ready(traits.concurrency)).collect();
    loop {
        let places = startable(&phases);
        if places.is_empty()
            || context.cancel.is_cancelled()
            || SystemClock.remaining(context.deadline).is_zero()
        {
            break;
        }
        let mut batch = ToolBatch::new(runner, &context, &SystemClock, CANCEL_GRACE);
        for place in places {
            phases[place] = CallPhase::Ended;
            batch.add(allowed[place].0, allowed[place].1, &context.view, None);
        }
        while let Some((place, outcome, _)) = batch.next().await {
            let result = outcome.without_input(&calls[place].id);
            if let Some(active) = &result.active_skills {
                context.view.set_active_skills(active);
            }
            results[place] = Some(result);
        }
    }
    let not_run = |call: &ToolCall| {
        ToolResult::error(&call.id, "not run: the calls were cancelled or their deadline passed")
    };
    calls.iter().zip(results).map(|(call, result)| result.unwrap_or_else(|| not_run(call))).collect()
}

/// The phase of a call of a response, for [`startable`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CallPhase {
    /// It waits for a decision.
    Waiting(CallConcurrency),
    /// It may run.
    Ready(CallConcurrency),
    /// It is running.
    Running(CallConcurrency),
    /// It has its result, or its result comes from outside.
    Ended,
}

/// The calls of a response that may start now, in order.
///
/// Shared calls run together. A shared call that waits for a decision holds back no other call. An exclusive call runs alone: it
/// starts when the calls before it have ended. The calls after it wait for its end, also while it waits for a decision.
pub(crate) fn startable(calls: &[CallPhase]) -> Vec<usize> {
    let mut places = Vec::new();
    if calls.contains(&CallPhase::Running(CallConcurrency::Exclusive)) {
        return places;
    }
    let is_running = calls.contains(&CallPhase::Running(CallConcurrency::Shared));
    for (place, call) in calls.iter().enumerate() {
        match call {
            CallPhase::Ready(CallConcurrency::Shared) => places.push(place),
            CallPhase::Ready(CallConcurrency::Exclusive) => {
                if places.is_empty() && !is_running {
                    places.push(place);
                }
                break;
            }
            CallPhase::Waiting(CallConcurrency::Exclusive) => break,
            CallPhase::Waiting(CallConcurrency::Shared) | CallPhase::Running(_) | CallPhase::Ended => {}
        }
    }
    places
}

/// Authorises a call. A policy that panics denies it.
pub(crate) async fn authorize(runner: &dyn ToolRunner, call: &ToolCall, view: &SessionView) -> Authorization {
    AssertUnwindSafe(async { runner.authorize(call, view).await }).catch_unwind().await.unwrap_or_else(|_| {
        Authorization::Deny { reason: "the check whether this call may run has crashed".to_owned() }
    })
}

/// The traits of a call. If the runner panics, the call counts as exclusive and not idempotent.
pub(crate) fn traits(runner: &dyn ToolRunner, call: &ToolCall) -> CallTraits {
    std::panic::catch_unwind(AssertUnwindSafe(|| runner.traits(call)))
        .unwrap_or(CallTraits { concurrency: CallConcurrency::Exclusive, idempotent: false })
}

/// Who provides the result of a call from outside. If the runner panics, the call counts as one that runs here.
pub(crate) fn awaits(runner: &dyn ToolRunner, call: &ToolCall) -> Option<AwaitedResult> {
    std::panic::catch_unwind(AssertUnwindSafe(|| runner.awaits(call))).unwrap_or(None)
}

/// Calls that run concurrently.
pub(crate) struct ToolBatch<'a> {
    runner: &'a dyn ToolRunner,
    context: CallContext,
    running: FuturesUnordered<BoxFuture<'a, (usize, ToolRunOutcome)>>,
    /// The calls without a result yet, and their positions.
    open: Vec<(usize, &'a ToolCall)>,
    /// A child token, so that the deadline can cancel the tools without cancelling the caller.
    cancel: CancellationToken,
    clock: &'a dyn Clock,
    grace: Duration,
    phase: BatchPhase,
}

impl<'a> ToolBatch<'a> {
    /// A batch without calls. Calls run while [`ToolBatch::next`] is awaited.
    pub(crate) fn new(
        runner: &'a dyn ToolRunner,
        context: &CallContext,
        clock: &'a dyn Clock,
        grace: Duration,
    ) -> Self {
        let cancel = context.cancel.child_token();
        let context = CallContext { cancel: cancel.clone(), ..context.clone() };
        let ended = cancelled_or_expired(&context, clock);
        Self {
            runner,
            context,
            running: FuturesUnordered::new(),
            open: Vec::new(),
            cancel,
            clock,
            grace,
            phase: BatchPhase::Running(ended.boxed()),
        }
    }

    /// Adds a call with its position and the input that it asked for.
    pub(crate) fn add(
        &mut self,
        place: usize,
        call: &'a ToolCall,
        view: &SessionView,
        provided_input: Option<ProvidedInput>,
    ) {
        let context = CallContext { view: view.clone(), provided_input, ..self.context.clone() };
        self.running.push(run_one(self.runner, place, call, context).boxed());
        self.open.push((place, call));
    }

    /// Whether no call is running.
    pub(crate) const fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// How the next run ended, with its call's position, in the order in which the runs end. It is cancel safe.
    pub(crate) async fn next(&mut self) -> Option<(usize, ToolRunOutcome, CallOutcome)> {
        while !self.open.is_empty() {
            let (BatchPhase::Running(end) | BatchPhase::Grace(end)) = &mut self.phase else {
                let (place, call) = self.open.remove(0);
                let text = "cancelled: the call did not end in time and was dropped; it may have done a part";
                return Some((place, ToolResult::error(&call.id, text).into(), CallOutcome::Cancelled));
            };
            match select(self.running.next(), end).await {
                Either::Left((Some((place, outcome)), _)) => {
                    self.open.retain(|(open, _)| *open != place);
                    return Some((place, outcome, CallOutcome::Finished));
                }
                // All futures have ended, so no call is open; the loop ends.
                Either::Left((None, _)) => self.open.clear(),
                Either::Right(_) => {
                    self.phase.cancel_then_drop(&mut self.running, &self.cancel, self.clock, self.grace);
                }
            }
        }
        None
    }
}

/// The `error.type` of a call's span.
const fn error_type(outcome: &ToolRunOutcome) -> Option<&'static str> {
    let ToolRunOutcome::Ended(result) = outcome else { return None };
    match result.ending {
        ToolEnding::Returned if result.is_error => Some("tool_error"),
        ToolEnding::Returned => None,
        ToolEnding::Rejected => Some("rejected"),
        ToolEnding::TimedOut => Some("timed_out"),
        ToolEnding::Cancelled => Some("cancelled"),
        ToolEnding::Lost => Some("lost"),
        ToolEnding::Crashed => Some("panic"),
    }
}

/// Runs one call. A panic becomes its result.
async fn run_one(
    runner: &dyn ToolRunner,
    place: usize,
    call: &ToolCall,
    context: CallContext,
) -> (usize, ToolRunOutcome) {
    let span = tracing::info_span!(
        "execute_tool",
        gen_ai.operation.name = "execute_tool",
        gen_ai.tool.name = call.name,
        gen_ai.tool.call.id = call.id.as_str(),
        // A tool that runs a program records its exit code here.
        process.exit.code = tracing::field::Empty,
        error.type = tracing::field::Empty,
    );
    let run = AssertUnwindSafe(async { runner.run(call, context).await }).catch_unwind();
    let mut outcome = run.instrument(span.clone()).await.unwrap_or_else(|_| {
        let text = "the tool crashed; what it did until then is not known";
        ToolResult::error(&call.id, text).with_ending(ToolEnding::Crashed).into()
    });
    if let Some(error) = error_type(&outcome) {
        span.record("error.type", error);
    }
    // The result always answers its own call, whatever the tool returned.
    if let ToolRunOutcome::Ended(result) = &mut outcome {
        result.tool_use_id = call.id.clone();
    }
    (place, outcome)
}
