//! YAML as frontmatter needs it: every scalar is text as written, every node knows its place.
//!
//! [`strict`] reads the part of YAML that the format's reference implementation allows, [`lenient`] all of YAML, and
//! repairs what real files get wrong.

mod lenient;
mod node;
mod strict;

pub(crate) use lenient::{Repairing, read as read_lenient, read_typed};
pub(crate) use node::{Mark, Node, Value};
pub(crate) use strict::read as read_strict;
