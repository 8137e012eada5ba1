//! The artifacts of a session: files and data that it is given, by name (ADR-0018).
//!
//! What is recorded here is what they are, not their bytes: those lie in a store, under their digests, or where a URL leads. All of
//! it is changed by recorded events alone, so a revived session has the same.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

use conjure_base::Digest;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::content::Block;

/// The most artifacts that a session may have at a time.
pub const ARTIFACT_LIMIT: usize = 1_000;

/// The name of an artifact: one that a file may have, of at most 128 bytes, without control characters.
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

/// Why a text is no name of an artifact.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ArtifactNameError {
    /// It is empty.
    #[error("the name of an artifact is empty")]
    Empty,
    /// It has more bytes than a name may have.
    #[error("the name of an artifact has {length} bytes, and the most is {}", ArtifactName::MOST_BYTES)]
    TooLong {
        /// How many.
        length: usize,
    },
    /// It has a character that no name may have.
    #[error(
        "the name of an artifact has the character {character:?}: take letters, digits, `.`, `-`, `_` and spaces"
    )]
    Character {
        /// Which.
        character: char,
    },
    /// It is `.` or `..`, or begins or ends with a space.
    #[error("the name of an artifact is `.` or `..`, or begins or ends with a space")]
    NotAFileName,
}

impl ArtifactName {
    /// The most bytes that a name has.
    pub const MOST_BYTES: usize = 128;

    /// Checks a name.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn new(name: impl Into<String>) -> Result<Self, ArtifactNameError> {
        let name = name.into();
        if name.is_empty() {
            return Err(ArtifactNameError::Empty);
        }
        if name.len() > Self::MOST_BYTES {
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

    /// The variable that commands find its path in, where no other artifact has it: `ARTIFACT_` and the name in capitals, with `_` for
    /// all but ASCII letters and digits.
    #[must_use]
    pub fn variable(&self) -> String {
        let letter = |character: char| match character {
            'a'..='z' | 'A'..='Z' | '0'..='9' => character.to_ascii_uppercase(),
            _ => '_',
        };
        std::iter::once("ARTIFACT_".to_owned()).chain([self.0.chars().map(letter).collect()]).collect()
    }
}

/// Characters that change how others are shown, or are not shown: two names that look the same would not be, and a name could say to a
/// model what its user does not see.
const fn is_invisible(character: char) -> bool {
    matches!(
        character,
        '\u{00AD}'
            | '\u{034F}'
            | '\u{061C}'
            | '\u{115F}'..='\u{1160}'
            | '\u{17B4}'..='\u{17B5}'
            // Mongolian variation selectors and the vowel separator.
            | '\u{180B}'..='\u{180F}'
            | '\u{200B}'..='\u{200F}'
            | '\u{202A}'..='\u{202E}'
            | '\u{2060}'..='\u{206F}'
            | '\u{3164}'
            | '\u{FE00}'..='\u{FE0F}'
            | '\u{FEFF}'
            | '\u{FFA0}'
            | '\u{FFF9}'..='\u{FFFB}'
            // Tags and more variation selectors.
            | '\u{E0000}'..='\u{E0FFF}'
    )
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

/// A file or data that a session is given.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Artifact {
    /// Its name; no two of a session have the same.
    pub name: ArtifactName,
    /// The variable in which commands find its path. Given by the machine when it is registered: [`ArtifactName::variable`], with a
    /// number behind it where another artifact has that.
    #[serde(default)]
    pub variable: String,
    /// Where it comes from.
    pub source: ArtifactSource,
    /// Its media type, as far as it is known: of a URL's, a guess by its name until it was fetched.
    pub content_type: String,
    /// Where its media type is from. Older records do not say so: theirs count as guessed.
    #[serde(default, skip_serializing_if = "ContentTypeOrigin::is_guess")]
    pub content_type_origin: ContentTypeOrigin,
    /// Its bytes in the store; none: a URL that was not fetched yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content: Option<ArtifactContent>,
    /// What the host says of it; the model is not shown it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub metadata: BTreeMap<String, Value>,
}

/// Where the media type of an artifact is from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ContentTypeOrigin {
    /// From names, bytes, or the word of a URL's server: what is known better later replaces it.
    #[default]
    Guessed,
    /// From whoever registered it: nothing replaces it.
    Declared,
}

impl ContentTypeOrigin {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
    fn is_guess(&self) -> bool {
        *self == Self::Guessed
    }
}

/// Where an artifact comes from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ArtifactSource {
    /// A file of the host's, as it was when it was registered.
    File {
        /// Where it lay then. For the host: the model is not shown it.
        path: PathBuf,
    },
    /// A URL, fetched when somebody first wants what it leads to.
    Url {
        /// The URL.
        url: String,
    },
    /// Bytes that the host gave.
    Content,
}

/// Bytes in a store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArtifactContent {
    /// Their digest.
    pub digest: Digest,
    /// How many.
    pub size: u64,
}

/// What an artifact's URL led to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FetchedArtifact {
    /// Which artifact.
    pub name: ArtifactName,
    /// The URL that was fetched: an artifact that has another one by now is left alone.
    pub url: String,
    /// The media type.
    pub content_type: String,
    /// The bytes.
    pub content: ArtifactContent,
}

/// An artifact that the model's service was given for its containers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UploadedArtifact {
    /// Which artifact.
    pub name: ArtifactName,
    /// Which bytes of it: an artifact of other bytes is given anew.
    pub digest: Digest,
    /// The block that puts it into a container, as the service wants it; it goes to the model with the user's words.
    pub block: Block,
}

impl Artifact {
    /// An artifact without metadata, whose media type is a guess, and which has no variable before it is registered.
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

    /// Its media type when its URL led to something of this one, by the server's word or the bytes: what was declared stays.
    #[must_use]
    pub fn content_type_of_fetched<'a>(&'a self, fetched: &'a str) -> &'a str {
        match self.content_type_origin {
            ContentTypeOrigin::Declared => &self.content_type,
            ContentTypeOrigin::Guessed => fetched,
        }
    }

    /// Its size in bytes, where that is known.
    #[must_use]
    pub fn size(&self) -> Option<u64> {
        self.content.as_ref().map(|content| content.size)
    }

    /// Takes in what its URL led to, if it is still of that URL.
    pub(crate) fn fetched(&mut self, fetched: &FetchedArtifact) {
        if matches!(&self.source, ArtifactSource::Url { url } if *url == fetched.url) {
            self.content_type = self.content_type_of_fetched(&fetched.content_type).to_owned();
            self.content = Some(fetched.content.clone());
        }
    }
}

/// The variable of a new artifact beside these: its own, or the first of those with a number behind it that is free.
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
