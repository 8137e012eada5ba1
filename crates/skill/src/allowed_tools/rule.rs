//! One rule: a tool, and a pattern for its calls.

use std::fmt;
use std::str::FromStr;

use super::error::AllowRuleError;
use super::pattern::Pattern;

/// The names that other systems use for our tools.
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
/// Its text form parses to the same rule, and uses our tool names: `Bash(git:*)` becomes `bash_tool(git:*)`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct AllowRule {
    tool: String,
    pattern: Option<Pattern>,
}

impl AllowRule {
    /// The tool's name, translated to ours where there is one.
    #[must_use]
    pub fn tool(&self) -> &str {
        &self.tool
    }

    /// The pattern of the calls. `None`: all calls of the tool.
    #[must_use]
    pub const fn pattern(&self) -> Option<&Pattern> {
        self.pattern.as_ref()
    }

    /// Whether the rule matches a call of this tool. The subject is the command line of `bash_tool`, or the path
    /// of a file tool. A rule with a pattern matches no call without a subject.
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
        let canonical = NAMES.iter().find(|(alias, _)| *alias == name).map(|(_, canonical)| *canonical);
        let tool = canonical.unwrap_or(name).to_owned();
        let pattern = match pattern {
            None => None,
            Some("") => return Err(AllowRuleError::EmptyPattern),
            Some(pattern) if tool == BASH => Some(Pattern::parse_command(pattern)?),
            Some(pattern) if FILE_TOOLS.contains(&&*tool) => Some(Pattern::parse_path(pattern)?),
            Some(pattern) => Some(Pattern::parse_other(pattern)?),
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

/// Whether all parentheses match.
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
