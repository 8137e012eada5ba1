//! `bash_tool`: runs `bash -c` and tells what it wrote and how it ended.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use conjure_base::Redactor;
use conjure_sandbox::{
    CallOptions, Command, CommandEnd, CommandOutcome, CommandOutput, Executor, SandboxErrorKind,
};

use super::failure::failure;
use crate::limits::OutputLimits;
use crate::text::{cut, quote};
use crate::tool::{ToolOutcome, ToolStatus};

/// Bytes of a result that are set apart for notices.
pub(crate) const NOTICES: usize = 2 * 1024;

/// The most that a guest keeps of either end.
const MOST_KEPT: usize = 1024 * 1024;

pub(super) async fn run(
    executor: &dyn Executor,
    command: &str,
    environment: BTreeMap<String, String>,
    limits: &OutputLimits,
    redactor: &Redactor,
    options: CallOptions,
) -> ToolOutcome {
    let budget = limits.shell.saturating_sub(NOTICES);
    let kept = most_kept(limits.shell);
    let command = Command {
        env: environment,
        keep_head: kept,
        keep_tail: kept,
        spill: limits.spill,
        ..Command::bash(command)
    };
    match executor.run(command, options).await {
        Ok(outcome) => {
            if let CommandEnd::Exited(code) = outcome.end {
                // The span of the call, where it has one.
                tracing::Span::current().record("process.exit.code", code);
            }
            render(&outcome, budget, redactor)
        }
        // The program itself, and not the folder to run it in.
        Err(error) if error.kind() == SandboxErrorKind::NotFound && error.to_string().contains("`bash`") => {
            ToolOutcome::error(format!(
                "{error}\nhint: `bash_tool` needs `bash` in the sandbox, and this sandbox has \
             none; the other tools work without it"
            ))
        }
        Err(error) => failure("run", "bash", &error),
    }
}

/// Bytes of either end of an output that are worth keeping, where `most` bytes of it are shown.
pub(crate) fn most_kept(most: usize) -> u32 {
    u32::try_from((most.saturating_sub(NOTICES) / 2).min(MOST_KEPT)).unwrap_or(u32::MAX)
}

fn render(outcome: &CommandOutcome, budget: usize, redactor: &Redactor) -> ToolOutcome {
    let mut text = String::new();
    // An executor that cannot merge the streams still tells both.
    let streams = [("", &outcome.stdout), ("[standard error:]\n", &outcome.stderr)];
    let written = streams.iter().filter(|(_, output)| output.total > 0).count().max(1);
    for (title, output) in streams {
        if output.total > 0 {
            start_line(&mut text);
            text.push_str(title);
            push_output(&mut text, output, budget / written, redactor);
        }
    }
    let silent = text.is_empty();
    let (status, notices) = notices(outcome, silent);
    for notice in notices {
        start_line(&mut text);
        let _ = write!(text, "[{notice}]");
    }
    ToolOutcome::with_status(status, text)
}

/// How it went, and what to say of it beside the output.
pub(crate) fn notices(outcome: &CommandOutcome, silent: bool) -> (ToolStatus, Vec<String>) {
    let (status, ending) = ending(outcome, silent);
    (status, ending.into_iter().chain(limits_reached(outcome).map(str::to_owned)).collect())
}

pub(crate) fn push_output(text: &mut String, output: &CommandOutput, budget: usize, redactor: &Redactor) {
    let cut = cut(&output.head, &output.tail, output.total, budget);
    if cut.omitted == 0 {
        text.push_str(&cut.head);
        return;
    }
    // Only here it is known where the text was cut, and so where a part of a secret may stand.
    text.push_str(&redactor.redact_head(&cut.head));
    start_line(text);
    let _ = write!(text, "[{} of {} bytes of output are left out here; ", cut.omitted, output.total);
    let _ = match &output.spill_path {
        Some(path) if output.spilled >= output.total => {
            write!(text, "the whole output is in `{}`", quote(path))
        }
        Some(path) => write!(text, "the first {} bytes of it are in `{}`", output.spilled, quote(path)),
        None => write!(text, "it was not kept: send it to a file, or ask for less"),
    };
    text.push_str("]\n");
    text.push_str(&redactor.redact_tail(&cut.tail));
}

fn ending(outcome: &CommandOutcome, silent: bool) -> (ToolStatus, Option<String>) {
    let so_far = if silent { "there was no output" } else { "the output until then is above" };
    let after = format!("after {:.1} s", outcome.duration.as_secs_f64());
    match outcome.end {
        CommandEnd::Exited(0) if silent => (ToolStatus::Succeeded, Some("exit code 0, no output".to_owned())),
        CommandEnd::Exited(0) => (ToolStatus::Succeeded, None),
        CommandEnd::Exited(code) if silent => {
            (ToolStatus::Failed, Some(format!("exit code {code}, no output")))
        }
        CommandEnd::Exited(code) => (ToolStatus::Failed, Some(format!("exit code {code}"))),
        CommandEnd::Signaled(signal) => {
            (ToolStatus::Failed, Some(format!("killed by signal {signal}{}; {so_far}", name_of(signal))))
        }
        CommandEnd::OutOfMemory => {
            (ToolStatus::Failed, Some(format!("killed because memory ran out; {so_far}")))
        }
        CommandEnd::TimedOut => (
            ToolStatus::TimedOut,
            Some(format!(
                "timed out {after}, and everything it started was ended; {so_far}. For long work, do less in one \
                 command"
            )),
        ),
        CommandEnd::Cancelled => (
            ToolStatus::Cancelled,
            Some(format!("cancelled {after}, and everything it started was ended; {so_far}")),
        ),
        CommandEnd::Lost => (
            ToolStatus::Lost,
            Some(format!(
                "the sandbox lost the command {after}; what it did is not known: check before trying again; {so_far}"
            )),
        ),
        CommandEnd::QuotaExceeded(excess) => (
            ToolStatus::Failed,
            Some(format!(
                "ended {after}, because the workspace took {excess}; {so_far}. Nothing can be written until you remove \
                 files from it, with `rm`"
            )),
        ),
    }
}

/// What to say of limits that it ran into, so that nobody looks for the fault elsewhere.
fn limits_reached(outcome: &CommandOutcome) -> impl Iterator<Item = &'static str> {
    let reached = outcome.reached;
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
            reached.made_room,
            "what it left running was ended, since that left no room for new processes",
        ),
    ]
    .into_iter()
    .filter_map(|(is_so, notice)| is_so.then_some(notice))
}

fn start_line(text: &mut String) {
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
}

/// ` (SIGKILL)` and so on, for the signals that programs die of.
const fn name_of(signal: i32) -> &'static str {
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
