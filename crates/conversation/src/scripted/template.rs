//! Texts with expressions, and JSON values with such texts.
//!
//! `{{` opens an expression; `\{{` is a literal `{{`. Before `{{`, `\\` is one backslash; anywhere else a backslash is literal. Single
//! braces and a lone `}}` are ordinary text.

use std::fmt;
use std::iter::repeat_n;

use serde::Deserialize;
use serde::de::{self, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Number, Value};

use super::expression::{Expression, MAX_EXAMINED_BYTES};
use super::request_view::RequestView;

/// The largest rendered content of one turn, in bytes.
pub(super) const MAX_RENDERED_BYTES: usize = 16 << 20;

/// A text with expressions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Template {
    parts: Vec<Part>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Literal(String),
    Expression(Expression),
}

impl Template {
    /// Parses a text.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let mut parts = Vec::new();
        let mut literal = String::new();
        let mut rest = text;
        while let Some((before, inside)) = rest.split_once("{{") {
            let text_before = before.trim_end_matches('\\');
            let backslashes = before.len() - text_before.len();
            literal.push_str(text_before);
            literal.extend(repeat_n('\\', backslashes / 2));
            if backslashes % 2 == 1 {
                literal.push_str("{{");
                rest = inside;
                continue;
            }
            let (expression, length) = Expression::parse(inside)?;
            if !literal.is_empty() {
                parts.push(Part::Literal(std::mem::take(&mut literal)));
            }
            parts.push(Part::Expression(expression));
            rest = &inside[length..];
        }
        literal.push_str(rest);
        if !literal.is_empty() {
            parts.push(Part::Literal(literal));
        }
        Ok(Self { parts })
    }

    /// Whether the text is empty.
    pub(super) const fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// Renders the text: replaces its expressions by their values.
    pub(super) fn render(&self, context: &mut RenderContext<'_>) -> Result<String, String> {
        let mut text = String::new();
        for part in &self.parts {
            match part {
                Part::Literal(literal) => {
                    context.bytes_left = remaining_after(context.bytes_left, literal)?;
                    text.push_str(literal);
                }
                Part::Expression(expression) => {
                    let quoted = expression.evaluate(&context.request, &mut context.work_left)?;
                    context.bytes_left = remaining_after(context.bytes_left, &quoted)?;
                    text.push_str(&quoted);
                }
            }
        }
        Ok(text)
    }
}

/// The context for the templates of one turn: the request, and the remaining budgets.
pub(super) struct RenderContext<'r> {
    request: RequestView<'r>,
    bytes_left: usize,
    work_left: usize,
}

impl<'r> RenderContext<'r> {
    /// A context for one turn.
    pub(super) const fn new(sent: RequestView<'r>) -> Self {
        Self { request: sent, bytes_left: MAX_RENDERED_BYTES, work_left: MAX_EXAMINED_BYTES }
    }
}

/// The bytes that remain of `left` after `text`.
fn remaining_after(remaining: usize, text: &str) -> Result<usize, String> {
    remaining.checked_sub(text.len()).ok_or_else(|| {
        format!("the turn with its expressions is larger than {MAX_RENDERED_BYTES} bytes; quote less")
    })
}

impl<'de> Deserialize<'de> for Template {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TextVisitor;
        impl Visitor<'_> for TextVisitor {
            type Value = Template;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Template, E> {
                Template::parse(text).map_err(E::custom)
            }
        }
        deserializer.deserialize_any(TextVisitor)
    }
}

/// A JSON value whose texts may have expressions. It keeps the order of an object's keys.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum TemplateValue {
    /// A text.
    Text(Template),
    /// A list.
    List(Vec<TemplateValue>),
    /// An object; its keys are literal.
    Object(Vec<(String, TemplateValue)>),
    /// A number, a boolean or null.
    Plain(Value),
}

impl TemplateValue {
    /// Renders the value as JSON text, and appends it to `json`.
    pub(super) fn render(&self, context: &mut RenderContext<'_>, json: &mut String) -> Result<(), String> {
        match self {
            Self::Text(template) => json.push_str(&Value::from(template.render(context)?).to_string()),
            Self::Plain(value) => json.push_str(&value.to_string()),
            Self::List(items) => {
                json.push('[');
                for (index, item) in items.iter().enumerate() {
                    json.push_str(if index == 0 { "" } else { "," });
                    item.render(context, json)?;
                }
                json.push(']');
            }
            Self::Object(fields) => {
                json.push('{');
                for (index, (key, value)) in fields.iter().enumerate() {
                    json.push_str(if index == 0 { "" } else { "," });
                    json.push_str(&Value::from(key.as_str()).to_string());
                    json.push(':');
                    value.render(context, json)?;
                }
                json.push('}');
            }
        }
        Ok(())
    }
}

impl<'de> Deserialize<'de> for TemplateValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ValueVisitor)
    }
}

struct ValueVisitor;

impl<'de> Visitor<'de> for ValueVisitor {
    type Value = TemplateValue;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<TemplateValue, E> {
        Template::parse(text).map(TemplateValue::Text).map_err(E::custom)
    }

    fn visit_bool<E>(self, value: bool) -> Result<TemplateValue, E> {
        Ok(TemplateValue::Plain(Value::Bool(value)))
    }

    fn visit_i64<E>(self, value: i64) -> Result<TemplateValue, E> {
        Ok(TemplateValue::Plain(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<TemplateValue, E> {
        Ok(TemplateValue::Plain(value.into()))
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<TemplateValue, E> {
        let number = Number::from_f64(value).ok_or_else(|| E::custom("JSON has no such number"))?;
        Ok(TemplateValue::Plain(number.into()))
    }

    fn visit_unit<E>(self) -> Result<TemplateValue, E> {
        Ok(TemplateValue::Plain(Value::Null))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<TemplateValue, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = seq.next_element()? {
            items.push(item);
        }
        Ok(TemplateValue::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<TemplateValue, A::Error> {
        let mut fields: Vec<(String, TemplateValue)> = Vec::new();
        let mut keys = std::collections::HashSet::new();
        while let Some((key, value)) = map.next_entry::<String, TemplateValue>()? {
            if !keys.insert(key.clone()) {
                return Err(de::Error::custom(format!("the key `{key}` is duplicated")));
            }
            fields.push((key, value));
        }
        Ok(TemplateValue::Object(fields))
    }
}
