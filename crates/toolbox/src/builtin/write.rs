//! `create_file` and `str_replace`.

use conjure_sandbox::{CallOptions, Executor};

use super::error_text::sandbox_error_result;
use crate::text::quote;
use crate::tool::ToolOutput;

pub(super) async fn create(
    executor: &dyn Executor,
    path: &str,
    text: &str,
    options: CallOptions,
) -> ToolOutput {
    let shown = quote(path);
    match executor.create_file(path, text.as_bytes(), options).await {
        Ok(written) if written.existed => {
            ToolOutput::text(format!("Replaced the file `{shown}`, which now has {} bytes.", written.size))
        }
        Ok(written) => ToolOutput::text(format!("Created the file `{shown}` with {} bytes.", written.size)),
        Err(error) => sandbox_error_result("create", &shown, &error),
    }
}

pub(super) async fn replace(
    executor: &dyn Executor,
    path: &str,
    old: &str,
    new: &str,
    options: CallOptions,
) -> ToolOutput {
    let shown = quote(path);
    match executor.str_replace(path, old, new, options).await {
        Ok(written) => {
            let what = if new.is_empty() { "Deleted" } else { "Replaced" };
            ToolOutput::text(format!(
                "{what} the text in the file `{shown}`, which now has {} bytes.",
                written.size
            ))
        }
        Err(error) => sandbox_error_result("edit", &shown, &error),
    }
}
