//! The values of a skill's frontmatter.

pub(crate) mod metadata;
pub(crate) mod name;
pub(crate) mod properties;
pub(crate) mod version;
