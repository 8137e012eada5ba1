//! What an answer that is to hold for longer allows: the rule that a call stands for.

use conjure::{BuiltinTool, Decision, Grant, GrantScope, ToolCall};

/// Allows this call, and for as long as the session is there those that are like it; none where it is not clear which those are.
pub(crate) fn always(call: &ToolCall) -> Option<Decision> {
    let grant = Grant { rule: rule(call)?, scope: GrantScope::Session };
    Some(Decision::Grant { grant })
}

/// What was allowed beyond one call, as the end of a sentence; nothing where it was that call alone.
pub(crate) fn granted(grant: Option<&Grant>) -> String {
    grant.map_or_else(String::new, |grant| match &grant.scope {
        GrantScope::Skill(skill) => format!(", and always `{}` while `{}` is active", grant.rule, skill.name),
        _ => format!(", and always `{}` in this session", grant.rule),
    })
}

/// Calls like this one: those of its tool, or of commands those that begin with the same word. None where the command does not
/// begin with a plain word.
pub(super) fn rule(call: &ToolCall) -> Option<String> {
    if call.name != BuiltinTool::Bash.name() {
        return is_plain(&call.name).then(|| call.name.clone());
    }
    let input = call.input_value();
    let command = input.get("command")?.as_str()?;
    let word = command.split_whitespace().next().filter(|word| is_plain(word))?;
    Some(format!("{}({word}:*)", call.name))
}

/// Whether a call does nothing but what its rule says: nothing in its command is for the shell.
pub(super) fn is_simple(call: &ToolCall) -> bool {
    let input = call.input_value();
    let command = input.get("command").and_then(serde_json::Value::as_str).unwrap_or_default();
    command.chars().all(|c| c == ' ' || is_plain_character(c))
}

fn is_plain(word: &str) -> bool {
    !word.is_empty() && word.chars().all(is_plain_character)
}

/// A shell gives these no meaning of their own, also not as the beginning of a word.
const fn is_plain_character(c: char) -> bool {
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
            assert_eq!(rule(&bash(command)).as_deref(), expected, "{command}");
        }
        assert_eq!(rule(&ToolCall::new("1", "bash_tool", &serde_json::json!({"command": 1}))), None);
        assert_eq!(rule(&ToolCall::new("1", "bash_tool", &serde_json::json!([]))), None);
    }

    #[test]
    fn calls_of_other_tools_are_all_alike() {
        let call = |name: &str| ToolCall::new("1", name, &serde_json::json!({"path": "a (b:*)"}));
        assert_eq!(rule(&call("create_file")).as_deref(), Some("create_file"));
        assert_eq!(rule(&call("view bash_tool")), None);
        assert_eq!(rule(&call("")), None);
        let Some(Decision::Grant { grant }) = always(&call("view")) else { panic!("a grant") };
        assert_eq!(grant, Grant { rule: "view".to_owned(), scope: GrantScope::Session });
    }

    #[test]
    fn a_command_that_asks_more_of_the_shell_is_not_simple() {
        assert!(is_simple(&bash("git log --oneline -5")));
        for command in [
            "git log | head",
            "git log; rm x",
            "echo $(rm x)",
            "echo `rm x`",
            "git log > x",
            "a\nb",
            "a & b",
            "a \"b\"",
        ] {
            assert!(!is_simple(&bash(command)), "{command}");
        }
    }
}
