//! Hosted skills: skills that the model's service runs in its own containers.
//!
//! A call with such a skill may have side effects at the service. So a call with an unknown outcome is never repeated automatically.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// The version name that means the newest version at each request.
pub const LATEST: &str = "latest";

/// A hosted skill.
///
/// ```
/// use conjure_conversation::{HostedSkill, HostedSource};
///
/// let skills = [HostedSkill::anthropic("xlsx"), HostedSkill::custom("skill_01AbCdEfGhIjKlMnOpQrStUv").with_version("1759178010641129")];
/// assert_eq!((skills[0].source, skills[0].version.as_str()), (HostedSource::Anthropic, "latest"));
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct HostedSkill {
    /// Who provides it.
    pub source: HostedSource,
    /// Its id: a short name of the vendor, or the id that the upload returned.
    pub id: String,
    /// Its version, or [`LATEST`].
    pub version: String,
}

/// Who provides a hosted skill.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HostedSource {
    /// The vendor: `xlsx`, `pptx`, `docx`, `pdf`.
    Anthropic,
    /// The owner of the API key, who uploaded it.
    Custom,
}

impl HostedSkill {
    /// A skill of the vendor, in its newest version.
    pub fn anthropic(id: impl Into<String>) -> Self {
        Self { source: HostedSource::Anthropic, id: id.into(), version: LATEST.to_owned() }
    }

    /// An uploaded skill, in its newest version.
    pub fn custom(id: impl Into<String>) -> Self {
        Self { source: HostedSource::Custom, id: id.into(), version: LATEST.to_owned() }
    }

    /// Sets the version.
    #[must_use]
    pub fn with_version(mut self, version: impl Into<String>) -> Self {
        self.version = version.into();
        self
    }
}

/// Whether a model's service supports hosted skills.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum HostedSupport {
    /// It does not.
    #[default]
    None,
    /// It runs the skills of [`crate::Request::hosted`].
    Skills,
}

/// Access to the files of the service's containers: uploads and outputs.
///
/// The files belong to the API key of the model, so the model provides the access.
#[derive(Clone, Default)]
pub enum HostedFiles {
    /// The model does not declare it. A session with hosted skills cannot be opened with such a model.
    #[default]
    Unknown,
    /// The service has no files: there are no uploads and no outputs.
    None,
    /// The service has files. The value is of a type that the caller knows; the runtime expects `conjure_artifact::ServiceFiles`.
    Available(Arc<dyn Any + Send + Sync>),
}

impl fmt::Debug for HostedFiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unknown => "Unknown",
            Self::None => "None",
            Self::Available(_) => "Available(..)",
        })
    }
}
