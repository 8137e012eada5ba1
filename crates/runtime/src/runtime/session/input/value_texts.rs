//! The texts in the value of an input. A redactor looks for them.

use conjure_base::MIN_SECRET_BYTES;
use serde_json::Value;

/// The texts that reveal a value. Each has a name that says what it belongs to.
pub(crate) fn secrets_in_value(name: &str, value: &Value) -> Vec<(String, String)> {
    let mut texts = texts_in_value(value);
    collect_keys(value, &mut texts);
    let mut secrets: Vec<(String, String)> = Vec::with_capacity(texts.len() + 1);
    match value {
        Value::Array(_) | Value::Object(_) => {
            let parts = texts.into_iter().enumerate();
            secrets.extend(parts.map(|(index, text)| (format!("input {name}/{index}"), text)));
            secrets.push((format!("input {name} whole"), value.to_string()));
        }
        _ => secrets.extend(texts.into_iter().map(|text| (format!("input {name}"), text))),
    }
    secrets
}

/// The texts and numbers in a value, at every depth.
pub(crate) fn texts_in_value(value: &Value) -> Vec<String> {
    match value {
        Value::String(text) => vec![text.clone()],
        Value::Number(number) => vec![number.to_string()],
        Value::Array(items) => items.iter().flat_map(texts_in_value).collect(),
        Value::Object(fields) => fields.values().flat_map(texts_in_value).collect(),
        Value::Null | Value::Bool(_) => Vec::new(),
    }
}

/// Adds the field names in a value. Names that are too short to redact are left out, because they are seldom secret.
fn collect_keys(value: &Value, keys: &mut Vec<String>) {
    match value {
        Value::Array(items) => items.iter().for_each(|item| collect_keys(item, keys)),
        Value::Object(fields) => {
            for (key, field) in fields {
                keys.extend((key.len() >= MIN_SECRET_BYTES).then(|| key.clone()));
                collect_keys(field, keys);
            }
        }
        _ => {}
    }
}
