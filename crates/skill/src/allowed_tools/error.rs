//! The error of parsing a rule.

/// Why a rule cannot be parsed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AllowRuleError {
    /// The tool name is invalid.
    #[error("a tool's name is letters, digits and `_`, `-`, `.`, `:`, `/`, without wildcards")]
    Tool,
    /// The parentheses do not match.
    #[error("write it as `TOOL` or `TOOL(PATTERN)`, the last character being the closing parenthesis")]
    Parentheses,
    /// The parentheses are empty.
    #[error("there is no pattern between its parentheses; leave them out to mean every call")]
    EmptyPattern,
    /// The pattern cannot be understood.
    #[error("{reason}")]
    Pattern {
        /// The supported form.
        reason: &'static str,
    },
    /// It is too long.
    #[error("it has more than {limit} characters")]
    TooLong {
        /// The maximum number of characters.
        limit: usize,
    },
}
