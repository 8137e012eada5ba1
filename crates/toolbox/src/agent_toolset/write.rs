//! `write`: writes a whole file.

use conjure_sandbox::{CallOptions, Executor};

use super::error_text::toolset_error;
use crate::text::quote;
use crate::tool::ToolOutput;

pub(super) async fn run(
    executor: &dyn Executor,
    path: &str,
    content: &str,
    options: CallOptions,
) -> ToolOutput {
    let shown = quote(path);
    match executor.create_file(path, content.as_bytes(), options).await {
        Ok(written) if written.existed => {
            ToolOutput::text(format!("Replaced the file `{shown}`, which now has {} bytes.", written.size))
        }
        Ok(written) => ToolOutput::text(format!("Created the file `{shown}` with {} bytes.", written.size)),
        Err(error) => toolset_error("write", &shown, &error),
    }
}
