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

/// Programs that cannot be told to start others or to run code, whatever their arguments.
const ALONE: [&str; 42] = [
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

/// Calls like this one: those of its tool. Of commands it is the very same one, since most programs can be told to start others
/// (`env`, `git`, `xargs`) or what to do (`python3`); or, of a program that can be told neither, the simple commands that begin
/// with it. None where no rule says that.
pub(super) fn rule(call: &ToolCall) -> Option<AllowRule> {
    let text = if call.name == BuiltinTool::Bash.name() {
        let command = subject(call)?;
        let command = command.trim();
        let word = command.split_whitespace().next()?;
        if ALONE.contains(&word) {
            format!("{}({word}:*)", call.name)
        } else if command.contains('*') {
            // In a rule it would stand for more than itself.
            return None;
        } else {
            format!("{}({command})", call.name)
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    fn bash(command: &str) -> ToolCall {
        ToolCall::new("toolu_1", "bash_tool", &serde_json::json!({"command": command, "description": "x"}))
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
            let rule = rule(&bash(command)).map(|rule| rule.to_string());
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
            let rule = rule(&bash(&format!("{word} 'touch x'"))).unwrap();
            assert!(speaks_of(&rule, &bash(&format!("{word} 'touch x' "))), "{word}");
            for other in ["'rm x'", "'touch x'; rm x", "'touch x' y"] {
                assert!(!speaks_of(&rule, &bash(&format!("{word} {other}"))), "{word} {other}");
            }
        }
    }

    #[test]
    fn what_is_no_command_is_like_nothing() {
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
        let rule = rule(&bash("ls x; rm x")).unwrap();
        assert!(speaks_of(&rule, &bash("ls --all -l")));
        for command in ["ls -a; rm x", "echo $(rm x)", "ls -a > x", "lsof", "ls -a\nrm x", "ls `rm x`"] {
            assert!(!speaks_of(&rule, &bash(command)), "{command}");
        }
    }
}
