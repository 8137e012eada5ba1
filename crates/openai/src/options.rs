//! The options of a model call: the model, its limits, and members that the embedder adds.

use serde_json::{Map, Value};

/// A member that the client writes itself.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the member `{name}` is written by the client and cannot be set; use the option for it")]
pub struct ReservedField {
    /// Its name.
    pub name: String,
}

/// The member that limits the output tokens of a Chat request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokensField {
    /// `max_tokens`, which most servers know. OpenAI's newer models refuse it.
    MaxTokens,
    /// `max_completion_tokens`, OpenAI's own name.
    MaxCompletionTokens,
}

/// Whether an answer may call several tools at once.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ParallelToolCalls {
    /// The service decides; nothing is sent.
    #[default]
    Unspecified,
    /// The answer may call several tools.
    Allowed,
    /// The answer should call one tool at most. Some servers ignore this.
    Forbidden,
}

/// Whether a Responses request asks for the reasoning in encrypted form, so that it can be sent back.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum EncryptedReasoning {
    /// The request asks for it (`include: ["reasoning.encrypted_content"]`).
    #[default]
    Requested,
    /// The request does not ask for it. Models that do not reason refuse a request that does.
    NotRequested,
}

/// The options of a Chat Completions model. Equal options give equal bytes.
#[derive(Debug, Clone, PartialEq)]
pub struct ChatOptions {
    pub(crate) common: CommonOptions,
    pub(crate) tokens_field: Option<TokensField>,
    pub(crate) replayed_reasoning: Option<String>,
}

/// The options of a Responses API model. Equal options give equal bytes.
#[derive(Debug, Clone, PartialEq)]
pub struct ResponsesOptions {
    pub(crate) common: CommonOptions,
    pub(crate) encrypted_reasoning: EncryptedReasoning,
}

/// The options that both APIs share.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct CommonOptions {
    pub(crate) model: String,
    pub(crate) max_tokens: Option<u32>,
    pub(crate) parallel_tool_calls: ParallelToolCalls,
    pub(crate) extra: Map<String, Value>,
}

/// The members that a Chat request writes itself.
const RESERVED_IN_CHAT: [&str; 9] = [
    "model",
    "messages",
    "tools",
    "stream",
    "stream_options",
    "max_tokens",
    "max_completion_tokens",
    "parallel_tool_calls",
    "n",
];

/// The members that a Responses request writes itself.
const RESERVED_IN_RESPONSES: [&str; 12] = [
    "model",
    "input",
    "instructions",
    "tools",
    "stream",
    "store",
    "include",
    "max_output_tokens",
    "parallel_tool_calls",
    "previous_response_id",
    "conversation",
    "background",
];

impl CommonOptions {
    fn new(model: String) -> Self {
        Self {
            model,
            max_tokens: None,
            parallel_tool_calls: ParallelToolCalls::Unspecified,
            extra: Map::new(),
        }
    }

    fn set_field(&mut self, name: String, value: Value, reserved: &[&str]) -> Result<(), ReservedField> {
        if reserved.contains(&name.as_str()) {
            return Err(ReservedField { name });
        }
        self.extra.insert(name, value);
        Ok(())
    }
}

impl ParallelToolCalls {
    /// The value of `parallel_tool_calls`, if it is sent.
    pub(crate) const fn value(self) -> Option<bool> {
        match self {
            Self::Unspecified => None,
            Self::Allowed => Some(true),
            Self::Forbidden => Some(false),
        }
    }
}

impl ChatOptions {
    /// Creates options for this model. By default the service limits the output tokens.
    #[must_use]
    pub fn new(model: impl Into<String>) -> Self {
        Self { common: CommonOptions::new(model.into()), tokens_field: None, replayed_reasoning: None }
    }

    /// Sets the maximum number of output tokens of an answer, including its reasoning.
    #[must_use]
    pub const fn with_max_tokens(mut self, max_tokens: u32) -> Self {
        self.common.max_tokens = Some(max_tokens);
        self
    }

    /// Sets the member that limits the output tokens. By default it is `max_completion_tokens` for `api.openai.com`, and `max_tokens` for
    /// all other hosts.
    #[must_use]
    pub const fn with_tokens_field(mut self, field: TokensField) -> Self {
        self.tokens_field = Some(field);
        self
    }

    /// Sets whether an answer may call several tools at once. It is sent only together with tools.
    #[must_use]
    pub const fn with_parallel_tool_calls(mut self, calls: ParallelToolCalls) -> Self {
        self.common.parallel_tool_calls = calls;
        self
    }

    /// Sets the member of assistant messages that carries the reasoning of other services. By default only DeepSeek's host gets such
    /// reasoning, in `reasoning_content`, because it refuses answers with tool calls that lack it.
    #[must_use]
    pub fn with_replayed_reasoning(mut self, member: impl Into<String>) -> Self {
        self.replayed_reasoning = Some(member.into());
        self
    }

    /// Adds a member to the request body: `temperature`, `reasoning_effort`, `tool_choice`, `response_format`, a server's own extensions. A
    /// second value for a name replaces the first. `tool_choice` is sent only together with tools.
    ///
    /// # Errors
    /// [`ReservedField`] for a member that the client writes itself.
    pub fn with_field(mut self, name: impl Into<String>, value: Value) -> Result<Self, ReservedField> {
        self.common.set_field(name.into(), value, &RESERVED_IN_CHAT)?;
        Ok(self)
    }

    /// The model's name.
    #[must_use]
    pub fn model(&self) -> &str {
        &self.common.model
    }

    /// The maximum number of output tokens of an answer, if it is limited.
    #[must_use]
    pub const fn max_tokens(&self) -> Option<u32> {
        self.common.max_tokens
    }
}

impl ResponsesOptions {
    /// Creates options for this model. By default the service limits the output tokens, and it stores nothing. Encrypted reasoning is
    /// requested, except for OpenAI's older models, which do not reason and refuse the request.
    #[must_use]
    pub fn new(model: impl Into<String>) -> Self {
        let model = model.into();
        let does_not_reason = ["gpt-3.5", "gpt-4", "chatgpt-4o"].iter().any(|name| model.starts_with(name));
        let encrypted_reasoning =
            if does_not_reason { EncryptedReasoning::NotRequested } else { EncryptedReasoning::Requested };
        Self { common: CommonOptions::new(model), encrypted_reasoning }
    }

    /// Sets the maximum number of output tokens of an answer, including its reasoning.
    #[must_use]
    pub const fn with_max_tokens(mut self, max_tokens: u32) -> Self {
        self.common.max_tokens = Some(max_tokens);
        self
    }

    /// Sets whether an answer may call several tools at once. It is sent only together with tools.
    #[must_use]
    pub const fn with_parallel_tool_calls(mut self, calls: ParallelToolCalls) -> Self {
        self.common.parallel_tool_calls = calls;
        self
    }

    /// Sets whether the reasoning is requested in encrypted form.
    #[must_use]
    pub const fn with_encrypted_reasoning(mut self, reasoning: EncryptedReasoning) -> Self {
        self.encrypted_reasoning = reasoning;
        self
    }

    /// Adds a member to the request body: `reasoning`, `text`, `tool_choice`, `prompt_cache_key`, `truncation`. A second value for a name
    /// replaces the first. `tool_choice` is sent only together with tools.
    ///
    /// # Errors
    /// [`ReservedField`] for a member that the client writes itself, and for members that make the service store the conversation.
    pub fn with_field(mut self, name: impl Into<String>, value: Value) -> Result<Self, ReservedField> {
        self.common.set_field(name.into(), value, &RESERVED_IN_RESPONSES)?;
        Ok(self)
    }

    /// The model's name.
    #[must_use]
    pub fn model(&self) -> &str {
        &self.common.model
    }

    /// The maximum number of output tokens of an answer, if it is limited.
    #[must_use]
    pub const fn max_tokens(&self) -> Option<u32> {
        self.common.max_tokens
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_that_the_client_writes_cannot_be_set() {
        for name in RESERVED_IN_CHAT {
            let refused = ChatOptions::new("m").with_field(name, Value::Null);
            assert_eq!(refused, Err(ReservedField { name: name.to_owned() }));
        }
        for name in RESERVED_IN_RESPONSES {
            let refused = ResponsesOptions::new("m").with_field(name, Value::Null);
            assert_eq!(refused, Err(ReservedField { name: name.to_owned() }));
        }
        assert!(ChatOptions::new("m").with_field("temperature", 1.into()).is_ok());
        assert!(ResponsesOptions::new("m").with_field("reasoning", Value::Null).is_ok());
    }
}
