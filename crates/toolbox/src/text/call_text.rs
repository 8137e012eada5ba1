//! A tool call as text for the person who decides on the call.
//!
//! The model wrote the input. So nothing in it can move the cursor or reorder the text, and none of it can be so long that the rest is
//! scrolled away.

use std::borrow::Cow;

use conjure_base::text::classify_chars;
use serde_json::Value;

/// The maximum number of lines. More lines would scroll the first ones off the screen.
const MAX_LINES: usize = 200;

/// The maximum width of a line, and of all lines together, in columns.
const MAX_LINE_COLUMNS: usize = 1000;
const MAX_COLUMNS: usize = 8000;

/// The input as lines. A text field has its lines below its name, and other fields are JSON. For a command only its lines are shown. The
/// command comes first and then paths, so that a long field cannot scroll them off the screen. `redact` is called with each text as the
/// model wrote it.
pub fn input_lines(input: &Value, redact: impl Fn(&str) -> String) -> Vec<String> {
    let Value::Object(fields) = input else { return vec![printable(&redact(&input.to_string()))] };
    let texts = fields.iter().map(|(name, value)| match value {
        Value::String(text) => (name, redact(text)),
        other => (name, redact(&other.to_string())),
    });
    let mut texts: Vec<(&String, String)> = texts.collect();
    texts.sort_by_key(|(name, text)| (*name != "command", !name.contains("path"), text.contains('\n')));
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

/// The beginning and the end of long lines, and of many lines. A note stands for what is left out.
#[must_use]
pub fn bound_lines(lines: &[String]) -> Vec<String> {
    let mut bounded: Vec<String> =
        lines.iter().map(|line| truncate_middle(line, MAX_LINE_COLUMNS).into_owned()).collect();
    let head = fitting(bounded.iter(), bounded.len());
    let tail = fitting(bounded.iter().rev(), bounded.len());
    if head + tail < bounded.len() {
        let left_out = lines.len() - head - tail;
        let chars: usize = lines[head..head + left_out].iter().map(|line| line.chars().count()).sum();
        let note = format!("… {left_out} more lines with {chars} characters …");
        bounded.splice(head..head + left_out, [note]);
    }
    bounded
}

/// How many of these lines fit in one half of the limits.
fn fitting<'l>(lines: impl Iterator<Item = &'l String>, all: usize) -> usize {
    let mut used = 0;
    let fits = |line: &&String| {
        used += columns(line).max(1);
        used <= MAX_COLUMNS / 2
    };
    lines.take_while(fits).count().min(if all > MAX_LINES { MAX_LINES / 2 } else { all })
}

/// The beginning and the end of a text that is wider than `max_columns`, with a note of what is left out. A tab counts as eight columns,
/// any other character as one.
#[must_use]
pub fn truncate_middle(text: &str, max_columns: usize) -> Cow<'_, str> {
    if columns(text) <= max_columns {
        return Cow::Borrowed(text);
    }
    let half = |chars: &mut dyn Iterator<Item = char>| {
        let mut used = 0;
        let fits = |c: &char| {
            used += width(*c);
            used <= max_columns / 2
        };
        chars.take_while(fits).map(char::len_utf8).sum::<usize>()
    };
    let (head, tail) = (half(&mut text.chars()), text.len() - half(&mut text.chars().rev()));
    let left_out = text[head..tail].chars().count();
    Cow::Owned(format!("{}… {left_out} characters …{}", &text[..head], &text[tail..]))
}

/// The columns that a text takes at most on a terminal, if no character is wide.
fn columns(text: &str) -> usize {
    text.chars().map(width).sum()
}

const fn width(c: char) -> usize {
    if c == '\t' { 8 } else { 1 }
}

/// Returns `text` on one line for a terminal. Control characters except the tab are escaped, because they could move the cursor or change
/// colours. Invisible and reordering characters are escaped, too.
#[must_use]
pub fn printable(text: &str) -> String {
    escape(text, |c| c == '\t')
}

/// Like [`printable`], for several lines.
#[must_use]
pub fn printable_lines(text: &str) -> String {
    escape(text, |c| matches!(c, '\t' | '\n'))
}

fn escape(text: &str, is_fine: impl Fn(char) -> bool) -> String {
    let mut result = String::with_capacity(text.len());
    for (c, deceives) in classify_chars(text) {
        if deceives || (c.is_control() && !is_fine(c)) {
            result.extend(c.escape_default());
        } else {
            result.push(c);
        }
    }
    result
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn shown(input: &Value) -> Vec<String> {
        bound_lines(&input_lines(input, str::to_owned))
    }

    #[test]
    fn commands_and_paths_come_first_and_nothing_deceives() {
        let input =
            json!({"content": "one\ntwo", "mode": 1, "file_path": "a\u{202e}b", "command": "ls\n\x1b[2K"});
        assert_eq!(
            shown(&input),
            ["ls", "\\u{1b}[2K", "file_path: a\\u{202e}b", "mode: 1", "content:", "  one", "  two"]
        );
        assert_eq!(shown(&json!(["a\u{202e}"])), ["[\"a\\u{202e}\"]"]);
    }

    #[test]
    fn a_text_is_shortened_in_its_middle() {
        assert_eq!(truncate_middle("abcdefgh", 8), "abcdefgh");
        assert_eq!(truncate_middle("äbcdefgé", 4), "äb… 4 characters …gé");
    }

    #[test]
    fn nothing_is_scrolled_away() {
        let hidden = format!("rm -rf important; {}echo hello", " ".repeat(130_900));
        let lines = shown(&json!({"command": hidden}));
        assert_eq!(lines.len(), 1);
        assert!(lines[0].starts_with("rm -rf important; ") && lines[0].ends_with(" echo hello"));
        assert!(lines[0].contains("… 129928 characters …"), "{}", lines[0]);
        for text in ["x\n".repeat(100_000), "\t\n".repeat(5000), format!("{}\n", "\t".repeat(900)).repeat(90)]
        {
            let lines = shown(&json!({"path": "a.txt", "content": format!("{text}end")}));
            let width: usize = lines.iter().map(|line| columns(line)).sum();
            assert!(lines.len() <= MAX_LINES + 1 && width <= MAX_COLUMNS + 100, "{} {width}", lines.len());
            assert_eq!((lines[0].as_str(), lines.last().unwrap().as_str()), ("path: a.txt", "  end"));
            assert_eq!(lines.iter().filter(|line| line.starts_with('…')).count(), 1);
        }
        let fits: Vec<String> = (0..MAX_LINES).map(|line| line.to_string()).collect();
        assert_eq!(bound_lines(&fits), fits);
    }
}
