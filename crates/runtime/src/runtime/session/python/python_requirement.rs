//! [`PythonRequirement`]: a Python package that a sandbox is to have.

use std::fmt;

/// The most bytes of a requirement.
const MAX_BYTES: usize = 256;

/// One of these characters must stand at the border between two words. Otherwise `a>=1 --pre` would become the version
/// `1--pre`.
const PUNCTUATION: [char; 8] = ['[', ']', ',', '=', '<', '>', '!', '~'];

/// A Python package by name, with optional extras and version constraints: `pandas`, `requests[socks]>=2.31,<3`.
///
/// The installer gets the text as an argument. So options, paths and addresses are refused.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct PythonRequirement(String);

/// The text is not a valid requirement.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{text}` is no Python package: give its name and, where needed, its versions, such as `pandas` or `requests[socks]>=2.31,<3`"
)]
pub struct PythonRequirementError {
    text: String,
}

impl PythonRequirement {
    /// Parses a requirement.
    ///
    /// # Errors
    /// If the text is anything but a name, extras and versions.
    pub fn new(text: &str) -> Result<Self, PythonRequirementError> {
        let words: Vec<&str> = text.split(' ').filter(|word| !word.is_empty()).collect();
        let compact = words.concat();
        let is_joined =
            words.windows(2).all(|pair| pair[0].ends_with(PUNCTUATION) || pair[1].starts_with(PUNCTUATION));
        if text.len() <= MAX_BYTES && is_joined && is_requirement(&compact) {
            return Ok(Self(compact));
        }
        let shown: String = text.chars().take(MAX_BYTES).flat_map(char::escape_debug).collect();
        Err(PythonRequirementError { text: shown })
    }

    /// The text of the requirement.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for PythonRequirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

fn is_requirement(text: &str) -> bool {
    let end = text.find(['[', '=', '<', '>', '!', '~']).unwrap_or(text.len());
    let (name, mut rest) = text.split_at(end);
    if let Some(extras) = rest.strip_prefix('[') {
        let Some((extras, after)) = extras.split_once(']') else { return false };
        if !extras.split(',').all(is_name) {
            return false;
        }
        rest = after;
    }
    is_name(name) && (rest.is_empty() || rest.split(',').all(is_version))
}

fn is_name(name: &str) -> bool {
    let is_end = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = name.as_bytes();
    is_end(bytes.first())
        && is_end(bytes.last())
        && bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(byte))
}

/// Whether the text is a version constraint, such as `>=2.31`, `==1.*` or `===1.0+local`.
fn is_version(clause: &str) -> bool {
    let operators = ["===", "==", "~=", "!=", "<=", ">=", "<", ">"];
    let version = operators.iter().find_map(|operator| clause.strip_prefix(operator));
    version.is_some_and(|version| {
        let bytes = version.as_bytes();
        bytes.first().is_some_and(u8::is_ascii_alphanumeric)
            && bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || b".*+!-_".contains(byte))
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_requirement_is_a_name_with_extras_and_versions() {
        for (text, expected) in [
            ("pandas", "pandas"),
            ("requests[socks, security] >= 2.31, < 3", "requests[socks,security]>=2.31,<3"),
            ("zope.interface==5.*", "zope.interface==5.*"),
            ("a~=1.4.2", "a~=1.4.2"),
        ] {
            assert_eq!(PythonRequirement::new(text).unwrap().as_str(), expected);
        }
        for wrong in [
            "",
            " ",
            "--index-url=https://example.com",
            "-e.",
            ".",
            "./a",
            "/etc",
            "a/b",
            "https://example.com/a.whl",
            "a@https://example.com/a.whl",
            "a @ file:///etc",
            "a;python_version<'3'",
            "a\nb",
            "a\u{1b}[2J",
            "a[",
            "a[]",
            "a>=",
            "a>=1,",
            "a>=1 --pre",
            "a b",
            "päckchen",
            "a>=-1",
        ] {
            assert!(PythonRequirement::new(wrong).is_err(), "{wrong}");
        }
        assert!(PythonRequirement::new(&"a".repeat(257)).is_err());
    }

    proptest! {
        #[test]
        fn what_is_accepted_is_no_option_path_or_address(text in "[-a-z0-9._\\[\\]<>=!~,/:@ ]{0,20}") {
            if let Ok(requirement) = PythonRequirement::new(&text) {
                let text = requirement.as_str();
                prop_assert!(!text.starts_with(['-', '.']) && !text.contains(['/', ':', '@', ' ']));
                prop_assert_eq!(PythonRequirement::new(text), Ok(requirement.clone()));
            }
        }
    }
}
