//! The expectations of a script's turn about its request.

use std::fmt;

use conjure_base::{ContainerId, Digest};
use serde::Deserialize;
use serde::de::{self, Deserializer, SeqAccess, Visitor};

use super::expression::Pattern;
use super::request_view::{RequestView, ResultRef, request_digest, shorten};

/// The expectations of one turn. An absent one always holds.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Expectation {
    /// The expectation of the user's last text.
    user: Option<TextExpectation>,
    /// The expectation of the instructions, joined.
    system: Option<TextExpectation>,
    /// Tools that must be among those sent.
    tools: OneOrMore,
    /// How many messages are sent.
    messages: Option<usize>,
    /// The expectations of tool results in the history.
    results: Vec<ResultExpectation>,
    /// The container of the request; null expects that there is none.
    #[serde(deserialize_with = "nullable")]
    container: Option<Option<ContainerId>>,
    /// The digest of the request.
    request: Option<Digest>,
}

/// The expectation of a text.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct TextExpectation {
    contains: OneOrMore,
    matches: Option<CheckedPattern>,
}

/// The expectation of a tool result.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct ResultExpectation {
    /// A call's id, or `last`.
    #[serde(default = "last")]
    id: String,
    #[serde(default)]
    contains: OneOrMore,
    matches: Option<CheckedPattern>,
    is_error: Option<bool>,
}

fn last() -> String {
    "last".to_owned()
}

/// One text or a list of them.
#[derive(Debug, Clone, Default)]
struct OneOrMore(Vec<String>);

#[derive(Debug, Clone, Deserialize)]
#[serde(try_from = "String")]
struct CheckedPattern(Pattern);

impl TryFrom<String> for CheckedPattern {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        Pattern::new(text).map(Self)
    }
}

impl Expectation {
    /// Checks the request. The error names the expectation that failed and what was sent instead.
    pub(super) fn check(&self, sent: &RequestView<'_>) -> Result<(), String> {
        if let Some(expected) = &self.system {
            expected.check("expect.system", "the instructions", sent.system())?;
        }
        let tools = &sent.request().tools;
        for name in &self.tools.0 {
            if !tools.iter().any(|tool| tool.name == *name) {
                let names: Vec<&str> = tools.iter().map(|tool| tool.name.as_str()).collect();
                return Err(format!(
                    "expect.tools: the tool `{name}` must be sent; sent were [{}]",
                    names.join(", ")
                ));
            }
        }
        let count = sent.request().messages.len();
        if let Some(expected) = self.messages.filter(|expected| *expected != count) {
            return Err(format!("expect.messages: {expected} messages must be sent; sent were {count}"));
        }
        let container = &sent.request().container;
        if let Some(expected) = self.container.as_ref().filter(|expected| *expected != container) {
            let named =
                |id: &Option<ContainerId>| id.as_ref().map_or("none".to_owned(), |id| format!("`{id}`"));
            let (expected, sent) = (named(expected), named(container));
            return Err(format!("expect.container: {expected} must be sent; sent was {sent}"));
        }
        if let Some(expected) = &self.user {
            expected.check("expect.user", "the user's last text", &sent.user().unwrap_or_default())?;
        }
        for (index, expected) in self.results.iter().enumerate() {
            expected.check(&format!("expect.results[{index}]"), sent)?;
        }
        if let Some(expected) = &self.request {
            check_digest("expect.request", expected, sent)?;
        }
        Ok(())
    }
}

/// Checks the digest of the request.
pub(super) fn check_digest(field: &str, expected: &Digest, sent: &RequestView<'_>) -> Result<(), String> {
    let request = sent.request();
    let digest = request_digest(request);
    if digest == *expected {
        return Ok(());
    }
    Err(format!(
        "{field}: the request must have the digest {expected}; what was sent has {digest}: {} instructions, {} \
         tools, {} messages, the user's last text {}",
        request.instructions.len(),
        request.tools.len(),
        request.messages.len(),
        shorten(&sent.user().unwrap_or_default()),
    ))
}

impl TextExpectation {
    fn check(&self, field: &str, what: &str, text: &str) -> Result<(), String> {
        check_text(field, what, &self.contains, self.matches.as_ref(), text)
    }
}

impl ResultExpectation {
    fn check(&self, field: &str, sent: &RequestView<'_>) -> Result<(), String> {
        let Some(result) = sent.result(&ResultRef::new(&*self.id)) else {
            let ids: Vec<&str> = sent.results().map(|result| result.id).take(10).collect();
            return Err(format!(
                "{field}: a tool result `{}` must be sent; the last ones sent answer [{}]",
                self.id,
                ids.join(", ")
            ));
        };
        let what = format!("the result of `{}`", result.id);
        if let Some(expected) = self.is_error.filter(|expected| *expected != result.is_error) {
            let verb =
                if expected { "must be an error, and is none" } else { "must be no error, and is one" };
            return Err(format!("{field}.is_error: {what} {verb}: {}", shorten(result.text)));
        }
        check_text(field, &what, &self.contains, self.matches.as_ref(), result.text)
    }
}

fn check_text(
    field: &str,
    what: &str,
    contains: &OneOrMore,
    matches: Option<&CheckedPattern>,
    text: &str,
) -> Result<(), String> {
    for part in &contains.0 {
        if !text.contains(part.as_str()) {
            let (part, text) = (shorten(part), shorten(text));
            return Err(format!("{field}.contains: {what} must contain {part}; sent was {text}"));
        }
    }
    if let Some(CheckedPattern(pattern)) = matches
        && pattern.find(text).is_none()
    {
        let (pattern, text) = (pattern.as_str(), shorten(text));
        return Err(format!("{field}.matches: {what} must match `{pattern}`; sent was {text}"));
    }
    Ok(())
}

impl<'de> Deserialize<'de> for OneOrMore {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TextsVisitor;
        impl<'de> Visitor<'de> for TextsVisitor {
            type Value = OneOrMore;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text or a list of texts")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<OneOrMore, E> {
                Ok(OneOrMore(vec![text.to_owned()]))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<OneOrMore, A::Error> {
                let mut texts = Vec::new();
                while let Some(text) = seq.next_element()? {
                    texts.push(text);
                }
                Ok(OneOrMore(texts))
            }
        }
        deserializer.deserialize_any(TextsVisitor)
    }
}

/// Distinguishes a field that is null from an absent one.
pub(super) fn nullable<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Option<T>>, D::Error> {
    Option::deserialize(deserializer).map(Some)
}
