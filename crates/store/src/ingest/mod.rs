//! How contents get into the store: read, digested, staged, then renamed.

pub(crate) mod insert;
pub(crate) mod insert_tree;
pub(crate) mod source_file;
pub(crate) mod staged_file;
