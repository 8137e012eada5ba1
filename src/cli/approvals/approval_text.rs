//! The approval prompt: the text that describes a tool call to the user, the question, and the parser of the reply.

use conjure::skill::AllowRule;
use conjure::tool::ToolCall;
use conjure_toolbox::call_text::{self, bound_lines, truncate_middle};

use crate::cli::terminal::printable;

/// The reply of the user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ApprovalReply {
    Allow,
    /// Allow this call, and later calls like it in this session.
    Always,
    Deny(String),
    /// The reply was not understood.
    Unclear,
}

/// The replies that a question accepts.
pub(super) struct ReplyChoices {
    /// The line that asks for the reply.
    pub(super) prompt: String,
    /// Whether the user can allow later calls, too.
    pub(super) has_always: bool,
}

/// The maximum width of a rule in the line that asks, in columns. The call itself is shown above that line, and must stay visible.
const MAX_RULE_COLUMNS: usize = 120;

/// The reason of a denial if the user gives none.
const DEFAULT_DENY_REASON: &str = "the user said no";

/// The replies for a call. If there is no rule for it, the user can allow only this one call. A long rule is shortened. `redact` is called
/// with the rule as a whole.
pub(super) fn reply_choices(rule: Option<&AllowRule>, redact: impl Fn(&str) -> String) -> ReplyChoices {
    let always = rule.map_or_else(String::new, |rule| {
        let rule = printable(&redact(&rule.to_string()));
        format!(", a: all `{}` in this session", truncate_middle(&rule, MAX_RULE_COLUMNS))
    });
    ReplyChoices { prompt: format!("allow it? y: yes, n [WHY]: no{always} > "), has_always: rule.is_some() }
}

pub(super) fn parse_reply(line: &str) -> ApprovalReply {
    let line = line.trim();
    let (word, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    match (word.to_lowercase().as_str(), rest.trim()) {
        ("y" | "yes", "") => ApprovalReply::Allow,
        ("a" | "always", "") => ApprovalReply::Always,
        ("n" | "no", "") => ApprovalReply::Deny(DEFAULT_DENY_REASON.to_owned()),
        ("n" | "no", reason) => ApprovalReply::Deny(reason.to_owned()),
        _ => ApprovalReply::Unclear,
    }
}

/// Describes the call: all of its input, without characters that could move the cursor. Of a long input, the beginning and the end are
/// shown. `redact` is called with each text as the model wrote it.
pub(super) fn describe_call(call: &ToolCall, redact: impl Fn(&str) -> String) -> String {
    let all = input_lines(call, redact);
    let mut lines = bound_lines(&all);
    if lines != all {
        lines.push("… `conjure sessions show` in another terminal shows what is left out here".to_owned());
    }
    let lines: String = lines.iter().map(|line| format!("    {line}\n")).collect();
    format!("the model wants to use `{}`:\n{lines}", printable(&call.name))
}

/// The input of a call as lines.
pub(crate) fn input_lines(call: &ToolCall, redact: impl Fn(&str) -> String) -> Vec<String> {
    match call.input_value() {
        input @ serde_json::Value::Object(_) => call_text::input_lines(&input, redact),
        _ => vec![printable(&redact(call.input.get()))],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_clear_answer_decides() {
        assert_eq!(parse_reply(" y \n"), ApprovalReply::Allow);
        assert_eq!(parse_reply("YES"), ApprovalReply::Allow);
        assert_eq!(parse_reply("always"), ApprovalReply::Always);
        assert_eq!(parse_reply("n"), ApprovalReply::Deny(DEFAULT_DENY_REASON.to_owned()));
        assert_eq!(
            parse_reply("no  not in  this directory\n"),
            ApprovalReply::Deny("not in  this directory".to_owned())
        );
        for unclear in ["", "\n", "yep", "y but carefully", "allow", "maybe"] {
            assert_eq!(parse_reply(unclear), ApprovalReply::Unclear, "{unclear}");
        }
    }

    #[test]
    fn a_person_sees_all_of_a_call_and_nothing_that_hides_it() {
        let input = serde_json::json!({
            "command": "rm -rf x\n\n\x1b[2Ktrue \u{202e}s3cret",
            "description": "d", "lines": [1, 2],
        });
        let call = ToolCall::new("toolu_1", "bash_tool", &input);
        let told = describe_call(&call, |text| text.replace("s3cret", "[REDACTED:KEY]"));
        assert_eq!(
            told,
            "the model wants to use `bash_tool`:\n    rm -rf x\n    \n    \\u{1b}[2Ktrue \\u{202e}[REDACTED:KEY]\n    \
             description: d\n    lines: [1,2]\n"
        );
        let file = serde_json::json!({"path": "a.txt", "file_text": "one\ntwo"});
        let call = ToolCall::new("toolu_1", "create_file", &file);
        assert_eq!(input_lines(&call, str::to_owned), ["path: a.txt", "file_text:", "  one", "  two"]);
    }

    #[test]
    fn the_line_that_asks_is_short_however_long_the_command_is() {
        let prompt = |command: &str| {
            let rule: AllowRule = format!("bash_tool({command})").parse().unwrap();
            reply_choices(Some(&rule), |text| text.replace("s3cret", "[REDACTED:KEY]")).prompt
        };
        assert_eq!(
            prompt("git clone s3cret"),
            "allow it? y: yes, n [WHY]: no, a: all `bash_tool(git clone [REDACTED:KEY])` in this session > "
        );
        let hidden = prompt(&format!("env rm -rf important; {}echo hello", " ".repeat(130_900)));
        assert!(hidden.contains("a: all `bash_tool(env rm -rf important; "), "{hidden}");
        assert!(hidden.contains(" characters …") && hidden.contains(" echo hello)` in this session > "));
        assert!(hidden.chars().count() < 250, "{hidden}");
    }

    #[test]
    fn a_call_that_is_too_long_to_be_seen_says_so() {
        let command = "true\n".repeat(500);
        let call = ToolCall::new("toolu_1", "bash_tool", &serde_json::json!({"command": command}));
        let told = describe_call(&call, str::to_owned);
        assert!(told.contains("\n    … 301 more lines with 1204 characters …\n"), "{told}");
        assert!(told.contains("conjure sessions show"), "{told}");
        let command = format!("rm -rf important; {}echo hello", " ".repeat(130_900));
        let call = ToolCall::new("toolu_1", "bash_tool", &serde_json::json!({"command": command}));
        let told = describe_call(&call, str::to_owned);
        assert!(told.contains("    rm -rf important;") && told.contains(" echo hello\n"), "{told}");
        assert!(told.len() < 2000 && told.contains("characters …"), "{told}");
    }
}
