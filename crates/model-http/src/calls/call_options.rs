//! [`CallOptions`]: the options of a model, beside the conversation.

use serde_json::{Map, Value};

/// The name of an option that is a member of the body in some APIs.
const PARALLEL_TOOL_CALLS: &str = "parallel_tool_calls";

/// The options of a model. Equal options give equal bytes.
#[derive(Debug, Clone, PartialEq)]
pub struct CallOptions {
    model: String,
    max_tokens: Option<u32>,
    extra: Map<String, Value>,
    reserved: &'static [&'static str],
}

/// Why a member of the body is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FieldError {
    /// The client writes the member itself.
    #[error("the member `{name}` is written by the client and cannot be set; use the option for it")]
    Reserved {
        /// Its name.
        name: String,
    },
    /// The member must be an object.
    #[error("the member `{name}` must be an object")]
    NotAnObject {
        /// Its name.
        name: String,
    },
}

impl CallOptions {
    /// Creates options for this model. By default the service limits the output tokens. The client writes the `reserved` members of the
    /// body itself; `a.b` is the member `b` of the object `a`.
    #[must_use]
    pub fn new(model: impl Into<String>, reserved: &'static [&'static str]) -> Self {
        Self { model: model.into(), max_tokens: None, extra: Map::new(), reserved }
    }

    /// Sets the maximum number of output tokens of an answer, including its reasoning.
    #[must_use]
    pub const fn with_max_tokens(mut self, max_tokens: u32) -> Self {
        self.max_tokens = Some(max_tokens);
        self
    }

    /// Sets whether an answer may call several tools at once, for an API that has this option. Some servers ignore it.
    #[must_use]
    pub fn with_parallel_tool_calls(mut self, allowed: bool) -> Self {
        self.extra.insert(PARALLEL_TOOL_CALLS.to_owned(), allowed.into());
        self
    }

    /// Adds a member to the request body: `temperature`, `tool_choice`, `reasoning`, `generationConfig`, a server's own extensions. A second
    /// value for a name replaces the first.
    ///
    /// # Errors
    /// [`FieldError`] for a member that the client writes itself, and if a member that must be an object is none.
    pub fn with_field(mut self, name: impl Into<String>, value: Value) -> Result<Self, FieldError> {
        let name = name.into();
        for reserved in self.reserved {
            match reserved.split_once('.') {
                None if *reserved == name => return Err(FieldError::Reserved { name }),
                Some((object, member)) if object == name => {
                    let Value::Object(members) = &value else { return Err(FieldError::NotAnObject { name }) };
                    if members.contains_key(member) {
                        return Err(FieldError::Reserved { name: (*reserved).to_owned() });
                    }
                }
                _ => {}
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

    /// The maximum number of output tokens of an answer, if it is limited.
    #[must_use]
    pub const fn max_tokens(&self) -> Option<u32> {
        self.max_tokens
    }

    /// The added members. Without tools, those about tools are left out, because services refuse them.
    pub fn extra(&self, has_tools: bool) -> impl Iterator<Item = (&String, &Value)> {
        let is_about_tools = |name: &str| matches!(name, "tool_choice" | PARALLEL_TOOL_CALLS);
        self.extra.iter().filter(move |(name, _)| has_tools || !is_about_tools(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn members_that_the_client_writes_cannot_be_set() {
        let options = || CallOptions::new("m", &["model", "config.max", "config.count"]);
        let reserved = |name: &str| Err(FieldError::Reserved { name: name.to_owned() });
        assert_eq!(options().with_field("model", Value::Null), reserved("model"));
        assert_eq!(options().with_field("config", json!({"count": 3})), reserved("config.count"));
        let refused = options().with_field("config", json!([]));
        assert_eq!(refused, Err(FieldError::NotAnObject { name: "config".to_owned() }));
        assert!(options().with_field("config", json!({"seed": 3})).is_ok());
        assert!(options().with_field("temperature", 1.into()).is_ok());
    }
}
