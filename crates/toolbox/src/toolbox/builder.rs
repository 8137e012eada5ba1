//! Filling a toolbox. What cannot work is an error here, before a model sees it.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use conjure_base::{Clock, Redactor, SystemClock, looks_sensitive};
use conjure_conversation::ToolDefinition;
use conjure_prompt::{SkillTool, ToolOptions, tool_definitions};
use conjure_sandbox::Executor;

use super::{Sandbox, Skills, Toolbox};
use crate::approver::{AllowAll, Approver};
use crate::artifacts::ArtifactTools;
use crate::limits::OutputLimits;
use crate::skills::{Runs, SkillTools};
use crate::tool::{Caller, Tool};

/// Collects what a [`Toolbox`] is made of.
pub struct ToolboxBuilder {
    executor: Option<Arc<dyn Executor>>,
    builtin: ToolOptions,
    skills: Option<SkillTools>,
    artifacts: Option<ArtifactTools>,
    tools: Vec<Arc<dyn Tool>>,
    approver: Arc<dyn Approver>,
    caller: Option<Caller>,
    redactor: Redactor,
    timeout: Duration,
    limits: OutputLimits,
    clock: Arc<dyn Clock>,
    told: Arc<[ToolDefinition]>,
}

/// Tools that a model cannot be told of.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ToolboxError {
    /// The service does not take such a name.
    #[error("`{name}` cannot be a tool's name: use 1 to 128 of letters, digits, `_` and `-`")]
    InvalidName {
        /// The name.
        name: String,
    },
    /// Two tools have one name.
    #[error("two tools have the name `{name}`: rename one of them")]
    DuplicateName {
        /// The name.
        name: String,
    },
    /// The service takes schemas of objects only.
    #[error("the input schema of tool `{name}` must be an object with `\"type\": \"object\"`")]
    InvalidSchema {
        /// The tool's name.
        name: String,
    },
}

/// No tools, every call allowed, nothing redacted, 30 seconds for each call, the default limits, the system's clock.
impl Default for ToolboxBuilder {
    fn default() -> Self {
        Self {
            executor: None,
            builtin: ToolOptions::default(),
            skills: None,
            artifacts: None,
            tools: Vec::new(),
            approver: Arc::new(AllowAll),
            caller: None,
            redactor: Redactor::default(),
            timeout: Duration::from_secs(30),
            limits: OutputLimits::default(),
            clock: Arc::new(SystemClock),
            told: Arc::default(),
        }
    }
}

impl ToolboxBuilder {
    /// Adds the built-in tools, to run in this sandbox.
    #[must_use]
    pub fn executor(mut self, executor: Arc<dyn Executor>) -> Self {
        self.executor = Some(executor);
        self
    }

    /// Which built-in tools there are; all four unless this says otherwise.
    #[must_use]
    pub fn builtin(mut self, options: ToolOptions) -> Self {
        self.builtin = options;
        self
    }

    /// Adds the runtime tools for these skills. Without skills there are none, and without a sandbox none that runs scripts.
    #[must_use]
    pub fn skills(mut self, skills: SkillTools) -> Self {
        self.skills = Some(skills);
        self
    }

    /// Resolves references in the inputs of its tools, and has its commands find the session's artifacts. Without this a reference is
    /// a path like any other, which leads nowhere.
    #[must_use]
    pub fn artifacts(mut self, artifacts: ArtifactTools) -> Self {
        self.artifacts = Some(artifacts);
        self
    }

    /// Adds a tool of the host.
    #[must_use]
    pub fn tool(self, tool: impl Tool + 'static) -> Self {
        self.shared_tool(Arc::new(tool))
    }

    /// Adds a tool of the host that is shared with other toolboxes.
    #[must_use]
    pub fn shared_tool(mut self, tool: Arc<dyn Tool>) -> Self {
        self.tools.push(tool);
        self
    }

    /// Who allows calls.
    #[must_use]
    pub fn approver(mut self, approver: impl Approver + 'static) -> Self {
        self.approver = Arc::new(approver);
        self
    }

    /// For whom its calls are made: what host tools and the approver are told.
    #[must_use]
    pub fn caller(mut self, caller: Caller) -> Self {
        self.caller = Some(caller);
        self
    }

    /// What must not occur in any result. See [`environment_secrets`].
    #[must_use]
    pub fn redactor(mut self, redactor: Redactor) -> Self {
        self.redactor = redactor;
        self
    }

    /// How long one call may take.
    #[must_use]
    pub const fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// How much of a result reaches the model.
    #[must_use]
    pub const fn limits(mut self, limits: OutputLimits) -> Self {
        self.limits = limits;
        self
    }

    /// Where the time comes from.
    #[must_use]
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// What the model is told in another toolbox ([`Toolbox::definitions`]): where it is the same here, the two share it, as those of
    /// a host's many sessions do.
    #[must_use]
    pub fn sharing(mut self, definitions: Arc<[ToolDefinition]>) -> Self {
        self.told = definitions;
        self
    }

    /// The toolbox. Where it has runtime tools, the files of its skills are listed: that blocks.
    ///
    /// # Errors
    /// When two tools have one name, or a host's tool has a name or schema that the service refuses.
    pub fn build(self) -> Result<Toolbox, ToolboxError> {
        let sandbox = self
            .executor
            .map(|executor| Sandbox { executor, tools: self.builtin.builtin.iter().copied().collect() });
        let mut definitions = match &sandbox {
            Some(_) => tool_definitions(&self.builtin),
            None => Vec::new(),
        };
        let runs = if sandbox.is_some() { Runs::Scripts } else { Runs::Nothing };
        let of_skills = self.skills.as_ref().map(|skills| skills.definitions(runs)).unwrap_or_default();
        let skills = self.skills.map(|skills| Skills {
            tools: of_skills.iter().filter_map(|tool| SkillTool::from_wire_name(&tool.name)).collect(),
            skills,
        });
        definitions.extend(of_skills);
        let mut host: BTreeMap<String, (ToolDefinition, Arc<dyn Tool>)> = BTreeMap::new();
        for tool in self.tools {
            let definition = check(tool.definition())?;
            let name = definition.name.clone();
            let taken = definitions.iter().any(|builtin| builtin.name == name) || host.contains_key(&name);
            if taken {
                return Err(ToolboxError::DuplicateName { name });
            }
            host.insert(name, (definition, tool));
        }
        definitions.extend(host.values().map(|(definition, _)| definition.clone()));
        Ok(Toolbox {
            sandbox,
            skills,
            artifacts: self.artifacts,
            host: host.into_iter().map(|(name, (_, tool))| (name, tool)).collect(),
            definitions: if *self.told == *definitions { self.told } else { definitions.into() },
            approver: self.approver,
            caller: self.caller,
            redactor: self.redactor,
            timeout: self.timeout,
            limits: self.limits,
            clock: self.clock,
        })
    }
}

fn check(definition: ToolDefinition) -> Result<ToolDefinition, ToolboxError> {
    let name = definition.name.clone();
    let fits = (1..=128).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'));
    if !fits {
        return Err(ToolboxError::InvalidName { name });
    }
    if definition.input_schema.get("type").and_then(|kind| kind.as_str()) != Some("object") {
        return Err(ToolboxError::InvalidSchema { name });
    }
    Ok(definition)
}

/// The variables of a sandbox's environment whose names say that they hold secrets, for a [`Redactor`].
pub fn environment_secrets(environment: &BTreeMap<String, String>) -> impl Iterator<Item = (&str, &str)> {
    environment
        .iter()
        .filter(|(name, value)| looks_sensitive(name, value))
        .map(|(name, value)| (name.as_str(), value.as_str()))
}

impl fmt::Debug for ToolboxBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ToolboxBuilder").field("executor", &self.executor).finish_non_exhaustive()
    }
}
