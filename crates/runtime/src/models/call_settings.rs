//! [`CallSettings`]: how a model is to answer one call that no session records.

use serde_json::Value;

/// How a model is to answer a call. What is not set, the configuration or its service decides.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct CallSettings {
    /// The most tokens of the answer.
    pub max_tokens: Option<u32>,
    /// How random the answer is, from 0 to 1.
    pub temperature: Option<f64>,
    /// The part of the likeliest tokens that are drawn from, from 0 to 1.
    pub top_p: Option<f64>,
    /// How many of the likeliest tokens are drawn from.
    pub top_k: Option<u32>,
    /// Texts that end the answer.
    pub stop_sequences: Vec<String>,
    /// Whether the model calls tools.
    pub tool_choice: ToolChoice,
    /// Whether an answer has one call at most.
    pub disable_parallel_tool_use: bool,
    /// How hard the model works, such as `high`. Without effect where the API has no such setting.
    pub effort: Option<String>,
    /// Whether output is generated faster, at a higher price. Without effect where the API has no such setting.
    pub fast: bool,
    /// The JSON Schema that the answer's text fits.
    pub output_schema: Option<Value>,
}

/// Whether the model calls tools.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum ToolChoice {
    /// The model decides.
    #[default]
    Auto,
    /// It calls one tool or several.
    Any,
    /// It calls none.
    None,
    /// It calls the tool of this name.
    Tool(String),
}

impl CallSettings {
    /// The first setting, besides the number of tokens and those that may be without effect, that a model of the embedder cannot be told.
    pub(crate) fn beyond_tokens(&self) -> Option<&'static str> {
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
