//! `view`: shows a text with line numbers, an image, or a directory two levels deep.

use std::fmt::Write as _;

use conjure_base::Redactor;
use conjure_sandbox::{
    CallOptions, EntryKind, Executor, LineRange, Listing, SandboxError, SandboxErrorKind, View,
};

use super::error_text::sandbox_error_result;
use crate::limits::OutputLimits;
use crate::text::{clean, quote};
use crate::tool::ToolOutput;

/// Bytes of a result that are reserved for notices.
const NOTICE_BYTES: usize = 1024;

/// How the results name the other tools.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ViewStyle {
    /// The tool that runs commands.
    pub(crate) shell: &'static str,
    /// The result of a failed operation.
    pub(crate) error: fn(&str, &str, &SandboxError) -> ToolOutput,
}

impl ViewStyle {
    /// The names for the built-in tools.
    pub(super) const BUILTIN: Self = Self { shell: "bash_tool", error: sandbox_error_result };
}

pub(crate) async fn run(
    executor: &dyn Executor,
    path: &str,
    range: Option<LineRange>,
    limits: &OutputLimits,
    redactor: &Redactor,
    options: CallOptions,
    style: &ViewStyle,
) -> ToolOutput {
    let shown = quote(path);
    let budget = limits.view.saturating_sub(NOTICE_BYTES);
    match view_path(executor, path, range, limits, options).await {
        Ok(View::Text { text, first_line, last_line, total_lines, size, truncated }) => {
            let lines = TextLines { text: &text, first_line, last_line, total_lines, size, truncated };
            lines.render(&shown, range, budget, redactor, style.shell)
        }
        Ok(View::Image { media_type, bytes }) => {
            if bytes.len() as u64 > limits.max_image_bytes() {
                return too_large_image(&shown, limits, style.shell);
            }
            ToolOutput::image(media_type, &bytes)
        }
        Ok(View::Binary { size }) => ToolOutput::error(format!(
            "`{shown}` is binary ({size} bytes), neither text nor an image that can be shown\nhint: inspect it with \
             `{}`, for example `file`, `xxd … | head`, or a program that reads its format",
            style.shell
        )),
        Ok(View::Directory(listing)) => ToolOutput::text(directory(&shown, &listing, budget)),
        Err(error) if error.kind() == SandboxErrorKind::TooLarge => {
            too_large_image(&shown, limits, style.shell)
        }
        Err(error) => (style.error)("view", &shown, &error),
    }
}

/// Reads with the size limit of a text first. Only a larger image needs a second request.
async fn view_path(
    executor: &dyn Executor,
    path: &str,
    range: Option<LineRange>,
    limits: &OutputLimits,
    options: CallOptions,
) -> Result<View, SandboxError> {
    let (text, image) = (limits.view as u64, limits.max_image_bytes());
    match executor.view(path, range, text, options.clone()).await {
        Err(error) if error.kind() == SandboxErrorKind::TooLarge && image > text => {
            executor.view(path, range, image, options).await
        }
        other => other,
    }
}

fn too_large_image(shown: &str, limits: &OutputLimits, shell: &str) -> ToolOutput {
    ToolOutput::error(format!(
        "`{shown}` is an image of more than {} bytes, which is more than can be shown\nhint: make a smaller copy of it \
         with `{shell}` and view that",
        limits.max_image_bytes()
    ))
}

/// Lines of a text from an executor.
struct TextLines<'t> {
    text: &'t str,
    first_line: u64,
    last_line: u64,
    total_lines: u64,
    size: u64,
    truncated: bool,
}

impl TextLines<'_> {
    /// Renders as many lines as fit, numbered as by `cat -n`, and then a notice on how to get the rest.
    fn render(
        &self,
        shown: &str,
        range: Option<LineRange>,
        budget: usize,
        redactor: &Redactor,
        shell: &str,
    ) -> ToolOutput {
        if self.size == 0 || self.total_lines == 0 {
            return ToolOutput::text(format!("[`{shown}` is empty]"));
        }
        if self.text.is_empty() {
            let first = range.map_or(1, |range| range.first);
            return ToolOutput::error(format!(
                "`{shown}` has {} lines, and `view_range` starts at line {first}",
                self.total_lines
            ));
        }
        let mut out = String::new();
        let mut last = None;
        let mut lines = (0_u64..).zip(self.text.split_inclusive('\n')).peekable();
        while let Some((place, line)) = lines.next() {
            // The first line's number comes from the executor and may be anything.
            let number = self.first_line.saturating_add(place);
            let whole = lines.peek().is_some() || line.ends_with('\n') || !self.truncated;
            let numbered = format!("{number:>6}\t{}\n", clean(line.trim_end_matches('\n').as_bytes()));
            if last.is_none() && (!whole || numbered.len() > budget) {
                // Not even the first line fits: show its start.
                return ToolOutput::text(self.render_line_start(&numbered, number, budget, redactor, shell));
            }
            if !whole || out.len() + numbered.len() > budget {
                break;
            }
            out.push_str(&numbered);
            last = Some(number);
        }
        let last = last.unwrap_or(self.first_line);
        if last < self.last_line || self.truncated {
            let _ = write!(
                out,
                "[lines {} to {last} of {} are shown, of {} bytes in all; go on with \"view_range\": [{}, -1]]",
                self.first_line,
                self.total_lines,
                self.size,
                last.saturating_add(1)
            );
        }
        ToolOutput::text(out)
    }

    fn render_line_start(
        &self,
        numbered: &str,
        number: u64,
        budget: usize,
        redactor: &Redactor,
        shell: &str,
    ) -> String {
        let end = numbered.floor_char_boundary(budget.min(numbered.len()));
        // Redact again here: truncation may have left a part of a secret.
        let start = redactor.redact_head(numbered[..end].trim_end_matches('\n'));
        format!(
            "{start}\n[line {number} of {} is too long, so only its start is shown, of {} bytes in all; look at parts \
             of it with `{shell}`, for example `sed -n {number}p … | cut -c 1000-2000`]",
            self.total_lines, self.size
        )
    }
}

fn directory(shown: &str, listing: &Listing, budget: usize) -> String {
    if listing.entries.is_empty() {
        return format!("[`{shown}` is an empty directory, hidden names aside]");
    }
    let mut text = format!("{shown}, two levels deep, without hidden names:\n");
    let mut left_out = 0_usize;
    for entry in &listing.entries {
        let path = quote_path(&entry.path);
        let line = match entry.kind {
            EntryKind::Directory => format!("{path}/\n"),
            EntryKind::File => format!("{path} ({} bytes)\n", entry.size),
            EntryKind::Symlink => format!("{path} (link)\n"),
            EntryKind::Other => format!("{path} (device, pipe or socket)\n"),
        };
        if left_out > 0 || text.len() + line.len() > budget {
            left_out += 1;
        } else {
            text.push_str(&line);
        }
    }
    if left_out > 0 {
        let _ = write!(text, "[{left_out} more entries do not fit; view a directory beneath]");
    } else if listing.truncated {
        text.push_str("[there are more entries than can be listed; view a directory beneath]");
    }
    text
}

/// A file name on one line. The system bounds its length, so it is shown in full.
fn quote_path(path: &str) -> String {
    clean(path.as_bytes()).replace('\n', "␊").replace('\r', "␍")
}
