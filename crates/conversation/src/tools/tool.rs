//! Tool calls, their definitions and their results (specification 4.3, 4.4).

use std::sync::Arc;

use conjure_base::CallId;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::session::artifact::FetchedArtifact;
use crate::session::pinned_skill::PinnedSkill;

/// The only field of an input that was not a JSON object; see [`ToolCall::invalid_input`].
pub const INVALID_JSON: &str = "INVALID_JSON";

/// A tool call of the model: the parts of a `tool_use` block that the loop needs.
#[derive(Debug, Clone)]
pub struct ToolCall {
    /// The id that its result names.
    pub id: CallId,
    /// The tool's name on the wire.
    pub name: String,
    /// The input as the model wrote it. It may violate the tool's schema, and may not even be an object.
    pub input: Arc<RawValue>,
}

impl ToolCall {
    /// A call with this input.
    #[must_use]
    pub fn new(id: impl Into<String>, name: impl Into<String>, input: &Value) -> Self {
        #[expect(clippy::expect_used, reason = "a `Value` always serialises")]
        let raw = serde_json::value::to_raw_value(input).expect("a value serialises");
        Self { id: CallId::new(id), name: name.into(), input: raw.into() }
    }

    /// The input as a value, to pick fields from.
    #[must_use]
    pub fn input_value(&self) -> Value {
        serde_json::from_str(self.input.get()).unwrap_or(Value::Null)
    }

    /// The text that the model wrote as the input, if that was not a JSON object. Such a call gets an error result and never runs.
    /// The next request must have an object there, or the service refuses the history. So a client writes `{"INVALID_JSON": "the text"}`, the
    /// form that the service documents. This way the call is also recognised after it was stored and read again.
    ///
    /// # Examples
    /// ```
    /// use conjure_conversation::ToolCall;
    /// use serde_json::json;
    ///
    /// let call = ToolCall::new("toolu_1", "view", &json!({"INVALID_JSON": "{\"path\": "}));
    /// assert_eq!(call.invalid_input().as_deref(), Some("{\"path\": "));
    /// assert_eq!(ToolCall::new("toolu_2", "view", &json!({"path": "/"})).invalid_input(), None);
    /// ```
    #[must_use]
    pub fn invalid_input(&self) -> Option<String> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Invalid {
            // As in `INVALID_JSON`.
            #[serde(rename = "INVALID_JSON")]
            written: String,
        }
        serde_json::from_str::<Invalid>(self.input.get()).ok().map(|invalid| invalid.written)
    }
}

/// Equal when id, name and the input's text are equal.
impl PartialEq for ToolCall {
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id && self.name == other.name && self.input.get() == other.input.get()
    }
}

/// A tool's definition for the model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolDefinition {
    /// The name on the wire: `^[a-zA-Z0-9_-]{1,128}$`.
    pub name: String,
    /// What it does and when to use it.
    pub description: String,
    /// The JSON Schema of its input.
    pub input_schema: Value,
}

/// One part of a result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ResultContent {
    /// Text. A blank text is not sent to the model, because the service refuses such blocks.
    Text {
        /// The text.
        text: String,
    },
    /// An image.
    Image {
        /// Its media type: `image/png`, `image/jpeg`, `image/gif` or `image/webp`.
        media_type: String,
        /// Its bytes in base64.
        data: String,
    },
    /// A document.
    Document {
        /// Its media type: `application/pdf`.
        media_type: String,
        /// Its bytes in base64.
        data: String,
    },
}

/// The result of a tool call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolResult {
    /// The call that it answers.
    pub tool_use_id: CallId,
    /// The content, truncated and redacted. A result never changes once it is in the history.
    pub content: Vec<ResultContent>,
    /// Whether the call failed; the model reads the content as the reason.
    pub is_error: bool,
    /// How the call ended. The content tells the model; this field is for logs and metrics.
    #[serde(default, skip_serializing_if = "ToolEnding::is_returned")]
    pub ending: ToolEnding,
    /// The skills that are active from now on, the most recent last, if the call changed them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub active_skills: Option<Vec<PinnedSkill>>,
    /// The artifacts whose URLs the call has fetched.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fetched: Vec<FetchedArtifact>,
}

/// How a tool call ended, as its runner reports it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ToolEnding {
    /// The tool returned, successful or not.
    #[default]
    Returned,
    /// It was not started, because its tool is unknown or its input is invalid.
    Rejected,
    /// It reached its timeout.
    TimedOut,
    /// It was cancelled.
    Cancelled,
    /// Its sandbox was lost while it ran; its effects are not known.
    Lost,
    /// The tool panicked.
    Crashed,
}

impl ToolEnding {
    const fn is_returned(&self) -> bool {
        matches!(self, Self::Returned)
    }
}

impl ToolResult {
    /// A result of one text.
    #[must_use]
    pub fn text_result(call: &CallId, text: impl Into<String>) -> Self {
        Self {
            tool_use_id: call.clone(),
            content: vec![ResultContent::Text { text: text.into() }],
            is_error: false,
            ending: ToolEnding::Returned,
            active_skills: None,
            fetched: Vec::new(),
        }
    }

    /// An error result with its reason.
    #[must_use]
    pub fn error(call: &CallId, reason: impl Into<String>) -> Self {
        Self { is_error: true, ..Self::text_result(call, reason) }
    }

    /// Sets how the call ended.
    #[must_use]
    pub const fn with_ending(mut self, ending: ToolEnding) -> Self {
        self.ending = ending;
        self
    }

    /// Sets the skills that are active after the call.
    #[must_use]
    pub fn with_active_skills(mut self, active: Vec<PinnedSkill>) -> Self {
        self.active_skills = Some(active);
        self
    }

    /// Sets the artifacts that the call has fetched.
    #[must_use]
    pub fn with_fetched(mut self, fetched: Vec<FetchedArtifact>) -> Self {
        self.fetched = fetched;
        self
    }

    /// Its texts, joined by newlines.
    #[must_use]
    pub fn text(&self) -> String {
        let texts: Vec<&str> = self.content.iter().filter_map(ResultContent::as_text).collect();
        texts.join("\n")
    }

    /// The texts that are sent to the model, joined by newlines.
    pub(crate) fn visible_text(&self) -> String {
        let visible = self.content.iter().filter(|part| !part.is_blank());
        let texts: Vec<&str> = visible.filter_map(ResultContent::as_text).collect();
        texts.join("\n")
    }

    /// Whether nothing of it is sent to the model.
    pub(crate) fn has_no_content(&self) -> bool {
        self.content.iter().all(ResultContent::is_blank)
    }

    /// The JSON of the `tool_result` block: a single text as a string, otherwise an array of blocks.
    ///
    /// A result without content has no `content` field, because the service refuses empty text blocks. The JSON is written by hand, so
    /// that the order of the keys is the same in every build.
    #[must_use]
    pub(crate) fn to_json(&self) -> String {
        let parts: Vec<String> = self.content.iter().filter_map(ResultContent::to_block).collect();
        let mut json =
            format!(r#"{{"type":"tool_result","tool_use_id":{}"#, quoted(self.tool_use_id.as_str()));
        match (self.content.as_slice(), parts.is_empty()) {
            (_, true) => {}
            ([ResultContent::Text { text }], false) => {
                json.push_str(r#","content":"#);
                json.push_str(&quoted(text));
            }
            _ => {
                json.push_str(r#","content":["#);
                json.push_str(&parts.join(","));
                json.push(']');
            }
        }
        if self.is_error {
            json.push_str(r#","is_error":true"#);
        }
        json.push('}');
        json
    }
}

impl ResultContent {
    const fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text { text } => Some(text.as_str()),
            Self::Image { .. } | Self::Document { .. } => None,
        }
    }

    /// Whether the part is a blank text.
    fn is_blank(&self) -> bool {
        matches!(self, Self::Text { text } if text.trim().is_empty())
    }

    /// The content block of this part; `None` for a blank text.
    fn to_block(&self) -> Option<String> {
        match self {
            _ if self.is_blank() => None,
            Self::Text { text } => Some(format!(r#"{{"type":"text","text":{}}}"#, quoted(text))),
            Self::Image { media_type, data } => Some(media_block("image", media_type, data)),
            Self::Document { media_type, data } => Some(media_block("document", media_type, data)),
        }
    }
}

/// An image or a document as a content block.
fn media_block(kind: &str, media_type: &str, data: &str) -> String {
    format!(
        r#"{{"type":"{kind}","source":{{"type":"base64","media_type":{},"data":{}}}}}"#,
        quoted(media_type),
        quoted(data)
    )
}

/// The text as a JSON string.
fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_is_written_without_texts_that_the_service_refuses() {
        let text = |text: &str| ResultContent::Text { text: text.to_owned() };
        let image = ResultContent::Image { media_type: "image/png".to_owned(), data: "AA==".to_owned() };
        let check = |content: Vec<ResultContent>, is_error, expected: &str| {
            let result = ToolResult { content, is_error, ..ToolResult::text_result(&CallId::new("a"), "") };
            let head = r#"{"type":"tool_result","tool_use_id":"a""#;
            assert_eq!(result.to_json(), format!("{head}{expected}}}"));
        };
        check(vec![], false, "");
        check(vec![text(" \n")], false, "");
        check(vec![text("a\"b")], true, r#","content":"a\"b","is_error":true"#);
        check(vec![text("a"), text("")], false, r#","content":[{"type":"text","text":"a"}]"#);
        let source = r#"{"type":"base64","media_type":"image/png","data":"AA=="}"#;
        let expected = format!(r#","content":[{{"type":"image","source":{source}}}]"#);
        check(vec![image, text("")], false, &expected);
        let document =
            ResultContent::Document { media_type: "application/pdf".to_owned(), data: "JVBERg==".to_owned() };
        let source = r#"{"type":"base64","media_type":"application/pdf","data":"JVBERg=="}"#;
        check(vec![document], false, &format!(r#","content":[{{"type":"document","source":{source}}}]"#));
    }
}
