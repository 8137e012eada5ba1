//! A YAML document as a tree of texts.

/// A place in the text that was read: line and column in characters, both counted from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Mark {
    pub(crate) line: u32,
    pub(crate) column: u32,
}

/// A value with its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Node {
    pub(crate) value: Value,
    pub(crate) mark: Mark,
}

/// What a node is. Keys are texts and differ from each other within a mapping.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Value {
    Scalar(String),
    Sequence(Vec<Node>),
    Mapping(Vec<(String, Mark, Node)>),
}

impl Node {
    /// The text, when it is one.
    pub(crate) fn as_text(&self) -> Option<&str> {
        match &self.value {
            Value::Scalar(text) => Some(text),
            Value::Sequence(_) | Value::Mapping(_) => None,
        }
    }
}

/// A text that is not the YAML that was asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Syntax {
    pub(crate) message: String,
    pub(crate) mark: Mark,
}
