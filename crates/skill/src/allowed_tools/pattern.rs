//! The pattern of a rule, which matches the subject of a call: a command line or a path.

use std::fmt;

use super::error::AllowRuleError;
use super::glob::Glob;

/// Characters that make a command line more than one simple command, or that expand a word.
const SHELL: &[char] = &[';', '&', '|', '<', '>', '$', '(', ')', '`', '{', '}'];
/// Additional characters that a prefix must not contain, since they move the ends of words.
const QUOTING: &[char] = &['\'', '"', '\\', '#', '*', '?', '[', ']', '!', '~', '='];

/// The calls of a tool that a rule matches.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Pattern {
    /// One simple command that begins with these words. Without words: any simple command. Written `git log:*`;
    /// `git log *` is accepted, too. A command line with a character that joins commands, redirects output or
    /// substitutes text is not a simple command, even if the character is quoted.
    CommandPrefix(String),
    /// A path that matches: `*` and `?` within a segment, `**` for any segments. A path with `..` or a scheme
    /// never matches.
    Path(Glob),
    /// The whole subject is this text.
    Exact(String),
}

impl Pattern {
    /// Parses the pattern of a shell command.
    pub(super) fn parse_command(text: &str) -> Result<Self, AllowRuleError> {
        let prefix = match text {
            "*" => Some(""),
            _ => text.strip_suffix(":*").or_else(|| text.strip_suffix(" *")),
        };
        let refused = |reason| Err(AllowRuleError::Pattern { reason });
        match prefix.map(str::trim) {
            Some(prefix) if prefix.contains(|c: char| !is_plain(c) || QUOTING.contains(&c)) => refused(
                "before `:*` only plain words are allowed, without quotes, wildcards or command separators",
            ),
            Some(prefix) => Ok(Self::CommandPrefix(prefix.to_owned())),
            None if text.contains('*') => {
                refused("a command's pattern is `words:*` or the exact command, and has no other wildcards")
            }
            None if text.contains(char::is_control) => refused("a command is one line"),
            None => Ok(Self::Exact(text.to_owned())),
        }
    }

    /// Parses the pattern of a file tool's path.
    pub(super) fn parse_path(text: &str) -> Result<Self, AllowRuleError> {
        Glob::new(text).map(Self::Path)
    }

    /// Parses the pattern of an unknown tool: the literal text, if it has no special characters.
    pub(super) fn parse_other(text: &str) -> Result<Self, AllowRuleError> {
        if text.contains(|c: char| c == '*' || c.is_control()) {
            let reason =
                "wildcards are not supported for this tool; without one, the pattern is an exact text";
            return Err(AllowRuleError::Pattern { reason });
        }
        Ok(Self::Exact(text.to_owned()))
    }

    /// Whether a call's subject matches.
    #[must_use]
    pub fn matches(&self, subject: &str) -> bool {
        match self {
            Self::CommandPrefix(prefix) => is_simple_command(subject) && begins_with(subject.trim(), prefix),
            Self::Path(glob) => glob.matches(subject),
            Self::Exact(text) => subject.trim() == text,
        }
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::CommandPrefix(prefix) if prefix.is_empty() => f.write_str("*"),
            Self::CommandPrefix(prefix) => write!(f, "{prefix}:*"),
            Self::Path(glob) => glob.fmt(f),
            Self::Exact(text) => f.write_str(text),
        }
    }
}

/// Whether a character is literal in any shell and any context, or only quotes.
fn is_plain(c: char) -> bool {
    !SHELL.contains(&c) && (c == '\t' || !c.is_control())
}

fn is_simple_command(line: &str) -> bool {
    !line.trim().is_empty() && line.chars().all(is_plain)
}

/// Whether a command begins with these words.
fn begins_with(command: &str, prefix: &str) -> bool {
    prefix.is_empty()
        || command.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with([' ', '\t']))
}
