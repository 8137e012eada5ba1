//! Rules for grants that outlast one call.

use conjure::conversation::Decision;
use conjure::prompt::BuiltinTool;
use conjure::session::{Grant, GrantScope};
use conjure::skill::AllowRule;
use conjure::tool::ToolCall;

/// Allows this call, and later calls like it in this session. `None` if it is not clear which calls are like it.
pub(crate) fn grant_always(call: &ToolCall) -> Option<Decision> {
    let grant = Grant { rule: rule_for_call(call)?.to_string(), scope: GrantScope::Session };
    Some(Decision::Grant { grant })
}

/// Describes a grant as the end of a sentence; empty without one.
pub(crate) fn grant_text(grant: Option<&Grant>) -> String {
    grant.map_or_else(String::new, |grant| match &grant.scope {
        GrantScope::Skill(skill) => format!(", and always `{}` while `{}` is active", grant.rule, skill.name),
        _ => format!(", and always `{}` in this session", grant.rule),
    })
}

/// Tools whose calls each need a decision of their own: a rule for the tool would allow all skills of MCP servers, all scripts, or all
/// commands.
const NEVER_ALIKE: [&str; 3] = ["mcp_load_skill", "skills_run_script", "bash"];

/// Programs that cannot start other programs or run code, whatever their arguments.
const SAFE_PROGRAMS: [&str; 42] = [
    "basename",
    "cat",
    "cksum",
    "cmp",
    "comm",
    "cp",
    "cut",
    "date",
    "df",
    "diff",
    "dirname",
    "du",
    "echo",
    "false",
    "fold",
    "grep",
    "head",
    "jq",
    "ln",
    "ls",
    "md5sum",
    "mkdir",
    "mktemp",
    "mv",
    "nl",
    "paste",
    "pdftotext",
    "printf",
    "pwd",
    "realpath",
    "rm",
    "rmdir",
    "seq",
    "sha256sum",
    "sleep",
    "stat",
    "tail",
    "touch",
    "tr",
    "true",
    "uniq",
    "wc",
];

/// The rule for calls like this one. It allows all calls of the same tool, with three exceptions:
///
/// - A command: exactly this command, since most programs can start others (`env`, `git`, `xargs`) or run code (`python3`).
/// - A command of a safe program: all simple commands that begin with that program.
/// - A tool of [`NEVER_ALIKE`]: none.
///
/// `None` if no rule can express that.
pub(super) fn rule_for_call(call: &ToolCall) -> Option<AllowRule> {
    let text = if call.name == BuiltinTool::Bash.name() {
        let command = subject(call)?;
        let command = command.trim();
        let word = command.split_whitespace().next()?;
        if SAFE_PROGRAMS.contains(&word) {
            format!("{}({word}:*)", call.name)
        } else if command.contains('*') {
            // In a rule, `*` would match other commands too.
            return None;
        } else {
            format!("{}({command})", call.name)
        }
    } else if NEVER_ALIKE.contains(&call.name.as_str()) {
        return None;
    } else {
        call.name.clone()
    };
    // The name of an embedder's tool could parse as a rule for another tool.
    text.parse::<AllowRule>().ok().filter(|rule| rule.tool() == call.name)
}

/// Whether a granted rule matches this call.
pub(super) fn rule_matches(rule: &AllowRule, call: &ToolCall) -> bool {
    rule.matches(&call.name, subject(call).as_deref())
}

/// The command of a call.
fn subject(call: &ToolCall) -> Option<String> {
    call.input_value().get("command")?.as_str().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bash(command: &str) -> ToolCall {
        ToolCall::new("toolu_1", "bash_tool", &serde_json::json!({"command": command, "description": "x"}))
    }

    #[test]
    fn what_runs_anything_is_another_decision_each_time() {
        for (name, input) in [
            ("mcp_load_skill", serde_json::json!({"server": "a", "skill": "b", "version": "c"})),
            ("skills_run_script", serde_json::json!({"skill": "a", "script": "run.py"})),
            ("bash", serde_json::json!({"command": "ls"})),
        ] {
            assert_eq!(rule_for_call(&ToolCall::new("toolu_1", name, &input)), None, "{name}");
        }
    }

    #[test]
    fn commands_are_alike_where_their_program_starts_no_other() {
        for (command, expected) in [
            ("touch a b", Some("bash_tool(touch:*)")),
            (" wc\t-l x; true", Some("bash_tool(wc:*)")),
            ("git status", Some("bash_tool(git status)")),
            ("python3.12 -c 'print(1)'", Some("bash_tool(python3.12 -c 'print(1)')")),
            ("PATH=. touch x", Some("bash_tool(PATH=. touch x)")),
            ("(git status)", Some("bash_tool((git status))")),
            ("./touch x", Some("bash_tool(./touch x)")),
            ("git;rm x", Some("bash_tool(git;rm x)")),
            ("g*:*) view", None),
            ("sudo *", None),
            ("env:*", None),
            ("echo); view", None),
            ("bash -c 'true\nfalse'", None),
            (" \n", None),
            ("", None),
        ] {
            let rule = rule_for_call(&bash(command)).map(|rule| rule.to_string());
            assert_eq!(rule.as_deref(), expected, "{command}");
        }
    }

    #[test]
    fn whoever_starts_others_is_granted_as_it_is_and_no_further() {
        for word in [
            "bash -c",
            "sh -c",
            "env",
            "git",
            "sudo",
            "xargs",
            "python3 -c",
            "perl -e",
            "find .",
            "ssh host",
            "nice",
        ] {
            let rule = rule_for_call(&bash(&format!("{word} 'touch x'"))).unwrap();
            assert!(rule_matches(&rule, &bash(&format!("{word} 'touch x' "))), "{word}");
            for other in ["'rm x'", "'touch x'; rm x", "'touch x' y"] {
                assert!(!rule_matches(&rule, &bash(&format!("{word} {other}"))), "{word} {other}");
            }
        }
    }

    #[test]
    fn what_is_no_command_is_like_nothing() {
        assert_eq!(rule_for_call(&ToolCall::new("1", "bash_tool", &serde_json::json!({"command": 1}))), None);
        assert_eq!(rule_for_call(&ToolCall::new("1", "bash_tool", &serde_json::json!([]))), None);
    }

    #[test]
    fn calls_of_other_tools_are_all_alike() {
        let call = |name: &str| ToolCall::new("1", name, &serde_json::json!({"path": "a (b:*)"}));
        assert_eq!(rule_for_call(&call("create_file")).unwrap().to_string(), "create_file");
        // It would be read as `bash_tool`.
        assert_eq!(rule_for_call(&call("Bash")), None);
        assert_eq!(rule_for_call(&call("view bash_tool")), None);
        assert_eq!(rule_for_call(&call("")), None);
        let Some(Decision::Grant { grant }) = grant_always(&call("view")) else { panic!("a grant") };
        assert_eq!(grant, Grant { rule: "view".to_owned(), scope: GrantScope::Session });
    }

    #[test]
    fn a_rule_speaks_of_simple_commands_alone() {
        let rule = rule_for_call(&bash("ls x; rm x")).unwrap();
        assert!(rule_matches(&rule, &bash("ls --all -l")));
        for command in ["ls -a; rm x", "echo $(rm x)", "ls -a > x", "lsof", "ls -a\nrm x", "ls `rm x`"] {
            assert!(!rule_matches(&rule, &bash(command)), "{command}");
        }
    }
}
