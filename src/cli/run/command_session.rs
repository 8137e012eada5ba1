//! A session of a command, from its opening or resumption to the end of the command.
//!
//! At the end it prints the outputs, the usage and the response, in the same order for `conjure run` and `conjure sessions resume`.

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use conjure::artifact::{FileSource, SessionFile};
use conjure::config::ExecutorKind;
use conjure::hosted::HostedSkill;
use conjure::model::Recorder;
use conjure::runtime::Deadline;
use conjure::sandbox::{CallOptions, HostAccess, Isolation};
use conjure::session::{SessionWorkspace, WorkspaceSnapshot};
use conjure::{Clock as _, Model, Session, SessionId, SystemClock, Usage};
use tokio_util::sync::CancellationToken;

use crate::cli::approvals::TerminalApprover;
use crate::cli::cli_error::{CliError, ExitStatus, sandbox_error};
use crate::cli::command_runtime::{CommandRuntime, Persistence};
use crate::cli::run::follow_turn::{FollowOutcome, RUN_INTERRUPT_NOTE, TurnCommand, TurnFollower};
use crate::cli::run::model_change::ModelChange;
use crate::cli::run::outputs::output_copy::{self, OutputTarget};
use crate::cli::run::outputs::output_list;
use crate::cli::run::outputs::output_report;
use crate::cli::run::printing::printer::{PrinterThread, start_printer};
use crate::cli::run::printing::progress::{DisplayMode, ProgressDisplay};
use crate::cli::run::printing::run_result::{RunResult, unanswered_error, undecided_error};
use crate::cli::run::printing::turn_summary::{TurnEnd, TurnSummary};
use crate::cli::run::printing::usage_report::{self, PriceCheck};
use crate::cli::signals::Signals;
use crate::cli::terminal::{Style, Terminal, printable};

/// The timeout for flushing output after a signal.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(5);

/// The timeout for starting a sandbox.
const SANDBOX_TIMEOUT: Duration = Duration::from_secs(60);

/// The timeout for deleting an unused session.
const DISCARD_TIMEOUT: Duration = Duration::from_secs(10);

/// A session of a command.
pub(crate) struct CommandSession {
    pub(crate) host: CommandRuntime,
    pub(crate) session: Session,
    /// The session's directory on this machine.
    pub(crate) workspace: SessionWorkspace,
    pub(crate) owner: WorkspaceOwner,
    /// The files before any tool ran.
    pub(crate) before: WorkspaceSnapshot,
    /// Where to copy outputs; `None` without `--out`.
    pub(crate) out: Option<OutputTarget>,
    /// The session's hosted skills and files.
    pub(crate) hosted: HostedState,
}

/// The hosted skills of a session, and its files at the model's service.
#[derive(Debug, Default)]
pub(crate) struct HostedState {
    pub(crate) skills: Vec<HostedSkill>,
    /// The ids of the files that the service already had.
    pub(crate) known_files: HashSet<String>,
}

impl HostedState {
    /// Prints the hosted skills, if there are any.
    pub(crate) fn print_hosted_skills(&self, terminal: &Terminal) {
        if !self.skills.is_empty() {
            let names: Vec<String> = self.skills.iter().map(|skill| printable(&skill.id)).collect();
            terminal.styled(Style::Dim, &format!("the model's service runs {}", names.join(", ")));
        }
    }

    /// The files that the service did not have at the start.
    fn new_files<'f>(&self, files: &'f [SessionFile]) -> Vec<&'f SessionFile> {
        let is_new =
            |file: &&SessionFile| file.source == FileSource::Hosted && !self.known_files.contains(&file.id);
        files.iter().filter(is_new).collect()
    }
}

/// Who owns the session's directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WorkspaceOwner {
    /// The session.
    Session,
    /// The user.
    User,
}

/// The recorder and the price check of the model.
pub(crate) struct ModelRecording {
    pub(crate) recorder: Option<Arc<Recorder<Arc<dyn Model>>>>,
    pub(crate) price_check: Option<PriceCheck>,
}

/// How a command follows a session.
pub(crate) struct FollowOptions {
    pub(crate) mode: DisplayMode,
    pub(crate) deadline: Deadline,
    /// The summary of earlier events, for a resumed session.
    pub(crate) summary: TurnSummary,
    /// The change to another model after the turn in progress.
    pub(crate) model_change: Option<ModelChange>,
}

impl CommandSession {
    /// Creates the sandbox before the model is called, so that errors are reported early. Prints what it isolates.
    pub(crate) async fn create_sandbox(
        &self,
        kind: ExecutorKind,
        terminal: &Terminal,
    ) -> Result<(), CliError> {
        let executor = self.session.executor().await?;
        let options = CallOptions::until(SystemClock.deadline(SANDBOX_TIMEOUT));
        let workspace = executor.layout().workspace.clone();
        // The first call creates the sandbox.
        let made = executor.list(&workspace.to_string_lossy(), 1, 1, options).await;
        if let Err(error) = made {
            // The user asked for the sandbox, so the error's prefix is not needed.
            let message = error.to_string();
            let reason = message.strip_prefix("the sandbox could not be started: ").unwrap_or(&message);
            return Err(sandbox_error(error.with_message(reason).into()));
        }
        print_isolation(kind, &executor.isolation(), terminal);
        if executor.host_access() == HostAccess::Copied {
            let said = "no directory is shared with the sandbox: files travel there now, and what is produced comes back at the end";
            terminal.styled(Style::Dim, said);
        }
        Ok(())
    }

    /// The paths of workspace files in the sandbox.
    pub(crate) async fn sandbox_paths(&self, files: &[PathBuf]) -> Result<Vec<PathBuf>, CliError> {
        if files.is_empty() {
            // There may be no sandbox either, so it must not be requested.
            return Ok(Vec::new());
        }
        let inside = self.session.executor().await?.layout().workspace.clone();
        let dir = self.workspace.path();
        Ok(files.iter().map(|file| inside.join(file.strip_prefix(dir).unwrap_or(file))).collect())
    }

    /// Deletes a session in which no turn ran.
    pub(crate) async fn discard(self) {
        let Self { host, session, .. } = self;
        let id = session.id();
        drop(session);
        let deleting = host.runtime.delete(&host.tenant, id);
        let deleted = tokio::time::timeout(DISCARD_TIMEOUT, deleting).await;
        if let Ok(Err(error)) = deleted {
            tracing::warn!(session = %id, %error, "a session that was not started stays in the journal");
        }
        let _ = host.shut_down().await;
    }

    /// Prints the number of skills, and the directory in which tools work.
    pub(crate) fn print_workspace(&self, skills: usize, terminal: &Terminal) {
        let plural = if skills == 1 { "" } else { "s" };
        let dir = self.workspace.path().display();
        terminal.styled(Style::Dim, &format!("{skills} skill{plural}; working in {dir}"));
    }

    /// Runs the commands, shuts everything down, and prints the results.
    pub(crate) async fn run_turns(
        self,
        commands: Vec<TurnCommand>,
        recording: ModelRecording,
        options: FollowOptions,
        signals: &mut Signals,
        terminal: &Arc<Terminal>,
    ) -> Result<ExitStatus, CliError> {
        let output_closed = CancellationToken::new();
        let display = ProgressDisplay::new(options.mode, output_closed.clone());
        let (events, printer) = start_printer(Arc::clone(terminal), display);
        let events = Arc::new(events);
        let (mut summary, mut model_change) = (options.summary, options.model_change);
        let approver = TerminalApprover::for_terminal(terminal).map(Arc::new);
        let mut follower = TurnFollower {
            session: &self.session,
            signals: &mut *signals,
            events: &events,
            output_closed: &output_closed,
            deadline: options.deadline,
            summary: &mut summary,
            approver: approver.as_ref(),
            cause: None,
            interrupt_note: RUN_INTERRUPT_NOTE,
        };
        let mut outcome = FollowOutcome::Abandoned;
        let mut rest = commands.into_iter();
        while let Some(command) = rest.next() {
            outcome = follower.follow(command).await;
            if let FollowOutcome::Ended(TurnEnd::Stopped(_)) = &outcome
                && let Some(change) = model_change.take()
                && let Err(error) = change.apply(&self.session).await
            {
                terminal.warning(&format!("the session keeps the model that it had: {error}"));
            }
            if !matches!(outcome, FollowOutcome::Ended(TurnEnd::Stopped(_)))
                || follower.cause.is_some()
                || rest.len() == 0
            {
                break;
            }
            // The text of an earlier turn is not the final response.
            let text = follower.summary.text();
            if !text.trim().is_empty() {
                events.note(text);
            }
        }
        let (cause, signal) = (follower.cause, follower.signal());
        let ending = match outcome {
            FollowOutcome::Ended(end) => {
                let text = last_text(&summary, &self.session).await;
                Some(match &end {
                    TurnEnd::AwaitingApproval(call) => {
                        RunResult::failed(undecided_error(&self.host, self.session.id(), call))
                    }
                    TurnEnd::AwaitingInput(input) => {
                        RunResult::failed(unanswered_error(&self.host, self.session.id(), input))
                    }
                    TurnEnd::Stopped(_) | TurnEnd::AwaitingResult(_) => {
                        RunResult::from_turn_end(&end, text, summary.model_calls(), cause)
                    }
                })
            }
            FollowOutcome::Failed(failure) => Some(RunResult::failed(failure)),
            FollowOutcome::Abandoned => None,
        };
        // The printer ends only after all senders are dropped.
        drop(events);
        let resume_command = self.host.resume_command(self.session.id());
        let closing = Closing {
            wait: if ending.is_some() { ShutdownWait::Orderly } else { ShutdownWait::Abandoned },
            signal,
            usage: *summary.usage(),
            price_check: recording.price_check,
            resume_command,
        };
        let unwritten = self.close(printer, closing, signals, terminal).await;
        let told = match (ending, unwritten) {
            (None, _) => Ok(signal.unwrap_or(ExitStatus::Interrupted)),
            (Some(_), Some(exit)) => Ok(exit),
            (Some(ending), None) => {
                let as_events = options.mode == DisplayMode::Events;
                print_result(ending, as_events, terminal, signal, signals).await
            }
        };
        finish_recording(recording.recorder.as_deref(), told, terminal)
    }

    /// Copies outputs to this machine, shuts everything down, and prints the usage and the outputs. If a signal ended the wait for a slow
    /// reader, returns the signal's exit status.
    pub(crate) async fn close(
        self,
        printer: PrinterThread,
        closing: Closing,
        signals: &mut Signals,
        terminal: &Terminal,
    ) -> Option<ExitStatus> {
        let Self { mut host, session, workspace, owner, before, out, hosted } = self;
        let is_abandoned = closing.wait == ShutdownWait::Abandoned;
        if !is_abandoned {
            tokio::select! {
                () = fetch_outputs(&session, terminal) => {}
                _ = signals.next() => terminal.warning("what the run produced in the sandbox was not brought here"),
            }
        }
        let mut made = Vec::new();
        if !is_abandoned && (out.is_some() || !hosted.skills.is_empty()) {
            let found = tokio::select! {
                found = output_list::list_outputs(&host, &session) => found,
                _ = signals.next() => Err(CliError::internal("it was not waited for")),
            };
            made = found.unwrap_or_else(|failure| {
                let reason = printable(&failure.message);
                terminal.warning(&format!("what was produced is not known: {reason}"));
                Vec::new()
            });
        }
        if let Some(out) = &out {
            tokio::select! {
                () = output_copy::copy_outputs(&session, &made, out, terminal) => {}
                _ = signals.next() => terminal.warning("some outputs were not copied"),
            }
        }
        let expected = if is_abandoned { Vec::new() } else { host.outputs(session.id(), terminal).await };
        // After a second signal there is no orderly shutdown.
        let cleaned = if is_abandoned {
            false
        } else {
            tokio::select! {
                ended = host.shut_down() => ended.is_ok(),
                _ = signals.next() => false,
            }
        };
        let unwritten = match closing.signal {
            _ if is_abandoned => None,
            None => printer.finish(signals.next()).await,
            Some(signal) => printer
                .finish(SystemClock.sleep_until(SystemClock.deadline(FLUSH_TIMEOUT)))
                .await
                .map(|()| signal),
        };
        if !cleaned {
            terminal.warning("the sandbox was not waited for; it ends with this process");
        }
        if let Some(price_check) = closing.price_check.filter(|_| !is_abandoned) {
            usage_report::print_usage(&closing.usage, &price_check, terminal);
        }
        if !is_abandoned {
            report_outputs(&mut host, session.id(), (&workspace, owner), &before, terminal).await;
            output_report::print_hosted(
                &hosted.new_files(&made),
                out.as_ref().map(|out| &*out.dir.path),
                terminal,
            );
            output_report::print_expected(&expected, terminal);
        }
        if host.persistence == Persistence::Persistent {
            let resuming = closing.resume_command;
            terminal.styled(Style::Dim, &format!("`{resuming}` continues this session"));
        }
        unwritten
    }
}

/// How a session is closed.
pub(crate) struct Closing {
    pub(crate) wait: ShutdownWait,
    /// The signal that ended the last turn.
    pub(crate) signal: Option<ExitStatus>,
    /// What all turns used.
    pub(crate) usage: Usage,
    pub(crate) price_check: Option<PriceCheck>,
    /// The command that continues the session.
    pub(crate) resume_command: String,
}

/// Whether the command waits for an orderly shutdown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ShutdownWait {
    /// The command waits until everything that it started has ended.
    Orderly,
    /// A second signal ended the wait.
    Abandoned,
}

/// Completes the recording. Returns `told`, or the recording's error if `told` is a success.
pub(crate) fn finish_recording(
    recorder: Option<&Recorder<Arc<dyn Model>>>,
    told: Result<ExitStatus, CliError>,
    terminal: &Terminal,
) -> Result<ExitStatus, CliError> {
    let Some(Err(error)) = recorder.map(Recorder::finish) else { return told };
    let lost = format!("the recording is incomplete: {error}");
    if matches!(told, Ok(ExitStatus::Success)) {
        return Err(CliError::internal(lost));
    }
    // The first error determines the exit status.
    terminal.warning(&lost);
    told
}

/// The text of the last response. If the model was not called since the resumption, the text comes from the event log.
async fn last_text(summary: &TurnSummary, session: &Session) -> String {
    if summary.model_calls() > 0 {
        return summary.text();
    }
    session.snapshot().await.map(|snapshot| snapshot.last_text).unwrap_or_default()
}

/// Copies outputs to this machine, if the sandbox has its own workspace.
async fn fetch_outputs(session: &Session, terminal: &Terminal) {
    // Without a sandbox there are no outputs.
    if let Ok(executor) = session.executor().await {
        output_report::fetch_outputs(&*executor, terminal).await;
    }
}

/// Prints the outputs, and where they are kept.
async fn report_outputs(
    host: &mut CommandRuntime,
    session: SessionId,
    (workspace, owner): (&SessionWorkspace, WorkspaceOwner),
    before: &WorkspaceSnapshot,
    terminal: &Terminal,
) {
    let produced = workspace.produced_since(before);
    if !output_report::print_produced(&produced, workspace, terminal) {
        return;
    }
    match host.keep_workspace(session).await {
        Ok(Some(path)) => terminal.note(&format!(
            "they are in a temporary directory, which is kept: {} (`--workspace DIR` chooses another)",
            path.display()
        )),
        Ok(None) if owner == WorkspaceOwner::Session => {
            terminal.note("they stay with the session (`--workspace DIR` chooses another directory)");
        }
        Ok(None) => {}
        Err(error) => terminal.warning(&format!(
            "they are in a temporary directory, {}, which the next run removes: {error}",
            workspace.path().display()
        )),
    }
}

/// Prints the result after `signal`. The reader may be slow, so another signal ends the wait.
async fn print_result(
    ending: RunResult,
    as_events: bool,
    terminal: &Arc<Terminal>,
    signal: Option<ExitStatus>,
    signals: &mut Signals,
) -> Result<ExitStatus, CliError> {
    let teller = Arc::clone(terminal);
    let told = tokio::task::spawn_blocking(move || ending.print(as_events, &teller));
    tokio::select! {
        told = told => told.unwrap_or_else(|error| Err(CliError::internal(format!("the response could not be printed: {error}")))),
        // The first signal determines the exit status.
        exit = signals.next() => Ok(signal.unwrap_or(exit)),
    }
}

/// Prints what is isolated, and what is not.
pub(crate) fn print_isolation(kind: ExecutorKind, isolation: &Isolation, terminal: &Terminal) {
    let open: Vec<&str> = isolation.open().collect();
    let said = match (kind, open.as_slice()) {
        (ExecutorKind::Local, _) => {
            "the sandbox `local` isolates nothing: commands can do what you can do".to_owned()
        }
        (kind, []) => format!("the sandbox `{}` keeps commands apart from this machine", kind.as_str()),
        (kind, open) => format!(
            "the sandbox `{}` keeps commands apart from this machine; it cannot enforce here: {} (`conjure doctor` \
             says why)",
            kind.as_str(),
            open.join(", ")
        ),
    };
    terminal.styled(Style::Dim, &said);
}
