//! [`Toolbox`]: the tools of a session and the rules for their calls.

mod builder;
mod call_abort;
mod dispatch;
mod finalize;
mod parsed_call;
mod resolve_inputs;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use conjure_base::{Clock, Redactor, lock};
use conjure_conversation::ToolDefinition;
use conjure_prompt::{BuiltinTool, SkillTool};
use conjure_sandbox::Executor;

pub use builder::ToolboxBuilder;
pub(crate) use finalize::fits_limits;

use crate::agent_toolset::Toolset;
use crate::approver::Approver;
use crate::artifacts::ArtifactTools;
use crate::limits::OutputLimits;
use crate::skills::SkillTools;
use crate::tool::{CallerIdentity, Tool};
use crate::tool_source::{SourcedTools, ToolSource};

/// The tools of a session, and the rules for their calls. Every call gets exactly one result, also when it fails. A panic of an
/// embedder's tool is not caught here; the driver catches it.
///
/// Dropping the future of a call cancels its token and ends everything that it started in a sandbox.
///
/// ```
/// use conjure_conversation::{CallConcurrency, CallContext, CallTraits, ToolCall, ToolDefinition, execute_tool_calls};
/// use conjure_toolbox::{ToolOutput, Toolbox, tool_fn};
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
/// let traits = CallTraits { concurrency: CallConcurrency::Shared, idempotent: true };
/// let add = tool_fn(definition, traits, |input, _context| async move {
///     match (input["a"].as_f64(), input["b"].as_f64()) {
///         (Some(a), Some(b)) => ToolOutput::text((a + b).to_string()),
///         _ => ToolOutput::error("fields `a` and `b` must be numbers"),
///     }
/// });
/// let toolbox = Toolbox::builder().with_tool(add).build()?;
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
    /// The toolset that replaces the built-in tools, if there is one.
    toolset: Option<Toolset>,
    skills: Option<Skills>,
    artifacts: Option<ArtifactTools>,
    host: BTreeMap<String, Arc<dyn Tool>>,
    /// The names of the tools whose results the client provides.
    client: BTreeSet<String>,
    definitions: Arc<[ToolDefinition]>,
    /// The source of the tools that can change.
    source: Option<Arc<dyn ToolSource>>,
    /// All definitions, including those that the source had when they were last requested.
    current: Mutex<Option<CurrentDefinitions>>,
    approver: Arc<dyn Approver>,
    caller: Option<CallerIdentity>,
    redactor: Redactor,
    timeout: Duration,
    limits: OutputLimits,
    clock: Arc<dyn Clock>,
}

type CurrentDefinitions = (Arc<SourcedTools>, Arc<[ToolDefinition]>);

/// The sandbox and its built-in tools.
struct Sandbox {
    executor: Arc<dyn Executor>,
    tools: BTreeSet<BuiltinTool>,
}

/// The session's skills and their runtime tools.
struct Skills {
    skills: SkillTools,
    tools: BTreeSet<SkillTool>,
}

impl Toolbox {
    /// Creates a builder.
    #[must_use]
    pub fn builder() -> ToolboxBuilder {
        ToolboxBuilder::default()
    }

    /// The tool definitions for the model: first the built-in tools, then those for skills, then the embedder's by name, then the
    /// client's.
    #[must_use]
    pub fn definitions(&self) -> Arc<[ToolDefinition]> {
        Arc::clone(&self.definitions)
    }

    /// The definitions for the next model call: [`Toolbox::definitions`], and then the current ones of the tool source, by name.
    #[must_use]
    pub fn current_definitions(&self) -> Arc<[ToolDefinition]> {
        let Some(sourced) = self.source.as_ref().map(|source| source.tools()) else {
            return self.definitions();
        };
        let mut current = lock(&self.current);
        if let Some((known, definitions)) = &*current
            && Arc::ptr_eq(known, &sourced)
        {
            return Arc::clone(definitions);
        }
        let is_free = |tool: &&ToolDefinition| self.definitions.iter().all(|own| own.name != tool.name);
        let source_definitions = sourced.offered().iter().filter(is_free);
        let definitions: Arc<[ToolDefinition]> =
            self.definitions.iter().chain(source_definitions).cloned().collect();
        *current = Some((sourced, Arc::clone(&definitions)));
        definitions
    }

    /// The tool source's tool with this name.
    fn sourced_tool(&self, name: &str) -> Option<Arc<dyn Tool>> {
        self.source.as_ref()?.tools().find(name)
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
