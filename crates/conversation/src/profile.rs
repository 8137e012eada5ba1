//! What a session was opened with: the part of it that is durable, so that another process revives the same session.
//!
//! It names things and holds none of them: whoever revives the session finds the model, the skills of these digests
//! and the sandbox by it, or says what is missing.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use conjure_base::Digest;
use serde::{Deserialize, Serialize};

use crate::limits::Limits;

/// What a session is, as it is recorded with its first event.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Profile {
    /// The host's own instructions, before all others.
    pub base_prompt: String,
    /// The skills that the model may use. A reload of a catalog does not change them.
    pub skills: Vec<PinnedSkill>,
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
}

impl Withheld {
    /// Whether everything is recorded.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.environment.is_empty() && self.secrets.is_empty()
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
