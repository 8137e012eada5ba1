//! The form in which a model service sent a response, kept so that the same service gets it back unchanged.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// Which API a model service speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ModelApi {
    /// The Messages API of Anthropic.
    Messages,
    /// Chat Completions of OpenAI, which most other servers speak too.
    Chat,
    /// The Responses API of OpenAI.
    Responses,
    /// `generateContent` of Gemini.
    Gemini,
}

/// The origin of a response. Only the same origin gets the response back in its native form. Any other gets a translation of its
/// blocks.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Origin {
    /// The API through which the response came.
    pub api: ModelApi,
    /// The service: the host of its base URL, with the port where it is not the usual one.
    pub service: String,
    /// The model, as the request named it.
    pub model: String,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {}", self.model, self.service)
    }
}

/// A response in the form of its service, beside the canonical blocks: one item for each message, output item or part, in order.
///
/// It holds what the canonical blocks cannot: signatures, encrypted reasoning, unknown members.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NativeContent {
    /// The service and model that wrote it.
    pub origin: Origin,
    /// The items, byte for byte.
    pub items: Vec<NativeItem>,
}

impl NativeContent {
    /// The native form of a response and its continuation. `None` unless both have one, of the same origin: a part of a response
    /// must not be sent back as the whole of it.
    pub(crate) fn join(first: Option<Arc<Self>>, rest: Option<Arc<Self>>) -> Option<Arc<Self>> {
        let (mut first, rest) = (first?, rest?);
        if first.origin != rest.origin {
            return None;
        }
        Arc::make_mut(&mut first).items.extend(rest.items.iter().cloned());
        Some(first)
    }
}

/// One item of [`NativeContent`]: JSON text that is kept byte for byte. Cheap to clone.
#[derive(Clone, Serialize, Deserialize)]
#[serde(transparent)]
pub struct NativeItem(Arc<RawValue>);

impl NativeItem {
    /// Keeps raw JSON.
    #[must_use]
    pub fn new(raw: Box<RawValue>) -> Self {
        Self(raw.into())
    }

    /// Parses JSON text, and keeps it unchanged.
    ///
    /// # Errors
    /// When it is not one JSON value.
    pub fn from_json(text: impl Into<String>) -> Result<Self, serde_json::Error> {
        RawValue::from_string(text.into()).map(Self::new)
    }

    /// The JSON text.
    #[must_use]
    pub fn json(&self) -> &str {
        self.0.get()
    }

    /// The raw JSON, to be put into a request.
    #[must_use]
    pub fn raw(&self) -> &RawValue {
        &self.0
    }
}

/// Two items are equal when their JSON texts are equal.
impl PartialEq for NativeItem {
    fn eq(&self, other: &Self) -> bool {
        self.json() == other.json()
    }
}

impl Eq for NativeItem {}

impl fmt::Debug for NativeItem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.json())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn native(model: &str, items: &[&str]) -> Option<Arc<NativeContent>> {
        let origin = Origin { api: ModelApi::Gemini, service: "s".to_owned(), model: model.to_owned() };
        let items = items.iter().map(|json| NativeItem::from_json(*json).unwrap()).collect();
        Some(Arc::new(NativeContent { origin, items }))
    }

    #[test]
    fn an_answer_and_its_continuation_are_joined_if_both_are_native_and_of_one_origin() {
        let first = || native("m", &[r#"{"text": "a"}"#, "1"]);
        let joined = NativeContent::join(first(), native("m", &[r#"{"text":"b" }"#, "2"]));
        assert_eq!(joined, native("m", &[r#"{"text": "a"}"#, "1", r#"{"text":"b" }"#, "2"]));
        assert_eq!(NativeContent::join(first(), native("n", &["2"])), None);
        assert_eq!(NativeContent::join(first(), None), None);
        assert_eq!(NativeContent::join(None, first()), None);
    }
}
