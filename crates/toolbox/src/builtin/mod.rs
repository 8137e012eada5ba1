//! The four built-in tools: `view`, `bash_tool`, `create_file` and `str_replace`.
//!
//! Their names and schemas are in `BuiltinTool` of the crate `conjure-prompt`. `call` reads the input of a call and runs it.

pub(crate) mod bash;
mod call;
pub(crate) mod error_text;
pub(crate) mod view;
mod write;

pub(crate) use call::BuiltinCall;

#[cfg(test)]
mod tests;
