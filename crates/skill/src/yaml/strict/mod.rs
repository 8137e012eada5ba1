//! The YAML subset of the format's reference implementation.
//!
//! It has block mappings, block sequences and scalars of all five styles. It has no flow collections, anchors,
//! aliases, tags, directives, merge keys or further documents, and keys are unique. The scanner follows the
//! published algorithm of the reference implementation rule by rule (indentation stack, possible simple keys), so
//! both agree on input that no specification covers. The whole-system tests compare them.

mod cursor;
mod parser;
mod scalar;
mod scanner;
#[cfg(test)]
mod tests;

pub(crate) use parser::read;
