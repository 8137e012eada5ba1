//! The part of JSON Schema that manifests use: reading a schema, checking values, filling in defaults.
//!
//! `type` (one of six), `enum`, `pattern`, `minimum`, `maximum`, `items`, `properties`, `default`. They mean what the
//! standard says (draft 2020-12): `pattern` is searched for anywhere in a text and says nothing of other values, `1.0` is
//! an integer, equal numbers are equal however they are written.
//!
//! Pure. Patterns are matched in linear time, since a stranger may have written them.

mod check;
mod read;

pub(crate) use check::json_kind;
pub use check::{Disclosure, Mismatch};

use regex_lite::Regex;
use serde_json::{Number, Value};

/// The kind of a JSON value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ValueType {
    /// Text.
    String,
    /// Any number.
    Number,
    /// A number without a fraction.
    Integer,
    /// `true` or `false`.
    Boolean,
    /// A list.
    Array,
    /// Values by name.
    Object,
}

impl ValueType {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::String, Self::Number, Self::Integer, Self::Boolean, Self::Array, Self::Object];

    /// The name as schemas write it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::String => "string",
            Self::Number => "number",
            Self::Integer => "integer",
            Self::Boolean => "boolean",
            Self::Array => "array",
            Self::Object => "object",
        }
    }
}

/// A pattern of texts, compiled.
#[derive(Debug, Clone)]
struct TextPattern(Regex);

impl PartialEq for TextPattern {
    fn eq(&self, other: &Self) -> bool {
        self.0.as_str() == other.0.as_str()
    }
}

/// What values must be like. Without any keyword, any value is.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Schema {
    value_type: Option<ValueType>,
    pattern: Option<TextPattern>,
    minimum: Option<Number>,
    maximum: Option<Number>,
    items: Option<Box<Schema>>,
    properties: Vec<(String, Schema)>,
    default: Option<Value>,
    allowed: Option<Vec<Value>>,
}

impl Schema {
    /// The kind of value, where it is said.
    #[must_use]
    pub const fn value_type(&self) -> Option<ValueType> {
        self.value_type
    }

    /// The value where none is given.
    #[must_use]
    pub const fn default_value(&self) -> Option<&Value> {
        self.default.as_ref()
    }

    /// The values that are allowed, where they are listed.
    #[must_use]
    pub fn allowed(&self) -> Option<&[Value]> {
        self.allowed.as_deref()
    }

    /// The value with the defaults of its properties where it has none, at every depth.
    pub fn fill_in(&self, value: &mut Value) {
        match value {
            Value::Object(fields) => {
                for (name, schema) in &self.properties {
                    if let Some(default) = schema.default.as_ref().filter(|_| !fields.contains_key(name)) {
                        fields.insert(name.clone(), default.clone());
                    }
                    if let Some(field) = fields.get_mut(name) {
                        schema.fill_in(field);
                    }
                }
            }
            Value::Array(items) => {
                if let Some(schema) = &self.items {
                    items.iter_mut().for_each(|item| schema.fill_in(item));
                }
            }
            _ => {}
        }
    }

    /// The value that a text stands for, as people write it on a command line: the text itself where the schema allows
    /// text or says nothing, else JSON. A text that is no JSON stays a text, which the schema then refuses.
    #[must_use]
    pub fn value_of_text(&self, text: &str) -> Value {
        match self.value_type {
            None | Some(ValueType::String) => Value::String(text.to_owned()),
            Some(_) => serde_json::from_str(text).unwrap_or_else(|_| Value::String(text.to_owned())),
        }
    }
}

#[cfg(test)]
mod oracle;
#[cfg(test)]
mod tests;
