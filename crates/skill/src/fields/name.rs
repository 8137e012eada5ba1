//! A skill's name: its key for models, catalogs and sandboxes.

use std::borrow::Cow;
use std::fmt;

use conjure_base::text::classify_chars;
use serde::{Deserialize, Serialize};
use unicode_normalization::UnicodeNormalization as _;
use unicode_normalization::char::is_combining_mark;

use crate::diagnostic::RuleId;

/// The maximum number of code points of a valid name.
pub const MAX_NAME_CHARS: usize = 64;

/// The maximum length of any name in bytes, including lenient names. It is a directory's name in a sandbox.
const MAX_NAME_BYTES: usize = 255;

/// A skill's name, in Unicode's NFKC form.
///
/// [`SkillName::new`] follows the format's rules: 1 to 64 code points, lowercase letters and digits of any script,
/// and single hyphens between them. A leniently loaded skill may have another name, but only one that can name a
/// directory (see [`SkillName::lenient`]).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct SkillName(String);

impl SkillName {
    /// Creates a valid name from `text`, after trimming it and converting it to NFKC form.
    ///
    /// # Errors
    /// With every rule that the text breaks.
    pub fn new(text: impl AsRef<str>) -> Result<Self, SkillNameError> {
        let name = normalised(text.as_ref()).into_owned();
        let problems = problems_of(&name);
        if problems.is_empty() { Ok(Self(name)) } else { Err(SkillNameError { problems }) }
    }

    /// Creates the name of a leniently loaded skill. Also returns the rules that it breaks.
    ///
    /// # Errors
    /// When the text is blank, longer than 255 bytes, `.` or `..`, or has a slash, a control character or a hidden one.
    /// Such a name cannot be a directory's, and cannot stand in one line of a prompt.
    pub fn lenient(text: impl AsRef<str>) -> Result<(Self, Vec<NameProblem>), SkillNameError> {
        let name = normalised(text.as_ref()).into_owned();
        if name.is_empty() {
            return Err(SkillNameError { problems: vec![NameProblem::Empty] });
        }
        let dots = name == "." || name == "..";
        let is_unsafe = |(c, is_deceptive): (char, bool)| c == '/' || c.is_control() || is_deceptive;
        if dots || name.len() > MAX_NAME_BYTES || classify_chars(&name).any(is_unsafe) {
            return Err(SkillNameError { problems: vec![NameProblem::Unsafe { name }] });
        }
        let problems = problems_of(&name);
        Ok((Self(name), problems))
    }

    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl AsRef<str> for SkillName {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl std::borrow::Borrow<str> for SkillName {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for SkillName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<SkillName> for String {
    fn from(name: SkillName) -> Self {
        name.0
    }
}

/// Deserializes names from a session, including names of leniently loaded skills.
impl TryFrom<String> for SkillName {
    type Error = SkillNameError;

    fn try_from(text: String) -> Result<Self, SkillNameError> {
        Self::lenient(text).map(|(name, _)| name)
    }
}

/// A rule that a name breaks. The messages are those of the reference validator.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NameProblem {
    /// It is blank.
    #[error("Field 'name' must be a non-empty string")]
    Empty,
    /// More than [`MAX_NAME_CHARS`] code points.
    #[error("Skill name '{name}' exceeds {MAX_NAME_CHARS} character limit ({chars} chars)")]
    TooLong {
        /// The name, in NFKC form.
        name: String,
        /// Its code points.
        chars: usize,
    },
    /// A letter has a lowercase form that differs.
    #[error("Skill name '{name}' must be lowercase")]
    NotLowercase {
        /// The name, in NFKC form.
        name: String,
    },
    /// The first or the last character is a hyphen.
    #[error("Skill name cannot start or end with a hyphen")]
    EdgeHyphen,
    /// Two hyphens stand side by side.
    #[error("Skill name cannot contain consecutive hyphens")]
    DoubleHyphen,
    /// It contains other characters than letters, digits and hyphens.
    #[error(
        "Skill name '{name}' contains invalid characters. Only letters, digits, and hyphens are allowed."
    )]
    Characters {
        /// The name, in NFKC form.
        name: String,
    },
    /// It cannot be the name of a directory, or it has hidden characters, so it is refused even in lenient mode.
    #[error("skill name '{}' has hidden characters, or cannot be the name of a directory", name.escape_debug())]
    Unsafe {
        /// The name, in NFKC form.
        name: String,
    },
}

impl NameProblem {
    /// The rule that is broken.
    #[must_use]
    pub const fn rule(&self) -> RuleId {
        match self {
            Self::Empty => RuleId::NameEmpty,
            Self::TooLong { .. } => RuleId::NameTooLong,
            Self::NotLowercase { .. } => RuleId::NameNotLowercase,
            Self::EdgeHyphen => RuleId::NameEdgeHyphen,
            Self::DoubleHyphen => RuleId::NameDoubleHyphen,
            Self::Characters { .. } => RuleId::NameCharacters,
            Self::Unsafe { .. } => RuleId::NameUnsafe,
        }
    }
}

/// The text is not a valid skill name. It holds every broken rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SkillNameError {
    problems: Vec<NameProblem>,
}

impl SkillNameError {
    /// The broken rules, in the reference validator's order; at least one.
    #[must_use]
    pub fn problems(&self) -> &[NameProblem] {
        &self.problems
    }
}

impl fmt::Display for SkillNameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.problems.iter().enumerate() {
            let separator = if index == 0 { "" } else { "; " };
            write!(f, "{separator}{problem}")?;
        }
        Ok(())
    }
}

impl std::error::Error for SkillNameError {}

/// The trimmed text in NFKC form. Names are compared by it.
pub(crate) fn normalised(text: &str) -> Cow<'_, str> {
    nfkc(strip(text))
}

/// The NFKC form of a text.
pub(crate) fn nfkc(text: &str) -> Cow<'_, str> {
    if text.is_ascii() { Cow::Borrowed(text) } else { Cow::Owned(text.nfkc().collect()) }
}

/// Trims the text. Space is what the reference implementation trims: Unicode white space and the four ASCII
/// separators.
pub(crate) fn strip(text: &str) -> &str {
    text.trim_matches(|c: char| c.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&c))
}

/// The rules that a normalised name breaks, in the reference validator's order.
fn problems_of(name: &str) -> Vec<NameProblem> {
    if name.is_empty() {
        return vec![NameProblem::Empty];
    }
    let mut problems = Vec::new();
    let chars = name.chars().count();
    if chars > MAX_NAME_CHARS {
        problems.push(NameProblem::TooLong { name: name.to_owned(), chars });
    }
    let is_lowercase = if name.is_ascii() {
        !name.contains(|c: char| c.is_ascii_uppercase())
    } else {
        name.to_lowercase() == name
    };
    if !is_lowercase {
        problems.push(NameProblem::NotLowercase { name: name.to_owned() });
    }
    if name.starts_with('-') || name.ends_with('-') {
        problems.push(NameProblem::EdgeHyphen);
    }
    if name.contains("--") {
        problems.push(NameProblem::DoubleHyphen);
    }
    if !name.chars().all(|c| c == '-' || is_letter_or_number(c)) {
        problems.push(NameProblem::Characters { name: name.to_owned() });
    }
    problems
}

/// Whether the character's general category is letter or number. The standard library tests the property
/// `Alphabetic`, which some marks and symbols also have.
fn is_letter_or_number(c: char) -> bool {
    let circled_or_squared = matches!(c, '\u{24b6}'..='\u{24e9}' | '\u{1f130}'..='\u{1f189}');
    c.is_alphanumeric() && !is_combining_mark(c) && !circled_or_squared
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: &[&str]) {
        let messages: Vec<_> = match SkillName::new(text) {
            Ok(_) => Vec::new(),
            Err(error) => error.problems().iter().map(ToString::to_string).collect(),
        };
        assert_eq!(messages, expected, "{text:?}");
    }

    #[test]
    fn names_accepted_by_the_reference_are_valid() {
        let limit = "é".repeat(64);
        for text in ["a", "0", "my-skill", "  padded  ", "skill-2", "навык", "技能", "ﬁle", "\u{1c}a", &limit]
        {
            check(text, &[]);
        }
    }

    #[test]
    fn a_name_is_kept_in_its_normal_form() {
        assert_eq!(SkillName::new("ﬁle-ｘ").unwrap().as_str(), "file-x");
        assert_eq!(SkillName::new("cafe\u{301}").unwrap().as_str(), "café");
    }

    #[test]
    fn each_broken_rule_has_the_references_message() {
        let long = "a".repeat(65);
        check(" \u{a0} ", &["Field 'name' must be a non-empty string"]);
        check("My-Skill", &["Skill name 'My-Skill' must be lowercase"]);
        check(&long, &[&format!("Skill name '{long}' exceeds 64 character limit (65 chars)")]);
        check("-a", &["Skill name cannot start or end with a hyphen"]);
        check("a--b", &["Skill name cannot contain consecutive hyphens"]);
        for name in ["a_b", "a b", "a/b", "\u{94d}a\u{94d}", "🅐", "a.b"] {
            let message = format!(
                "Skill name '{name}' contains invalid characters. Only letters, digits, and hyphens are allowed."
            );
            check(name, &[&message]);
        }
    }

    #[test]
    fn a_lenient_name_is_still_a_directory_name() {
        let (name, problems) = SkillName::lenient("My Skill").unwrap();
        assert_eq!(name.as_str(), "My Skill");
        assert_eq!(problems.len(), 2);
        let long = "a".repeat(256);
        for text in [
            "",
            "..",
            ".",
            "a/b",
            "a\nb",
            "a\0b",
            "a\u{2028}b",
            "a\u{202e}b",
            "a\u{e0041}",
            "a\u{200b}b",
            &long,
        ] {
            assert!(SkillName::lenient(text).is_err(), "{text:?}");
        }
    }
}
