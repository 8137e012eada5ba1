//! The tool calls that a skill asks to make without approval: the rules of its `allowed-tools`.
//!
//! A rule is `TOOL` or `TOOL(PATTERN)`. Rules are separated by spaces or commas. The format does not define
//! patterns, and skills are written for other systems, so an unknown pattern approves nothing. The embedder
//! decides whether rules count at all: a skill only asks.
//!
//! Pure: texts go in, rules and findings come out.

mod error;
mod glob;
mod pattern;
mod rule;
mod rules;

pub use error::AllowRuleError;
pub use glob::Glob;
pub use pattern::Pattern;
pub use rule::AllowRule;
pub use rules::AllowedTools;

#[cfg(test)]
mod tests;
