//! Parses artifact references (ADR-0018, section 1): `skill://NAME/PATH`, `file://NAME` and URLs.
//!
//! - Percent-encoding (RFC 3986, section 2.1) is decoded once, so `%252e` is a name that contains `%2e`.
//! - An ambiguous reference is refused, with a message that says how to write it.
//! - Schemes are case-insensitive, names are not.
//! - Unencoded characters are accepted, because models write them, except those with a meaning in a URI: `%`, `?`, `#`, and in names
//!   `@` and `:`.
//! - [`fmt::Display`] writes the normal form, which parses to the same reference.

use std::fmt;
use std::path::Path;
use std::str::FromStr;

use conjure_conversation::ArtifactName;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, PercentEncode, percent_decode_str, utf8_percent_encode};

use crate::error::ArtifactError;
use crate::error::safe_excerpt;

/// What is percent-encoded in a reference that is written.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// The longest reference, in bytes.
const MAX_BYTES: usize = 8 * 1024;

/// The longest excerpt of a reference in an error, in characters.
const MAX_EXCERPT_CHARS: usize = 200;

/// A reference to something that a session can use.
///
/// ```
/// use conjure_artifact::ArtifactUri;
///
/// let uri = ArtifactUri::parse("skill://csv-helper/assets/my data.csv")?;
/// assert_eq!(uri.to_string(), "skill://csv-helper/assets/my%20data.csv");
/// assert_eq!(ArtifactUri::parse(&uri.to_string())?, uri);
/// assert!(ArtifactUri::parse("file:///etc/passwd").is_err());
/// # Ok::<(), conjure_artifact::ArtifactError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum ArtifactUri {
    /// A file of a skill.
    Skill {
        /// The skill's name, decoded. The skill need not exist.
        skill: String,
        /// The file's path in the skill.
        path: SkillPath,
    },
    /// An artifact of the session.
    File {
        /// Its name.
        name: ArtifactName,
    },
    /// An `https://` or `http://` URL as it was written, with its scheme in lower case.
    Url(String),
}

/// A relative path of a file in its skill, without `.`, `..`, empty names, backslashes and control characters.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SkillPath(String);

/// The schemes of references.
#[derive(Debug, Clone, Copy)]
enum Scheme {
    Skill,
    File,
    Http,
    Https,
}

const SCHEMES: [(&str, Scheme); 4] =
    [("skill", Scheme::Skill), ("file", Scheme::File), ("https", Scheme::Https), ("http", Scheme::Http)];

impl ArtifactUri {
    /// Parses a reference.
    ///
    /// # Errors
    /// `InvalidUri` with a hint, `PathTraversal` for `..` in a skill's path in any encoding.
    pub fn parse(text: &str) -> Result<Self, ArtifactError> {
        if text.len() > MAX_BYTES {
            let reason = format!("it has {} bytes, and the maximum is {MAX_BYTES}", text.len());
            return Err(invalid(text, reason));
        }
        let Some((scheme, rest)) = split_scheme(text) else {
            return Err(invalid(
                text,
                "a reference begins with `skill://`, `file://` or `https://`".to_owned(),
            ));
        };
        match scheme {
            Scheme::Skill => parse_skill(text, rest),
            Scheme::File => parse_file(text, rest),
            Scheme::Https => parse_url(text, "https", rest),
            Scheme::Http => parse_url(text, "http", rest),
        }
    }

    /// Whether a text begins with one of the schemes. [`Self::parse`] tells whether it is valid.
    #[must_use]
    pub fn is_reference(text: &str) -> bool {
        split_scheme(text).is_some()
    }

    /// The reference to a file of a skill.
    pub fn skill(skill: impl Into<String>, path: SkillPath) -> Self {
        Self::Skill { skill: skill.into(), path }
    }

    /// The reference to an artifact of the session.
    #[must_use]
    pub const fn file(name: ArtifactName) -> Self {
        Self::File { name }
    }
}

impl SkillPath {
    /// Checks an unencoded path.
    ///
    /// # Errors
    /// `PathTraversal` for `..`, else `InvalidUri`.
    pub fn new(path: impl Into<String>) -> Result<Self, ArtifactError> {
        let path = path.into();
        for segment in path.split('/') {
            check_segment(&path, &path, segment)?;
        }
        Ok(Self(path))
    }

    /// The path, relative to the skill's directory.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The path as a [`Path`].
    #[must_use]
    pub fn as_path(&self) -> &Path {
        Path::new(&self.0)
    }
}

impl fmt::Display for SkillPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Writes the normal form: everything except ASCII letters, digits, `-`, `.`, `_` and `~` is percent-encoded. URLs are written
/// unchanged.
impl fmt::Display for ArtifactUri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Skill { skill, path } => {
                write!(f, "skill://{}", encode(skill))?;
                path.0.split('/').try_for_each(|segment| write!(f, "/{}", encode(segment)))
            }
            Self::File { name } => write!(f, "file://{}", encode(name.as_str())),
            Self::Url(url) => f.write_str(url),
        }
    }
}

impl FromStr for ArtifactUri {
    type Err = ArtifactError;

    fn from_str(text: &str) -> Result<Self, ArtifactError> {
        Self::parse(text)
    }
}

/// Splits a text into its scheme and the part after `://`.
fn split_scheme(text: &str) -> Option<(Scheme, &str)> {
    let (written, rest) = text.split_once("://")?;
    let (_, scheme) = SCHEMES.iter().find(|(name, _)| written.eq_ignore_ascii_case(name))?;
    Some((*scheme, rest))
}

fn parse_skill(text: &str, rest: &str) -> Result<ArtifactUri, ArtifactError> {
    reject_query(text, rest)?;
    let (name, path) = rest.split_once('/').ok_or_else(|| {
        invalid(
            text,
            "it names no file: write `skill://NAME/PATH`, such as `skill://csv-helper/assets/a.csv`"
                .to_owned(),
        )
    })?;
    if name.is_empty() {
        return Err(invalid(text, "it names no skill: write `skill://NAME/PATH`".to_owned()));
    }
    reject_authority(text, name, "a skill")?;
    let skill = decode(text, name)?;
    if skill.contains(['/', '\\']) || skill == "." || skill == ".." || has_control(&skill) {
        return Err(invalid(text, format!("`{}` is not a skill name", skill.escape_debug())));
    }
    let mut decoded = String::with_capacity(path.len());
    for (at, segment) in path.split('/').enumerate() {
        let segment = decode(text, segment)?;
        if segment.contains('/') {
            let reason =
                "an encoded `/` (`%2F`) cannot be part of a file's name: write `/` between directories";
            return Err(invalid(text, reason.to_owned()));
        }
        check_segment(text, path, &segment)?;
        if at > 0 {
            decoded.push('/');
        }
        decoded.push_str(&segment);
    }
    Ok(ArtifactUri::Skill { skill, path: SkillPath(decoded) })
}

fn parse_file(text: &str, rest: &str) -> Result<ArtifactUri, ArtifactError> {
    const MEANING: &str = "`file://` is followed by the name of an artifact of the session, such as `file://report`; it names no path of \
                           a machine";
    reject_query(text, rest)?;
    if rest.is_empty() || rest.contains(['/', '\\']) {
        return Err(invalid(text, MEANING.to_owned()));
    }
    reject_authority(text, rest, "an artifact")?;
    let name = decode(text, rest)?;
    if name.contains(['/', '\\']) {
        return Err(invalid(text, MEANING.to_owned()));
    }
    let name = ArtifactName::new(name).map_err(|error| invalid(text, error.to_string()))?;
    Ok(ArtifactUri::File { name })
}

/// Refuses URLs that are malformed or hide their host. The fetcher checks the rest.
fn parse_url(text: &str, scheme: &str, rest: &str) -> Result<ArtifactUri, ArtifactError> {
    if rest.chars().any(|character| character.is_whitespace() || character.is_control()) {
        let reason = "a URL has no spaces and no control characters: encode them, such as a space as `%20`";
        return Err(invalid(text, reason.to_owned()));
    }
    if rest.contains('\\') {
        return Err(invalid(text, "a URL has no backslashes: write `/`, or `%5C`".to_owned()));
    }
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    if authority.is_empty() {
        return Err(invalid(text, format!("it names no host: write `{scheme}://HOST/PATH`")));
    }
    if authority.contains('@') {
        let reason = "it has a user name in front of its host: remove it, and the `@`";
        return Err(invalid(text, reason.to_owned()));
    }
    Ok(ArtifactUri::Url(format!("{scheme}://{rest}")))
}

fn reject_query(text: &str, rest: &str) -> Result<(), ArtifactError> {
    match rest.chars().find(|character| matches!(character, '?' | '#')) {
        None => Ok(()),
        Some('?') => Err(invalid(text, "it has no query: write a `?` in a name as `%3F`".to_owned())),
        Some(_) => Err(invalid(text, "it has no fragment: write a `#` in a name as `%23`".to_owned())),
    }
}

/// Refuses `@` and `:`, which mean a user and a port at this position of a URI.
fn reject_authority(text: &str, name: &str, what: &str) -> Result<(), ArtifactError> {
    if name.contains('@') {
        let reason = format!(
            "a user name is not allowed before the name: write an `@` in the name of {what} as `%40`"
        );
        return Err(invalid(text, reason));
    }
    if name.contains(':') {
        let reason =
            format!("a port is not allowed after the name: write a `:` in the name of {what} as `%3A`");
        return Err(invalid(text, reason));
    }
    Ok(())
}

fn check_segment(text: &str, path: &str, segment: &str) -> Result<(), ArtifactError> {
    match segment {
        ".." => Err(ArtifactError::PathTraversal { path: excerpt(path) }),
        "." => Err(invalid(text, "its path has a `.` between its directories: leave it out".to_owned())),
        "" => Err(invalid(
            text,
            "its path has an empty name: no `/` in front, at the end, or two in a row".to_owned(),
        )),
        _ if segment.contains('\\') => {
            Err(invalid(text, "its path has a backslash: write `/` between directories".to_owned()))
        }
        _ if has_control(segment) => Err(invalid(text, "its path has a control character".to_owned())),
        _ => Ok(()),
    }
}

fn has_control(text: &str) -> bool {
    text.chars().any(char::is_control)
}

/// Decodes percent-encoding, once.
fn decode(text: &str, encoded: &str) -> Result<String, ArtifactError> {
    let is_escape = |after: &str| {
        after.as_bytes().get(..2).is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
    };
    if !encoded.split('%').skip(1).all(is_escape) {
        let reason = "two hexadecimal digits must follow a `%`: write a `%` in a name as `%25`";
        return Err(invalid(text, reason.to_owned()));
    }
    let bytes: Vec<u8> = percent_decode_str(encoded).collect();
    if bytes.contains(&0) {
        return Err(invalid(text, "a name has no zero byte".to_owned()));
    }
    String::from_utf8(bytes).map_err(|_| invalid(text, "the decoded text is not UTF-8".to_owned()))
}

/// Percent-encodes a part of a URI.
fn encode(part: &str) -> PercentEncode<'_> {
    utf8_percent_encode(part, ENCODED)
}

fn invalid(text: &str, reason: String) -> ArtifactError {
    // Names in a session are not secret; a URL can contain secrets.
    let uri = match split_scheme(text) {
        Some((Scheme::Skill | Scheme::File, _)) => excerpt(text),
        Some((Scheme::Http | Scheme::Https, _)) | None => safe_excerpt(text),
    };
    ArtifactError::InvalidUri { uri, reason }
}

/// An excerpt for a message: control characters escaped, shortened.
fn excerpt(text: &str) -> String {
    let mut escaped = String::new();
    for (at, character) in text.chars().enumerate() {
        if at == MAX_EXCERPT_CHARS {
            escaped.push('…');
            break;
        }
        if character.is_control() {
            escaped.extend(character.escape_default());
        } else {
            escaped.push(character);
        }
    }
    escaped
}

#[cfg(test)]
mod tests;
