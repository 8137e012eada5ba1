//! A YAML document as a tree of texts.

/// A position in the text: line and column in characters, both counted from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Mark {
    pub(crate) line: u32,
    pub(crate) column: u32,
}

/// A value with its position.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Node {
    pub(crate) value: Value,
    pub(crate) mark: Mark,
}

/// The kind of a node. The keys of a mapping are texts and unique.
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

/// The text is not valid YAML.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Syntax {
    pub(crate) message: String,
    pub(crate) mark: Mark,
}
