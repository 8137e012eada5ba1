//! Normalises field names. Like JSON of protocol buffers, the service accepts both `maxOutputTokens` and `max_output_tokens`.

use serde_json::{Map, Value};

/// Fields whose content has names that the service does not define: arguments, results, schemas.
const FREE: [&str; 8] = [
    "args",
    "labels",
    "parameters",
    "parametersJsonSchema",
    "partMetadata",
    "response",
    "responseJsonSchema",
    "responseSchema",
];

/// Converts all field names of the service to camel case.
pub(super) fn camel_case(value: Value) -> Value {
    match value {
        Value::Array(items) => items.into_iter().map(camel_case).collect(),
        Value::Object(fields) => {
            let renamed = fields.into_iter().map(|(name, value)| {
                let name = camel_case_name(&name);
                let value = if FREE.contains(&name.as_str()) { value } else { camel_case(value) };
                (name, value)
            });
            Value::Object(renamed.collect::<Map<String, Value>>())
        }
        other => other,
    }
}

fn camel_case_name(name: &str) -> String {
    let mut segments = name.split('_');
    let first = segments.next().unwrap_or_default().to_owned();
    segments.fold(first, |mut all, segment| {
        let mut letters = segment.chars();
        all.extend(letters.next().map(|letter| letter.to_ascii_uppercase()));
        all.push_str(letters.as_str());
        all
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn names_of_the_service_are_read_in_both_forms_and_names_of_others_are_kept() {
        let body = json!({"generation_config": {"max_output_tokens": 1, "topP": 1},
            "contents": [{"parts": [{"function_call": {"name": "a_b", "args": {"c_d": {"e_f": 1}}}}]}]});
        let expected = json!({"generationConfig": {"maxOutputTokens": 1, "topP": 1},
            "contents": [{"parts": [{"functionCall": {"name": "a_b", "args": {"c_d": {"e_f": 1}}}}]}]});
        assert_eq!(camel_case(body), expected);
    }
}
