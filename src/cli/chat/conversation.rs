//! The conversation of `conjure chat`: reads a line, runs the turn or the command, and reads the next line.
//!
//! State: the attachments of the next message, and the first failure. Everything else is in the session.

use std::sync::Arc;
use std::time::Duration;

use conjure::conversation::TurnStop;
use conjure::runtime::Deadline;
use conjure::{Block, Config, ProcessEnv, Skill};
use futures_util::FutureExt as _;
use tokio_util::sync::CancellationToken;

use crate::cli::approvals::TerminalApprover;
use crate::cli::chat::chat_command::{ChatCommand, ChatInput, parse};
use crate::cli::chat::chat_model::ChatModel;
use crate::cli::chat::help::{
    INTERRUPT_NOTE, INTERRUPTED_NOTE, LEAVE_NOTE, NOT_SENT_NOTE, PIPE_INTERRUPT_NOTE, command_list,
};
use crate::cli::chat::line_input::{InputKind, InputLine, LineInput};
use crate::cli::chat::session_commands;
use crate::cli::chat::undo::undo;
use crate::cli::cli_error::{CliError, ExitStatus};
use crate::cli::destination::ToolDirs;
use crate::cli::run::{
    CommandSession, EventSender, FollowOutcome, ModelChange, RunResult, ShutdownWait, TurnCommand, TurnEnd,
    TurnFollower, TurnSummary, awaiting_result, message, unanswered_error, undecided_error,
};
use crate::cli::signals::Signals;
use crate::cli::terminal::{Style, Terminal, printable};

/// How long after a signal a line still counts as interrupted.
const LATE_INTERRUPT: Duration = Duration::from_millis(500);

/// A conversation with a session.
pub(super) struct ChatConversation<'a> {
    pub(super) opened: &'a mut CommandSession,
    pub(super) kind: InputKind,
    pub(super) input: Arc<LineInput>,
    pub(super) terminal: &'a Arc<Terminal>,
    pub(super) environment: &'a ProcessEnv,
    pub(super) events: Arc<EventSender>,
    pub(super) output_closed: CancellationToken,
    pub(super) approver: Option<Arc<TerminalApprover>>,
    pub(super) summary: TurnSummary,
    pub(super) config: &'a Config,
    pub(super) model: ChatModel,
    /// The skills whose descriptions are known.
    pub(super) skills: Vec<Arc<Skill>>,
    /// The directories that tools may write to.
    pub(super) tools: Arc<ToolDirs>,
    /// The artifacts that the next message names.
    pub(super) attached: Vec<String>,
    /// Whether a message was sent.
    pub(super) has_turns: bool,
    /// The exit status of the first failure, if standard input is not a terminal.
    pub(super) first_failure: Option<ExitStatus>,
}

/// How the conversation ended.
#[derive(Debug)]
pub(super) struct ConversationEnd {
    pub(super) exit: ExitStatus,
    pub(super) wait: ShutdownWait,
}

/// The next step.
enum NextStep {
    /// The next line.
    Read,
    /// The end of the chat.
    Leave(ConversationEnd),
}

impl ConversationEnd {
    const fn orderly(exit: ExitStatus) -> Self {
        Self { exit, wait: ShutdownWait::Orderly }
    }
}

impl ChatConversation<'_> {
    /// Ends the conversation. Returns its model.
    pub(super) fn into_model(self) -> ChatModel {
        self.model
    }

    /// Runs the turns in progress and then the user's turns, until the user leaves. The model is changed after the turns in progress.
    pub(super) async fn run(
        &mut self,
        first: Vec<TurnCommand>,
        model_change: Option<ModelChange>,
        signals: &mut Signals,
    ) -> ConversationEnd {
        for command in first {
            if let NextStep::Leave(end) = self.turn(command, signals).await {
                return end;
            }
        }
        if let Some(change) = model_change
            && let Err(error) = change.apply(&self.opened.session).await
        {
            self.fail(&error.into());
        }
        let mut interrupts = 0;
        loop {
            // A signal that arrived after the turn interrupts nothing.
            match signals.next().now_or_never() {
                Some(exit) if exit == ExitStatus::Terminated || !self.kind.is_person() => {
                    return ConversationEnd::orderly(exit);
                }
                _ => {}
            }
            if self.kind.is_person() && interrupts == 0 {
                self.terminal.note("");
            }
            let input = Arc::clone(&self.input);
            let line = tokio::select! {
                biased;
                // A signal after the line applies to its turn.
                line = input.next_line() => line,
                exit = signals.next() => {
                    if exit == ExitStatus::Terminated || !self.kind.is_person() {
                        return ConversationEnd::orderly(exit);
                    }
                    if self.kind == InputKind::Editor {
                        let line = self.interrupted_line(&input).await;
                        let Some(line) = line else { continue };
                        line
                    } else {
                        // The terminal shows `^C`, so a new line begins.
                        self.terminal.note("");
                        InputLine::Interrupted
                    }
                }
            };
            let step = match line {
                InputLine::Interrupted => {
                    interrupts += 1;
                    if interrupts > 1 {
                        return ConversationEnd::orderly(ExitStatus::Interrupted);
                    }
                    self.terminal.styled(Style::Dim, LEAVE_NOTE);
                    continue;
                }
                InputLine::Discarded => NextStep::Read,
                InputLine::Closed => return ConversationEnd::orderly(self.exit()),
                InputLine::Failed(failure) => {
                    self.fail(&failure);
                    return ConversationEnd::orderly(failure.exit);
                }
                InputLine::Unusable(failure) => {
                    self.fail(&failure);
                    NextStep::Read
                }
                InputLine::Text(line) => self.act(&line, signals).await,
            };
            interrupts = 0;
            if let NextStep::Leave(end) = step {
                return end;
            }
        }
    }

    /// Handles a signal while the line editor reads. The terminal sends no signals then. So Ctrl-C was pressed right after the line, and
    /// the line is not sent. `None` if no line follows, because another program sent the signal.
    async fn interrupted_line(&self, input: &LineInput) -> Option<InputLine> {
        let line = tokio::time::timeout(LATE_INTERRUPT, input.next_line()).await.ok()?;
        let InputLine::Text(_) = line else { return Some(line) };
        self.terminal.styled(Style::Dim, NOT_SENT_NOTE);
        Some(InputLine::Discarded)
    }

    async fn act(&mut self, line: &str, signals: &mut Signals) -> NextStep {
        let parsed = parse(line);
        let (command, argument) = match parsed {
            Ok(ChatInput::Nothing) => return NextStep::Read,
            Ok(ChatInput::Message(text)) => {
                let message = self.message(text);
                return self.turn(TurnCommand::Prompt(message, None), signals).await;
            }
            Ok(ChatInput::Command(ChatCommand::Quit, _)) => {
                return NextStep::Leave(ConversationEnd::orderly(self.exit()));
            }
            Ok(ChatInput::Command(command, argument)) => (command, argument),
            Err(failure) => {
                self.fail(&failure);
                return NextStep::Read;
            }
        };
        let done = tokio::select! {
            done = self.command(command, argument) => done,
            exit = signals.next() => {
                if exit == ExitStatus::Terminated || !self.kind.is_person() {
                    return NextStep::Leave(ConversationEnd::orderly(exit));
                }
                Err(CliError::new(exit, "the command was interrupted"))
            }
        };
        match done {
            Ok(()) => {}
            Err(failure) => self.fail(&failure),
        }
        NextStep::Read
    }

    async fn command(&mut self, command: ChatCommand, argument: &str) -> Result<(), CliError> {
        let (opened, terminal) = (&*self.opened, self.terminal);
        match command {
            ChatCommand::Help => terminal.note(&command_list()),
            ChatCommand::Model => {
                if !argument.is_empty() {
                    let (session, config) = (&opened.session, self.config);
                    self.model.change(argument, session, config, self.environment).await?;
                }
                terminal.note(self.model.label());
            }
            ChatCommand::Skills => session_commands::list_skills(opened, &self.skills, terminal).await?,
            ChatCommand::Files => session_commands::list_files(opened, terminal).await?,
            ChatCommand::Attach => {
                let name = session_commands::attach(opened, argument, &self.tools, self.environment).await?;
                terminal.note(&format!("`file://{}` goes with your next message", printable(&name)));
                self.attached.push(name);
            }
            ChatCommand::Export => {
                let path =
                    session_commands::export(opened, argument, &self.tools, self.environment, terminal)
                        .await?;
                terminal.note(&format!("written to {}", printable(&path.to_string_lossy())));
            }
            ChatCommand::Undo => {
                let undone = undo(self.opened).await?;
                undone.print(&self.opened.host, terminal);
                // The fork lacks everything that was attached after the message.
                if !std::mem::take(&mut self.attached).is_empty() {
                    terminal.warning("what was attached for the next message is not attached any more");
                }
                // The fork has the model of that time.
                let (config, environment) = (self.config, self.environment);
                if self.model.refresh(self.opened, config, environment).await? {
                    terminal.note(self.model.label());
                }
            }
            ChatCommand::Quit => {}
        }
        Ok(())
    }

    /// The message, with the artifacts that were attached before it.
    fn message(&mut self, text: &str) -> Vec<Block> {
        let attached = std::mem::take(&mut self.attached);
        let mut blocks = message(text, &[], None);
        if !attached.is_empty() {
            let list: Vec<String> = attached.iter().map(|name| format!("- file://{name}")).collect();
            blocks.push(Block::text(format!("The user attached these files:\n{}", list.join("\n"))));
        }
        blocks
    }

    /// Runs a turn to its end.
    async fn turn(&mut self, command: TurnCommand, signals: &mut Signals) -> NextStep {
        self.has_turns = true;
        let is_person = self.kind.is_person();
        let mut follower = TurnFollower {
            session: &self.opened.session,
            signals,
            events: &self.events,
            output_closed: &self.output_closed,
            deadline: Deadline::NEVER,
            summary: &mut self.summary,
            approver: self.approver.as_ref(),
            cause: None,
            interrupt_note: if is_person { INTERRUPT_NOTE } else { PIPE_INTERRUPT_NOTE },
        };
        let outcome = follower.follow(command).await;
        let (cause, signal) = (follower.cause, follower.signal());
        self.model.count_unpriced(self.summary.take_unpriced(), self.config, self.environment);
        let end = match outcome {
            FollowOutcome::Ended(end) => end,
            FollowOutcome::Failed(failure) => {
                self.events.flush().await;
                self.fail(&failure);
                return NextStep::Leave(ConversationEnd::orderly(failure.exit));
            }
            FollowOutcome::Abandoned => {
                let exit = signal.unwrap_or(ExitStatus::Interrupted);
                return NextStep::Leave(ConversationEnd { exit, wait: ShutdownWait::Abandoned });
            }
        };
        self.events.flush().await;
        if let TurnEnd::AwaitingApproval(call) = &end {
            let failure = undecided_error(&self.opened.host, self.opened.session.id(), call);
            self.fail(&failure);
            return NextStep::Leave(ConversationEnd::orderly(failure.exit));
        }
        if let TurnEnd::AwaitingInput(input) = &end {
            let failure = unanswered_error(&self.opened.host, self.opened.session.id(), input);
            self.fail(&failure);
            return NextStep::Leave(ConversationEnd::orderly(failure.exit));
        }
        if let TurnEnd::AwaitingResult(call) = &end {
            let failure = awaiting_result(call);
            self.fail(&failure);
            return NextStep::Leave(ConversationEnd::orderly(failure.exit));
        }
        let has_answer = matches!(end, TurnEnd::Stopped(TurnStop::Answered(_)));
        if has_answer && self.summary.text().trim().is_empty() {
            self.terminal.warning("the model's last answer holds no text");
        }
        let result = RunResult::from_turn_end(&end, String::new(), self.summary.model_calls(), cause);
        match result.into_result() {
            Ok(ExitStatus::Success) => NextStep::Read,
            Ok(ExitStatus::Interrupted) if is_person => {
                self.terminal.styled(Style::Dim, INTERRUPTED_NOTE);
                NextStep::Read
            }
            Ok(exit) => NextStep::Leave(ConversationEnd::orderly(exit)),
            Err(failure) => {
                self.fail(&failure);
                NextStep::Read
            }
        }
    }

    /// Reports a failure. The conversation can continue.
    fn fail(&mut self, failure: &CliError) {
        self.terminal.error(failure);
        self.first_failure.get_or_insert(failure.exit);
    }

    /// The exit status if the user leaves now.
    fn exit(&self) -> ExitStatus {
        match self.first_failure {
            // The user has already seen the failure.
            Some(_) if self.kind.is_person() => ExitStatus::Success,
            Some(exit) => exit,
            None => ExitStatus::Success,
        }
    }
}
