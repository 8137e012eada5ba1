//! The rules of an `allowed-tools` text.

use super::error::AllowRuleError;
use super::rule::AllowRule;
use crate::diagnostic::{Diagnostic, RuleId, Severity};

/// The maximum number of rules in a text, and of characters in a rule.
const MAX_RULES: usize = 256;
const MAX_RULE_CHARS: usize = 1024;
/// The number of characters of a rule that a finding shows.
const MAX_QUOTED_CHARS: usize = 64;

/// The valid rules of an `allowed-tools` text, in its order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AllowedTools {
    rules: Box<[AllowRule]>,
}

impl AllowedTools {
    /// Parses an `allowed-tools` text. An invalid rule is a warning, and approves nothing.
    ///
    /// ```
    /// use conjure_skill::AllowedTools;
    ///
    /// let (allowed, problems) = AllowedTools::parse("Bash(git:*) Read");
    /// assert!(problems.is_empty());
    /// assert!(allowed.matches("bash_tool", Some("git status")));
    /// assert!(!allowed.matches("bash_tool", Some("git status; rm -rf /")));
    /// assert!(allowed.matches("view", Some("/workspace/notes.md")));
    /// ```
    #[must_use]
    pub fn parse(text: &str) -> (Self, Vec<Diagnostic>) {
        let mut rules: Vec<AllowRule> = Vec::new();
        let mut problems = Vec::new();
        let mut problem =
            |message| problems.push(Diagnostic::new(RuleId::AllowedTools, Severity::Warning, message, ""));
        for (index, word) in Words(text).enumerate() {
            if index == MAX_RULES {
                problem(format!("only the first {MAX_RULES} rules of `allowed-tools` are read"));
                break;
            }
            let rule = if word.chars().nth(MAX_RULE_CHARS).is_some() {
                Err(AllowRuleError::TooLong { limit: MAX_RULE_CHARS })
            } else {
                word.parse()
            };
            match rule {
                Ok(rule) if rules.contains(&rule) => {}
                Ok(rule) => rules.push(rule),
                Err(error) => problem(format!(
                    "the rule `{}` of `allowed-tools` approves nothing: {error}",
                    quote(word)
                )),
            }
        }
        (Self { rules: rules.into() }, problems)
    }

    /// The rules.
    #[must_use]
    pub fn rules(&self) -> &[AllowRule] {
        &self.rules
    }

    /// Whether there is no rule.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// Whether one of the rules matches this call: see [`AllowRule::matches`].
    #[must_use]
    pub fn matches(&self, tool: &str, subject: Option<&str>) -> bool {
        self.rules.iter().any(|rule| rule.matches(tool, subject))
    }
}

/// Splits a text at spaces and commas outside parentheses. An unclosed parenthesis extends to the end.
struct Words<'a>(&'a str);

impl<'a> Iterator for Words<'a> {
    type Item = &'a str;

    fn next(&mut self) -> Option<&'a str> {
        let is_separator = |c: char| c.is_whitespace() || c == ',';
        let text = self.0.trim_start_matches(is_separator);
        if text.is_empty() {
            return None;
        }
        let mut depth = 0_usize;
        let end = text.char_indices().find_map(|(at, c)| {
            match c {
                '(' => depth += 1,
                ')' => depth = depth.saturating_sub(1),
                _ => {}
            }
            (depth == 0 && is_separator(c)).then_some(at)
        });
        let (word, rest) = text.split_at(end.unwrap_or(text.len()));
        self.0 = rest;
        Some(word)
    }
}

/// The start of a rule, in one line, for messages.
fn quote(word: &str) -> String {
    let mut quoted: String =
        word.chars().take(MAX_QUOTED_CHARS).map(|c| if c.is_control() { ' ' } else { c }).collect();
    if word.chars().nth(MAX_QUOTED_CHARS).is_some() {
        quoted.push('…');
    }
    quoted
}
