//! What a session was opened with: the part of it that is durable, so that another process revives the same session.
//!
//! It names things and holds none of them: whoever revives the session finds the model, the skills of these digests
//! and the sandbox by it, or says what is missing.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use conjure_base::Digest;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::hosted::HostedSkill;
use crate::limits::Limits;

/// What a session is, as it is recorded with its first event.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Profile {
    /// The host's own instructions, before all others.
    pub base_prompt: String,
    /// The skills that the model may use. A reload of a catalog does not change them.
    pub skills: Vec<PinnedSkill>,
    /// How the model gets at the instructions of a skill. Sessions from before there was a choice read them with `view`.
    #[serde(default = "Activation::of_old", skip_serializing_if = "Activation::is_of_old")]
    pub activation: Activation,
    /// Where the instructions of an active skill stand.
    #[serde(skip_serializing_if = "Delivery::is_usual")]
    pub delivery: Delivery,
    /// Skills that the model's service runs itself.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub hosted: Vec<HostedSkill>,
    /// What each turn may consume, unless it says otherwise.
    pub limits: Limits,
    /// The model's name, as the host knows it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// The kind of sandbox, as the host knows it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub executor: Option<String>,
    /// The catalog that the skills were chosen from, as the host knows it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub catalog: Option<String>,
    /// The folder of the host's that it works in; none: one of its own. Its path must be UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workspace: Option<PathBuf>,
    /// Variables that its commands see.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub environment: BTreeMap<String, String>,
    /// The inputs that the manifests of its skills ask for, as far as they are not sensitive.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub inputs: BTreeMap<String, Value>,
    /// What it was given and is not recorded: whoever revives it gives it again.
    #[serde(skip_serializing_if = "Withheld::is_empty")]
    pub withheld: Withheld,
    /// What the host wants to know again; nobody else looks at it.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub metadata: BTreeMap<String, String>,
}

/// The names of what must not be recorded, since it is, or may be, secret.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Withheld {
    /// Variables that commands see.
    pub environment: BTreeSet<String>,
    /// Values that commands do not see, and that are redacted should they get hold of one.
    pub secrets: BTreeSet<String>,
    /// Inputs of skills that their manifests call sensitive.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub inputs: BTreeSet<String>,
}

/// How the model gets at a skill's instructions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Activation {
    /// It loads the skill with `skills.load`, which makes it an active one.
    #[default]
    Load,
    /// It reads `SKILL.md` with the `view` tool.
    View,
}

impl Activation {
    const fn of_old() -> Self {
        Self::View
    }

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
    const fn is_of_old(&self) -> bool {
        matches!(self, Self::View)
    }
}

/// Where the instructions of an active skill reach the model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Delivery {
    /// In the top-level instructions of each call for as long as the skill is active: it changes what the service has cached.
    #[default]
    Instructions,
    /// In the result of `skills.load`: what was sent stays as it was, also when the skill is unloaded.
    Result,
}

impl Delivery {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
    const fn is_usual(&self) -> bool {
        matches!(self, Self::Instructions)
    }
}

impl Withheld {
    /// Whether everything is recorded.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.environment.is_empty() && self.secrets.is_empty() && self.inputs.is_empty()
    }
}

/// A skill of one content.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PinnedSkill {
    /// Its name.
    pub name: String,
    /// The digest of the skill as it was when the session was opened.
    pub digest: Digest,
}
