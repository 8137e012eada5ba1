//! The tools of `agent_toolset_20260401`: `bash` in one shell, `read`, `write`, `edit`, `glob`, `grep` and `web_fetch`.

mod error_text;
mod shell;

mod edit;
mod notebook;
mod read;
mod whole_file;
mod write;

mod glob;
mod grep;
mod tree_walk;

mod page_text;

mod call;

pub(crate) use call::{Toolset, ToolsetCall, ToolsetContext, fetched};
