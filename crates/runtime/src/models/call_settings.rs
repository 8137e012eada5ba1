//! [`CallSettings`]: settings for one model call that no session records.

use serde_json::Value;

/// Settings for one model call. The configuration or the service decides what is not set.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct CallSettings {
    /// The most tokens of the response.
    pub max_tokens: Option<u32>,
    /// How random the response is, from 0 to 1.
    pub temperature: Option<f64>,
    /// The share of the most likely tokens from which the service samples, from 0 to 1.
    pub top_p: Option<f64>,
    /// The number of the most likely tokens from which the service samples.
    pub top_k: Option<u32>,
    /// Texts that end the response.
    pub stop_sequences: Vec<String>,
    /// Whether the model calls tools.
    pub tool_choice: ToolChoice,
    /// Whether a response may contain one tool call at most.
    pub disable_parallel_tool_use: bool,
    /// How much effort the model makes, such as `high`. APIs without such a setting ignore it.
    pub effort: Option<String>,
    /// Whether output is generated faster, at a higher price. APIs without such a setting ignore it.
    pub fast: bool,
    /// The JSON Schema for the text of the response.
    pub output_schema: Option<Value>,
}

/// Whether the model calls tools.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum ToolChoice {
    /// The model decides.
    #[default]
    Auto,
    /// The model calls one or several tools.
    Any,
    /// The model calls no tool.
    None,
    /// The model calls the tool of this name.
    Tool(String),
}

impl CallSettings {
    /// The first setting here that a model of the embedder cannot apply. Does not check the number of tokens, nor settings
    /// that APIs may ignore.
    pub(crate) fn first_unsupported_setting(&self) -> Option<&'static str> {
        let settings = [
            ("temperature", self.temperature.is_some()),
            ("top_p", self.top_p.is_some()),
            ("top_k", self.top_k.is_some()),
            ("stop_sequences", !self.stop_sequences.is_empty()),
            ("tool_choice", self.tool_choice != ToolChoice::Auto),
            ("tool_choice.disable_parallel_tool_use", self.disable_parallel_tool_use),
            ("output_config.format", self.output_schema.is_some()),
        ];
        settings.into_iter().find(|(_, is_set)| *is_set).map(|(name, _)| name)
    }
}
