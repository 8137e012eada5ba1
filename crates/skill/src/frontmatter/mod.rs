//! The frontmatter of a `SKILL.md`: the metadata of a skill, before its body.
//!
//! Pure: a text goes in, values and findings come out.

mod check;
mod document;
mod fence;
mod findings;
mod parse;

pub use check::MAX_DESCRIPTION_CHARS;
pub(crate) use check::{ExpectedName, deceptive_chars};
pub use document::{Document, Frontmatter, FrontmatterError, MAX_FRONTMATTER_BYTES, Mode};
pub(crate) use fence::{Scan, scan};
pub(crate) use findings::position;
pub use parse::raw_document;
pub(crate) use parse::{body, unix_lines};

#[cfg(test)]
mod tests;
