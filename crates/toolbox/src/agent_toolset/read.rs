//! `read`: shows a text with line numbers, an image, a notebook as text, and a PDF as a document.

use std::path::Path;

use conjure_base::Redactor;
use conjure_sandbox::{CallOptions, Executor, LineRange, SandboxErrorKind};

use super::error_text::toolset_error;
use super::notebook;
use super::whole_file::read_whole;
use crate::builtin::view::{self, ViewStyle};
use crate::limits::OutputLimits;
use crate::text::{quote, truncate};
use crate::tool::ToolOutput;

/// The largest notebook, images in its outputs included.
const MAX_NOTEBOOK_BYTES: u64 = 32 * 1024 * 1024;

/// Bytes of a result that are reserved for notices.
const NOTICE_BYTES: usize = 1024;

/// The tool names that its results use.
const STYLE: ViewStyle = ViewStyle { shell: "bash", error: toolset_error };

pub(super) async fn run(
    executor: &dyn Executor,
    path: &str,
    range: Option<LineRange>,
    limits: &OutputLimits,
    redactor: &Redactor,
    options: CallOptions,
) -> ToolOutput {
    let extension = Path::new(path).extension().and_then(|extension| extension.to_str());
    let is = |name: &str| extension.is_some_and(|extension| extension.eq_ignore_ascii_case(name));
    if is("pdf") {
        return document(executor, path, limits, options).await;
    }
    // The model has requested lines, so it wants the file as text.
    if is("ipynb") && range.is_none() {
        match read_whole(executor, path, MAX_NOTEBOOK_BYTES, options.clone()).await {
            Ok(bytes) => {
                if let Some(text) = notebook::render(&bytes) {
                    return ToolOutput::text(shorten(&text, path, limits, redactor));
                }
            }
            Err(error) if error.kind() == SandboxErrorKind::TooLarge => {}
            Err(error) => return toolset_error("read", &quote(path), &error),
        }
    }
    view::run(executor, path, range, limits, redactor, options, &STYLE).await
}

fn shorten(text: &str, path: &str, limits: &OutputLimits, redactor: &Redactor) -> String {
    let budget = limits.view.saturating_sub(NOTICE_BYTES);
    let cut = truncate(text.as_bytes(), b"", text.len() as u64, budget);
    if cut.omitted == 0 {
        return cut.head;
    }
    // Redact again here: truncation may have left a part of a secret.
    format!(
        "{}\n[{} of {} bytes of the notebook `{}` are left out here; give a `view_range` to read lines of its JSON]\n{}",
        redactor.redact_head(&cut.head),
        cut.omitted,
        text.len(),
        quote(path),
        redactor.redact_tail(&cut.tail)
    )
}

/// Reads a whole PDF, because the model's service reads its pages.
async fn document(
    executor: &dyn Executor,
    path: &str,
    limits: &OutputLimits,
    options: CallOptions,
) -> ToolOutput {
    let (shown, max) = (quote(path), limits.max_document_bytes());
    match read_whole(executor, path, max, options).await {
        Ok(bytes) if bytes.starts_with(b"%PDF-") => ToolOutput::document("application/pdf", &bytes),
        Ok(_) => ToolOutput::error(format!(
            "`{shown}` is not a PDF, despite its name\nhint: inspect it with `bash`, for example by `file`"
        )),
        Err(error) if error.kind() == SandboxErrorKind::TooLarge => ToolOutput::error(format!(
            "`{shown}` is a PDF of more than {max} bytes, which is more than can be shown\nhint: extract the text or single pages of it with \
             `bash`, for example by `pdftotext` or Python"
        )),
        Err(error) => toolset_error("read", &shown, &error),
    }
}
