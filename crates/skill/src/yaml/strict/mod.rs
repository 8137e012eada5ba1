//! The part of YAML that the format's reference implementation allows.
//!
//! Block mappings, block sequences and scalars of all five styles; no flow collections, anchors, aliases, tags,
//! directives, merge keys or further documents, and no key twice. The scanner follows, rule by rule, the published
//! algorithm that the reference implementation runs (indentation stack, possible simple keys), so that the two agree on
//! input that no specification decides; the whole-system tests compare them.

mod cursor;
mod parser;
mod scalar;
mod scanner;
#[cfg(test)]
mod tests;

use super::node::{Node, Syntax};

/// How deep a document may nest: far more than any frontmatter, far less than the stack.
const MAX_DEPTH: usize = 64;

/// Reads a document. An empty one is an empty text.
pub(crate) fn read(text: &str) -> Result<Node, Syntax> {
    let tokens = scanner::scan(text)?;
    parser::parse(tokens)
}
