//! Checks a value against a schema.

use std::cmp::Ordering;
use std::fmt::Write as _;

use conjure_base::text::truncate;
use serde_json::{Number, Value};

use super::types::{Schema, ValueType};

/// The maximum number of mismatches to report.
const MAX_MISMATCHES: usize = 20;
/// The number of characters of a value that a message shows.
const MAX_QUOTED_CHARS: usize = 60;

/// Whether messages may show the value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Disclosure {
    /// With the value.
    Shown,
    /// Only with its type, because the value is secret.
    Withheld,
}

/// One difference between a value and its schema.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}expected {expected}, found {found}", if pointer.is_empty() { String::new() } else { format!("at `{pointer}`: ") })]
pub struct SchemaMismatch {
    /// The location in the value, as a JSON pointer (RFC 6901). Empty for the whole value.
    pub pointer: String,
    /// What the schema requires.
    pub expected: String,
    /// What was found.
    pub found: String,
}

impl Schema {
    /// Returns the mismatches of a value, at most twenty. Empty when it is valid.
    #[must_use]
    pub fn check(&self, value: &Value, disclosure: Disclosure) -> Vec<SchemaMismatch> {
        let mut checking = SchemaChecker { pointer: String::new(), disclosure, found: Vec::new() };
        checking.value(self, value);
        checking.found
    }
}

struct SchemaChecker {
    pointer: String,
    disclosure: Disclosure,
    found: Vec<SchemaMismatch>,
}

impl SchemaChecker {
    fn value(&mut self, schema: &Schema, value: &Value) {
        if self.found.len() >= MAX_MISMATCHES {
            return;
        }
        if let Some(expected_type) =
            schema.value_type.filter(|expected_type| !has_type(value, *expected_type))
        {
            self.mismatch(format!("{} {}", article(expected_type.as_str()), expected_type.as_str()), value);
            return;
        }
        if let Some(allowed) =
            schema.allowed.as_ref().filter(|allowed| !allowed.iter().any(|one| equal(one, value)))
        {
            let allowed: Vec<_> = allowed.iter().map(shorten).collect();
            self.mismatch(format!("one of {}", allowed.join(", ")), value);
        }
        match value {
            Value::String(text) => self.text(schema, text, value),
            Value::Number(number) => self.number(schema, number, value),
            Value::Array(items) => {
                let Some(schema) = &schema.items else { return };
                for (index, item) in items.iter().enumerate() {
                    self.below(&index.to_string(), schema, item);
                }
            }
            Value::Object(fields) => {
                for (name, schema) in &schema.properties {
                    if let Some(field) = fields.get(name) {
                        self.below(name, schema, field);
                    }
                }
            }
            Value::Null | Value::Bool(_) => {}
        }
    }

    fn below(&mut self, name: &str, schema: &Schema, value: &Value) {
        let length = self.pointer.len();
        let _ = write!(self.pointer, "/{}", name.replace('~', "~0").replace('/', "~1"));
        self.value(schema, value);
        self.pointer.truncate(length);
    }

    fn text(&mut self, schema: &Schema, text: &str, value: &Value) {
        let Some(pattern) = &schema.pattern else { return };
        if !pattern.0.is_match(text) {
            self.mismatch(format!("a text that matches `{}`", pattern.0.as_str()), value);
        }
    }

    fn number(&mut self, schema: &Schema, number: &Number, value: &Value) {
        if let Some(minimum) = schema.minimum.as_ref().filter(|minimum| compare(number, minimum).is_lt()) {
            self.mismatch(format!("a number of at least {minimum}"), value);
        }
        if let Some(maximum) = schema.maximum.as_ref().filter(|maximum| compare(number, maximum).is_gt()) {
            self.mismatch(format!("a number of at most {maximum}"), value);
        }
    }

    fn mismatch(&mut self, expected: String, value: &Value) {
        let kind = json_kind(value);
        let found = match (self.disclosure, value) {
            (Disclosure::Withheld, Value::Null) | (Disclosure::Shown, _) => shorten(value),
            (Disclosure::Withheld, _) => format!("{} {kind}", article(kind)),
        };
        self.found.push(SchemaMismatch { pointer: self.pointer.clone(), expected, found });
    }
}

/// The JSON type of a value.
pub(crate) const fn json_kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

fn article(word: &str) -> &'static str {
    if word.starts_with(['a', 'e', 'i', 'o', 'u']) { "an" } else { "a" }
}

fn shorten(value: &Value) -> String {
    truncate(&value.to_string(), MAX_QUOTED_CHARS + 1).into_owned()
}

fn has_type(value: &Value, value_type: ValueType) -> bool {
    match value_type {
        ValueType::String => value.is_string(),
        ValueType::Number => value.is_number(),
        ValueType::Integer => match value {
            Value::Number(number) => {
                number.is_i64()
                    || number.is_u64()
                    || number.as_f64().is_some_and(|float| float.fract() == 0.0)
            }
            _ => false,
        },
        ValueType::Boolean => value.is_boolean(),
        ValueType::Array => value.is_array(),
        ValueType::Object => value.is_object(),
    }
}

/// Equality of JSON Schema: `1` and `1.0` are equal.
fn equal(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => compare(a, b).is_eq(),
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| equal(a, b)),
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len() && a.iter().all(|(name, a)| b.get(name).is_some_and(|b| equal(a, b)))
        }
        (a, b) => a == b,
    }
}

/// Compares two numbers by value, whatever their size.
pub(super) fn compare(a: &Number, b: &Number) -> Ordering {
    match (to_integer(a), to_integer(b)) {
        (Some(a), Some(b)) => a.cmp(&b),
        (Some(a), None) => compare_mixed(a, float(b)),
        (None, Some(b)) => compare_mixed(b, float(a)).reverse(),
        (None, None) => float(a).total_cmp(&float(b)),
    }
}

fn to_integer(number: &Number) -> Option<i128> {
    number.as_i64().map(i128::from).or_else(|| number.as_u64().map(i128::from))
}

fn float(number: &Number) -> f64 {
    number.as_f64().unwrap_or(f64::NAN)
}

/// Compares a 64-bit integer with a finite float.
fn compare_mixed(integer: i128, float: f64) -> Ordering {
    // Beyond this, every float is larger than all 64-bit numbers. Below, the conversion is exact.
    const BEYOND: f64 = 36_893_488_147_419_103_232.0;
    if float >= BEYOND {
        return Ordering::Less;
    }
    if float <= -BEYOND {
        return Ordering::Greater;
    }
    #[expect(
        clippy::cast_possible_truncation,
        reason = "it is within 66 bits, and the fraction is compared below"
    )]
    let floor = float.floor() as i128;
    integer.cmp(&floor).then(if float > float.floor() { Ordering::Less } else { Ordering::Equal })
}
