//! One rule: a tool, and of which of its calls it speaks.

use std::fmt;
use std::str::FromStr;

use super::pattern::Pattern;

/// What other systems call the tools that we have under another name.
const NAMES: [(&str, &str); 5] = [
    ("Bash", BASH),
    ("Read", "view"),
    ("Write", "create_file"),
    ("Edit", "str_replace"),
    ("MultiEdit", "str_replace"),
];

const BASH: &str = "bash_tool";
/// The tools whose subject is a path.
const FILE_TOOLS: [&str; 3] = ["view", "create_file", "str_replace"];

/// A rule of an `allowed-tools`: `TOOL`, or `TOOL(PATTERN)`.
///
/// Its text form is read back as the same rule, and has our tools' names: `Bash(git:*)` becomes `bash_tool(git:*)`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct AllowRule {
    tool: String,
    pattern: Option<Pattern>,
}

/// Why a rule is not understood.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AllowRuleError {
    /// What stands where a tool's name is expected is none.
    #[error("a tool's name is letters, digits and `_`, `-`, `.`, `:`, `/`, without wildcards")]
    Tool,
    /// The parentheses do not fit together.
    #[error("write it as `TOOL` or `TOOL(PATTERN)`, the last character being the closing parenthesis")]
    Parentheses,
    /// There is nothing between the parentheses.
    #[error("there is no pattern between its parentheses; leave them out to mean every call")]
    EmptyPattern,
    /// The pattern cannot be understood.
    #[error("{reason}")]
    Pattern {
        /// What is understood instead.
        reason: &'static str,
    },
    /// It is longer than any rule needs to be.
    #[error("it has more than {limit} characters")]
    TooLong {
        /// The most characters.
        limit: usize,
    },
}

impl AllowRule {
    /// The tool's name, as ours where it is one of ours.
    #[must_use]
    pub fn tool(&self) -> &str {
        &self.tool
    }

    /// Of which calls it speaks; none when of all.
    #[must_use]
    pub const fn pattern(&self) -> Option<&Pattern> {
        self.pattern.as_ref()
    }

    /// Whether it speaks of a call of this tool. The subject is what the call is about: the command line of
    /// `bash_tool`, the path of a file tool. A rule with a pattern speaks of no call without a subject.
    #[must_use]
    pub fn matches(&self, tool: &str, subject: Option<&str>) -> bool {
        self.tool == tool
            && match (&self.pattern, subject) {
                (None, _) => true,
                (Some(pattern), Some(subject)) => pattern.matches(subject),
                (Some(_), None) => false,
            }
    }
}

impl FromStr for AllowRule {
    type Err = AllowRuleError;

    fn from_str(text: &str) -> Result<Self, AllowRuleError> {
        let (name, pattern) = match text.split_once('(') {
            None if text.contains(')') => return Err(AllowRuleError::Parentheses),
            None => (text, None),
            Some((name, rest)) => {
                let inner = rest.strip_suffix(')').filter(|inner| is_balanced(inner));
                (name, Some(inner.ok_or(AllowRuleError::Parentheses)?.trim()))
            }
        };
        let is_name = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | ':' | '/');
        if name.is_empty() || !name.chars().all(is_name) {
            return Err(AllowRuleError::Tool);
        }
        let ours = NAMES.iter().find(|(theirs, _)| *theirs == name).map(|(_, ours)| *ours);
        let tool = ours.unwrap_or(name).to_owned();
        let pattern = match pattern {
            None => None,
            Some("") => return Err(AllowRuleError::EmptyPattern),
            Some(pattern) if tool == BASH => Some(Pattern::of_command(pattern)?),
            Some(pattern) if FILE_TOOLS.contains(&&*tool) => Some(Pattern::of_path(pattern)?),
            Some(pattern) => Some(Pattern::of_other(pattern)?),
        };
        Ok(Self { tool, pattern })
    }
}

impl fmt::Display for AllowRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.pattern {
            None => f.write_str(&self.tool),
            Some(pattern) => write!(f, "{}({pattern})", self.tool),
        }
    }
}

/// Whether every parenthesis has its partner.
fn is_balanced(text: &str) -> bool {
    let mut depth = 0_usize;
    for c in text.chars() {
        depth = match (c, depth) {
            ('(', _) => depth + 1,
            (')', 0) => return false,
            (')', _) => depth - 1,
            _ => depth,
        };
    }
    depth == 0
}
