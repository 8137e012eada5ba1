//! Skills that the model's service runs itself, in containers of its own.
//!
//! A session names them; the service has them. A call with such a skill has effects where nobody here sees them, so one whose outcome
//! is not known is never sent again by itself.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// The version of a hosted skill that is the newest at each request.
pub const LATEST: &str = "latest";

/// A skill that the service runs.
///
/// ```
/// use conjure_conversation::{HostedSkill, HostedSource};
///
/// let skills = [HostedSkill::anthropic("xlsx"), HostedSkill::custom("skill_01AbCdEfGhIjKlMnOpQrStUv").version("1759178010641129")];
/// assert_eq!((skills[0].source, skills[0].version.as_str()), (HostedSource::Anthropic, "latest"));
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct HostedSkill {
    /// Whose it is.
    pub source: HostedSource,
    /// Its id: a short name of the vendor's, or what the upload gave.
    pub id: String,
    /// Its version, or [`LATEST`].
    pub version: String,
}

/// Whose a hosted skill is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HostedSource {
    /// The vendor's own: `xlsx`, `pptx`, `docx`, `pdf`.
    Anthropic,
    /// Uploaded by whoever has the key.
    Custom,
}

impl HostedSkill {
    /// A skill of the vendor's, in its newest version.
    pub fn anthropic(id: impl Into<String>) -> Self {
        Self { source: HostedSource::Anthropic, id: id.into(), version: LATEST.to_owned() }
    }

    /// A skill that was uploaded, in its newest version.
    pub fn custom(id: impl Into<String>) -> Self {
        Self { source: HostedSource::Custom, id: id.into(), version: LATEST.to_owned() }
    }

    /// The same in this version.
    #[must_use]
    pub fn version(mut self, version: impl Into<String>) -> Self {
        self.version = version.into();
        self
    }
}

/// What a model's service runs by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Hosting {
    /// Nothing that this library knows of.
    #[default]
    None,
    /// Skills: those of [`crate::Request::hosted`].
    Skills,
}

/// Where the files of the containers are that a model's service runs skills in: what they are given, and what was made in them.
///
/// They lie under the key of that very model, so it is the model that says so.
#[derive(Clone, Default)]
pub enum HostedFiles {
    /// The model does not say. Nobody knows then whose files they would be, so no session with hosted skills is opened with it.
    #[default]
    Unsaid,
    /// There are none: a session gives none and is given none.
    Nowhere,
    /// There. The type is one that whoever gives and lists files knows; a runtime knows `conjure_artifact::ServiceFiles`.
    There(Arc<dyn Any + Send + Sync>),
}

impl fmt::Debug for HostedFiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unsaid => "Unsaid",
            Self::Nowhere => "Nowhere",
            Self::There(_) => "There(..)",
        })
    }
}
