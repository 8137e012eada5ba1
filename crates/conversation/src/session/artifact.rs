//! The artifacts of a session: the named files and data given to it (ADR-0018).
//!
//! Events record the metadata of artifacts, not their bytes. The bytes are in a store under their digest, or at a URL. Only recorded
//! events change artifacts, so a revived session has the same ones.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

use conjure_base::Digest;
use conjure_base::text::is_invisible;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::content::block::Block;

/// The maximum number of artifacts of a session.
pub const ARTIFACT_LIMIT: usize = 1_000;

/// The name of an artifact: a valid file name of at most 128 bytes, without control characters.
///
/// ```
/// use conjure_conversation::ArtifactName;
///
/// let name: ArtifactName = "sales 2024.csv".parse()?;
/// assert_eq!(name.variable(), "ARTIFACT_SALES_2024_CSV");
/// assert!("../sales".parse::<ArtifactName>().is_err());
/// # Ok::<(), conjure_conversation::ArtifactNameError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ArtifactName(String);

/// Why a text is not a valid artifact name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ArtifactNameError {
    /// It is empty.
    #[error("the name of an artifact is empty")]
    Empty,
    /// It has more bytes than a name may have.
    #[error("the name of an artifact has {length} bytes, more than {}", ArtifactName::MAX_BYTES)]
    TooLong {
        /// The number of bytes.
        length: usize,
    },
    /// It has a character that is not allowed.
    #[error(
        "the name of an artifact has the character {character:?}; use letters, digits, `.`, `-`, `_` and spaces"
    )]
    Character {
        /// The character.
        character: char,
    },
    /// It is `.` or `..`, or begins or ends with a space.
    #[error("the name of an artifact is `.` or `..`, or begins or ends with a space")]
    NotAFileName,
}

impl ArtifactName {
    /// The maximum length of a name, in bytes.
    pub const MAX_BYTES: usize = 128;

    /// Checks a name.
    ///
    /// # Errors
    /// If the name is not valid.
    pub fn new(name: impl Into<String>) -> Result<Self, ArtifactNameError> {
        let name = name.into();
        if name.is_empty() {
            return Err(ArtifactNameError::Empty);
        }
        if name.len() > Self::MAX_BYTES {
            return Err(ArtifactNameError::TooLong { length: name.len() });
        }
        let is_refused = |character: &char| {
            character.is_control()
                || matches!(character, '/' | '\\' | '\u{2028}' | '\u{2029}')
                || is_invisible(*character)
        };
        if let Some(character) = name.chars().find(is_refused) {
            return Err(ArtifactNameError::Character { character });
        }
        if matches!(name.as_str(), "." | "..") || name.trim() != name {
            return Err(ArtifactNameError::NotAFileName);
        }
        Ok(Self(name))
    }

    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The environment variable for the artifact's path, unless another artifact has this variable: `ARTIFACT_` and the name in
    /// capitals, with `_` for all characters except ASCII letters and digits.
    #[must_use]
    pub fn variable(&self) -> String {
        let letter = |character: char| match character {
            'a'..='z' | 'A'..='Z' | '0'..='9' => character.to_ascii_uppercase(),
            _ => '_',
        };
        std::iter::once("ARTIFACT_".to_owned()).chain([self.0.chars().map(letter).collect()]).collect()
    }
}

impl fmt::Display for ArtifactName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for ArtifactName {
    type Err = ArtifactNameError;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        Self::new(name)
    }
}

impl TryFrom<String> for ArtifactName {
    type Error = ArtifactNameError;

    fn try_from(name: String) -> Result<Self, Self::Error> {
        Self::new(name)
    }
}

impl From<ArtifactName> for String {
    fn from(name: ArtifactName) -> Self {
        name.0
    }
}

/// A named file or data of a session.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Artifact {
    /// Its name, unique within the session.
    pub name: ArtifactName,
    /// The environment variable with its path. The state machine sets it at the registration: [`ArtifactName::variable`], with a number
    /// appended if another artifact has that.
    #[serde(default)]
    pub variable: String,
    /// Where it comes from.
    pub source: ArtifactSource,
    /// Its media type. For a URL it is a guess from the name until the URL was fetched.
    pub content_type: String,
    /// The origin of its media type. In events of older versions it is guessed.
    #[serde(default, skip_serializing_if = "ContentTypeOrigin::is_guess")]
    pub content_type_origin: ContentTypeOrigin,
    /// Its content in the store; `None`: a URL that was not fetched yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content: Option<ArtifactContent>,
    /// Data of the embedder, which the model does not see.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub metadata: BTreeMap<String, Value>,
}

/// The origin of an artifact's media type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ContentTypeOrigin {
    /// It was derived from the name, the bytes or the URL's server. A better source replaces it.
    #[default]
    Guessed,
    /// The caller of the registration declared it. Nothing replaces it.
    Declared,
}

impl ContentTypeOrigin {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
    fn is_guess(&self) -> bool {
        *self == Self::Guessed
    }
}

/// Where an artifact comes from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ArtifactSource {
    /// A file of the embedder, as it was at the registration.
    File {
        /// Its path at that time. The model does not see it.
        path: PathBuf,
    },
    /// A URL, which is fetched when its content is first needed.
    Url {
        /// The URL.
        url: String,
    },
    /// Bytes from the embedder.
    Content,
}

/// Content in a store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArtifactContent {
    /// Its digest.
    pub digest: Digest,
    /// Its size in bytes.
    pub size: u64,
}

/// The fetched content of an artifact's URL.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FetchedArtifact {
    /// The name of the artifact.
    pub name: ArtifactName,
    /// The URL that was fetched. An artifact that has another URL by now does not change.
    pub url: String,
    /// The media type.
    pub content_type: String,
    /// The content.
    pub content: ArtifactContent,
}

/// An artifact that was uploaded to the model's service for its containers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UploadedArtifact {
    /// The name of the artifact.
    pub name: ArtifactName,
    /// The digest of the uploaded content. An artifact with other content is uploaded again.
    pub digest: Digest,
    /// The upload block, which puts it into a container. It is sent with the user's message.
    pub block: Block,
}

impl Artifact {
    /// An artifact with a guessed media type, without metadata. It has no variable before its registration.
    pub fn new(
        name: ArtifactName,
        source: ArtifactSource,
        content_type: impl Into<String>,
        content: Option<ArtifactContent>,
    ) -> Self {
        Self {
            name,
            variable: String::new(),
            source,
            content_type: content_type.into(),
            content_type_origin: ContentTypeOrigin::Guessed,
            content,
            metadata: BTreeMap::new(),
        }
    }

    /// Its media type after its URL was fetched with this media type. A declared one stays.
    #[must_use]
    pub fn content_type_of_fetched<'a>(&'a self, fetched: &'a str) -> &'a str {
        match self.content_type_origin {
            ContentTypeOrigin::Declared => &self.content_type,
            ContentTypeOrigin::Guessed => fetched,
        }
    }

    /// Its size in bytes, if known.
    #[must_use]
    pub fn size(&self) -> Option<u64> {
        self.content.as_ref().map(|content| content.size)
    }

    /// Sets the fetched content, if it still has that URL.
    pub(crate) fn update_fetched(&mut self, fetched: &FetchedArtifact) {
        if matches!(&self.source, ArtifactSource::Url { url } if *url == fetched.url) {
            self.content_type = self.content_type_of_fetched(&fetched.content_type).to_owned();
            self.content = Some(fetched.content.clone());
        }
    }
}

/// The variable of a new artifact: its own, or the first free one with a number appended.
pub(crate) fn free_variable(name: &ArtifactName, others: &[Arc<Artifact>]) -> String {
    let base = name.variable();
    let is_free = |variable: &String| others.iter().all(|other| other.variable != *variable);
    let numbered = (2..).map(|number: u32| format!("{base}_{number}"));
    std::iter::once(base.clone()).chain(numbered).find(is_free).unwrap_or(base)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_files_and_hide_nothing() {
        for name in ["sales", "Q3 report.xlsx", "a-b_c.tar.gz", "Übersicht", "...", "数据.csv"] {
            assert_eq!(ArtifactName::new(name).unwrap().as_str(), name);
        }
        for name in ["", ".", "..", "a/b", "a\\b", "a\0", "a\nb", " a", "a ", "a\u{202E}b", "\u{FEFF}"] {
            assert!(ArtifactName::new(name).is_err(), "{name:?}");
        }
        let unseen = "\u{AD}\u{34F}\u{61C}\u{115F}\u{1160}\u{17B4}\u{180B}\u{180E}\u{206A}\u{3164}\u{FE00}\u{FE0F}\u{FFA0}\u{FFF9}\u{E0000}\u{E0041}\u{E007F}\u{E0100}";
        for character in unseen.chars() {
            let error = ArtifactName::new(format!("a{character}b"));
            assert_eq!(error, Err(ArtifactNameError::Character { character }));
        }
        assert!(ArtifactName::new("a".repeat(128)).is_ok());
        assert_eq!(ArtifactName::new("a".repeat(129)), Err(ArtifactNameError::TooLong { length: 129 }));
        assert!(serde_json::from_str::<ArtifactName>(r#""../a""#).is_err());
    }
}
