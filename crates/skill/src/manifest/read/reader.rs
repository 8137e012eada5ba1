//! A walk through a manifest's values that knows where it is.

use serde_json::{Map, Number, Value};
use serde_yaml::Value as Yaml;

use super::Origin;
use crate::diagnostic::{Diagnostic, RuleId, Severity};
use crate::manifest::locate::{Step, locate, shown};
use crate::schema::json_kind;
use crate::yaml::Mark;

/// The most levels of a manifest, and the most values in it, aliases counted as often as they are used.
const MAX_DEPTH: usize = 32;
const MAX_VALUES: usize = 20_000;
/// So many findings are told about one manifest.
const MAX_FINDINGS: usize = 100;

/// Findings about a manifest, and the place that is looked at.
pub(super) struct Reader<'a> {
    text: &'a str,
    origin: Origin,
    path: Vec<Step>,
    findings: Vec<Diagnostic>,
    values: usize,
}

impl<'a> Reader<'a> {
    pub(super) const fn new(text: &'a str, origin: Origin) -> Self {
        Self { text, origin, path: Vec::new(), findings: Vec::new(), values: 0 }
    }

    pub(super) const fn origin(&self) -> Origin {
        self.origin
    }

    pub(super) fn has_errors(&self) -> bool {
        self.findings.iter().any(Diagnostic::is_error)
    }

    pub(super) fn into_findings(self) -> Vec<Diagnostic> {
        self.findings
    }

    /// A finding about the place that is looked at.
    pub(super) fn add(&mut self, rule: RuleId, severity: Severity, message: String) {
        let mark = locate(self.text, &self.path);
        let path = shown(&self.path);
        let message = if path.is_empty() { message } else { format!("`{path}`: {message}") };
        self.add_at(rule, severity, message, mark);
    }

    pub(super) fn error(&mut self, rule: RuleId, message: impl Into<String>) {
        self.add(rule, Severity::Error, message.into());
    }

    pub(super) fn add_at(&mut self, rule: RuleId, severity: Severity, message: String, mark: Mark) {
        // Errors are never crowded out by what is only remarkable.
        if self.findings.len() < MAX_FINDINGS
            || (severity == Severity::Error && self.findings.len() < 2 * MAX_FINDINGS)
        {
            self.findings.push(Diagnostic::new(rule, severity, message, "").at(self.origin.position(mark)));
        }
    }

    /// Looks at what is below a key.
    pub(super) fn within_key<T>(&mut self, key: &str, look: impl FnOnce(&mut Self) -> T) -> T {
        self.within(Step::Key(key.to_owned()), look)
    }

    /// Looks at an item of a list.
    pub(super) fn within_item<T>(&mut self, index: usize, look: impl FnOnce(&mut Self) -> T) -> T {
        self.within(Step::Item(index), look)
    }

    /// Looks at what is below keys that follow each other.
    pub(super) fn within_keys<T>(&mut self, keys: &[String], look: impl FnOnce(&mut Self) -> T) -> T {
        let length = self.path.len();
        self.path.extend(keys.iter().cloned().map(Step::Key));
        let seen = look(self);
        self.path.truncate(length);
        seen
    }

    fn within<T>(&mut self, step: Step, look: impl FnOnce(&mut Self) -> T) -> T {
        self.path.push(step);
        let seen = look(self);
        self.path.pop();
        seen
    }

    /// The value as JSON; none when it is too deep or too large, or has what JSON has not.
    pub(super) fn json(&mut self, yaml: &Yaml) -> Option<Value> {
        self.values += 1;
        if self.path.len() > MAX_DEPTH || self.values > MAX_VALUES {
            if self.values < usize::MAX / 2 {
                let message = format!("a manifest has at most {MAX_DEPTH} levels and {MAX_VALUES} values");
                self.error(RuleId::ManifestSyntax, message);
            }
            // Told once.
            self.values = usize::MAX / 2;
            return None;
        }
        match yaml {
            Yaml::Null => Some(Value::Null),
            Yaml::Bool(value) => Some(Value::Bool(*value)),
            Yaml::String(text) => Some(Value::String(text.clone())),
            Yaml::Number(number) => {
                let whole = number.as_i64().map(Number::from).or_else(|| number.as_u64().map(Number::from));
                let number = whole.or_else(|| number.as_f64().and_then(Number::from_f64));
                if number.is_none() {
                    self.error(RuleId::ManifestValue, "it is no number that JSON knows");
                }
                number.map(Value::Number)
            }
            Yaml::Sequence(items) => {
                let items = items.iter().enumerate();
                items.map(|(index, item)| self.within_item(index, |reader| reader.json(item))).collect()
            }
            Yaml::Mapping(entries) => {
                let mut object = Map::new();
                for (key, value) in entries {
                    let Yaml::String(key) = key else {
                        self.error(RuleId::ManifestValue, "keys are texts: write them in quotes");
                        return None;
                    };
                    object.insert(key.clone(), self.within_key(key, |reader| reader.json(value))?);
                }
                Some(Value::Object(object))
            }
            Yaml::Tagged(_) => {
                self.error(RuleId::ManifestValue, "tags (`!…`) mean nothing in a manifest");
                None
            }
        }
    }

    /// The mapping that a value is; nothing for one that says nothing.
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

    /// The items of a list; none for a value that says nothing.
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

    /// The text of a field, when it is there.
    pub(super) fn text<'v>(&mut self, fields: &'v Map<String, Value>, key: &str) -> Option<&'v str> {
        match fields.get(key)? {
            Value::String(text) => Some(text),
            Value::Null => None,
            other => {
                self.within_key(key, |reader| reader.expected("text", other));
                None
            }
        }
    }

    /// The text of a field that must be there.
    pub(super) fn required_text<'v>(&mut self, fields: &'v Map<String, Value>, key: &str) -> Option<&'v str> {
        match fields.get(key) {
            None | Some(Value::Null) => {
                self.error(RuleId::ManifestValue, format!("`{key}` is missing"));
                None
            }
            Some(_) => self.text(fields, key),
        }
    }

    /// A field that is true or false, the latter when it is not there.
    pub(super) fn truth(&mut self, fields: &Map<String, Value>, key: &str) -> bool {
        match fields.get(key) {
            None | Some(Value::Null) => false,
            Some(Value::Bool(value)) => *value,
            Some(other) => {
                self.within_key(key, |reader| reader.expected("`true` or `false`", other));
                false
            }
        }
    }

    pub(super) fn expected(&mut self, wanted: &str, found: &Value) {
        self.error(
            RuleId::ManifestValue,
            format!("expected {wanted}, found a value of kind {}", json_kind(found)),
        );
    }

    /// Says which fields of a mapping are not known.
    pub(super) fn unknown_fields(&mut self, fields: &Map<String, Value>, known: &[&str]) {
        for key in fields.keys().filter(|key| !known.contains(&key.as_str())) {
            let message =
                format!("this field is not known, and not looked at; known here: {}", known.join(", "));
            self.within_key(key, |reader| reader.add(RuleId::ManifestField, Severity::Warning, message));
        }
    }
}
