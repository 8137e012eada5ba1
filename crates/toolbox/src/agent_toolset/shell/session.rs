//! [`ShellSession`]: runs the calls of `bash` one after the other, and replaces a shell that has ended.
//!
//! State: the shell and its directory, in memory. When the host crashes, the shell ends with its sandbox.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use conjure_base::{Clock, Redactor};
use conjure_conversation::ResultContent;
use conjure_sandbox::{
    CallOptions, CommandEnd, CommandOutcome, CommandOutput, Executor, ProcessCall, ReachedLimits,
    SandboxErrorKind,
};
use tokio::sync::Mutex;

use super::inbox::{ShellEnd, ShellInbox};
use super::live_shell::{LiveShell, is_missing};
use crate::agent_toolset::error_text::toolset_error;
use crate::builtin::bash::{NOTICE_BYTES, capture_limit, render};
use crate::limits::OutputLimits;
use crate::text::{clean, quote};
use crate::tool::{ToolOutput, ToolStatus};

/// Bytes of the output of background jobs that are shown with the next command.
const BACKGROUND_BYTES: usize = 4 * 1024;

/// A request of the `bash` tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ShellRequest {
    pub(crate) command: Option<String>,
    /// Whether to replace the shell first.
    pub(crate) restart: bool,
    /// The timeout that the model requested for the commands, if any.
    pub(crate) timeout: Option<Duration>,
}

/// The shell of a session.
#[derive(Debug)]
pub(crate) struct ShellSession {
    /// Calls wait for this lock, in their order.
    state: Mutex<ShellState>,
}

#[derive(Debug, Default)]
struct ShellState {
    shell: Option<LiveShell>,
    /// The directory in which the next shell starts.
    directory: Option<String>,
}

/// The context of a call: everything except its input.
pub(crate) struct ShellContext<'c> {
    pub(crate) executor: &'c dyn Executor,
    pub(crate) environment: BTreeMap<String, String>,
    pub(crate) limits: &'c OutputLimits,
    pub(crate) redactor: &'c Redactor,
    pub(crate) clock: &'c Arc<dyn Clock>,
    pub(crate) options: CallOptions,
}

impl ShellSession {
    pub(crate) fn new() -> Self {
        Self { state: Mutex::new(ShellState::default()) }
    }

    /// Runs a call.
    pub(crate) async fn run(&self, request: &ShellRequest, context: ShellContext<'_>) -> ToolOutput {
        let mut state = self.state.lock().await;
        if request.restart {
            *state = ShellState::default();
        }
        let Some(command) = &request.command else {
            return ToolOutput::text(
                "[the shell was ended, with everything that ran in it; the next command runs in a new one]",
            );
        };
        state.run(command, context).await
    }
}

impl ShellState {
    async fn run(&mut self, command: &str, context: ShellContext<'_>) -> ToolOutput {
        let ShellContext { executor, environment, limits, redactor, clock, options } = context;
        let start = clock.deadline(Duration::ZERO);
        let (mut notices, mut inbox) = (Vec::new(), None);
        let working =
            self.execute(command, executor, &environment, limits, &options, &mut notices, &mut inbox);
        let finish = tokio::select! {
            biased;
            finish = working => finish,
            () = options.cancel.cancelled() => CommandFinish::Aborted(CommandEnd::Cancelled),
            () = clock.sleep_until(options.deadline) => CommandFinish::Aborted(CommandEnd::TimedOut),
        };
        if let CommandFinish::NotStarted(end) = &finish {
            return cannot_start(end);
        }
        let output = inbox.map(|inbox| inbox.take_output()).unwrap_or_default();
        let now = clock.deadline(Duration::ZERO);
        let duration = match (now.instant(), start.instant()) {
            (Some(now), Some(start)) => now.saturating_duration_since(start),
            _ => Duration::ZERO,
        };
        let end = finish.command_end();
        if let CommandEnd::Exited(code) = end {
            // The span of the call, if there is one.
            tracing::Span::current().record("process.exit.code", code);
        }
        let outcome = CommandOutcome {
            end,
            stdout: output,
            stderr: CommandOutput::default(),
            duration,
            limits_hit: ReachedLimits::default(),
        };
        let mut done = render(&outcome, limits.shell.saturating_sub(NOTICE_BYTES), redactor);
        let after = finish.notice(self.directory.as_deref());
        if let [ResultContent::Text { text }] = done.content.as_mut_slice() {
            if let Some(after) = after {
                let _ = write!(text, "\n[{after}]");
            }
            if !notices.is_empty() {
                *text = format!("{}\n{text}", notices.join("\n"));
            }
        }
        done
    }

    /// Runs a command in the shell. If the future is dropped, the shell ends, because its state is then unknown.
    #[expect(
        clippy::too_many_arguments,
        reason = "the last two tell what is known when the future is dropped"
    )]
    async fn execute(
        &mut self,
        command: &str,
        executor: &dyn Executor,
        environment: &BTreeMap<String, String>,
        limits: &OutputLimits,
        options: &CallOptions,
        notices: &mut Vec<String>,
        inbox: &mut Option<Arc<ShellInbox>>,
    ) -> CommandFinish {
        let before = self.shell.take();
        let (mut shell, _call) = match self.running(before, executor, limits, options, notices).await {
            Ok(running) => running,
            Err(end) => return CommandFinish::NotStarted(end),
        };
        push_background(shell.inbox.take_output(), notices);
        *inbox = Some(Arc::clone(&shell.inbox));
        match shell.run(command, environment).await {
            Ok(code) => {
                self.directory = Some(shell.directory.clone());
                if shell.is_read_only {
                    notices.push("[the workspace is over its limit: no file can grow, and this ran in a shell of its own]".to_owned());
                } else {
                    self.shell = Some(shell);
                }
                CommandFinish::Returned(code)
            }
            Err(end) => CommandFinish::ShellEnded(end),
        }
    }

    /// Returns the running shell, or starts a new one if it has ended.
    async fn running(
        &self,
        before: Option<LiveShell>,
        executor: &dyn Executor,
        limits: &OutputLimits,
        options: &CallOptions,
        notices: &mut Vec<String>,
    ) -> Result<(LiveShell, ProcessCall), ShellEnd> {
        let ended = match before {
            None => None,
            Some(shell) => match shell.begin_call(options).await {
                Ok(call) => return Ok((shell, call)),
                // The call cannot begin, and it is unknown whether the shell has ended.
                Err(ShellEnd::Failed(error)) if error.kind() != SandboxErrorKind::Lost => {
                    return Err(ShellEnd::Failed(error));
                }
                Err(end) => Some(end),
            },
        };
        let keep = usize::try_from(capture_limit(limits.shell)).unwrap_or(usize::MAX);
        let (shell, call) = LiveShell::start(executor, self.directory.as_deref(), keep, options).await?;
        if let Some(end) = ended {
            notices.push(format!(
                "[this ran in a new shell, in `{}`, since the one before has ended: {}. Its variables, functions and \
                 background jobs are gone]",
                quote(&shell.directory),
                end.reason()
            ));
        }
        Ok((shell, call))
    }
}

/// How a command finished.
enum CommandFinish {
    /// Nothing ran.
    NotStarted(ShellEnd),
    Returned(i32),
    ShellEnded(ShellEnd),
    Aborted(CommandEnd),
}

impl CommandFinish {
    fn command_end(&self) -> CommandEnd {
        match self {
            Self::Returned(code) => CommandEnd::Exited(*code),
            Self::ShellEnded(ShellEnd::Exited(end)) => *end,
            Self::ShellEnded(_) | Self::NotStarted(_) => CommandEnd::Lost,
            Self::Aborted(end) => *end,
        }
    }

    /// The notice for the model if the shell has ended.
    fn notice(&self, directory: Option<&str>) -> Option<String> {
        let reason = match self {
            Self::Returned(_) | Self::NotStarted(_) => return None,
            Self::ShellEnded(ShellEnd::Exited(CommandEnd::Exited(_))) => {
                "the shell ended with this command, by `exit`, or because of an option such as `set -e`"
                    .to_owned()
            }
            Self::ShellEnded(end) => format!("the shell has ended: {}", end.reason()),
            Self::Aborted(_) => "the shell was ended with it, and its background jobs".to_owned(),
        };
        let place = directory.map_or_else(
            || "in the working directory".to_owned(),
            |directory| format!("in `{}`", quote(directory)),
        );
        Some(format!(
            "{reason}; the next command runs in a new shell {place}, without the variables and functions of this one"
        ))
    }
}

impl ShellEnd {
    fn reason(&self) -> String {
        match self {
            Self::Exited(CommandEnd::Exited(code)) => format!("it exited with code {code}"),
            Self::Exited(CommandEnd::Signaled(signal)) => format!("signal {signal} killed it"),
            Self::Exited(CommandEnd::OutOfMemory) => "it was killed because memory ran out".to_owned(),
            Self::Exited(CommandEnd::QuotaExceeded(excess)) => format!("the workspace took {excess}"),
            Self::Exited(_) => "it was killed".to_owned(),
            Self::Failed(error) => error.to_string(),
            Self::Broken => "a command wrote to a descriptor that is the shell's own (97 to 99)".to_owned(),
        }
    }
}

/// Adds a notice with the output of background jobs since the last command.
fn push_background(output: CommandOutput, notices: &mut Vec<String>) {
    if output.total == 0 {
        return;
    }
    let all = [output.head.as_slice(), output.tail.as_slice()].concat();
    let tail = all.get(all.len().saturating_sub(BACKGROUND_BYTES)..).unwrap_or_default();
    // Begin at the start of a line, so that no part of a secret is shown.
    let start =
        if (tail.len() as u64) < output.total { tail.iter().position(|byte| *byte == b'\n') } else { None };
    let tail = start.and_then(|at| tail.get(at + 1..)).unwrap_or(tail);
    let text = clean(tail);
    let left_out = output.total - tail.len() as u64;
    let cut = if left_out > 0 { format!("; {left_out} bytes before it are left out") } else { String::new() };
    notices.push(format!(
        "[output of background jobs since the last command{cut}:]\n{}\n[output of this command:]",
        text.trim_end()
    ));
}

/// The result of a call that has no shell.
fn cannot_start(end: &ShellEnd) -> ToolOutput {
    match end {
        ShellEnd::Failed(error) if is_missing(error) => ToolOutput::error(format!(
            "{error}\nhint: the tool `bash` needs the program `bash` in the sandbox, and this sandbox has none; the other tools \
             work without it"
        )),
        ShellEnd::Failed(error) => toolset_error("start", "bash", error),
        end => ToolOutput::with_status(
            ToolStatus::Failed,
            format!("failed to start the shell: {}; nothing was run", end.reason()),
        ),
    }
}
