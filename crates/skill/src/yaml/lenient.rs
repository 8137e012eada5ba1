//! All of YAML, and a repair pass for what real files get wrong.

use serde_yaml::Value as Yaml;

use super::node::{Mark, Node, Syntax, Value};

/// The start of the text: where a value stands whose place the library does not tell.
const START: Mark = Mark { line: 1, column: 1 };

/// Reads a document with everything that YAML has.
pub(crate) fn read(text: &str) -> Result<Node, Syntax> {
    let yaml: Yaml = serde_yaml::from_str(text).map_err(|error| syntax(&error))?;
    Ok(node(yaml))
}

/// The library's error with its place.
fn syntax(error: &serde_yaml::Error) -> Syntax {
    let mark = error.location().map_or(START, |at| Mark {
        line: u32::try_from(at.line()).unwrap_or(u32::MAX),
        column: u32::try_from(at.column()).unwrap_or(u32::MAX),
    });
    Syntax { message: error.to_string(), mark }
}

/// The library's tree as ours.
fn node(yaml: Yaml) -> Node {
    let value = match yaml {
        Yaml::Sequence(items) => Value::Sequence(items.into_iter().map(node).collect()),
        Yaml::Mapping(entries) => Value::Mapping(
            entries.into_iter().map(|(key, value)| (scalar(&key), START, node(value))).collect(),
        ),
        Yaml::Tagged(tagged) => return node(tagged.value),
        other => Value::Scalar(scalar(&other)),
    };
    Node { value, mark: START }
}

/// A scalar as text.
fn scalar(yaml: &Yaml) -> String {
    match yaml {
        Yaml::Null => String::new(),
        Yaml::Bool(value) => value.to_string(),
        Yaml::Number(value) => value.to_string(),
        Yaml::String(text) => text.clone(),
        other => serde_yaml::to_string(other).map(|text| text.trim_end().to_owned()).unwrap_or_default(),
    }
}
