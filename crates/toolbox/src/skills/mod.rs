//! The four runtime tools over the skills of a session (runtime specification): `skills.load`, `skills.unload`, `skills.read`,
//! `skills.run_script`.
//!
//! Which skills are active stands in the session's record and comes with each call (`CallContext::standing`); what a load or an unload
//! leads to goes back with its result, and only from here: a host's own tool cannot say it. Nothing in here holds state of a
//! conversation, so a crash loses nothing but the calls that were running; all but a script do the same when they are done twice.

mod active;
mod approval;
mod error;
mod interpreters;
pub(crate) mod read;
mod ready;
mod request;
mod script;

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use conjure_base::{Clock, Redactor};
use conjure_conversation::{Delivery, FetchedArtifact, PinnedSkill, Standing, ToolDefinition};
use conjure_prompt::{SessionSkill, SessionSkills, SkillToolOptions, skill_tool_definitions};
use conjure_sandbox::{CallOptions, Executor, NetworkPolicy};
use conjure_skill::Inputs;

pub use approval::AllowedToolsPolicy;
pub(crate) use approval::is_granted;
pub use interpreters::Interpreters;
pub(crate) use request::SkillRequest;

use crate::limits::OutputLimits;
use crate::tool::ToolOutcome;
use error::SkillCallError;

/// How many skills may be active at a time, unless a host says otherwise.
pub const MOST_ACTIVE: usize = 8;

/// How long a script may run whose manifest asks for time, unless a host says otherwise.
const LONGEST_SCRIPT: Duration = Duration::from_secs(600);

/// The skills of a session, for its runtime tools.
///
/// The variables that scripts see beside the sandbox's own: `CONJURE_SKILL_DIR`, the skill's folder, which is also where they start;
/// `CONJURE_WORKSPACE`, the session's workspace; `CONJURE_SCRATCH` and `TMPDIR`, a folder for files that nobody needs later. The
/// skill's own folder cannot be written.
#[derive(Clone)]
pub struct SkillTools {
    skills: SessionSkills,
    delivery: Delivery,
    most_active: usize,
    interpreters: Interpreters,
    allowed_tools: AllowedToolsPolicy,
    longest_script: Duration,
    network: Option<NetworkPolicy>,
    inputs: Option<Inputs>,
}

/// What a runtime tool came to.
pub(crate) struct SkillOutcome {
    pub(crate) outcome: ToolOutcome,
    /// The skills that are active from now on, where that changed.
    pub(crate) active: Option<Vec<PinnedSkill>>,
    /// The artifacts whose URLs were fetched for it.
    pub(crate) fetched: Vec<FetchedArtifact>,
}

/// What a call is done with.
pub(crate) struct SkillCall<'c> {
    pub(crate) standing: Standing,
    pub(crate) executor: Option<&'c dyn Executor>,
    /// Variables for scripts beside all others.
    pub(crate) environment: BTreeMap<String, String>,
    pub(crate) limits: &'c OutputLimits,
    pub(crate) redactor: &'c Redactor,
    pub(crate) clock: &'c Arc<dyn Clock>,
    pub(crate) options: CallOptions,
}

impl SkillTools {
    /// These skills: at most [`MOST_ACTIVE`] at a time, their instructions told in the top-level instructions, scripts run by the
    /// default table.
    #[must_use]
    pub fn new(skills: SessionSkills) -> Self {
        Self {
            skills,
            delivery: Delivery::default(),
            most_active: MOST_ACTIVE,
            interpreters: Interpreters::default(),
            allowed_tools: AllowedToolsPolicy::default(),
            longest_script: LONGEST_SCRIPT,
            network: None,
            inputs: None,
        }
    }

    /// Where the instructions of a loaded skill stand; the composer must know it, too.
    #[must_use]
    pub const fn delivery(mut self, delivery: Delivery) -> Self {
        self.delivery = delivery;
        self
    }

    /// How many skills may be active at a time.
    #[must_use]
    pub const fn most_active(mut self, most: usize) -> Self {
        self.most_active = most;
        self
    }

    /// What scripts are run with.
    #[must_use]
    pub fn interpreters(mut self, interpreters: Interpreters) -> Self {
        self.interpreters = interpreters;
        self
    }

    /// Whether the `allowed-tools` of active skills stand for a person's answer.
    #[must_use]
    pub const fn allowed_tools(mut self, policy: AllowedToolsPolicy) -> Self {
        self.allowed_tools = policy;
        self
    }

    /// How long a script may run at most whose manifest says how long it takes; ten minutes, unless this says otherwise. Others have
    /// the time of any call.
    #[must_use]
    pub const fn longest_script(mut self, longest: Duration) -> Self {
        self.longest_script = longest;
        self
    }

    /// What the sandbox may reach, so that a skill that needs the network and cannot have it is told of when it is loaded.
    #[must_use]
    pub fn network(mut self, policy: NetworkPolicy) -> Self {
        self.network = Some(policy);
        self
    }

    /// What the session was given for the inputs of its skills, so that a skill with a manifest is loaded only where nothing is missing
    /// that it asks for: inputs, commands, files, variables. Without this nothing of it is looked at.
    #[must_use]
    pub fn inputs(mut self, inputs: Inputs) -> Self {
        self.inputs = Some(inputs);
        self
    }

    /// How long this call may take, where a skill's manifest says that.
    pub(crate) fn time_for(&self, request: &SkillRequest, standing: &Standing) -> Option<Duration> {
        let SkillRequest::RunScript(script) = request else { return None };
        let skill = self.chosen(script.skill.as_deref(), standing).ok()?;
        Some(approval::execution(skill)?.timeout?.min(self.longest_script))
    }

    /// What the model is told of the tools, where scripts can be run or not. Lists the skills' files; blocks.
    pub(crate) fn definitions(&self, runs: Runs) -> Vec<ToolDefinition> {
        let has_scripts = |skill: &&Arc<SessionSkill>| {
            runs == Runs::Scripts && skill.files().iter().any(|file| self.interpreters.is_script(file))
        };
        skill_tool_definitions(&SkillToolOptions {
            skills: self.skills.iter().map(|skill| skill.name()).collect(),
            with_scripts: self.skills.iter().filter(has_scripts).map(|skill| skill.name()).collect(),
            most_active: self.most_active,
            delivery: self.delivery,
        })
    }

    /// The active skill that a call is about: the one that it names, else the most recent.
    fn chosen(&self, name: Option<&str>, standing: &Standing) -> Result<&Arc<SessionSkill>, SkillCallError> {
        let pinned = match name {
            None => standing.active_skills().last().ok_or(SkillCallError::NothingLoaded)?,
            Some(name) => standing.active_skill(name).ok_or_else(|| match standing.active_skills() {
                [] => SkillCallError::NothingLoaded,
                loaded => SkillCallError::NotLoaded {
                    name: name.to_owned(),
                    loaded: loaded
                        .iter()
                        .map(|skill| format!("`{}`", skill.name))
                        .collect::<Vec<_>>()
                        .join(", "),
                },
            })?,
        };
        self.skills.recorded(pinned).ok_or_else(|| SkillCallError::Gone { name: pinned.name.clone() })
    }

    /// The path that a model gave for a file of this skill, relative to its folder. Only what it says is looked at: whether it leads
    /// out through a link is seen where it is opened, beneath the folder's handle.
    fn relative(&self, skill: &SessionSkill, path: &str) -> Result<PathBuf, SkillCallError> {
        let given = Path::new(path);
        if given.is_absolute() {
            let root = self.skills.root_dir(skill);
            let relative = root.and_then(|root| Some(given.strip_prefix(root).ok()?.to_str()?.to_owned()));
            let relative = relative.filter(|relative| !relative.is_empty());
            return Err(SkillCallError::Absolute { path: crate::text::quote(path), relative });
        }
        let mut relative = PathBuf::new();
        for component in given.components() {
            match component {
                Component::Normal(name) => relative.push(name),
                Component::CurDir => {}
                _ => return Err(SkillCallError::LeadsOut { path: crate::text::quote(path) }),
            }
        }
        Ok(relative)
    }

    /// Does it. What goes wrong is an outcome, too.
    pub(crate) async fn run(&self, request: SkillRequest, call: SkillCall<'_>) -> SkillOutcome {
        let done = match request {
            SkillRequest::Load { skills, mode } => self.load(skills, mode, &call).await,
            SkillRequest::Unload(which) => self.unload(&which, &call.standing),
            SkillRequest::Read { skill, path } => {
                self.read(skill.as_deref(), &path, &call).await.map(Into::into)
            }
            SkillRequest::RunScript(script) => self.run_script(script, &call).await.map(Into::into),
        };
        done.unwrap_or_else(|error| ToolOutcome::from(error).into())
    }
}

/// Whether scripts can be run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Runs {
    Scripts,
    Nothing,
}

impl From<ToolOutcome> for SkillOutcome {
    fn from(outcome: ToolOutcome) -> Self {
        Self { outcome, active: None, fetched: Vec::new() }
    }
}

/// Without the values of inputs, which may be secret.
impl fmt::Debug for SkillTools {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let inputs = self.inputs.as_ref().map(|inputs| inputs.keys().collect::<Vec<_>>());
        f.debug_struct("SkillTools")
            .field("skills", &self.skills)
            .field("delivery", &self.delivery)
            .field("most_active", &self.most_active)
            .field("allowed_tools", &self.allowed_tools)
            .field("inputs", &inputs)
            .finish_non_exhaustive()
    }
}

/// Where what is called so in a skill lies.
fn beneath(root: &Path, relative: &Path) -> PathBuf {
    if relative.as_os_str().is_empty() { root.to_owned() } else { root.join(relative) }
}

/// Does what blocks where that is allowed.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    tokio::task::spawn_blocking(work).await.ok()
}

#[cfg(test)]
mod tests;
