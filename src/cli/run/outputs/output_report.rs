//! Prints the files that a run produced.

use std::path::Path;
use std::time::Duration;

use conjure::artifact::{ExpectedOutput, OutputMatch, ProducedFiles, SessionFile};
use conjure::sandbox::{CallOptions, Executor, HostAccess};
use conjure::session::SessionWorkspace;
use conjure::{Clock as _, SystemClock};

use crate::cli::terminal::{Style, Terminal, printable};

/// The maximum number of files that are printed.
const MAX_LISTED: usize = 50;

/// The timeout for copying files out of a sandbox.
const FETCH_TIMEOUT: Duration = Duration::from_secs(600);

/// Copies outputs to the workspace on this machine, if the sandbox has its own.
pub(crate) async fn fetch_outputs(executor: &dyn Executor, terminal: &Terminal) {
    if executor.host_access() == HostAccess::Mounted {
        return;
    }
    let options = CallOptions::until(SystemClock.deadline(FETCH_TIMEOUT));
    match executor.copy_out(options).await {
        Ok(brought) => {
            for left in brought.skipped.iter().take(MAX_LISTED) {
                let (path, reason) = (printable(&left.path), printable(&left.reason));
                terminal.warning(&format!("`{path}` stays in the sandbox, and goes with it: {reason}"));
            }
        }
        Err(error) => {
            let reason = printable(&error.to_string());
            terminal.warning(&format!(
                "not all that the run produced in the sandbox could be brought here: {reason}"
            ));
        }
    }
}

/// Lists the files on standard error. Returns whether there are any.
pub(crate) fn print_produced(
    produced: &ProducedFiles,
    workspace: &SessionWorkspace,
    terminal: &Terminal,
) -> bool {
    if produced.files.is_empty() && produced.complete {
        return false;
    }
    terminal.styled(Style::Plain, "produced files:");
    for file in produced.files.iter().take(MAX_LISTED) {
        let path = printable(&workspace.path().join(&file.path).to_string_lossy());
        let changed = if file.existed { " (changed)" } else { "" };
        terminal.note(&format!("  {:>9}  {path}{changed}", human_size(file.size)));
    }
    if produced.files.len() > MAX_LISTED {
        terminal.note(&format!("  … and {} more", produced.files.len() - MAX_LISTED));
    }
    if !produced.complete {
        terminal.warning("too many files to list; there may be more");
    }
    true
}

/// Lists the files at the model's service on standard error. `copies` is the directory for their copies.
pub(crate) fn print_hosted(files: &[&SessionFile], copies: Option<&Path>, terminal: &Terminal) {
    if files.is_empty() {
        return;
    }
    terminal.styled(Style::Plain, "produced files, with the model's service:");
    for file in files.iter().take(MAX_LISTED) {
        terminal.note(&format!("  {}", hosted_line(file)));
    }
    if files.len() > MAX_LISTED {
        terminal.note(&format!("  … and {} more", files.len() - MAX_LISTED));
    }
    if copies.is_none() {
        terminal.note("they stay there (`--out DIR` copies them)");
    }
}

/// One line for a file at the model's service.
pub(crate) fn hosted_line(file: &SessionFile) -> String {
    let known = file.size.map_or_else(|| "unknown".to_owned(), human_size);
    format!("{known:>9}  {}  {}", printable(&file.name), printable(&file.id))
}

/// Prints which declared outputs exist.
pub(crate) fn print_expected(expected: &[ExpectedOutput], terminal: &Terminal) {
    for output in expected.iter().take(MAX_LISTED) {
        let what = format!("`{}` of the skill `{}`", printable(&output.pattern), printable(&output.skill));
        match &output.found {
            OutputMatch::Files(files) => {
                let files: Vec<String> =
                    files.iter().take(3).map(|path| printable(&path.to_string_lossy())).collect();
                terminal.note(&format!("  {what}: {}", files.join(", ")));
            }
            OutputMatch::Missing => terminal.warning(&format!("{what} was not produced")),
            OutputMatch::Unknown(reason) => terminal.note(&format!("  {what}: {}", printable(reason))),
        }
    }
}

/// A size for people.
pub(crate) fn human_size(bytes: u64) -> String {
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut rest = bytes;
    let mut unit = 0;
    while rest >= 1024 * 1024 && unit + 1 < UNITS.len() {
        rest /= 1024;
        unit += 1;
    }
    format!("{}.{} {}", rest / 1024, rest % 1024 * 10 / 1024, UNITS[unit])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_short() {
        let cases = [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.0 KiB"),
            (1536, "1.5 KiB"),
            (1 << 20, "1.0 MiB"),
            (5 << 40, "5.0 TiB"),
        ];
        for (bytes, text) in cases {
            assert_eq!(human_size(bytes), text);
        }
    }
}
