//! The subset of JSON Schema for manifests: parses schemas, checks values, and applies defaults.
//!
//! The keywords are `type` (one of six), `enum`, `pattern`, `minimum`, `maximum`, `items`, `properties`,
//! `default`. They follow the standard (draft 2020-12): `pattern` may match anywhere in a text and ignores other
//! values, `1.0` is an integer, and equal numbers are equal in any notation.
//!
//! Pure. Patterns match in linear time, since they may come from an untrusted source.

mod check;
mod read;
mod types;

pub(crate) use check::json_kind;
pub use check::{Disclosure, SchemaMismatch};
pub use types::{Schema, ValueType};

#[cfg(test)]
mod tests;
