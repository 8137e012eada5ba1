//! [`ToolboxBuilder`]: collects and validates tools, so that a bad definition is an error before a model sees it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use conjure_base::{Clock, Redactor, SystemClock};
use conjure_conversation::{AgentToolset, ToolDefinition};
use conjure_prompt::{SkillTool, ToolOptions, tool_definitions, toolset_definitions};
use conjure_sandbox::Executor;

use super::{Sandbox, Skills, Toolbox};
use crate::agent_toolset::Toolset;
use crate::approver::{AllowAll, Approver};
use crate::artifacts::ArtifactTools;
use crate::definition_check::{ToolboxError, check_definition};
use crate::limits::OutputLimits;
use crate::skills::{ScriptSupport, SkillTools};
use crate::tool::{CallerIdentity, Tool};
use crate::tool_source::ToolSource;

/// Builds a [`Toolbox`].
pub struct ToolboxBuilder {
    executor: Option<Arc<dyn Executor>>,
    toolset: Option<AgentToolset>,
    skills: Option<SkillTools>,
    artifacts: Option<ArtifactTools>,
    tools: Vec<Arc<dyn Tool>>,
    client_tools: Vec<ToolDefinition>,
    source: Option<Arc<dyn ToolSource>>,
    approver: Arc<dyn Approver>,
    caller: Option<CallerIdentity>,
    redactor: Redactor,
    timeout: Duration,
    limits: OutputLimits,
    clock: Arc<dyn Clock>,
    shared_definitions: Arc<[ToolDefinition]>,
}

/// No tools, every call allowed, nothing redacted, 30 seconds for each call, the default limits, the system's clock.
impl Default for ToolboxBuilder {
    fn default() -> Self {
        Self {
            executor: None,
            toolset: None,
            skills: None,
            artifacts: None,
            tools: Vec::new(),
            client_tools: Vec::new(),
            source: None,
            approver: Arc::new(AllowAll),
            caller: None,
            redactor: Redactor::default(),
            timeout: Duration::from_secs(30),
            limits: OutputLimits::default(),
            clock: Arc::new(SystemClock),
            shared_definitions: Arc::default(),
        }
    }
}

impl ToolboxBuilder {
    /// Adds the built-in tools, which run in this sandbox.
    #[must_use]
    pub fn with_executor(mut self, executor: Arc<dyn Executor>) -> Self {
        self.executor = Some(executor);
        self
    }

    /// Adds the tools of this toolset, instead of the built-in tools. Without a sandbox, the only tool is `web_fetch`, which needs
    /// [`ToolboxBuilder::with_artifacts`].
    #[must_use]
    pub fn with_toolset(mut self, toolset: AgentToolset) -> Self {
        self.toolset = Some(toolset);
        self
    }

    /// Adds the runtime tools for these skills. Running scripts needs a sandbox.
    #[must_use]
    pub fn with_skills(mut self, skills: SkillTools) -> Self {
        self.skills = Some(skills);
        self
    }

    /// Resolves artifact references in tool inputs, and makes the session's artifacts available to commands. Without it a reference is
    /// treated as a path that does not exist.
    #[must_use]
    pub fn with_artifacts(mut self, artifacts: ArtifactTools) -> Self {
        self.artifacts = Some(artifacts);
        self
    }

    /// Adds a tool of the embedder.
    #[must_use]
    pub fn with_tool(self, tool: impl Tool + 'static) -> Self {
        self.with_shared_tool(Arc::new(tool))
    }

    /// Adds an embedder's tool that is shared with other toolboxes.
    #[must_use]
    pub fn with_shared_tool(mut self, tool: Arc<dyn Tool>) -> Self {
        self.tools.push(tool);
        self
    }

    /// Adds tools whose results the client provides. Their calls do not run here
    /// ([`ToolRunner::awaits`](conjure_conversation::ToolRunner::awaits)), and the approver is not asked about them.
    #[must_use]
    pub fn with_client_tools(mut self, definitions: impl IntoIterator<Item = ToolDefinition>) -> Self {
        self.client_tools.extend(definitions);
        self
    }

    /// Adds tools that can change while the session lives. A tool is not offered if another tool of the toolbox has its name.
    #[must_use]
    pub fn with_tool_source(mut self, source: Arc<dyn ToolSource>) -> Self {
        self.source = Some(source);
        self
    }

    /// Sets the approver of calls. All calls are allowed by default.
    #[must_use]
    pub fn with_approver(mut self, approver: impl Approver + 'static) -> Self {
        self.approver = Arc::new(approver);
        self
    }

    /// Sets the identity that tools and the approver see.
    #[must_use]
    pub fn with_caller(mut self, caller: CallerIdentity) -> Self {
        self.caller = Some(caller);
        self
    }

    /// Sets the redactor of results.
    #[must_use]
    pub fn with_redactor(mut self, redactor: Redactor) -> Self {
        self.redactor = redactor;
        self
    }

    /// Sets the timeout of a call. 30 seconds by default.
    #[must_use]
    pub const fn with_timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Sets the size limits of results.
    #[must_use]
    pub const fn with_limits(mut self, limits: OutputLimits) -> Self {
        self.limits = limits;
        self
    }

    /// Sets the clock.
    #[must_use]
    pub fn with_clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Shares the definitions of another toolbox ([`Toolbox::definitions`]) if they are equal. That saves memory with many sessions.
    #[must_use]
    pub fn with_shared_definitions(mut self, definitions: Arc<[ToolDefinition]>) -> Self {
        self.shared_definitions = definitions;
        self
    }

    /// Builds the toolbox. With runtime tools it lists the files of the skills, which blocks.
    ///
    /// # Errors
    /// When two tools have the same name, or a tool has a name or schema that the service refuses.
    pub fn build(self) -> Result<Toolbox, ToolboxError> {
        let builtin = match self.toolset {
            Some(_) => ToolOptions { builtin: Vec::new() },
            None => ToolOptions::default(),
        };
        let sandbox = self
            .executor
            .map(|executor| Sandbox { executor, tools: builtin.builtin.iter().copied().collect() });
        let executor = sandbox.as_ref().map(|sandbox| Arc::clone(&sandbox.executor));
        let toolset = self.toolset.map(|toolset| Toolset::new(toolset, executor));
        let mut definitions = match (&sandbox, &toolset) {
            (_, Some(toolset)) => toolset_definitions(toolset.tools()),
            (Some(_), None) => tool_definitions(&builtin),
            (None, None) => Vec::new(),
        };
        let runs = if sandbox.is_some() { ScriptSupport::Scripts } else { ScriptSupport::Nothing };
        let skill_definitions =
            self.skills.as_ref().map(|skills| skills.definitions(runs)).unwrap_or_default();
        let skills = self.skills.map(|skills| Skills {
            tools: skill_definitions
                .iter()
                .filter_map(|tool| SkillTool::from_wire_name(&tool.name))
                .collect(),
            skills,
        });
        definitions.extend(skill_definitions);
        let mut host: BTreeMap<String, (ToolDefinition, Arc<dyn Tool>)> = BTreeMap::new();
        for tool in self.tools {
            let definition = check_definition(tool.definition())?;
            let name = definition.name.clone();
            let is_taken = definitions.iter().any(|builtin| builtin.name == name) || host.contains_key(&name);
            if is_taken {
                return Err(ToolboxError::DuplicateName { name });
            }
            host.insert(name, (definition, tool));
        }
        definitions.extend(host.values().map(|(definition, _)| definition.clone()));
        let mut client = BTreeSet::new();
        for definition in self.client_tools {
            let definition = check_definition(definition)?;
            let name = definition.name.clone();
            if definitions.iter().any(|other| other.name == name) {
                return Err(ToolboxError::DuplicateName { name });
            }
            client.insert(name);
            definitions.push(definition);
        }
        Ok(Toolbox {
            sandbox,
            toolset,
            skills,
            artifacts: self.artifacts,
            client,
            host: host.into_iter().map(|(name, (_, tool))| (name, tool)).collect(),
            definitions: if *self.shared_definitions == *definitions {
                self.shared_definitions
            } else {
                definitions.into()
            },
            source: self.source,
            current: Mutex::default(),
            approver: self.approver,
            caller: self.caller,
            redactor: self.redactor,
            timeout: self.timeout,
            limits: self.limits,
            clock: self.clock,
        })
    }
}

impl fmt::Debug for ToolboxBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ToolboxBuilder").field("executor", &self.executor).finish_non_exhaustive()
    }
}
