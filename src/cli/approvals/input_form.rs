//! Formats the questions of a tool for the terminal, and parses the user's lines as values of the form.

use conjure::session::InputQuestion;
use conjure_toolbox::call_text::{bound_lines, truncate_middle};
use serde_json::Value;

use crate::cli::terminal::printable;

/// One field of a form.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct FormField {
    pub(super) name: String,
    /// The text before the input.
    pub(super) prompt: String,
    kind: FieldKind,
    is_required: bool,
    default: Option<Value>,
}

#[derive(Debug, Clone, PartialEq)]
enum FieldKind {
    Text,
    Number,
    Integer,
    Boolean,
    /// One of these texts.
    Choice(Vec<String>),
    /// Some of these texts, separated by commas.
    Choices(Vec<String>),
}

/// What an empty line or a value means for a field.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum FieldInput {
    Value(Value),
    LeftOut,
    /// The line is not valid, for this reason.
    Invalid(String),
}

/// The maximum width of the text before an input, in columns.
const MAX_PROMPT_COLUMNS: usize = 1000;

/// The question as lines. Of a long one, the beginning and the end are shown, so that the line that names the server stays visible.
pub(super) fn describe_question(asked_by: &str, question: &InputQuestion) -> String {
    let lines: Vec<String> = question.message.split('\n').map(printable).collect();
    let lines: String = bound_lines(&lines).iter().map(|line| format!("    {line}\n")).collect();
    format!("the MCP server `{}` asks:\n{lines}", printable(asked_by))
}

/// The fields of a form, in the order of its schema.
pub(super) fn form_fields(schema: &Value) -> Vec<FormField> {
    let required: Vec<&str> =
        schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let properties = schema["properties"].as_object();
    properties
        .into_iter()
        .flatten()
        .map(|(name, property)| form_field(name, property, required.contains(&name.as_str())))
        .collect()
}

fn form_field(name: &str, property: &Value, is_required: bool) -> FormField {
    let kind = match property["type"].as_str() {
        Some("boolean") => FieldKind::Boolean,
        Some("integer") => FieldKind::Integer,
        Some("number") => FieldKind::Number,
        Some("array") => FieldKind::Choices(choices(&property["items"])),
        _ => match choices(property) {
            none if none.is_empty() => FieldKind::Text,
            choices => FieldKind::Choice(choices),
        },
    };
    let default = property.get("default").cloned();
    let title = property["title"].as_str().unwrap_or(name);
    let about = property["description"].as_str().map(|about| format!(", {about}")).unwrap_or_default();
    let takes = match &kind {
        FieldKind::Text => String::new(),
        FieldKind::Number => ", a number".to_owned(),
        FieldKind::Integer => ", a whole number".to_owned(),
        FieldKind::Boolean => ", y or n".to_owned(),
        FieldKind::Choice(choices) => format!(", one of: {}", choices.join(", ")),
        FieldKind::Choices(choices) => format!(", any of: {}", choices.join(", ")),
    };
    let empty = match (&default, is_required) {
        (Some(default), _) => format!(" (empty: {})", shown(default)),
        (None, false) => " (may be left empty)".to_owned(),
        (None, true) => String::new(),
    };
    let prompt = printable(&format!("{title}{about}{takes}{empty}"));
    let prompt = format!("{} > ", truncate_middle(&prompt, MAX_PROMPT_COLUMNS));
    FormField { name: name.to_owned(), prompt, kind, is_required, default }
}

/// The values of an enumeration, in either of the two forms that schemas use.
fn choices(property: &Value) -> Vec<String> {
    let named = ["oneOf", "anyOf"].into_iter().filter_map(|list| property[list].as_array()).flatten();
    let values =
        named.map(|choice| &choice["const"]).chain(property["enum"].as_array().into_iter().flatten());
    values.filter_map(Value::as_str).map(str::to_owned).collect()
}

fn shown(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

impl FormField {
    /// Parses a line of the user.
    pub(super) fn parse(&self, line: &str) -> FieldInput {
        let line = line.trim();
        if line.is_empty() {
            return match (&self.default, self.is_required) {
                (Some(default), _) => FieldInput::Value(default.clone()),
                (None, false) => FieldInput::LeftOut,
                (None, true) => FieldInput::Invalid("an answer is required".to_owned()),
            };
        }
        let value = match &self.kind {
            FieldKind::Text => Some(Value::from(line)),
            FieldKind::Integer => line.parse::<i64>().ok().map(Value::from),
            FieldKind::Number => {
                line.parse::<f64>().ok().filter(|number| number.is_finite()).map(Value::from)
            }
            FieldKind::Boolean => match line.to_lowercase().as_str() {
                "y" | "yes" | "true" => Some(Value::Bool(true)),
                "n" | "no" | "false" => Some(Value::Bool(false)),
                _ => None,
            },
            FieldKind::Choice(choices) => {
                choices.iter().any(|choice| choice == line).then(|| Value::from(line))
            }
            FieldKind::Choices(choices) => {
                let picked: Vec<&str> = line.split(',').map(str::trim).collect();
                let is_known = picked.iter().all(|pick| choices.iter().any(|choice| choice == pick));
                is_known.then(|| Value::from(picked))
            }
        };
        value.map_or_else(|| FieldInput::Invalid("this does not fit".to_owned()), FieldInput::Value)
    }
}

#[cfg(test)]
mod tests {
    use conjure::session::InputForm;
    use serde_json::json;

    use super::*;

    #[test]
    fn a_long_question_leaves_its_first_line_on_the_screen() {
        let form = InputForm::Url { url: "https://example.com".to_owned() };
        let question = InputQuestion { message: "x\n".repeat(50_000) + "end", form };
        let told = describe_question("git", &question);
        assert!(told.starts_with("the MCP server `git` asks:\n    x\n") && told.ends_with("    end\n"));
        assert!(told.lines().count() < 250, "{}", told.lines().count());
        let fields = form_fields(&json!({"properties": {"name": {"description": "d".repeat(100_000)}}}));
        assert!(fields[0].prompt.starts_with("name, d") && fields[0].prompt.len() < 1100);
    }

    #[test]
    fn a_form_is_asked_field_by_field_and_each_line_is_checked() {
        let fields = form_fields(&json!({
            "type": "object",
            "properties": {
                "name": {"type": "string", "description": "The \u{1b}[2Jbranch"},
                "force": {"type": "boolean", "default": false},
                "count": {"type": "integer"},
                "ratio": {"type": "number"},
                "kind": {"type": "string", "enum": ["fast", "slow"]},
                "tags": {"type": "array", "items": {"anyOf": [{"const": "a", "title": "A"}, {"const": "b"}]}},
            },
            "required": ["name"],
        }));
        let prompts: Vec<&str> = fields.iter().map(|field| field.prompt.as_str()).collect();
        assert_eq!(
            prompts,
            [
                "name, The \\u{1b}[2Jbranch > ",
                "force, y or n (empty: false) > ",
                "count, a whole number (may be left empty) > ",
                "ratio, a number (may be left empty) > ",
                "kind, one of: fast, slow (may be left empty) > ",
                "tags, any of: a, b (may be left empty) > ",
            ]
        );
        let check = |place: usize, line: &str, expected: FieldInput| {
            assert_eq!(fields[place].parse(line), expected, "{place}: {line}");
        };
        let value = |value: Value| FieldInput::Value(value);
        let invalid = || FieldInput::Invalid("this does not fit".to_owned());
        check(0, " old \n", value(json!("old")));
        check(0, "\n", FieldInput::Invalid("an answer is required".to_owned()));
        check(1, "", value(json!(false)));
        check(1, "Yes", value(json!(true)));
        check(1, "perhaps", invalid());
        check(2, "-3", value(json!(-3)));
        check(2, "1.5", invalid());
        check(2, "", FieldInput::LeftOut);
        check(3, "1.5", value(json!(1.5)));
        check(3, "inf", invalid());
        check(4, "slow", value(json!("slow")));
        check(4, "slower", invalid());
        check(5, "a, b", value(json!(["a", "b"])));
        check(5, "a, c", invalid());
    }
}
