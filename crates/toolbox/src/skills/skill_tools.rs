//! [`SkillTools`]: the skills of a session and the configuration of their runtime tools.

use crate::limits::OutputLimits;
use crate::tool::ToolOutput;
use conjure_base::{Clock, Redactor};
use conjure_conversation::{FetchedArtifact, PinnedSkill, SessionView, SkillDelivery, ToolDefinition};
use conjure_prompt::{SessionSkill, SessionSkills, SkillToolOptions, skill_tool_definitions};
use conjure_sandbox::{CallOptions, Executor, NetworkPolicy};
use conjure_skill::{Execution, Inputs};
use std::collections::BTreeMap;
use std::fmt;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::error::SkillCallError;
use super::interpreters::Interpreters;

/// The default for how many skills may be active at a time.
pub const MAX_ACTIVE_SKILLS: usize = 8;

/// The upper limit for a script's timeout from its manifest. Other scripts have the timeout of any call.
pub(super) const MAX_SCRIPT_DURATION: Duration = Duration::from_secs(600);

/// The skills of a session, for its runtime tools.
///
/// Scripts get these environment variables beside the sandbox's own:
///
/// - `CONJURE_SKILL_DIR`: the skill's directory, which is also the working directory and read-only;
/// - `CONJURE_WORKSPACE`: the session's workspace;
/// - `CONJURE_SCRATCH` and `TMPDIR`: a directory for temporary files.
#[derive(Clone)]
pub struct SkillTools {
    pub(super) skills: SessionSkills,
    pub(super) delivery: SkillDelivery,
    pub(super) max_active: usize,
    pub(super) interpreters: Interpreters,
    pub(super) allowed_tools: AllowedToolsPolicy,
    pub(super) network: Option<NetworkPolicy>,
    pub(super) inputs: Option<Inputs>,
}

/// Whether the `allowed-tools` of an active skill pre-approve calls.
///
/// A skill is untrusted text. If its `allowed-tools` counted, a skill that is loaded because its description fits would choose its own
/// permissions. So they count only if the embedder says that the skills were reviewed. Skills of an untrusted directory
/// ([`Trust`](conjure_skill::Trust)) are never available.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum AllowedToolsPolicy {
    /// They are ignored. A person is asked, and may grant the same calls.
    #[default]
    Ignore,
    /// They count, except those of a skill whose manifest marks it as sensitive.
    Honour,
}

/// The result of a runtime tool.
pub(crate) struct DispatchOutcome {
    pub(crate) outcome: ToolOutput,
    /// The new list of active skills, if it changed.
    pub(crate) active: Option<Vec<PinnedSkill>>,
    /// The artifacts whose URLs were fetched for the call.
    pub(crate) fetched: Vec<FetchedArtifact>,
}

/// The context of one call.
pub(crate) struct SkillCallContext<'c> {
    pub(crate) session_view: SessionView,
    pub(crate) executor: Option<&'c dyn Executor>,
    /// Additional environment variables for scripts.
    pub(crate) environment: BTreeMap<String, String>,
    pub(crate) limits: &'c OutputLimits,
    pub(crate) redactor: &'c Redactor,
    pub(crate) clock: &'c Arc<dyn Clock>,
    pub(crate) options: CallOptions,
}

impl SkillTools {
    /// Creates tools for these skills, with the defaults: at most [`MAX_ACTIVE_SKILLS`] active skills, their instructions in the top-level
    /// instructions, and the default interpreters.
    #[must_use]
    pub fn new(skills: SessionSkills) -> Self {
        Self {
            skills,
            delivery: SkillDelivery::default(),
            max_active: MAX_ACTIVE_SKILLS,
            interpreters: Interpreters::default(),
            allowed_tools: AllowedToolsPolicy::default(),
            network: None,
            inputs: None,
        }
    }

    /// Sets where the instructions of a loaded skill go. The prompt composer needs the same setting.
    #[must_use]
    pub const fn with_delivery(mut self, delivery: SkillDelivery) -> Self {
        self.delivery = delivery;
        self
    }

    /// Sets how many skills may be active at a time.
    #[must_use]
    pub const fn with_max_active(mut self, max: usize) -> Self {
        self.max_active = max;
        self
    }

    /// Sets the interpreters of scripts.
    #[must_use]
    pub fn with_interpreters(mut self, interpreters: Interpreters) -> Self {
        self.interpreters = interpreters;
        self
    }

    /// Sets whether the `allowed-tools` of active skills pre-approve calls.
    #[must_use]
    pub const fn with_allowed_tools(mut self, policy: AllowedToolsPolicy) -> Self {
        self.allowed_tools = policy;
        self
    }

    /// Sets the sandbox's network policy, so that loading a skill reports a missing network.
    #[must_use]
    pub fn with_network(mut self, policy: NetworkPolicy) -> Self {
        self.network = Some(policy);
        self
    }

    /// Sets the values of the skills' inputs and enables the preflight: a skill with a manifest is loaded only if its inputs, commands,
    /// files and variables are present.
    #[must_use]
    pub fn with_inputs(mut self, inputs: Inputs) -> Self {
        self.inputs = Some(inputs);
        self
    }

    /// The tool definitions for a model that has a sandbox. Lists the skills' files, which blocks.
    #[must_use]
    pub fn definitions_with_scripts(&self) -> Vec<ToolDefinition> {
        self.definitions(ScriptSupport::Scripts)
    }

    /// The tool definitions for the model. Lists the skills' files, which blocks.
    pub(crate) fn definitions(&self, runs: ScriptSupport) -> Vec<ToolDefinition> {
        let has_scripts = |skill: &&Arc<SessionSkill>| {
            runs == ScriptSupport::Scripts
                && skill.files().iter().any(|file| self.interpreters.is_script(file))
        };
        skill_tool_definitions(&SkillToolOptions {
            skills: self.skills.iter().map(|skill| skill.name()).collect(),
            with_scripts: self.skills.iter().filter(has_scripts).map(|skill| skill.name()).collect(),
            max_active: self.max_active,
            delivery: self.delivery,
        })
    }

    /// The active skill of a call: the named one, else the most recent.
    pub(super) fn find_active(
        &self,
        name: Option<&str>,
        session_view: &SessionView,
    ) -> Result<&Arc<SessionSkill>, SkillCallError> {
        let pinned = match name {
            None => session_view.active_skills().last().ok_or(SkillCallError::NothingLoaded)?,
            Some(name) => {
                session_view.active_skill(name).ok_or_else(|| match session_view.active_skills() {
                    [] => SkillCallError::NothingLoaded,
                    loaded => SkillCallError::NotLoaded {
                        name: name.to_owned(),
                        loaded: loaded
                            .iter()
                            .map(|skill| format!("`{}`", skill.name))
                            .collect::<Vec<_>>()
                            .join(", "),
                    },
                })?
            }
        };
        self.skills.recorded(pinned).ok_or_else(|| SkillCallError::SkillMissing { name: pinned.name.clone() })
    }

    /// Checks a path from the model and returns it relative to the skill's directory. Links are checked when the file is opened.
    pub(super) fn relative_path(&self, skill: &SessionSkill, path: &str) -> Result<PathBuf, SkillCallError> {
        let requested_path = Path::new(path);
        if requested_path.is_absolute() {
            let root = self.skills.root_dir(skill);
            let relative =
                root.and_then(|root| Some(requested_path.strip_prefix(root).ok()?.to_str()?.to_owned()));
            let relative = relative.filter(|relative| !relative.is_empty());
            return Err(SkillCallError::Absolute { path: crate::text::quote(path), relative });
        }
        let mut relative = PathBuf::new();
        for component in requested_path.components() {
            match component {
                Component::Normal(name) => relative.push(name),
                Component::CurDir => {}
                _ => return Err(SkillCallError::EscapesSkillDir { path: crate::text::quote(path) }),
            }
        }
        Ok(relative)
    }
}

/// Whether scripts can run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ScriptSupport {
    Scripts,
    Nothing,
}

impl From<ToolOutput> for DispatchOutcome {
    fn from(outcome: ToolOutput) -> Self {
        Self { outcome, active: None, fetched: Vec::new() }
    }
}

/// Omits the values of inputs, which may be secret.
impl fmt::Debug for SkillTools {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let inputs = self.inputs.as_ref().map(|inputs| inputs.keys().collect::<Vec<_>>());
        f.debug_struct("SkillTools")
            .field("skills", &self.skills)
            .field("delivery", &self.delivery)
            .field("max_active", &self.max_active)
            .field("allowed_tools", &self.allowed_tools)
            .field("inputs", &inputs)
            .finish_non_exhaustive()
    }
}

/// The `execution` section of a skill's manifest.
pub(super) fn execution(skill: &SessionSkill) -> Option<&Execution> {
    skill.skill().manifest().map(conjure_skill::Manifest::execution)
}

/// Joins a relative path, which may be empty.
pub(super) fn join_in_skill(root: &Path, relative: &Path) -> PathBuf {
    if relative.as_os_str().is_empty() { root.to_owned() } else { root.join(relative) }
}

/// Runs blocking work; `None` if it panicked.
pub(super) async fn run_blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    tokio::task::spawn_blocking(work).await.ok()
}
