//! What a model call sends beside the conversation: the model, its limits, and fields that the host adds.

use serde_json::{Map, Value};

use crate::config::{Caching, ConfigError};

/// How many tokens an answer may have, unless the host says otherwise.
const MAX_TOKENS: u32 = 8192;

/// Fields that the client writes itself.
const RESERVED: [&str; 7] = ["model", "max_tokens", "stream", "tools", "system", "messages", "betas"];

/// The options of a model. Everything in here goes out in a fixed order, so that equal options give equal bytes.
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    model: String,
    max_tokens: u32,
    caching: Caching,
    extra: Map<String, Value>,
    server_tools: Vec<Value>,
    betas: Vec<String>,
}

impl Options {
    /// This model, with 8,192 tokens an answer at most, cache marks of five minutes and nothing else.
    #[must_use]
    pub fn new(model: impl Into<String>) -> Self {
        Self {
            model: model.into(),
            max_tokens: MAX_TOKENS,
            caching: Caching::FiveMinutes,
            extra: Map::new(),
            server_tools: Vec::new(),
            betas: Vec::new(),
        }
    }

    /// With this many tokens an answer at most.
    #[must_use]
    pub const fn with_max_tokens(mut self, max_tokens: u32) -> Self {
        self.max_tokens = max_tokens;
        self
    }

    /// With these cache marks.
    #[must_use]
    pub const fn with_caching(mut self, caching: Caching) -> Self {
        self.caching = caching;
        self
    }

    /// With one more field in the body: `thinking`, `temperature`, `tool_choice`, `metadata`, `container`,
    /// `stop_sequences`, and what comes next year. A second value of a name replaces the first.
    ///
    /// The id of the container that an answer names goes with the requests that follow by itself. A `container` set
    /// here wins over it when it has an id; one of skills alone gets the id added.
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

    /// With one more tool that runs at the service, as its JSON: `{"type": "code_execution_20250825", "name":
    /// "code_execution"}`. They follow the conversation's own tools.
    #[must_use]
    pub fn with_server_tool(mut self, tool: Value) -> Self {
        self.server_tools.push(tool);
        self
    }

    /// With one more name in the `anthropic-beta` header.
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

    /// How many tokens an answer may have.
    #[must_use]
    pub const fn max_tokens(&self) -> u32 {
        self.max_tokens
    }

    /// Which cache marks are set.
    #[must_use]
    pub const fn caching(&self) -> Caching {
        self.caching
    }

    pub(crate) const fn extra(&self) -> &Map<String, Value> {
        &self.extra
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
    fn fields_that_the_client_writes_cannot_be_set() {
        for name in RESERVED {
            let refused = Options::new("m").with_field(name, Value::Null);
            assert_eq!(refused, Err(ConfigError::ReservedField { name: name.to_owned() }));
        }
        assert!(Options::new("m").with_field("temperature", Value::from(1)).is_ok());
    }
}
