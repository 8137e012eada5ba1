//! `edit`: replaces text in a file, once or everywhere.

use conjure_sandbox::{CallOptions, Executor, SandboxError, SandboxErrorKind};

use super::error_text::toolset_error;
use super::whole_file::read_whole;
use crate::text::quote;
use crate::tool::ToolOutput;

/// The largest file in which every occurrence is replaced.
const MAX_BYTES: u64 = 16 * 1024 * 1024;

/// A checked input of `edit`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Edit {
    pub(crate) path: String,
    pub(crate) old: String,
    pub(crate) new: String,
    pub(crate) extent: EditExtent,
}

/// Which occurrences are replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EditExtent {
    /// The only occurrence.
    Only,
    /// Every occurrence.
    All,
}

pub(super) async fn run(executor: &dyn Executor, edit: &Edit, options: CallOptions) -> ToolOutput {
    let Edit { path, old, new, extent } = edit;
    let shown = quote(path);
    match extent {
        EditExtent::Only => match executor.str_replace(path, old, new, options).await {
            Ok(written) => ToolOutput::text(format!(
                "Replaced the text in the file `{shown}`, which now has {} bytes.",
                written.size
            )),
            Err(error) => toolset_error("edit", &shown, &error),
        },
        EditExtent::All => match replace_everywhere(executor, edit, options).await {
            Ok((count, size)) => ToolOutput::text(format!(
                "Replaced {count} occurrence{} of the text in the file `{shown}`, which now has {size} bytes.",
                if count == 1 { "" } else { "s" }
            )),
            Err(error) => toolset_error("edit", &shown, &error),
        },
    }
}

/// Replaces every occurrence. Returns how many there were, and the size of the file.
async fn replace_everywhere(
    executor: &dyn Executor,
    edit: &Edit,
    options: CallOptions,
) -> Result<(usize, u64), SandboxError> {
    let shown = quote(&edit.path);
    let bytes = read_whole(executor, &edit.path, MAX_BYTES, options.clone()).await?;
    let text = String::from_utf8(bytes).map_err(|_| {
        SandboxError::new(SandboxErrorKind::NotText, format!("cannot edit `{shown}`: it is not UTF-8 text"))
    })?;
    let count = text.matches(&edit.old).count();
    if count == 0 {
        let message = format!("cannot edit `{shown}`: the text to replace does not occur in it");
        return Err(SandboxError::new(SandboxErrorKind::NoMatch, message));
    }
    let changed = text.replace(&edit.old, &edit.new);
    let written = executor.create_file(&edit.path, changed.as_bytes(), options).await?;
    Ok((count, written.size))
}
