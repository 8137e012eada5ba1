//! References as models and users write them (ADR-0018, section 1): `skill://NAME/PATH`, `file://NAME` and URLs.
//!
//! A reference is read once and exactly. Percent-encoding (RFC 3986, section 2.1) is decoded a single time, so `%252e` is a name with
//! `%2e` in it; what could be read in two ways is refused and says how to write it. Schemes are read in any case of their letters,
//! names in none but their own. Characters that an URI would have to encode may stand there as they are, since models write them so,
//! but for those that mean something in a URI: `%`, `?`, `#`, and in names `@` and `:`. [`fmt::Display`] writes the one normal form,
//! and reading that gives the same again. It owns no state.

use std::fmt;
use std::path::Path;
use std::str::FromStr;

use conjure_conversation::ArtifactName;

use crate::error::ArtifactError;
use crate::shown::shown_text;

/// The most bytes of a reference.
const MOST_BYTES: usize = 8 * 1024;

/// How much of a reference an error shows, in characters.
const SHOWN: usize = 200;

/// What something of a session is called, instead of by a path.
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
        /// The skill's name, decoded. Whether there is such a skill is not known here.
        skill: String,
        /// Which of its files.
        path: SkillPath,
    },
    /// An artifact of the session.
    File {
        /// Its name.
        name: ArtifactName,
    },
    /// What an `https://` or `http://` URL leads to: as it was written, but for the scheme's letters, which are small.
    Url(String),
}

/// Where a file lies in its skill: relative, without `.`, `..`, empty names, backslashes and control characters.
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
    /// Reads a reference.
    ///
    /// # Errors
    /// `InvalidUri` with what is wrong and how to write it, `PathTraversal` for `..` in a skill's path, however it is encoded.
    pub fn parse(text: &str) -> Result<Self, ArtifactError> {
        if text.len() > MOST_BYTES {
            let reason = format!("it has {} bytes, and the most is {MOST_BYTES}", text.len());
            return Err(invalid(text, reason));
        }
        let Some((scheme, rest)) = split(text) else {
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

    /// Whether a text is meant as a reference: it begins with one of the schemes. [`Self::parse`] says whether it is a good one.
    #[must_use]
    pub fn is_reference(text: &str) -> bool {
        split(text).is_some()
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
    /// Checks a path, which is not encoded.
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

    /// The path, relative to the skill's folder.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The same as a path.
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

/// The normal form: all that is no letter, digit, `-`, `.`, `_` or `~` of ASCII is percent-encoded, but for URLs, which are as they
/// were written.
impl fmt::Display for ArtifactUri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Skill { skill, path } => {
                write!(f, "skill://{}", Encoded(skill))?;
                path.0.split('/').try_for_each(|segment| write!(f, "/{}", Encoded(segment)))
            }
            Self::File { name } => write!(f, "file://{}", Encoded(name.as_str())),
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

/// The scheme, and what stands behind its `://`.
fn split(text: &str) -> Option<(Scheme, &str)> {
    let (written, rest) = text.split_once("://")?;
    let (_, scheme) = SCHEMES.iter().find(|(name, _)| written.eq_ignore_ascii_case(name))?;
    Some((*scheme, rest))
}

fn parse_skill(text: &str, rest: &str) -> Result<ArtifactUri, ArtifactError> {
    refuse_query(text, rest)?;
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
    refuse_authority(text, name, "a skill")?;
    let skill = decode(text, name)?;
    if skill.contains(['/', '\\']) || skill == "." || skill == ".." || has_control(&skill) {
        return Err(invalid(text, format!("`{}` is no name of a skill", skill.escape_debug())));
    }
    let mut decoded = String::with_capacity(path.len());
    for (at, segment) in path.split('/').enumerate() {
        let segment = decode(text, segment)?;
        if segment.contains('/') {
            let reason = "an encoded `/` (`%2F`) can be no part of a file's name: write `/` between folders";
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
    refuse_query(text, rest)?;
    if rest.is_empty() || rest.contains(['/', '\\']) {
        return Err(invalid(text, MEANING.to_owned()));
    }
    refuse_authority(text, rest, "an artifact")?;
    let name = decode(text, rest)?;
    if name.contains(['/', '\\']) {
        return Err(invalid(text, MEANING.to_owned()));
    }
    let name = ArtifactName::new(name).map_err(|error| invalid(text, error.to_string()))?;
    Ok(ArtifactUri::File { name })
}

/// What a URL is in detail is for who fetches it; here are refused what no URL has, and what hides where one leads.
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

fn refuse_query(text: &str, rest: &str) -> Result<(), ArtifactError> {
    match rest.chars().find(|character| matches!(character, '?' | '#')) {
        None => Ok(()),
        Some('?') => Err(invalid(text, "it has no query: write a `?` in a name as `%3F`".to_owned())),
        Some(_) => Err(invalid(text, "it has no fragment: write a `#` in a name as `%23`".to_owned())),
    }
}

/// The place of a name is that of a host in a URL, where these two mean a user and a port.
fn refuse_authority(text: &str, name: &str, what: &str) -> Result<(), ArtifactError> {
    if name.contains('@') {
        let reason =
            format!("no user stands in front of the name: write an `@` in the name of {what} as `%40`");
        return Err(invalid(text, reason));
    }
    if name.contains(':') {
        let reason = format!("no port stands behind the name: write a `:` in the name of {what} as `%3A`");
        return Err(invalid(text, reason));
    }
    Ok(())
}

fn check_segment(text: &str, path: &str, segment: &str) -> Result<(), ArtifactError> {
    match segment {
        ".." => Err(ArtifactError::PathTraversal { path: shown(path) }),
        "." => Err(invalid(text, "its path has a `.` between its folders: leave it out".to_owned())),
        "" => Err(invalid(
            text,
            "its path has an empty name: no `/` in front, at the end, or two in a row".to_owned(),
        )),
        _ if segment.contains('\\') => {
            Err(invalid(text, "its path has a backslash: write `/` between folders".to_owned()))
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
    let mut bytes = Vec::with_capacity(encoded.len());
    let mut rest = encoded.as_bytes();
    while let Some((first, behind)) = rest.split_first() {
        rest = behind;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let digit = |at: usize| behind.get(at).and_then(|byte| char::from(*byte).to_digit(16));
        let (Some(high), Some(low)) = (digit(0), digit(1)) else {
            let reason = "behind a `%` stand two hexadecimal digits: write a `%` in a name as `%25`";
            return Err(invalid(text, reason.to_owned()));
        };
        bytes.extend(u8::try_from(high * 16 + low));
        rest = behind.get(2..).unwrap_or_default();
    }
    if bytes.contains(&0) {
        return Err(invalid(text, "a name has no zero byte".to_owned()));
    }
    String::from_utf8(bytes).map_err(|_| invalid(text, "what it encodes is not UTF-8".to_owned()))
}

/// A part of a URI.
struct Encoded<'a>(&'a str);

impl fmt::Display for Encoded<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.bytes().try_for_each(|byte| match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                fmt::Write::write_char(f, char::from(byte))
            }
            _ => write!(f, "%{byte:02X}"),
        })
    }
}

fn invalid(text: &str, reason: String) -> ArtifactError {
    // What names something of the session is no secret; a URL, or what may have been meant as one, can hold some.
    let uri = match split(text) {
        Some((Scheme::Skill | Scheme::File, _)) => shown(text),
        Some((Scheme::Http | Scheme::Https, _)) | None => shown_text(text),
    };
    ArtifactError::InvalidUri { uri, reason }
}

/// A text of a model's for a message: its control characters escaped, cut.
fn shown(text: &str) -> String {
    let mut shown = String::new();
    for (at, character) in text.chars().enumerate() {
        if at == SHOWN {
            shown.push('…');
            break;
        }
        if character.is_control() {
            shown.extend(character.escape_default());
        } else {
            shown.push(character);
        }
    }
    shown
}

#[cfg(test)]
mod tests;
