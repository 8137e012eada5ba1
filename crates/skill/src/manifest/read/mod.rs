//! Parses manifests. The result is a [`Manifest`](super::Manifest), or findings that name what to mend.

mod fields;
mod origin;
mod parse;
mod reader;

pub(crate) use origin::{ManifestOrigin, declares_manifest, is_manifest_field};
pub(crate) use parse::read;
