//! What a person is shown of a tool call that waits, and what the answer means.

use conjure::ToolCall;

use crate::cli::terminal::printable;

/// More lines than that push the beginning out of sight.
const MOST_LINES: usize = 200;

/// What the answer means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Meaning {
    Allow,
    /// This call, and all later ones like it, as long as the session is there.
    Always,
    Deny(String),
    /// None of the answers that are known.
    Unclear,
}

/// A deny without words of its own.
const NO: &str = "the user said no";

pub(super) fn meaning(line: &str) -> Meaning {
    let line = line.trim();
    let (word, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    match (word.to_lowercase().as_str(), rest.trim()) {
        ("y" | "yes", "") => Meaning::Allow,
        ("a" | "always", "") => Meaning::Always,
        ("n" | "no", "") => Meaning::Deny(NO.to_owned()),
        ("n" | "no", reason) => Meaning::Deny(reason.to_owned()),
        _ => Meaning::Unclear,
    }
}

/// The call, to be read before it is decided on: all of its input, with nothing that could move a cursor. `redact` gets
/// texts as the model said them.
pub(super) fn question(call: &ToolCall, redact: impl Fn(&str) -> String) -> String {
    let mut lines = input_lines(call, redact);
    let more = lines.len().saturating_sub(MOST_LINES);
    lines.truncate(MOST_LINES);
    if more > 0 {
        lines.push(format!(
            "… and {more} more lines, which `conjure sessions show` tells in another terminal"
        ));
    }
    let lines: String = lines.iter().map(|line| format!("    {line}\n")).collect();
    format!("the model wants to use `{}`:\n{lines}", printable(&call.name))
}

/// The input of a call in lines: a text field's own lines below its name, anything else as JSON. Of a command, which is what
/// counts, the lines alone.
pub(crate) fn input_lines(call: &ToolCall, redact: impl Fn(&str) -> String) -> Vec<String> {
    let serde_json::Value::Object(fields) = call.input_value() else {
        return vec![printable(&redact(call.input.get()))];
    };
    let texts = fields.iter().map(|(name, value)| match value {
        serde_json::Value::String(text) => (name, redact(text)),
        other => (name, redact(&other.to_string())),
    });
    let mut texts: Vec<(&String, String)> = texts.collect();
    // What is long must not push out of sight what it is for.
    texts.sort_by_key(|(name, text)| (*name != "command", text.contains('\n')));
    let mut lines = Vec::new();
    for (name, text) in texts {
        let mut texts = text.split('\n').map(printable);
        match (name.as_str(), text.contains('\n')) {
            ("command", _) => lines.extend(texts),
            (name, false) => {
                lines.push(format!("{}: {}", printable(name), texts.next().unwrap_or_default()));
            }
            (name, true) => {
                lines.push(format!("{}:", printable(name)));
                lines.extend(texts.map(|text| format!("  {text}")));
            }
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_clear_answer_decides() {
        assert_eq!(meaning(" y \n"), Meaning::Allow);
        assert_eq!(meaning("YES"), Meaning::Allow);
        assert_eq!(meaning("always"), Meaning::Always);
        assert_eq!(meaning("n"), Meaning::Deny(NO.to_owned()));
        assert_eq!(meaning("no  not in  this folder\n"), Meaning::Deny("not in  this folder".to_owned()));
        for unclear in ["", "\n", "yep", "y but carefully", "allow", "maybe"] {
            assert_eq!(meaning(unclear), Meaning::Unclear, "{unclear}");
        }
    }

    #[test]
    fn a_person_sees_all_of_a_call_and_nothing_that_hides_it() {
        let input = serde_json::json!({
            "command": "rm -rf x\n\n\x1b[2Ktrue \u{202e}s3cret",
            "description": "d", "lines": [1, 2],
        });
        let call = ToolCall::new("toolu_1", "bash_tool", &input);
        let told = question(&call, |text| text.replace("s3cret", "[REDACTED:KEY]"));
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
    fn a_call_that_is_too_long_to_be_seen_says_so() {
        let command = "true\n".repeat(500);
        let call = ToolCall::new("toolu_1", "bash_tool", &serde_json::json!({"command": command}));
        assert!(question(&call, str::to_owned).contains("… and 301 more lines"));
    }
}
