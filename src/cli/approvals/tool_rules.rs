//! The command line's rules for tools: which ones run without approval, which ones need it, and which ones never run.
//!
//! The rules are stored with the session, so that a resumed session requires at least the same approvals.

use std::collections::BTreeMap;

use conjure::Approver;
use conjure::prompt::{BuiltinTool, SkillTool};
use conjure::tool::{Authorization, CallerIdentity, ToolCall};
use futures_util::future::BoxFuture;

use crate::cli::cli_error::CliError;

const NOTES: [(Rule, &str); 3] =
    [(Rule::Allow, "conjure.allow"), (Rule::Ask, "conjure.ask"), (Rule::Deny, "conjure.deny")];

/// The options about tools.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct RulesArgs {
    /// A tool that runs without approval; then every tool that no option names needs approval. May be repeated.
    #[arg(long, value_name = "TOOL", value_parser = parse_tool)]
    allow: Vec<String>,
    /// A tool whose calls each wait for your approval. By default no call does. May be repeated.
    #[arg(long, value_name = "TOOL", value_parser = parse_tool)]
    ask: Vec<String>,
    /// A tool that never runs. May be repeated.
    #[arg(long, value_name = "TOOL", value_parser = parse_tool)]
    deny: Vec<String>,
}

/// The rule for a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Rule {
    Allow,
    Ask,
    Deny,
}

/// The rules for the calls of each tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Rules {
    named: BTreeMap<String, Rule>,
    others: Rule,
}

impl Rules {
    /// The rules from the command line.
    pub(crate) fn from_args(args: &RulesArgs) -> Result<Self, CliError> {
        let said = [(Rule::Allow, &args.allow), (Rule::Ask, &args.ask), (Rule::Deny, &args.deny)];
        let mut named = BTreeMap::new();
        for (rule, tool) in
            said.into_iter().flat_map(|(rule, tools)| tools.iter().map(move |tool| (rule, tool)))
        {
            let before = named.insert(tool.clone(), rule).filter(|before| *before != rule);
            if let Some(before) = before {
                let (first, second) = (option_name(before), option_name(rule));
                return Err(CliError::usage(format!(
                    "`{first} {tool}` and `{second} {tool}` exclude each other"
                ))
                .with_hint("leave one of them out"));
            }
        }
        Ok(Self::from_named(named))
    }

    /// The rules from a session's notes.
    pub(crate) fn from_notes(notes: &BTreeMap<String, String>) -> Self {
        let tools = |name: &str| notes.get(name).into_iter().flat_map(|tools| tools.split(','));
        let named = NOTES.iter().flat_map(|(rule, name)| tools(name).map(|tool| (tool.to_owned(), *rule)));
        Self::from_named(named.collect())
    }

    fn from_named(named: BTreeMap<String, Rule>) -> Self {
        let is_allowed = named.values().any(|rule| *rule == Rule::Allow);
        Self { named, others: if is_allowed { Rule::Ask } else { Rule::Allow } }
    }

    /// Merges these rules over earlier ones. A tool that these rules name follows them. Any other tool needs approval if either set of
    /// rules requires it.
    pub(crate) fn merged_over(self, before: Self) -> Self {
        let mut named = before.named;
        named.extend(self.named);
        Self { named, others: self.others.max(before.others) }
    }

    /// The rules as notes of a session.
    pub(crate) fn to_notes(&self) -> impl Iterator<Item = (&'static str, String)> {
        NOTES.into_iter().filter_map(|(rule, name)| {
            let tools = self.named.iter().filter(|(_, of)| **of == rule).map(|(tool, _)| tool.as_str());
            let tools = tools.collect::<Vec<_>>().join(",");
            (!tools.is_empty()).then_some((name, tools))
        })
    }

    /// An approver that applies them.
    pub(crate) fn approver(&self) -> impl Approver + 'static {
        self.clone()
    }

    /// The rule of this tool. Loading a skill is allowed by default; reading its files follows the rule of `view`,
    /// and running its scripts that of `bash_tool`, unless they have rules of their own.
    fn rule(&self, tool: &str) -> Rule {
        let skill_tool = SkillTool::from_name(tool);
        // The rule is stored under the tool's wire name, however the user wrote it.
        let tool = match skill_tool {
            Some(tool) => tool.name(),
            None => tool,
        };
        let alike = match skill_tool {
            Some(SkillTool::Load | SkillTool::Unload) => {
                return *self.named.get(tool).unwrap_or(&Rule::Allow);
            }
            Some(SkillTool::Read) => BuiltinTool::View.name(),
            Some(SkillTool::RunScript) => BuiltinTool::Bash.name(),
            None => tool,
        };
        *self.named.get(tool).or_else(|| self.named.get(alike)).unwrap_or(&self.others)
    }

    fn review(&self, tool: &str) -> Authorization {
        match self.rule(tool) {
            Rule::Allow => Authorization::Allow,
            Rule::Ask => Authorization::Ask { reason: format!("the model wants to use `{tool}`") },
            Rule::Deny => Authorization::Deny { reason: format!("the user denies every use of `{tool}`") },
        }
    }
}

impl Approver for Rules {
    fn review<'a>(
        &'a self,
        call: &'a ToolCall,
        _: Option<&'a CallerIdentity>,
    ) -> BoxFuture<'a, Authorization> {
        Box::pin(std::future::ready(self.review(&call.name)))
    }

    /// Whether a rule can require approval. If not, no questions are asked.
    fn can_ask(&self) -> bool {
        self.others == Rule::Ask || self.named.values().any(|rule| *rule == Rule::Ask)
    }
}

const fn option_name(rule: Rule) -> &'static str {
    match rule {
        Rule::Allow => "--allow",
        Rule::Ask => "--ask",
        Rule::Deny => "--deny",
    }
}

fn parse_tool(text: &str) -> Result<String, String> {
    let builtin = BuiltinTool::from_name(text).map(BuiltinTool::name);
    match builtin.or_else(|| SkillTool::from_name(text).map(SkillTool::name)) {
        Some(name) => Ok(name.to_owned()),
        None => {
            let names = BuiltinTool::ALL
                .map(BuiltinTool::name)
                .into_iter()
                .chain(SkillTool::ALL.map(SkillTool::name));
            let known: Vec<String> = names.map(|name| format!("`{name}`")).collect();
            Err(format!("there is no such tool; there are {}", known.join(", ")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(allow: &[&str], ask: &[&str], deny: &[&str]) -> Rules {
        let own = |tools: &[&str]| tools.iter().map(|tool| (*tool).to_owned()).collect();
        Rules::from_args(&RulesArgs { allow: own(allow), ask: own(ask), deny: own(deny) }).unwrap()
    }

    /// Checks what happens to calls of `view`, `bash_tool` and `create_file`.
    fn check(rules: &Rules, expected: [&str; 3]) {
        let told = ["view", "bash_tool", "create_file"].map(|tool| match rules.review(tool) {
            Authorization::Allow => "allow",
            Authorization::Ask { .. } => "ask",
            Authorization::Deny { .. } => "deny",
        });
        assert_eq!(told, expected);
    }

    #[test]
    fn a_tool_that_nobody_names_runs_unless_another_one_is_allowed_by_name() {
        check(&rules(&[], &[], &[]), ["allow", "allow", "allow"]);
        check(&rules(&[], &["bash_tool"], &["create_file"]), ["allow", "ask", "deny"]);
        check(&rules(&["view"], &[], &["create_file"]), ["allow", "ask", "deny"]);
    }

    #[test]
    fn what_was_noted_is_as_it_was_and_no_less_is_asked_for_later() {
        for before in [rules(&[], &[], &[]), rules(&["view"], &["bash_tool"], &["create_file"])] {
            let notes = before.to_notes().map(|(name, tools)| (name.to_owned(), tools)).collect();
            assert_eq!(Rules::from_notes(&notes), before);
        }
        let before = rules(&["view"], &[], &["create_file"]);
        check(&rules(&[], &["view"], &[]).merged_over(before.clone()), ["ask", "ask", "deny"]);
        check(&rules(&["create_file"], &[], &[]).merged_over(before), ["allow", "ask", "allow"]);
        check(
            &rules(&["view"], &[], &[]).merged_over(rules(&[], &[], &["bash_tool"])),
            ["allow", "deny", "ask"],
        );
    }

    #[test]
    fn a_tool_of_skills_has_one_rule_however_it_is_spelt() {
        assert_eq!(parse_tool("skills.run_script").as_deref(), Ok("skills_run_script"));
        let rules = rules(&[], &["skills_load"], &["skills_run_script"]);
        for name in ["skills_run_script", "skills.run_script"] {
            assert!(matches!(rules.review(name), Authorization::Deny { .. }), "{name}");
        }
        assert!(matches!(rules.review("skills.load"), Authorization::Ask { .. }));
    }

    #[test]
    fn a_tool_has_one_rule() {
        let args =
            RulesArgs { allow: vec!["view".to_owned()], deny: vec!["view".to_owned()], ask: Vec::new() };
        let refused = Rules::from_args(&args).unwrap_err();
        assert_eq!(refused.message, "`--allow view` and `--deny view` exclude each other");
        assert!(parse_tool("bash").unwrap_err().contains("there are `view`, `bash_tool`"));
    }
}
