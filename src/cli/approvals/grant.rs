//! What an answer that is to hold for longer allows: the rule that a call stands for.

use conjure::{AllowRule, BuiltinTool, Decision, Grant, GrantScope, ToolCall};

/// Allows this call, and for as long as the session is there those that are like it; none where it is not clear which those are.
pub(crate) fn always(call: &ToolCall) -> Option<Decision> {
    let grant = Grant { rule: rule(call)?.to_string(), scope: GrantScope::Session };
    Some(Decision::Grant { grant })
}

/// What was allowed beyond one call, as the end of a sentence; nothing where it was that call alone.
pub(crate) fn granted(grant: Option<&Grant>) -> String {
    grant.map_or_else(String::new, |grant| match &grant.scope {
        GrantScope::Skill(skill) => format!(", and always `{}` while `{}` is active", grant.rule, skill.name),
        _ => format!(", and always `{}` in this session", grant.rule),
    })
}

/// Calls like this one: those of its tool, or of commands the simple ones that begin with the same word. None where the command does
/// not begin with a plain word.
pub(super) fn rule(call: &ToolCall) -> Option<AllowRule> {
    let text = if call.name == BuiltinTool::Bash.name() {
        let command = subject(call)?;
        let word = command.split_whitespace().next().filter(|word| word.chars().all(is_plain))?;
        format!("{}({word}:*)", call.name)
    } else {
        call.name.clone()
    };
    // A host's tool may bear a name that rules understand as another one's.
    text.parse::<AllowRule>().ok().filter(|rule| rule.tool() == call.name)
}

/// Whether a rule that was granted before speaks of this call.
pub(super) fn speaks_of(rule: &AllowRule, call: &ToolCall) -> bool {
    rule.matches(&call.name, subject(call).as_deref())
}

/// What a call of a command is about.
fn subject(call: &ToolCall) -> Option<String> {
    call.input_value().get("command")?.as_str().map(str::to_owned)
}

/// What a person who reads the rule takes for what it is.
const fn is_plain(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '/' | '+' | '-' | ',')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bash(command: &str) -> ToolCall {
        ToolCall::new("toolu_1", "bash_tool", &serde_json::json!({"command": command, "description": "x"}))
    }

    #[test]
    fn commands_are_alike_by_their_first_word() {
        for (command, expected) in [
            ("git status", Some("bash_tool(git:*)")),
            (" ./run.sh\t--all; true", Some("bash_tool(./run.sh:*)")),
            ("python3.12 -c 'print(1)'", Some("bash_tool(python3.12:*)")),
            ("PATH=. git status", None),
            ("(git status)", None),
            ("$GIT status", None),
            ("git;rm x", None),
            ("g*:*) view", None),
            ("gít status", None),
            (" \n", None),
            ("", None),
        ] {
            let rule = rule(&bash(command)).map(|rule| rule.to_string());
            assert_eq!(rule.as_deref(), expected, "{command}");
        }
        assert_eq!(rule(&ToolCall::new("1", "bash_tool", &serde_json::json!({"command": 1}))), None);
        assert_eq!(rule(&ToolCall::new("1", "bash_tool", &serde_json::json!([]))), None);
    }

    #[test]
    fn calls_of_other_tools_are_all_alike() {
        let call = |name: &str| ToolCall::new("1", name, &serde_json::json!({"path": "a (b:*)"}));
        assert_eq!(rule(&call("create_file")).unwrap().to_string(), "create_file");
        // It would be read as `bash_tool`.
        assert_eq!(rule(&call("Bash")), None);
        assert_eq!(rule(&call("view bash_tool")), None);
        assert_eq!(rule(&call("")), None);
        let Some(Decision::Grant { grant }) = always(&call("view")) else { panic!("a grant") };
        assert_eq!(grant, Grant { rule: "view".to_owned(), scope: GrantScope::Session });
    }

    #[test]
    fn a_rule_speaks_of_simple_commands_alone() {
        let rule = rule(&bash("git status; rm x")).unwrap();
        assert!(speaks_of(&rule, &bash("git log --oneline -5")));
        for command in ["git log; rm x", "echo $(rm x)", "git log > x", "gitk", "git log\nrm x", "git `rm x`"]
        {
            assert!(!speaks_of(&rule, &bash(command)), "{command}");
        }
    }
}
