//! Insertion of contents into the store: they are read, digested, staged, and then renamed.

pub(crate) mod insert;
pub(crate) mod insert_tree;
pub(crate) mod source_file;
pub(crate) mod staged_file;
