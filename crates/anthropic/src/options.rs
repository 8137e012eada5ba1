//! The options of a model call: the model, its limits, and fields that the embedder adds.

use std::num::NonZeroU64;

use serde_json::{Map, Value, json};

use crate::config::{Caching, ConfigError};

pub(crate) const CONTAINER: &str = "container";
pub(crate) const CONTEXT_MANAGEMENT: &str = "context_management";

/// The default limit of a response's tokens.
const MAX_TOKENS: u32 = 8192;

/// The beta name that a request must send to use the service's compaction.
pub(crate) const COMPACTION_BETA: &str = "compact-2026-01-12";

/// Fields that the client writes itself.
const RESERVED: [&str; 7] = ["model", "max_tokens", "stream", "tools", "system", "messages", "betas"];

/// The options of a model. They are serialized in a fixed order, so that equal options give equal bytes.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelOptions {
    model: String,
    max_tokens: u32,
    caching: Caching,
    extra: Map<String, Value>,
    server_tools: Vec<Value>,
    betas: Vec<String>,
    compaction: Option<NonZeroU64>,
}

impl ModelOptions {
    /// Creates options for this model: at most 8,192 output tokens, cache breakpoints of five minutes.
    #[must_use]
    pub fn new(model: impl Into<String>) -> Self {
        Self {
            model: model.into(),
            max_tokens: MAX_TOKENS,
            caching: Caching::FiveMinutes,
            extra: Map::new(),
            server_tools: Vec::new(),
            betas: Vec::new(),
            compaction: None,
        }
    }

    /// Sets the most output tokens of a response.
    #[must_use]
    pub const fn with_max_tokens(mut self, max_tokens: u32) -> Self {
        self.max_tokens = max_tokens;
        self
    }

    /// Sets the prompt caching.
    #[must_use]
    pub const fn with_caching(mut self, caching: Caching) -> Self {
        self.caching = caching;
        self
    }

    /// Adds a field to the request body: `thinking`, `temperature`, `tool_choice`, `metadata`, `container`,
    /// `stop_sequences`, and future fields. A second value for a name replaces the first.
    ///
    /// The container id of a response is added to the following requests automatically. A `container` set here wins if
    /// it has an id; one with skills only gets the id added.
    ///
    /// # Errors
    /// [`ConfigError::ReservedField`] for a field that the client writes itself.
    pub fn with_field(mut self, name: impl Into<String>, value: Value) -> Result<Self, ConfigError> {
        let name = name.into();
        if RESERVED.contains(&name.as_str()) {
            return Err(ConfigError::ReservedField { name });
        }
        self.extra.insert(name, value);
        Ok(self)
    }

    /// Sets a field that the client does not write itself.
    pub(crate) fn set_field(&mut self, name: &str, value: Value) {
        self.extra.insert(name.to_owned(), value);
    }

    /// Lets the service compact the history once a request has this many input tokens. The service answers with a `compaction` block, which
    /// the client sends back with the rest. From then on the service reads that block in place of everything before it.
    ///
    /// This is a beta, for models that support it. Other settings of `context_management` are kept.
    ///
    /// The tokens of a compaction count as input and output of the response. The client keeps and sends the complete
    /// history.
    #[must_use]
    pub fn with_compaction(mut self, tokens: NonZeroU64) -> Self {
        self.compaction = Some(tokens);
        self.with_beta(COMPACTION_BETA)
    }

    /// Adds a tool that the service runs, as JSON: `{"type": "code_execution_20250825", "name": "code_execution"}`.
    /// Such tools follow the conversation's own tools.
    #[must_use]
    pub fn with_server_tool(mut self, tool: Value) -> Self {
        self.server_tools.push(tool);
        self
    }

    /// Adds a name to the `anthropic-beta` header.
    #[must_use]
    pub fn with_beta(mut self, name: impl Into<String>) -> Self {
        let name = name.into();
        if !self.betas.contains(&name) {
            self.betas.push(name);
        }
        self
    }

    /// The model's name.
    #[must_use]
    pub fn model(&self) -> &str {
        &self.model
    }

    /// The maximum number of tokens of a response.
    #[must_use]
    pub const fn max_tokens(&self) -> u32 {
        self.max_tokens
    }

    /// The prompt caching.
    #[must_use]
    pub const fn caching(&self) -> Caching {
        self.caching
    }

    pub(crate) const fn extra(&self) -> &Map<String, Value> {
        &self.extra
    }

    /// The field `context_management`: the embedder's settings with the compaction added.
    pub(crate) fn context_management(&self) -> Option<Value> {
        let of_host = self.extra.get(CONTEXT_MANAGEMENT);
        let Some(tokens) = self.compaction else { return of_host.cloned() };
        let edit = json!({"type": "compact_20260112", "trigger": {"type": "input_tokens", "value": tokens}});
        let mut field = of_host.and_then(Value::as_object).cloned().unwrap_or_default();
        match field.entry("edits").or_insert_with(|| json!([])) {
            // A compaction that the embedder set itself wins, because it may say more.
            Value::Array(edits) if edits.iter().all(|other| other["type"] != edit["type"]) => {
                edits.push(edit)
            }
            _ => {}
        }
        Some(Value::Object(field))
    }

    pub(crate) fn server_tools(&self) -> &[Value] {
        &self.server_tools
    }

    pub(crate) fn betas(&self) -> &[String] {
        &self.betas
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compaction_is_added_to_the_users_context_edits() {
        let tokens = NonZeroU64::new(100_000).unwrap();
        let edit = json!({"type": "compact_20260112", "trigger": {"type": "input_tokens", "value": 100_000}});
        let plain = ModelOptions::new("m").with_compaction(tokens);
        assert_eq!(plain.context_management(), Some(json!({"edits": [edit]})));
        assert_eq!(plain.betas(), ["compact-2026-01-12"]);
        let with = |field: Value| {
            let options = ModelOptions::new("m").with_field(CONTEXT_MANAGEMENT, field).unwrap();
            options.with_compaction(tokens).context_management().unwrap()
        };
        let clear = json!({"type": "clear_thinking_20251015"});
        assert_eq!(with(json!({"edits": [clear]})), json!({"edits": [clear, edit]}));
        assert_eq!(with(Value::Null), json!({"edits": [edit]}));
        let own = json!({"edits": [{"type": "compact_20260112", "instructions": "Be brief."}]});
        assert_eq!(with(own.clone()), own);
        assert_eq!(ModelOptions::new("m").context_management(), None);
    }

    #[test]
    fn fields_that_the_client_writes_cannot_be_set() {
        for name in RESERVED {
            let refused = ModelOptions::new("m").with_field(name, Value::Null);
            assert_eq!(refused, Err(ConfigError::ReservedField { name: name.to_owned() }));
        }
        assert!(ModelOptions::new("m").with_field("temperature", Value::from(1)).is_ok());
    }
}
