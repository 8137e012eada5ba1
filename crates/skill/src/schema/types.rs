//! The schema type and the kinds of values.

use regex_lite::Regex;
use serde_json::{Number, Value};

/// The type of a JSON value.
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
    /// Values by key.
    Object,
}

impl ValueType {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::String, Self::Number, Self::Integer, Self::Boolean, Self::Array, Self::Object];

    /// The name in schemas.
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

/// A compiled pattern for texts.
#[derive(Debug, Clone)]
pub(super) struct TextPattern(pub(super) Regex);

impl PartialEq for TextPattern {
    fn eq(&self, other: &Self) -> bool {
        self.0.as_str() == other.0.as_str()
    }
}

/// A schema for values. Without any keyword, any value is valid.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Schema {
    pub(super) value_type: Option<ValueType>,
    pub(super) pattern: Option<TextPattern>,
    pub(super) minimum: Option<Number>,
    pub(super) maximum: Option<Number>,
    pub(super) items: Option<Box<Schema>>,
    pub(super) properties: Vec<(String, Schema)>,
    pub(super) default: Option<Value>,
    pub(super) allowed: Option<Vec<Value>>,
}

impl Schema {
    /// The type, if specified.
    #[must_use]
    pub const fn value_type(&self) -> Option<ValueType> {
        self.value_type
    }

    /// The default value.
    #[must_use]
    pub const fn default_value(&self) -> Option<&Value> {
        self.default.as_ref()
    }

    /// The allowed values, if listed.
    #[must_use]
    pub fn allowed(&self) -> Option<&[Value]> {
        self.allowed.as_deref()
    }

    /// Adds missing defaults of properties at every depth.
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

    /// Converts a text from a command line to a value. It stays a text if the schema allows texts or has no type.
    /// Otherwise it is parsed as JSON. Invalid JSON stays a text, which the schema then refuses.
    #[must_use]
    pub fn value_of_text(&self, text: &str) -> Value {
        match self.value_type {
            None | Some(ValueType::String) => Value::String(text.to_owned()),
            Some(_) => serde_json::from_str(text).unwrap_or_else(|_| Value::String(text.to_owned())),
        }
    }
}
