//! Dispatches tool calls: parses a call, approves it, runs it within its limits, and finalizes its result.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use conjure_base::text::{strip_deceptive, truncate};
use conjure_base::{Deadline, lock};
use conjure_conversation::{
    Authorization, AwaitedResult, CallConcurrency, CallContext, CallTraits, PermissionPolicy, ProgressSink,
    ResultContent, ResultFrom, SessionView, ToolCall, ToolProgress, ToolRunOutcome, ToolRunner,
};
use conjure_sandbox::{CallOptions, Executor};
use futures_util::future::{self, BoxFuture, Either};

use super::Toolbox;
use super::call_abort::{CallAbort, SANDBOX_GRACE, abort_result};
use super::parsed_call::ParsedCall;
use super::resolve_inputs::{ResolvedCall, UrlAccess};

use crate::agent_toolset::ToolsetContext;
use crate::artifacts::CallArtifacts;
use crate::grant::is_granted;
use crate::skills::{DispatchOutcome, SkillCallContext, SkillRequest, SkillTools};
use crate::tool::{ToolContext, ToolOutput, ToolStatus};

/// The maximum length of a progress message, in characters.
const MAX_PROGRESS_CHARS: usize = 200;

/// How many characters of a progress message are redacted; the rest is dropped before. That cut may split a secret, which is then
/// not redacted. The shown part is so much shorter that it does not reach the split secret.
const MAX_REDACTED_CHARS: usize = 4096;

/// The minimum time between two progress reports of a call. The reports in between are dropped.
const PROGRESS_PAUSE: Duration = Duration::from_secs(1);

impl Toolbox {
    /// Parses and runs a call within its limits: the tool's timeout, the end of the turn, and cancellation.
    async fn run_parsed(&self, call: &ToolCall, context: &CallContext) -> DispatchOutcome {
        let prepared = match self.parse(call) {
            ParsedCall::Rejected(reason) => {
                return ToolOutput::with_status(ToolStatus::Rejected, reason).into();
            }
            prepared => prepared,
        };
        if context.cancel.is_cancelled() {
            return abort_result(CallAbort::Cancelled, &call.name, "before it started").into();
        }
        if self.clock.remaining(context.deadline).is_zero() {
            return abort_result(
                CallAbort::TimedOut,
                &call.name,
                "before it started, because the turn's time is up",
            )
            .into();
        }
        let timeout = match &prepared {
            ParsedCall::Skill(tools, request) => tools.script_timeout(request, &context.view),
            ParsedCall::Toolset(_, request) => request.timeout(),
            ParsedCall::Host(tool, _) => tool.timeout(),
            _ => None,
        };
        let deadline = self.clock.deadline(timeout.unwrap_or(self.timeout)).min(context.deadline);
        // Cancelled when this future ends or is dropped, so that nothing outlives the call.
        let cancel = context.cancel.child_token();
        let _guard = cancel.clone().drop_guard();
        let overtime = match prepared {
            ParsedCall::Builtin(..)
            | ParsedCall::Toolset(..)
            | ParsedCall::Skill(_, SkillRequest::RunScript(_)) => SANDBOX_GRACE,
            _ => Duration::ZERO,
        };
        let options = CallOptions { deadline, cancel };
        let work = Box::pin(self.resolve_and_start(prepared, call, options, context));
        let abort = Box::pin(self.wait_for_abort(deadline, overtime, &context.cancel));
        match future::select(work, abort).await {
            Either::Left((outcome, _)) => outcome,
            Either::Right((reason, _)) => {
                abort_result(reason, &call.name, "while it ran; its effects so far are unknown").into()
            }
        }
    }

    /// Resolves the references of a call, then runs it.
    async fn resolve_and_start<'c>(
        &'c self,
        prepared: ParsedCall<'c>,
        call: &'c ToolCall,
        options: CallOptions,
        context: &CallContext,
    ) -> DispatchOutcome {
        let Some(tools) = &self.artifacts else {
            return self.start(prepared, call, options, context, BTreeMap::new()).await;
        };
        let mut artifacts = self.start_resolution(tools, context.view.artifacts(), &options);
        let done = match self.resolve_inputs(prepared, &mut artifacts).await {
            Ok(ResolvedCall::Run(prepared, environment)) => {
                self.start(prepared, call, options, context, environment).await
            }
            Ok(ResolvedCall::Finished(outcome)) | Err(outcome) => outcome.into(),
        };
        let CallArtifacts { fetched, notices, .. } = artifacts;
        let mut done = DispatchOutcome { fetched, ..done };
        if !notices.is_empty() {
            done.outcome.content.insert(0, ResultContent::Text { text: notices.join("\n") });
        }
        done
    }

    fn start<'c>(
        &'c self,
        prepared: ParsedCall<'c>,
        call: &'c ToolCall,
        options: CallOptions,
        context: &CallContext,
        environment: BTreeMap<String, String>,
    ) -> BoxFuture<'c, DispatchOutcome> {
        match prepared {
            ParsedCall::Builtin(executor, request) => Box::pin(async move {
                let outcome = request.run(executor, environment, &self.limits, &self.redactor, options).await;
                with_notice(outcome.into(), executor)
            }),
            ParsedCall::Toolset(toolset, request) => {
                let (limits, redactor, clock) = (&self.limits, &self.redactor, &self.clock);
                let context = ToolsetContext { environment, limits, redactor, clock, options };
                Box::pin(async move {
                    let outcome = toolset.run(&request, context).await.into();
                    match toolset.executor() {
                        Some(executor) => with_notice(outcome, executor),
                        None => outcome,
                    }
                })
            }
            ParsedCall::Skill(tools, request) => {
                let executor = self.sandbox.as_ref().map(|sandbox| &*sandbox.executor);
                let runs_in = executor.filter(|_| matches!(request, SkillRequest::RunScript(_)));
                let session_view = context.view.clone();
                let (limits, redactor, clock) = (&self.limits, &self.redactor, &self.clock);
                let call = SkillCallContext {
                    session_view,
                    executor,
                    environment,
                    limits,
                    redactor,
                    clock,
                    options,
                };
                Box::pin(async move {
                    let outcome = tools.run(request, call).await;
                    match runs_in {
                        Some(executor) => with_notice(outcome, executor),
                        None => outcome,
                    }
                })
            }
            ParsedCall::Host(tool, input) => {
                let (caller, call_id) = (self.caller.clone(), call.id.clone());
                let CallOptions { deadline, cancel } = options;
                let provided_input = context.provided_input.clone();
                let progress = self.redacting_sink(&context.progress);
                let context = ToolContext { caller, call_id, deadline, cancel, provided_input, progress };
                Box::pin(async move { tool.call(input, context).await.into() })
            }
            ParsedCall::Client => {
                let reason =
                    format!("the client provides the result of `{}`, and it was not asked", call.name);
                Box::pin(future::ready(ToolOutput::with_status(ToolStatus::Rejected, reason).into()))
            }
            ParsedCall::Rejected(reason) => {
                Box::pin(future::ready(ToolOutput::with_status(ToolStatus::Rejected, reason).into()))
            }
        }
    }

    /// Wraps a progress sink. The wrapper limits the rate and length of the reports, redacts secrets, and removes invisible
    /// characters.
    pub(super) fn redacting_sink(&self, sink: &ProgressSink) -> ProgressSink {
        let (sink, redactor, clock) = (sink.clone(), self.redactor.clone(), Arc::clone(&self.clock));
        let next_at = Mutex::new(clock.deadline(Duration::ZERO));
        ProgressSink::new(move |progress: ToolProgress| {
            {
                let mut next_at = lock(&next_at);
                if !clock.remaining(*next_at).is_zero() {
                    return;
                }
                *next_at = clock.deadline(PROGRESS_PAUSE);
            }
            let redactable = truncate(&progress.message, MAX_REDACTED_CHARS);
            // Redact afterwards: the characters that are left out could divide a secret.
            let visible: String = strip_deceptive(&redactable).chars().filter(|c| !c.is_control()).collect();
            let message = truncate(redactor.redact(&visible).trim(), MAX_PROGRESS_CHARS).into_owned();
            sink.report(ToolProgress { message, ..progress });
        })
    }

    /// The time since `start`, which is an earlier `deadline(ZERO)` of the clock.
    pub(super) fn elapsed(&self, start: Deadline) -> Duration {
        let now = self.clock.deadline(Duration::ZERO);
        match (now.instant(), start.instant()) {
            (Some(now), Some(start)) => now.saturating_duration_since(start),
            _ => Duration::ZERO,
        }
    }
}

/// Puts the sandbox's notice for the model in front, so that truncation cannot remove it.
fn with_notice(mut done: DispatchOutcome, executor: &dyn Executor) -> DispatchOutcome {
    if let Some(text) = executor.take_model_notice() {
        done.outcome.content.insert(0, ResultContent::Text { text });
    }
    done
}

impl ToolRunner for Toolbox {
    fn traits(&self, call: &ToolCall) -> CallTraits {
        match self.parse(call) {
            ParsedCall::Builtin(_, request) => request.traits(),
            ParsedCall::Toolset(_, request) => request.traits(),
            ParsedCall::Skill(_, request) => request.traits(),
            ParsedCall::Host(tool, _) => tool.traits(),
            ParsedCall::Client | ParsedCall::Rejected(_) => {
                CallTraits { concurrency: CallConcurrency::Shared, idempotent: true }
            }
        }
    }

    fn authorize<'a>(
        &'a self,
        call: &'a ToolCall,
        session_view: &'a SessionView,
    ) -> BoxFuture<'a, Authorization> {
        let prepared = self.parse(call);
        let url_access = match &self.artifacts {
            Some(_) => prepared.url_access(),
            None => UrlAccess::None,
        };
        let always_asks = match &prepared {
            ParsedCall::Toolset(toolset, request) => toolset.asks_for(request),
            ParsedCall::Host(tool, _) => tool.permission() == PermissionPolicy::AlwaysAsk,
            _ => false,
        };
        let approval_reason = match &prepared {
            ParsedCall::Host(tool, input) if always_asks => tool.approval_reason(input),
            _ => None,
        };
        let request = match prepared {
            // A rejected call only produces an error. The client decides itself about its own calls.
            ParsedCall::Rejected(_) | ParsedCall::Client => {
                return Box::pin(future::ready(Authorization::Allow));
            }
            ParsedCall::Skill(_, request) => Some(request),
            _ => None,
        };
        Box::pin(async move {
            let skills = self.skills.as_ref().map(|skills| &skills.skills);
            // A URL that the model wrote is approved each time: no earlier grant covers it.
            let is_granted =
                || url_access == UrlAccess::None && is_granted(call, request.as_ref(), session_view);
            let is_allowed = |skills: &SkillTools| {
                url_access == UrlAccess::None && skills.is_allowed(call, request.as_ref(), session_view)
            };
            let review = self.approver.review(call, self.caller.as_ref()).await;
            if let (Authorization::Allow | Authorization::Ask { .. }, Some(reason)) =
                (&review, approval_reason)
            {
                // The person decides on this call only.
                return Authorization::Ask { reason };
            }
            match review {
                Authorization::Ask { .. } if is_granted() || skills.is_some_and(is_allowed) => {
                    Authorization::Allow
                }
                Authorization::Allow if always_asks && !is_granted() => {
                    Authorization::Ask { reason: format!("each call of `{}` is to be decided on", call.name) }
                }
                Authorization::Allow => {
                    match skills
                        .zip(request.as_ref())
                        .and_then(|(skills, request)| skills.confirmation_reason(request, session_view))
                    {
                        Some(_) if is_granted() => Authorization::Allow,
                        Some(reason) if self.approver.can_ask() => Authorization::Ask { reason },
                        Some(_) => {
                            tracing::warn!(
                                call_id = call.id.as_str(),
                                "a script that asks for caution runs, and nobody can be asked"
                            );
                            Authorization::Allow
                        }
                        None => Authorization::Allow,
                    }
                }
                other => other,
            }
        })
    }

    fn awaits(&self, call: &ToolCall) -> Option<AwaitedResult> {
        match self.parse(call) {
            ParsedCall::Client => Some(AwaitedResult { from: ResultFrom::Client, timeout: None }),
            _ => None,
        }
    }

    fn run<'a>(&'a self, call: &'a ToolCall, context: CallContext) -> BoxFuture<'a, ToolRunOutcome> {
        Box::pin(async move {
            let start = self.clock.deadline(Duration::ZERO);
            let DispatchOutcome { mut outcome, active, fetched } = self.run_parsed(call, &context).await;
            let definitions = self.current_definitions();
            let known = definitions.iter().find(|tool| tool.name == call.name);
            tracing::info!(
                target: "conjure::tool",
                // The model may have invented the name. It is then content, which is not logged.
                tool = known.map_or("(unknown)", |tool| tool.name.as_str()),
                call_id = call.id.as_str(),
                outcome = outcome.status.as_str(),
                duration_ms = u64::try_from(self.elapsed(start).as_millis()).unwrap_or(u64::MAX),
                "tool executed"
            );
            if let Some(request) = outcome.input_request.take() {
                return ToolRunOutcome::InputRequired(Box::new(self.finalize_request(*request)));
            }
            let result = self.finalize_result(&call.id, outcome).with_fetched(fetched);
            match active {
                Some(active) => result.with_active_skills(active).into(),
                None => result.into(),
            }
        })
    }
}
