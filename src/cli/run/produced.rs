//! The files that a run produced, told at its end.

use std::time::Duration;

use conjure::{
    CallOptions, Clock as _, Executor, ExpectedOutput, FoundOutputs, ProducedFiles, SessionFile, Sharing,
    SystemClock, Workspace,
};

use crate::cli::run::out::Out;
use crate::cli::terminal::{Style, Terminal, printable};

/// More than anybody reads.
const MOST_LISTED: usize = 50;

/// How long files may take from a sandbox elsewhere.
const FETCH_PATIENCE: Duration = Duration::from_secs(600);

/// Brings what was produced to the workspace here, where the sandbox has its own.
pub(super) async fn fetch(executor: &dyn Executor, terminal: &Terminal) {
    if executor.sharing() == Sharing::Shared {
        return;
    }
    let options = CallOptions::until(SystemClock.deadline(FETCH_PATIENCE));
    match executor.bring_back(options).await {
        Ok(brought) => {
            for left in brought.left.iter().take(MOST_LISTED) {
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

/// Lists the files on standard error, and says whether there are any.
pub(super) fn report(produced: &ProducedFiles, workspace: &Workspace, terminal: &Terminal) -> bool {
    if produced.files.is_empty() && produced.complete {
        return false;
    }
    terminal.styled(Style::Plain, "produced files:");
    for file in produced.files.iter().take(MOST_LISTED) {
        let path = printable(&workspace.path().join(&file.path).to_string_lossy());
        let changed = if file.existed { " (changed)" } else { "" };
        terminal.note(&format!("  {:>9}  {path}{changed}", size(file.size)));
    }
    if produced.files.len() > MOST_LISTED {
        terminal.note(&format!("  … and {} more", produced.files.len() - MOST_LISTED));
    }
    if !produced.complete {
        terminal.warning("the workspace holds too much to be looked at whole: there may be more");
    }
    true
}

/// Lists the files that the model's service keeps, on standard error.
pub(super) fn report_hosted(files: &[&SessionFile], out: Option<&Out>, terminal: &Terminal) {
    if files.is_empty() {
        return;
    }
    terminal.styled(Style::Plain, "produced files, with the model's service:");
    for file in files.iter().take(MOST_LISTED) {
        terminal.note(&format!("  {}", hosted(file)));
    }
    if files.len() > MOST_LISTED {
        terminal.note(&format!("  … and {} more", files.len() - MOST_LISTED));
    }
    if out.is_none() {
        terminal.note("they stay there (`--out DIR` copies them)");
    }
}

/// A file that the model's service keeps, on one line.
pub(crate) fn hosted(file: &SessionFile) -> String {
    let known = file.size.map_or_else(|| "unknown".to_owned(), size);
    format!("{known:>9}  {}  {}", printable(&file.name), printable(&file.id))
}

/// Tells which files the skills say that they make, and whether they are there.
pub(super) fn compare(expected: &[ExpectedOutput], terminal: &Terminal) {
    for output in expected.iter().take(MOST_LISTED) {
        let what = format!("`{}` of the skill `{}`", printable(&output.pattern), printable(&output.skill));
        match &output.found {
            FoundOutputs::Files(files) => {
                let files: Vec<String> =
                    files.iter().take(3).map(|path| printable(&path.to_string_lossy())).collect();
                terminal.note(&format!("  {what}: {}", files.join(", ")));
            }
            FoundOutputs::Missing => terminal.warning(&format!("{what} was not produced")),
            FoundOutputs::Unknown(reason) => terminal.note(&format!("  {what}: {}", printable(reason))),
        }
    }
}

/// A size for people.
pub(crate) fn size(bytes: u64) -> String {
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
            assert_eq!(size(bytes), text);
        }
    }
}
