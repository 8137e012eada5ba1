//! `view`: a text with numbered lines, an image, or a folder two levels deep.

use std::fmt::Write as _;

use conjure_base::Redactor;
use conjure_sandbox::{
    CallOptions, EntryKind, Executor, LineRange, Listing, SandboxError, SandboxErrorKind, View,
};

use super::failure::failure;
use crate::limits::OutputLimits;
use crate::text::{clean, quote};
use crate::tool::ToolOutcome;

/// Bytes of a result that are set apart for notices.
const NOTICES: usize = 1024;

pub(super) async fn run(
    executor: &dyn Executor,
    path: &str,
    range: Option<LineRange>,
    limits: &OutputLimits,
    redactor: &Redactor,
    options: CallOptions,
) -> ToolOutcome {
    let shown = quote(path);
    let budget = limits.view.saturating_sub(NOTICES);
    match look(executor, path, range, limits, options).await {
        Ok(View::Text { text, first_line, last_line, total_lines, size, truncated }) => {
            let lines = Lines { text: &text, first_line, last_line, total_lines, size, truncated };
            lines.render(&shown, range, budget, redactor)
        }
        Ok(View::Image { media_type, bytes }) => {
            if bytes.len() as u64 > limits.raw_image() {
                return too_large_image(&shown, limits);
            }
            ToolOutcome::image(media_type, &bytes)
        }
        Ok(View::Binary { size }) => ToolOutcome::error(format!(
            "`{shown}` is binary ({size} bytes), neither text nor an image that can be shown\nhint: inspect it with \
             `bash_tool`, for example `file`, `xxd … | head`, or a program that reads its format"
        )),
        Ok(View::Directory(listing)) => ToolOutcome::text(directory(&shown, &listing, budget)),
        Err(error) if error.kind() == SandboxErrorKind::TooLarge => too_large_image(&shown, limits),
        Err(error) => failure("view", &shown, &error),
    }
}

/// Looks with the bound of a text first: only an image is worth fetching more, and it says that it is too large.
async fn look(
    executor: &dyn Executor,
    path: &str,
    range: Option<LineRange>,
    limits: &OutputLimits,
    options: CallOptions,
) -> Result<View, SandboxError> {
    let (text, image) = (limits.view as u64, limits.raw_image());
    match executor.view(path, range, text, options.clone()).await {
        Err(error) if error.kind() == SandboxErrorKind::TooLarge && image > text => {
            executor.view(path, range, image, options).await
        }
        other => other,
    }
}

fn too_large_image(shown: &str, limits: &OutputLimits) -> ToolOutcome {
    ToolOutcome::error(format!(
        "`{shown}` is an image of more than {} bytes, which is more than can be shown\nhint: make a smaller copy of it \
         with `bash_tool` and view that",
        limits.raw_image()
    ))
}

/// Lines of a text, as an executor gave them.
struct Lines<'t> {
    text: &'t str,
    first_line: u64,
    last_line: u64,
    total_lines: u64,
    size: u64,
    truncated: bool,
}

impl Lines<'_> {
    /// The lines with their numbers, as `cat -n` writes them, as many as fit; then what is missing and how to get it.
    fn render(
        &self,
        shown: &str,
        range: Option<LineRange>,
        budget: usize,
        redactor: &Redactor,
    ) -> ToolOutcome {
        if self.size == 0 || self.total_lines == 0 {
            return ToolOutcome::text(format!("[`{shown}` is empty]"));
        }
        if self.text.is_empty() {
            let first = range.map_or(1, |range| range.first);
            return ToolOutcome::error(format!(
                "`{shown}` has {} lines, and `view_range` starts at line {first}",
                self.total_lines
            ));
        }
        let mut out = String::new();
        let mut last = None;
        let mut lines = (0_u64..).zip(self.text.split_inclusive('\n')).peekable();
        while let Some((place, line)) = lines.next() {
            // The first line's number is what an executor says, and may be anything.
            let number = self.first_line.saturating_add(place);
            let whole = lines.peek().is_some() || line.ends_with('\n') || !self.truncated;
            let numbered = format!("{number:>6}\t{}\n", clean(line.trim_end_matches('\n').as_bytes()));
            if last.is_none() && (!whole || numbered.len() > budget) {
                // Not even the first line fits: its start is better than nothing.
                return ToolOutcome::text(self.start_of_line(&numbered, number, budget, redactor));
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
        ToolOutcome::text(out)
    }

    fn start_of_line(&self, numbered: &str, number: u64, budget: usize, redactor: &Redactor) -> String {
        let end = numbered.floor_char_boundary(budget.min(numbered.len()));
        // Only here it is known where the text was cut, and so where a part of a secret may stand.
        let start = redactor.redact_head(numbered[..end].trim_end_matches('\n'));
        format!(
            "{start}\n[line {number} of {} is too long, so only its start is shown, of {} bytes in all; look at parts \
             of it with `bash_tool`, for example `sed -n {number}p … | cut -c 1000-2000`]",
            self.total_lines, self.size
        )
    }
}

fn directory(shown: &str, listing: &Listing, budget: usize) -> String {
    if listing.entries.is_empty() {
        return format!("[`{shown}` is an empty folder, hidden names aside]");
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
        let _ = write!(text, "[{left_out} more entries do not fit; view a folder beneath]");
    } else if listing.truncated {
        text.push_str("[there are more entries than can be listed; view a folder beneath]");
    }
    text
}

/// A name as one line, whatever characters it holds. Names are bounded by the system, so it is shown whole.
fn quote_path(path: &str) -> String {
    clean(path.as_bytes()).replace('\n', "␊").replace('\r', "␍")
}
