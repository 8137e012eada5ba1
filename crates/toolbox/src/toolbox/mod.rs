//! The toolbox of a session: finds the tool of a call, runs it within its bounds, and makes its result final.

mod builder;
mod finish;
mod resolving;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use conjure_base::{Clock, Deadline, Redactor};
use conjure_conversation::{
    Access, Authorization, CallContext, CallTraits, ResultContent, Standing, ToolCall, ToolDefinition,
    ToolResult, ToolRunner,
};
use conjure_prompt::{BuiltinTool, SkillTool};
use conjure_sandbox::{CallOptions, Executor};
use futures_util::future::{self, BoxFuture, Either};
use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;

use resolving::{Fetches, Ready};

pub use builder::{ToolboxBuilder, ToolboxError, environment_secrets};
pub(crate) use finish::fits;

use crate::approver::Approver;
use crate::artifacts::{ArtifactTools, Gathering};
use crate::builtin::Request;
use crate::input::kind;
use crate::limits::OutputLimits;
use crate::skills::{SkillCall, SkillOutcome, SkillRequest, SkillTools, is_granted};
use crate::text::quote;
use crate::tool::{Caller, Tool, ToolContext, ToolOutcome, ToolStatus};

/// How long a call may take to end what it started once it is cancelled. Shorter than the driver's own patience
/// (`CANCEL_GRACE`), so that the better result, from here, comes first.
const CANCEL_GRACE: Duration = Duration::from_millis(1500);

/// How long a sandbox may take beyond a call's deadline to kill its processes and to send the output so far. Longer
/// than a sandbox's own patience with its guest, so that it can say that it is lost. A tool of the host has no such
/// time: it is dropped at its deadline.
const SANDBOX_GRACE: Duration = Duration::from_secs(4);

/// The tools of a session, and the rules for their calls. Every call gets exactly one result; what goes wrong is told
/// in it. A panic of a host's tool is not caught here: the driver contains it.
///
/// Dropping the future of a call ends the call: its token is cancelled, and what it started in a sandbox is ended.
///
/// ```
/// use conjure_conversation::{Access, CallContext, CallTraits, ToolCall, ToolDefinition, execute_tool_calls};
/// use conjure_toolbox::{ToolOutcome, Toolbox, tool_fn};
/// use serde_json::json;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let definition = ToolDefinition {
///     name: "add".to_owned(),
///     description: "Adds two numbers.".to_owned(),
///     input_schema: json!({
///         "type": "object",
///         "properties": {"a": {"type": "number"}, "b": {"type": "number"}},
///         "required": ["a", "b"],
///     }),
/// };
/// let traits = CallTraits { access: Access::Shared, idempotent: true };
/// let add = tool_fn(definition, traits, |input, _context| async move {
///     match (input["a"].as_f64(), input["b"].as_f64()) {
///         (Some(a), Some(b)) => ToolOutcome::text((a + b).to_string()),
///         _ => ToolOutcome::error("fields `a` and `b` must be numbers"),
///     }
/// });
/// let toolbox = Toolbox::builder().tool(add).build()?;
///
/// let calls = [ToolCall::new("toolu_1", "add", &json!({"a": 2, "b": 3}))];
/// let context = CallContext::default();
/// let results = execute_tool_calls(&toolbox, &calls, context).await;
/// assert_eq!(results[0].text(), "5");
/// # Ok(())
/// # }
/// ```
pub struct Toolbox {
    sandbox: Option<Sandbox>,
    skills: Option<Skills>,
    artifacts: Option<ArtifactTools>,
    host: BTreeMap<String, Arc<dyn Tool>>,
    definitions: Arc<[ToolDefinition]>,
    approver: Arc<dyn Approver>,
    caller: Option<Caller>,
    redactor: Redactor,
    timeout: Duration,
    limits: OutputLimits,
    clock: Arc<dyn Clock>,
}

/// Where the built-in tools run, and which of them there are.
struct Sandbox {
    executor: Arc<dyn Executor>,
    tools: BTreeSet<BuiltinTool>,
}

/// The skills of the session, and which runtime tools there are for them.
struct Skills {
    skills: SkillTools,
    tools: BTreeSet<SkillTool>,
}

/// A call, as far as it can be understood before it runs.
enum Prepared<'t> {
    Builtin(&'t dyn Executor, Request),
    Skill(&'t SkillTools, SkillRequest),
    Host(&'t dyn Tool, Value),
    /// It cannot run; why, for the model.
    Rejected(String),
}

impl Toolbox {
    /// A toolbox to be filled.
    #[must_use]
    pub fn builder() -> ToolboxBuilder {
        ToolboxBuilder::default()
    }

    /// What the model is told of the tools: the built-in ones in their order, then those of
    /// skills, then the host's by name.
    #[must_use]
    pub fn definitions(&self) -> Arc<[ToolDefinition]> {
        Arc::clone(&self.definitions)
    }

    fn prepare(&self, call: &ToolCall) -> Prepared<'_> {
        let builtin = BuiltinTool::from_name(&call.name).and_then(|tool| {
            Some((tool, self.sandbox.as_ref().filter(|sandbox| sandbox.tools.contains(&tool))?))
        });
        // By the name on the wire alone: whoever reviews calls knows them by it.
        let skill = SkillTool::from_wire_name(&call.name).and_then(|tool| {
            Some((tool, self.skills.as_ref().filter(|skills| skills.tools.contains(&tool))?))
        });
        let host = self.host.get(&call.name);
        if builtin.is_none() && skill.is_none() && host.is_none() {
            return Prepared::Rejected(self.unknown(&call.name));
        }
        let rejected =
            |reason: String| Prepared::Rejected(format!("bad input for `{}`: {reason}", call.name));
        let input = match self.read_input(call) {
            Ok(input) => input,
            Err(reason) => return rejected(reason),
        };
        if let Some((tool, skills)) = skill {
            return match SkillRequest::parse(tool, &input, &skills.skills) {
                Ok(request) => Prepared::Skill(&skills.skills, request),
                Err(reason) => rejected(reason),
            };
        }
        match (builtin, host) {
            (Some((tool, sandbox)), _) => match Request::parse(tool, &input) {
                Ok(request) => Prepared::Builtin(&*sandbox.executor, request),
                Err(reason) => rejected(reason),
            },
            (None, Some(tool)) if input.is_object() => Prepared::Host(&**tool, input),
            (None, _) => rejected(format!("the input must be an object, not {}", kind(&input))),
        }
    }

    fn read_input(&self, call: &ToolCall) -> Result<Value, String> {
        let json = call.input.get();
        if json.len() > self.limits.input {
            return Err(format!(
                "it has {} bytes, and the most is {}: do it in smaller steps",
                json.len(),
                self.limits.input
            ));
        }
        if let Some(written) = call.invalid_input() {
            let reason = serde_json::from_str::<Map<String, Value>>(&written).err();
            let reason = reason.map_or_else(String::new, |error| format!(" ({error})"));
            return Err(format!(
                "it is not a JSON object{reason}, so nothing was done: write it again. It was: {}",
                quote(&written)
            ));
        }
        serde_json::from_str(json).map_err(|error| format!("it cannot be read: {error}"))
    }

    fn unknown(&self, name: &str) -> String {
        if let Some(tool) = SkillTool::from_name(name) {
            let wire = tool.name();
            if self.definitions.iter().any(|tool| tool.name == wire) {
                return format!("there is no tool `{}`; here it is called `{wire}`", quote(name));
            }
        }
        let known: Vec<String> = self.definitions.iter().map(|tool| format!("`{}`", tool.name)).collect();
        let known = if known.is_empty() { "there are none".to_owned() } else { known.join(", ") };
        format!("there is no tool `{}`; the tools are: {known}", quote(name))
    }

    /// Runs a call within its bounds: the tool's own timeout, the end of the turn, and cancellation.
    async fn perform(&self, call: &ToolCall, context: &CallContext) -> SkillOutcome {
        let prepared = match self.prepare(call) {
            Prepared::Rejected(reason) => {
                return ToolOutcome::with_status(ToolStatus::Rejected, reason).into();
            }
            prepared => prepared,
        };
        if context.cancel.is_cancelled() {
            return gone(Gone::Cancelled, &call.name, "before it started").into();
        }
        if self.clock.remaining(context.deadline).is_zero() {
            return gone(
                Gone::TimedOut,
                &call.name,
                "before it started, since the time of the whole turn is up",
            )
            .into();
        }
        let own = match &prepared {
            Prepared::Skill(tools, request) => tools.time_for(request, &context.standing),
            _ => None,
        };
        let deadline = self.clock.deadline(own.unwrap_or(self.timeout)).earlier(context.deadline);
        // Cancelled when this future ends in whatever way, so that nothing outlives the call.
        let cancel = context.cancel.child_token();
        let _guard = cancel.clone().drop_guard();
        let overtime = match prepared {
            Prepared::Builtin(..) | Prepared::Skill(_, SkillRequest::RunScript(_)) => SANDBOX_GRACE,
            _ => Duration::ZERO,
        };
        let options = CallOptions { deadline, cancel };
        let work = Box::pin(self.resolve_and_start(prepared, call, options, &context.standing));
        let give_up = Box::pin(self.give_up(deadline, overtime, &context.cancel));
        match future::select(work, give_up).await {
            Either::Left((outcome, _)) => outcome,
            Either::Right((why, _)) => {
                gone(why, &call.name, "while it ran; what it did until then is not known").into()
            }
        }
    }

    /// Resolves the references of a call, and has it run on what they stand for.
    async fn resolve_and_start<'c>(
        &'c self,
        prepared: Prepared<'c>,
        call: &'c ToolCall,
        options: CallOptions,
        standing: &Standing,
    ) -> SkillOutcome {
        let Some(tools) = &self.artifacts else {
            return self.start(prepared, call, options, standing, BTreeMap::new()).await;
        };
        let mut gathering = self.gathering(tools, standing.artifacts(), &options);
        let done = match self.resolved(prepared, &mut gathering).await {
            Ok(Ready::Runs(prepared, environment)) => {
                self.start(prepared, call, options, standing, environment).await
            }
            Ok(Ready::Done(outcome)) | Err(outcome) => outcome.into(),
        };
        let Gathering { fetched, notices, .. } = gathering;
        let mut done = SkillOutcome { fetched, ..done };
        if !notices.is_empty() {
            done.outcome.content.insert(0, ResultContent::Text { text: notices.join("\n") });
        }
        done
    }

    fn start<'c>(
        &'c self,
        prepared: Prepared<'c>,
        call: &'c ToolCall,
        options: CallOptions,
        standing: &Standing,
        environment: BTreeMap<String, String>,
    ) -> BoxFuture<'c, SkillOutcome> {
        match prepared {
            Prepared::Builtin(executor, request) => Box::pin(async move {
                let outcome = request.run(executor, environment, &self.limits, &self.redactor, options).await;
                with_notice(outcome.into(), executor)
            }),
            Prepared::Skill(tools, request) => {
                let executor = self.sandbox.as_ref().map(|sandbox| &*sandbox.executor);
                let runs_in = executor.filter(|_| matches!(request, SkillRequest::RunScript(_)));
                let standing = standing.clone();
                let (limits, redactor, clock) = (&self.limits, &self.redactor, &self.clock);
                let call = SkillCall { standing, executor, environment, limits, redactor, clock, options };
                Box::pin(async move {
                    let outcome = tools.run(request, call).await;
                    match runs_in {
                        Some(executor) => with_notice(outcome, executor),
                        None => outcome,
                    }
                })
            }
            Prepared::Host(tool, input) => {
                let (caller, call_id) = (self.caller.clone(), call.id.clone());
                let CallOptions { deadline, cancel } = options;
                let work = tool.call(input, ToolContext { caller, call_id, deadline, cancel });
                Box::pin(async move { work.await.into() })
            }
            Prepared::Rejected(reason) => {
                Box::pin(future::ready(ToolOutcome::with_status(ToolStatus::Rejected, reason).into()))
            }
        }
    }

    /// Resolves when a call that does not return by itself must be given up: `overtime` after its deadline, or a
    /// grace after its cancellation.
    async fn give_up(&self, deadline: Deadline, overtime: Duration, cancel: &CancellationToken) -> Gone {
        let cancelled = async {
            cancel.cancelled().await;
            self.clock.sleep_until(self.clock.deadline(CANCEL_GRACE)).await;
        };
        let late = async {
            self.clock.sleep_until(deadline).await;
            self.clock.sleep_until(self.clock.deadline(overtime)).await;
        };
        match future::select(Box::pin(cancelled), Box::pin(late)).await {
            Either::Left(_) => Gone::Cancelled,
            Either::Right(_) => Gone::TimedOut,
        }
    }

    /// The time that has passed since `start`, which an earlier `deadline(ZERO)` of the clock gave.
    fn since(&self, start: Deadline) -> Duration {
        let now = self.clock.deadline(Duration::ZERO);
        match (now.instant(), start.instant()) {
            (Some(now), Some(start)) => now.saturating_duration_since(start),
            _ => Duration::ZERO,
        }
    }
}

/// The outcome, and first what the sandbox has to tell, so that it is there however much of the rest is cut.
fn with_notice(mut done: SkillOutcome, executor: &dyn Executor) -> SkillOutcome {
    if let Some(text) = executor.take_notice() {
        done.outcome.content.insert(0, ResultContent::Text { text });
    }
    done
}

/// Why a call was given up.
#[derive(Clone, Copy)]
enum Gone {
    TimedOut,
    Cancelled,
}

fn gone(why: Gone, tool: &str, when: &str) -> ToolOutcome {
    let (status, what) = match why {
        Gone::TimedOut => (ToolStatus::TimedOut, "timed out"),
        Gone::Cancelled => (ToolStatus::Cancelled, "cancelled"),
    };
    ToolOutcome::with_status(status, format!("{what}: `{tool}` was given up {when}"))
}

impl ToolRunner for Toolbox {
    fn traits(&self, call: &ToolCall) -> CallTraits {
        match self.prepare(call) {
            Prepared::Builtin(_, request) => request.traits(),
            Prepared::Skill(_, request) => request.traits(),
            Prepared::Host(tool, _) => tool.traits(),
            Prepared::Rejected(_) => CallTraits { access: Access::Shared, idempotent: true },
        }
    }

    fn authorize<'a>(&'a self, call: &'a ToolCall, standing: &'a Standing) -> BoxFuture<'a, Authorization> {
        let prepared = self.prepare(call);
        let fetches = match &self.artifacts {
            Some(_) => prepared.fetches(),
            None => Fetches::Nothing,
        };
        let request = match prepared {
            // It only produces an error: nobody need be asked.
            Prepared::Rejected(_) => return Box::pin(future::ready(Authorization::Allow)),
            Prepared::Skill(_, request) => Some(request),
            _ => None,
        };
        Box::pin(async move {
            let skills = self.skills.as_ref().map(|skills| &skills.skills);
            // What the model wants fetched is judged each time: no rule that was given before speaks for it.
            let is_granted = || fetches == Fetches::Nothing && is_granted(call, request.as_ref(), standing);
            let is_allowed = |skills: &SkillTools| {
                fetches == Fetches::Nothing && skills.is_allowed(call, request.as_ref(), standing)
            };
            match self.approver.review(call, self.caller.as_ref()).await {
                Authorization::Ask { .. } if is_granted() || skills.is_some_and(is_allowed) => {
                    Authorization::Allow
                }
                Authorization::Allow => {
                    match skills
                        .zip(request.as_ref())
                        .and_then(|(skills, request)| skills.caution(request, standing))
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

    fn run<'a>(&'a self, call: &'a ToolCall, context: CallContext) -> BoxFuture<'a, ToolResult> {
        Box::pin(async move {
            let start = self.clock.deadline(Duration::ZERO);
            let SkillOutcome { outcome, active, fetched } = self.perform(call, &context).await;
            let known = self.definitions.iter().find(|tool| tool.name == call.name);
            tracing::info!(
                target: "conjure::tool",
                // A name that the model made up is content, and content is not logged.
                tool = known.map_or("(unknown)", |tool| tool.name.as_str()),
                call_id = call.id.as_str(),
                outcome = outcome.status.as_str(),
                duration_ms = u64::try_from(self.since(start).as_millis()).unwrap_or(u64::MAX),
                "tool executed"
            );
            let result = self.finish(&call.id, outcome).fetching(fetched);
            match active {
                Some(active) => result.activating(active),
                None => result,
            }
        })
    }
}

impl fmt::Debug for Toolbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.definitions.iter().map(|tool| tool.name.as_str()).collect();
        f.debug_struct("Toolbox")
            .field("tools", &names)
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
