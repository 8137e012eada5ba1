//! What a rule says of a call's subject: a command line or a path.

use std::fmt;

use super::glob::Glob;
use super::rule::AllowRuleError;

/// Characters that make more of a command line than one simple command, or of a word more than it says.
const SHELL: &[char] = &[';', '&', '|', '<', '>', '$', '(', ')', '`', '{', '}'];
/// Characters that a prefix must not have besides, since words would no longer end where they seem to.
const QUOTING: &[char] = &['\'', '"', '\\', '#', '*', '?', '[', ']', '!', '~', '='];

/// Of which calls of its tool a rule speaks.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Pattern {
    /// One simple command that begins with these words; with none, any simple command. Written `git log:*`, which is
    /// also read from `git log *`. A command line with a character that joins commands, sends output elsewhere or
    /// puts another text in its place is no simple command, not even where the character is quoted.
    CommandPrefix(String),
    /// A path that fits: `*` and `?` within a segment, `**` for any segments. One with a `..` or a scheme fits none.
    Path(Glob),
    /// The whole subject is this text.
    Exact(String),
}

impl Pattern {
    /// The pattern of a shell's command line.
    pub(super) fn of_command(text: &str) -> Result<Self, AllowRuleError> {
        let prefix = match text {
            "*" => Some(""),
            _ => text.strip_suffix(":*").or_else(|| text.strip_suffix(" *")),
        };
        let refused = |reason| Err(AllowRuleError::Pattern { reason });
        match prefix.map(str::trim) {
            Some(prefix) if prefix.contains(|c: char| !is_plain(c) || QUOTING.contains(&c)) => {
                refused("before `:*` stand plain words, without quotes, wildcards or what joins commands")
            }
            Some(prefix) => Ok(Self::CommandPrefix(prefix.to_owned())),
            None if text.contains('*') => {
                refused("a command's pattern is `words:*` or the exact command, and has no other wildcards")
            }
            None if text.contains(char::is_control) => refused("a command is one line"),
            None => Ok(Self::Exact(text.to_owned())),
        }
    }

    /// The pattern of a file tool's path.
    pub(super) fn of_path(text: &str) -> Result<Self, AllowRuleError> {
        Glob::new(text).map(Self::Path)
    }

    /// The pattern of a tool that is not known here: the text itself, if it seems to mean no more than itself.
    pub(super) fn of_other(text: &str) -> Result<Self, AllowRuleError> {
        if text.contains(|c: char| c == '*' || c.is_control()) {
            let reason =
                "what a wildcard means to this tool is not known; without one, the pattern is an exact text";
            return Err(AllowRuleError::Pattern { reason });
        }
        Ok(Self::Exact(text.to_owned()))
    }

    /// Whether a call's subject fits.
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

/// Whether a character stands for itself in any shell, whatever is around it, or only quotes.
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
