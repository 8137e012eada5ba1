//! `bash_tool`: runs `bash -c` and reports its output and exit.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use conjure_base::Redactor;
use conjure_sandbox::{
    CallOptions, Command, CommandEnd, CommandOutcome, CommandOutput, Executor, SandboxErrorKind,
};

use super::error_text::sandbox_error_result;
use crate::limits::OutputLimits;
use crate::text::{quote, truncate};
use crate::tool::{ToolOutput, ToolStatus};

/// Bytes of a result that are reserved for notices.
pub(crate) const NOTICE_BYTES: usize = 2 * 1024;

/// The maximum number of bytes that a guest captures of head and tail each.
const MAX_CAPTURE: usize = 1024 * 1024;

pub(super) async fn run(
    executor: &dyn Executor,
    command: &str,
    environment: BTreeMap<String, String>,
    limits: &OutputLimits,
    redactor: &Redactor,
    options: CallOptions,
) -> ToolOutput {
    let budget = limits.shell.saturating_sub(NOTICE_BYTES);
    let captured = capture_limit(limits.shell);
    let command = Command {
        env: environment,
        keep_head: captured,
        keep_tail: captured,
        spill: limits.spill,
        ..Command::bash(command)
    };
    match executor.run(command, options).await {
        Ok(outcome) => {
            if let CommandEnd::Exited(code) = outcome.end {
                // The span of the call, if there is one.
                tracing::Span::current().record("process.exit.code", code);
            }
            render(&outcome, budget, redactor)
        }
        // The program is missing, not the working directory.
        Err(error) if error.kind() == SandboxErrorKind::NotFound && error.to_string().contains("`bash`") => {
            ToolOutput::error(format!(
                "{error}\nhint: `bash_tool` needs `bash` in the sandbox, and this sandbox has \
             none; the other tools work without it"
            ))
        }
        Err(error) => sandbox_error_result("run", "bash", &error),
    }
}

/// How many bytes of head and tail each to capture, if `max` bytes are shown.
pub(crate) fn capture_limit(max: usize) -> u32 {
    u32::try_from((max.saturating_sub(NOTICE_BYTES) / 2).min(MAX_CAPTURE)).unwrap_or(u32::MAX)
}

/// The text and the status for an outcome.
pub(crate) fn render(outcome: &CommandOutcome, budget: usize, redactor: &Redactor) -> ToolOutput {
    let mut text = String::new();
    // An executor that cannot merge the streams returns both.
    let streams = [("", &outcome.stdout), ("[standard error:]\n", &outcome.stderr)];
    let written = streams.iter().filter(|(_, output)| output.total > 0).count().max(1);
    for (title, output) in streams {
        if output.total > 0 {
            start_new_line(&mut text);
            text.push_str(title);
            push_output(&mut text, output, budget / written, redactor);
        }
    }
    let silent = text.is_empty();
    let (status, notices) = notices(outcome, silent);
    for notice in notices {
        start_new_line(&mut text);
        let _ = write!(text, "[{notice}]");
    }
    ToolOutput::with_status(status, text)
}

/// The status, and the notices beside the output.
pub(crate) fn notices(outcome: &CommandOutcome, silent: bool) -> (ToolStatus, Vec<String>) {
    let (status, line) = exit_line(outcome, silent);
    (status, line.into_iter().chain(limits_reached(outcome).map(str::to_owned)).collect())
}

pub(crate) fn push_output(text: &mut String, output: &CommandOutput, budget: usize, redactor: &Redactor) {
    let cut = truncate(&output.head, &output.tail, output.total, budget);
    if cut.omitted == 0 {
        text.push_str(&cut.head);
        return;
    }
    // Redact again here: truncation may have left a part of a secret.
    text.push_str(&redactor.redact_head(&cut.head));
    start_new_line(text);
    let _ = write!(text, "[{} of {} bytes of output are left out here; ", cut.omitted, output.total);
    let _ = match &output.spill_path {
        Some(path) if output.spilled >= output.total => {
            write!(text, "the complete output is in `{}`", quote(path))
        }
        Some(path) => write!(text, "the first {} bytes of it are in `{}`", output.spilled, quote(path)),
        None => write!(text, "it was not kept: send it to a file, or ask for less"),
    };
    text.push_str("]\n");
    text.push_str(&redactor.redact_tail(&cut.tail));
}

fn exit_line(outcome: &CommandOutcome, silent: bool) -> (ToolStatus, Option<String>) {
    let output_note = if silent { "there was no output" } else { "the output until then is above" };
    let after = format!("after {:.1} s", outcome.duration.as_secs_f64());
    match outcome.end {
        CommandEnd::Exited(0) if silent => (ToolStatus::Succeeded, Some("exit code 0, no output".to_owned())),
        CommandEnd::Exited(0) => (ToolStatus::Succeeded, None),
        CommandEnd::Exited(code) if silent => {
            (ToolStatus::Failed, Some(format!("exit code {code}, no output")))
        }
        CommandEnd::Exited(code) => (ToolStatus::Failed, Some(format!("exit code {code}"))),
        CommandEnd::Signaled(signal) => (
            ToolStatus::Failed,
            Some(format!("killed by signal {signal}{}; {output_note}", signal_name(signal))),
        ),
        CommandEnd::OutOfMemory => {
            (ToolStatus::Failed, Some(format!("killed because memory ran out; {output_note}")))
        }
        CommandEnd::TimedOut => (
            ToolStatus::TimedOut,
            Some(format!(
                "timed out {after}, and everything it started was ended; {output_note}. For long work, do less in one \
                 command"
            )),
        ),
        CommandEnd::Cancelled => (
            ToolStatus::Cancelled,
            Some(format!("cancelled {after}, and everything it started was ended; {output_note}")),
        ),
        CommandEnd::Lost => (
            ToolStatus::Lost,
            Some(format!(
                "the sandbox lost the command {after}; its effects are unknown: check before trying again; {output_note}"
            )),
        ),
        CommandEnd::QuotaExceeded(excess) => (
            ToolStatus::Failed,
            Some(format!(
                "ended {after}, because the workspace took {excess}; {output_note}. Nothing can be written until you remove \
                 files from it, with `rm`"
            )),
        ),
    }
}

/// Notices about limits that the command reached, so that the model does not look for another cause.
fn limits_reached(outcome: &CommandOutcome) -> impl Iterator<Item = &'static str> {
    let reached = outcome.limits_hit;
    [
        (
            reached.memory && outcome.end != CommandEnd::OutOfMemory,
            "meanwhile the sandbox's memory ran out, and a process in it was killed; use less at a time",
        ),
        (
            reached.processes,
            "the sandbox had as many processes as it may have, and new ones were refused; start fewer at a time, and \
             end what is not needed",
        ),
        (
            reached.ended_leftovers,
            "what it left running was ended, since that left no room for new processes",
        ),
    ]
    .into_iter()
    .filter_map(|(applies, notice)| applies.then_some(notice))
}

fn start_new_line(text: &mut String) {
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
}

/// ` (SIGKILL)` and so on, for signals that end programs.
const fn signal_name(signal: i32) -> &'static str {
    match signal {
        1 => " (SIGHUP)",
        2 => " (SIGINT)",
        3 => " (SIGQUIT)",
        4 => " (SIGILL)",
        6 => " (SIGABRT)",
        7 => " (SIGBUS)",
        8 => " (SIGFPE)",
        9 => " (SIGKILL)",
        11 => " (SIGSEGV)",
        13 => " (SIGPIPE)",
        14 => " (SIGALRM)",
        15 => " (SIGTERM)",
        24 => " (SIGXCPU)",
        25 => " (SIGXFSZ: a file became longer than any may be here)",
        31 => " (SIGSYS)",
        _ => "",
    }
}
