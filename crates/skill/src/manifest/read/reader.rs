//! Reads manifest values and records the path of each error.

use serde_json::{Map, Number, Value};
use serde_yaml::Value as Yaml;

use super::origin::ManifestOrigin;
use crate::diagnostic::{Diagnostic, RuleId, Severity};
use crate::manifest::locate::locate;
use crate::manifest::locate::{PathStep, display_path};
use crate::schema::json_kind;
use crate::yaml::Mark;

/// The maximum depth of a manifest, and the maximum number of values. Aliases count each time they are used.
const MAX_DEPTH: usize = 32;
const MAX_VALUES: usize = 20_000;
/// The maximum number of findings about one manifest.
const MAX_FINDINGS: usize = 100;

/// Collects findings, and tracks the current path.
pub(super) struct ValueReader<'a> {
    text: &'a str,
    origin: ManifestOrigin,
    path: Vec<PathStep>,
    findings: Vec<Diagnostic>,
    values: usize,
}

impl<'a> ValueReader<'a> {
    pub(super) const fn new(text: &'a str, origin: ManifestOrigin) -> Self {
        Self { text, origin, path: Vec::new(), findings: Vec::new(), values: 0 }
    }

    pub(super) const fn origin(&self) -> ManifestOrigin {
        self.origin
    }

    pub(super) fn has_errors(&self) -> bool {
        self.findings.iter().any(Diagnostic::is_error)
    }

    pub(super) fn into_findings(self) -> Vec<Diagnostic> {
        self.findings
    }

    /// Adds a finding at the current path.
    pub(super) fn add(&mut self, rule: RuleId, severity: Severity, message: String) {
        let mark = locate(self.text, &self.path);
        let path = display_path(&self.path);
        let message = if path.is_empty() { message } else { format!("`{path}`: {message}") };
        self.add_at(rule, severity, message, mark);
    }

    pub(super) fn error(&mut self, rule: RuleId, message: impl Into<String>) {
        self.add(rule, Severity::Error, message.into());
    }

    pub(super) fn add_at(&mut self, rule: RuleId, severity: Severity, message: String, mark: Mark) {
        // Errors take precedence over other findings.
        if self.findings.len() < MAX_FINDINGS
            || (severity == Severity::Error && self.findings.len() < 2 * MAX_FINDINGS)
        {
            self.findings.push(Diagnostic::new(rule, severity, message, "").at(self.origin.position(mark)));
        }
    }

    /// Reads the value of a key.
    pub(super) fn in_key<T>(&mut self, key: &str, read: impl FnOnce(&mut Self) -> T) -> T {
        self.in_step(PathStep::Key(key.to_owned()), read)
    }

    /// Reads an item of a list.
    pub(super) fn in_item<T>(&mut self, index: usize, read: impl FnOnce(&mut Self) -> T) -> T {
        self.in_step(PathStep::Item(index), read)
    }

    /// Reads the value of nested keys.
    pub(super) fn in_keys<T>(&mut self, keys: &[String], read: impl FnOnce(&mut Self) -> T) -> T {
        let length = self.path.len();
        self.path.extend(keys.iter().cloned().map(PathStep::Key));
        let result = read(self);
        self.path.truncate(length);
        result
    }

    fn in_step<T>(&mut self, step: PathStep, read: impl FnOnce(&mut Self) -> T) -> T {
        self.path.push(step);
        let result = read(self);
        self.path.pop();
        result
    }

    /// Converts the value to JSON. `None` when it is too deep or too large, or has no JSON form.
    pub(super) fn json(&mut self, yaml: &Yaml) -> Option<Value> {
        self.values += 1;
        if self.path.len() > MAX_DEPTH || self.values > MAX_VALUES {
            if self.values < usize::MAX / 2 {
                let message = format!("a manifest has at most {MAX_DEPTH} levels and {MAX_VALUES} values");
                self.error(RuleId::ManifestSyntax, message);
            }
            // Reported once.
            self.values = usize::MAX / 2;
            return None;
        }
        match yaml {
            Yaml::Null => Some(Value::Null),
            Yaml::Bool(value) => Some(Value::Bool(*value)),
            Yaml::String(text) => Some(Value::String(text.clone())),
            Yaml::Number(number) => {
                let integer = number.as_i64().map(Number::from).or_else(|| number.as_u64().map(Number::from));
                let number = integer.or_else(|| number.as_f64().and_then(Number::from_f64));
                if number.is_none() {
                    self.error(RuleId::ManifestValue, "it is not a number that JSON can represent");
                }
                number.map(Value::Number)
            }
            Yaml::Sequence(items) => {
                let items = items.iter().enumerate();
                items.map(|(index, item)| self.in_item(index, |reader| reader.json(item))).collect()
            }
            Yaml::Mapping(entries) => {
                let mut object = Map::new();
                for (key, value) in entries {
                    let Yaml::String(key) = key else {
                        self.error(RuleId::ManifestValue, "keys are texts: write them in quotes");
                        return None;
                    };
                    object.insert(key.clone(), self.in_key(key, |reader| reader.json(value))?);
                }
                Some(Value::Object(object))
            }
            Yaml::Tagged(_) => {
                self.error(RuleId::ManifestValue, "tags (`!…`) mean nothing in a manifest");
                None
            }
        }
    }

    /// Returns the value as a mapping. `None` for null.
    pub(super) fn mapping<'v>(&mut self, value: &'v Value) -> Option<&'v Map<String, Value>> {
        match value {
            Value::Object(fields) => Some(fields),
            Value::Null => None,
            other => {
                self.expected("a mapping", other);
                None
            }
        }
    }

    /// Returns the items of a list. Empty for null.
    pub(super) fn list<'v>(&mut self, value: &'v Value) -> &'v [Value] {
        match value {
            Value::Array(items) => items,
            Value::Null => &[],
            other => {
                self.expected("a list", other);
                &[]
            }
        }
    }

    /// Returns the text of a field, if it is present.
    pub(super) fn text<'v>(&mut self, fields: &'v Map<String, Value>, key: &str) -> Option<&'v str> {
        match fields.get(key)? {
            Value::String(text) => Some(text),
            Value::Null => None,
            other => {
                self.in_key(key, |reader| reader.expected("text", other));
                None
            }
        }
    }

    /// Returns the text of a required field.
    pub(super) fn required_text<'v>(&mut self, fields: &'v Map<String, Value>, key: &str) -> Option<&'v str> {
        match fields.get(key) {
            None | Some(Value::Null) => {
                self.error(RuleId::ManifestValue, format!("`{key}` is missing"));
                None
            }
            Some(_) => self.text(fields, key),
        }
    }

    /// Returns the value of a boolean field, which is false by default.
    pub(super) fn boolean(&mut self, fields: &Map<String, Value>, key: &str) -> bool {
        match fields.get(key) {
            None | Some(Value::Null) => false,
            Some(Value::Bool(value)) => *value,
            Some(other) => {
                self.in_key(key, |reader| reader.expected("`true` or `false`", other));
                false
            }
        }
    }

    pub(super) fn expected(&mut self, expected_kind: &str, found: &Value) {
        self.error(
            RuleId::ManifestValue,
            format!("expected {expected_kind}, found a value of kind {}", json_kind(found)),
        );
    }

    /// Reports unknown fields of a mapping.
    pub(super) fn unknown_fields(&mut self, fields: &Map<String, Value>, known: &[&str]) {
        for key in fields.keys().filter(|key| !known.contains(&key.as_str())) {
            let message = format!("this field is unknown and ignored; known here: {}", known.join(", "));
            self.in_key(key, |reader| reader.add(RuleId::ManifestField, Severity::Warning, message));
        }
    }
}
