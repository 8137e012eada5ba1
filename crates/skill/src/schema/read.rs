//! Reads a schema from a manifest.

use regex_lite::RegexBuilder;
use serde_json::{Map, Value};

use super::check::{Disclosure, compare, json_kind};
use super::types::{Schema, TextPattern, ValueType};

/// The maximum size of a compiled pattern in bytes.
const MAX_PATTERN_BYTES: usize = 256 * 1024;

/// Keywords without effect on validation.
const ANNOTATIONS: [&str; 6] = ["description", "title", "examples", "$comment", "deprecated", "$schema"];

/// A problem of a schema, with its path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SchemaProblem {
    pub(crate) path: Vec<String>,
    pub(crate) message: String,
    /// Whether the schema is still usable: the keyword is ignored.
    pub(crate) is_warning: bool,
}

impl Schema {
    /// Reads a schema. Problems are added to `problems`.
    pub(crate) fn read(value: &Value, problems: &mut Vec<SchemaProblem>) -> Self {
        SchemaReader { path: Vec::new(), problems }.schema(value)
    }
}

struct SchemaReader<'a> {
    path: Vec<String>,
    problems: &'a mut Vec<SchemaProblem>,
}

impl SchemaReader<'_> {
    fn schema(&mut self, value: &Value) -> Schema {
        let Value::Object(keywords) = value else {
            self.error(format!("a schema is a mapping, not {} value", with_article(value)));
            return Schema::default();
        };
        let mut schema = Schema::default();
        for (keyword, value) in keywords {
            self.in_keyword(keyword, |reading| reading.keyword(&mut schema, keyword, value));
        }
        self.check_consistency(&schema, keywords);
        schema
    }

    fn keyword(&mut self, schema: &mut Schema, keyword: &str, value: &Value) {
        match (keyword, value) {
            ("type", Value::String(name)) => {
                schema.value_type = ValueType::ALL.into_iter().find(|known| known.as_str() == name);
                if schema.value_type.is_none() {
                    let known: Vec<_> = ValueType::ALL.iter().map(|known| known.as_str()).collect();
                    self.error(format!("`{name}` is not a type: write one of {}", known.join(", ")));
                }
            }
            ("type", _) => self.error("write one type as text: lists of types are not supported".to_owned()),
            ("pattern", Value::String(pattern)) => {
                match RegexBuilder::new(pattern).size_limit(MAX_PATTERN_BYTES).build() {
                    Ok(regex) => schema.pattern = Some(TextPattern(regex)),
                    Err(error) => self.error(format!("the pattern cannot be used: {error}")),
                }
            }
            ("minimum", Value::Number(number)) => schema.minimum = Some(number.clone()),
            ("maximum", Value::Number(number)) => schema.maximum = Some(number.clone()),
            ("pattern" | "minimum" | "maximum", other) => {
                let expected = if keyword == "pattern" { "text" } else { "a number" };
                self.error(format!("expected {expected}, found {}", with_article(other)));
            }
            ("items", value) => schema.items = Some(Box::new(self.schema(value))),
            ("properties", Value::Object(properties)) => {
                for (name, value) in properties {
                    let property = self.in_keyword(name, |reading| reading.schema(value));
                    schema.properties.push((name.clone(), property));
                }
            }
            ("properties", _) => self.error("expected a mapping of names to schemas".to_owned()),
            ("enum", Value::Array(values)) if !values.is_empty() => schema.allowed = Some(values.clone()),
            ("enum", _) => self.error("expected a list of at least one value".to_owned()),
            ("default", value) => schema.default = Some(value.clone()),
            (known, _) if ANNOTATIONS.contains(&known) => {}
            _ => self.problems.push(SchemaProblem {
                path: self.path.clone(),
                message: format!("the keyword `{keyword}` is not supported, so it is not checked"),
                is_warning: true,
            }),
        }
    }

    /// Checks keywords that depend on each other.
    fn check_consistency(&mut self, schema: &Schema, keywords: &Map<String, Value>) {
        if let (Some(minimum), Some(maximum)) = (&schema.minimum, &schema.maximum)
            && compare(minimum, maximum).is_gt()
        {
            self.error(format!("no number is at least {minimum} and at most {maximum}"));
        }
        if let Some(default) = keywords.get("default") {
            let mismatches = schema.check(default, Disclosure::Shown);
            self.in_keyword("default", |reading| {
                for mismatch in mismatches {
                    reading.error(format!("the default is not as the schema says: {mismatch}"));
                }
            });
        }
    }

    fn in_keyword<T>(&mut self, keyword: &str, read: impl FnOnce(&mut Self) -> T) -> T {
        self.path.push(keyword.to_owned());
        let read = read(self);
        self.path.pop();
        read
    }

    fn error(&mut self, message: String) {
        self.problems.push(SchemaProblem { path: self.path.clone(), message, is_warning: false });
    }
}

fn with_article(value: &Value) -> String {
    match json_kind(value) {
        "null" => "nothing".to_owned(),
        kind if kind.starts_with(['a', 'o']) => format!("an {kind}"),
        kind => format!("a {kind}"),
    }
}
