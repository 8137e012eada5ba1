//! YAML for frontmatter: every scalar is text as written, every node has its position.
//!
//! [`strict`] reads the YAML subset of the format's reference implementation. [`lenient`] reads all of YAML, and
//! repairs what real files get wrong.

mod lenient;
mod node;
mod strict;

pub(crate) use lenient::{RepairMode, read as read_lenient, read_typed};
pub(crate) use node::{Mark, Node, Value};
pub(crate) use strict::read as read_strict;
