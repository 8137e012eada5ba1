//! [`GeminiOptions`]: the parameters of a model call beside the conversation.

use serde_json::{Map, Value};

/// The field with the settings for generating an answer.
pub(crate) const GENERATION_CONFIG: &str = "generationConfig";

/// Fields that the client writes itself.
const RESERVED: [&str; 7] = [
    "contents",
    "continuationToken",
    "model",
    "systemInstruction",
    "system_instruction",
    "tools",
    "generation_config",
];
/// Members of `generationConfig` that the client writes itself, or whose results it cannot read.
const RESERVED_GENERATION: [&str; 4] =
    ["maxOutputTokens", "max_output_tokens", "candidateCount", "candidate_count"];

/// The options of a model. They are serialized in a fixed order, so that equal options give equal bytes.
#[derive(Debug, Clone, PartialEq)]
pub struct GeminiOptions {
    model: String,
    max_tokens: Option<u32>,
    extra: Map<String, Value>,
}

/// Why an option is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OptionError {
    /// A body field that only the client sets.
    #[error("the field `{name}` is written by the client and cannot be set; use the option for it")]
    ReservedField {
        /// Its name.
        name: String,
    },
    /// A field that must be an object.
    #[error("the field `{name}` must be an object")]
    NotAnObject {
        /// Its name.
        name: String,
    },
}

impl GeminiOptions {
    /// Creates options for this model. By default, the model itself limits the output tokens.
    #[must_use]
    pub fn new(model: impl Into<String>) -> Self {
        Self { model: model.into(), max_tokens: None, extra: Map::new() }
    }

    /// Sets the maximum number of output tokens of an answer, including thoughts.
    #[must_use]
    pub const fn with_max_tokens(mut self, max_tokens: u32) -> Self {
        self.max_tokens = Some(max_tokens);
        self
    }

    /// Adds a field to the request body: `generationConfig`, `safetySettings`, `toolConfig`, `cachedContent`, and future fields. A second
    /// value for a name replaces the first. The members of a `generationConfig` are merged with those of the client.
    ///
    /// # Errors
    /// [`OptionError`] for a field that the client writes itself, and for a `generationConfig` that is not an object.
    pub fn with_field(mut self, name: impl Into<String>, value: Value) -> Result<Self, OptionError> {
        let name = name.into();
        if RESERVED.contains(&name.as_str()) {
            return Err(OptionError::ReservedField { name });
        }
        if name == GENERATION_CONFIG {
            let Value::Object(members) = &value else { return Err(OptionError::NotAnObject { name }) };
            if let Some(reserved) = RESERVED_GENERATION.iter().find(|member| members.contains_key(**member)) {
                return Err(OptionError::ReservedField { name: format!("{name}.{reserved}") });
            }
        }
        self.extra.insert(name, value);
        Ok(self)
    }

    /// The model's name.
    #[must_use]
    pub fn model(&self) -> &str {
        &self.model
    }

    /// The maximum number of output tokens of an answer; `None` for the model's own limit.
    #[must_use]
    pub const fn max_tokens(&self) -> Option<u32> {
        self.max_tokens
    }

    /// The added fields, without `generationConfig`.
    pub(crate) fn fields(&self) -> impl Iterator<Item = (&String, &Value)> {
        self.extra.iter().filter(|(name, _)| *name != GENERATION_CONFIG)
    }

    /// The complete `generationConfig`; empty if no setting is needed.
    pub(crate) fn generation_config(&self) -> Map<String, Value> {
        let added = self.extra.get(GENERATION_CONFIG).and_then(Value::as_object);
        let mut config = added.cloned().unwrap_or_default();
        config.extend(self.max_tokens.map(|max| ("maxOutputTokens".to_owned(), Value::from(max))));
        config
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn fields_that_the_client_writes_cannot_be_set() {
        for name in RESERVED {
            let refused = GeminiOptions::new("m").with_field(name, Value::Null);
            assert_eq!(refused, Err(OptionError::ReservedField { name: name.to_owned() }));
        }
        for member in RESERVED_GENERATION {
            let refused = GeminiOptions::new("m").with_field(GENERATION_CONFIG, json!({ member: 3 }));
            let name = format!("generationConfig.{member}");
            assert_eq!(refused, Err(OptionError::ReservedField { name }));
        }
        let refused = GeminiOptions::new("m").with_field(GENERATION_CONFIG, json!([]));
        assert_eq!(refused, Err(OptionError::NotAnObject { name: GENERATION_CONFIG.to_owned() }));
    }

    #[test]
    fn a_generation_config_is_merged_with_the_clients_own() {
        let thinking = json!({"thinkingConfig": {"includeThoughts": true}});
        let options = GeminiOptions::new("m").with_field(GENERATION_CONFIG, thinking).unwrap();
        assert_eq!(options.generation_config().len(), 1);
        let config = Value::Object(options.with_max_tokens(100).generation_config());
        assert_eq!(config, json!({"thinkingConfig": {"includeThoughts": true}, "maxOutputTokens": 100}));
        assert!(GeminiOptions::new("m").generation_config().is_empty());
    }
}
