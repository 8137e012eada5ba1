//! Follows a session to the end of a turn, and interrupts the turn on a signal or at the deadline.

use std::sync::Arc;

use conjure::conversation::{Decision, TurnStop};
use conjure::runtime::Deadline;
use conjure::session::Subscription;
use conjure::tool::{CallId, ToolCall};
use conjure::{
    Block, Clock as _, Limits, Session, SessionError, SessionEvent, SessionEventKind, SystemClock, Update,
};
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use tokio_util::sync::CancellationToken;

use crate::cli::approvals::{ApprovalOutcome, InputOutcome, PendingInput, TerminalApprover};
use crate::cli::cli_error::{CliError, ExitStatus};
use crate::cli::run::printing::printer::EventSender;
use crate::cli::run::printing::run_result::AbortCause;
use crate::cli::run::printing::turn_summary::{TurnEnd, TurnSummary};
use crate::cli::signals::Signals;

/// A command to a session.
#[derive(Debug)]
pub(crate) enum TurnCommand {
    /// Send this message, with these limits or else the session's own.
    Prompt(Vec<Block>, Option<Limits>),
    /// Resume the unfinished turn, and print its events from this sequence number on.
    Continue(u64),
    /// Decide on a waiting tool call and resume, and print events from this sequence number on.
    Decide(CallId, Decision, u64),
}

/// The outcome of a command.
#[derive(Debug)]
pub(crate) enum FollowOutcome {
    /// The turn ended, or awaits approval.
    Ended(TurnEnd),
    /// The turn could not start, or its outcome is unknown.
    Failed(CliError),
    /// A second signal ended the wait.
    Abandoned,
}

/// Follows a turn, asks for approvals, and handles signals.
pub(crate) struct TurnFollower<'a> {
    pub(crate) session: &'a Session,
    pub(crate) signals: &'a mut Signals,
    pub(crate) events: &'a Arc<EventSender>,
    pub(crate) output_closed: &'a CancellationToken,
    pub(crate) deadline: Deadline,
    pub(crate) summary: &'a mut TurnSummary,
    /// Decides on tool calls, if a user is at the terminal.
    pub(crate) approver: Option<&'a Arc<TerminalApprover>>,
    /// Why this command interrupted the turn.
    pub(crate) cause: Option<AbortCause>,
    /// The note for the user when a signal interrupts the turn.
    pub(crate) interrupt_note: &'static str,
}

/// The note of a run when a signal interrupts it.
pub(crate) const RUN_INTERRUPT_NOTE: &str =
    "interrupted: ending what was started (a second signal does not wait for it)";

/// The end of a question.
enum QuestionEnd {
    /// The decision on this call was sent.
    Sent(CallId),
    /// Nothing was decided. The calls keep waiting.
    Undecided,
    /// The user interrupts the turn.
    Interrupted,
}

impl TurnFollower<'_> {
    /// Runs the command, and follows the turn to its end. The first signal, the deadline, or a closed output
    /// interrupts the turn. A second signal ends the wait.
    pub(crate) async fn follow(&mut self, command: TurnCommand) -> FollowOutcome {
        let session = self.session.clone();
        let goes_on = !matches!(command, TurnCommand::Prompt(..));
        // Print the decision that was just made before asking again.
        let mut awaits_news = !matches!(command, TurnCommand::Continue(_));
        let mut asking: Option<BoxFuture<'static, Result<QuestionEnd, SessionError>>> = None;
        let mut starting = Some(start(session.clone(), command).boxed());
        let mut subscription: Option<Subscription> = None;
        let mut interrupting: Option<BoxFuture<'static, Result<(), SessionError>>> = None;
        loop {
            if subscription.is_some() && asking.is_none() && !awaits_news && self.cause.is_none() {
                let (call, input) =
                    (self.summary.pending_calls().first(), self.summary.pending_inputs().first());
                asking = match (call, input, self.approver) {
                    (Some(call), _, Some(approver)) => {
                        Some(self.ask(Arc::clone(approver), call.clone()).boxed())
                    }
                    (None, Some(input), Some(approver)) => {
                        Some(self.ask_input(Arc::clone(approver), input.clone()).boxed())
                    }
                    (None, None, _) if self.summary.pending_results().is_empty() => None,
                    _ => Some(leave_waiting(session.clone()).boxed()),
                };
            }
            let cause = tokio::select! {
                started = pending(&mut starting) => {
                    starting = None;
                    match started {
                        Ok(started) => subscription = Some(started),
                        Err(error) => return FollowOutcome::Failed(error.into()),
                    }
                    continue;
                }
                update = next(&mut subscription) => {
                    let update = match update {
                        Ok(update) => update,
                        Err(error) => return FollowOutcome::Failed(error.into()),
                    };
                    self.events.send_update(update.clone());
                    if let Update::Recorded(event) = update {
                        if let Some(stop) = self.summary.apply(&event)
                            && self.is_over(&stop, goes_on).await
                        {
                            return FollowOutcome::Ended(TurnEnd::Stopped(stop));
                        }
                        awaits_news = is_followed(&event);
                    }
                    continue;
                }
                answered = pending(&mut asking) => {
                    asking = None;
                    match answered {
                        Ok(QuestionEnd::Sent(call)) => {
                            self.summary.mark_decided(&call);
                            continue;
                        }
                        Ok(QuestionEnd::Interrupted) => AbortCause::Signal(ExitStatus::Interrupted),
                        Ok(QuestionEnd::Undecided) => {
                            while let Some(Ok(Update::Recorded(event))) = next(&mut subscription).now_or_never() {
                                self.summary.apply(&event);
                                self.events.send_update(Update::Recorded(event));
                            }
                            if let Some(call) = self.summary.pending_calls().first() {
                                return FollowOutcome::Ended(TurnEnd::AwaitingApproval(call.clone()));
                            }
                            if let Some(input) = self.summary.pending_inputs().first() {
                                return FollowOutcome::Ended(TurnEnd::AwaitingInput(input.clone()));
                            }
                            if let Some(call) = self.summary.pending_results().first() {
                                return FollowOutcome::Ended(TurnEnd::AwaitingResult(call.clone()));
                            }
                            continue;
                        }
                        Err(error) => return FollowOutcome::Failed(error.into()),
                    }
                }
                interrupted = pending(&mut interrupting) => {
                    interrupting = None;
                    if let Err(error) = interrupted {
                        return FollowOutcome::Failed(error.into());
                    }
                    continue;
                }
                exit = self.signals.next() => {
                    if matches!(self.cause, Some(AbortCause::Signal(_))) {
                        return FollowOutcome::Abandoned;
                    }
                    self.events.note(self.interrupt_note);
                    AbortCause::Signal(exit)
                }
                () = self.output_closed.cancelled(), if self.cause.is_none() => AbortCause::OutputClosed,
                () = SystemClock.sleep_until(self.deadline), if self.cause.is_none() => AbortCause::Timeout,
            };
            let is_first = self.cause.is_none();
            self.cause = Some(cause);
            asking = None;
            if is_first {
                let session = session.clone();
                // A turn that is about to start is interrupted after it has started.
                let started = starting.take();
                if let Some(started) = started {
                    match started.await {
                        Ok(started) => subscription = Some(started),
                        Err(error) => return FollowOutcome::Failed(error.into()),
                    }
                }
                interrupting = Some(async move { session.interrupt().await }.boxed());
            }
        }
    }

    /// Whether no further turn follows. After a resumed turn, queued messages run.
    async fn is_over(&self, stop: &TurnStop, goes_on: bool) -> bool {
        if !goes_on || self.cause.is_some() || *stop == TurnStop::Interrupted {
            return true;
        }
        self.session.snapshot().await.is_ok_and(|snapshot| snapshot.queue.is_empty())
    }

    /// Prints all earlier events, asks the user about this call, and sends the decision.
    fn ask(
        &self,
        approver: Arc<TerminalApprover>,
        call: ToolCall,
    ) -> impl Future<Output = Result<QuestionEnd, SessionError>> + Send + use<> {
        let (session, events) = (self.session.clone(), Arc::clone(self.events));
        async move {
            events.flush().await;
            match approver.ask(&call).await {
                ApprovalOutcome::Undecided => leave_waiting(session).await,
                ApprovalOutcome::Interrupted => Ok(QuestionEnd::Interrupted),
                ApprovalOutcome::Decided(decision) => {
                    session.decide(call.id.clone(), decision).await.map(|()| QuestionEnd::Sent(call.id))
                }
            }
        }
    }

    /// Prints all earlier events, asks the user a tool's questions, and sends the answers.
    fn ask_input(
        &self,
        approver: Arc<TerminalApprover>,
        input: PendingInput,
    ) -> impl Future<Output = Result<QuestionEnd, SessionError>> + Send + use<> {
        let (session, events) = (self.session.clone(), Arc::clone(self.events));
        async move {
            events.flush().await;
            match approver.ask_input(&input).await {
                InputOutcome::Undecided => leave_waiting(session).await,
                InputOutcome::Interrupted => Ok(QuestionEnd::Interrupted),
                InputOutcome::Answered(answers) => {
                    session.provide_input(input.call.clone(), input.round, answers).await?;
                    Ok(QuestionEnd::Sent(input.call))
                }
            }
        }
    }

    /// The exit status of the signal, if a signal interrupted the turn.
    pub(crate) const fn signal(&self) -> Option<ExitStatus> {
        match self.cause {
            Some(AbortCause::Signal(exit)) => Some(exit),
            _ => None,
        }
    }
}

async fn start(session: Session, command: TurnCommand) -> Result<Subscription, SessionError> {
    let from = match command {
        TurnCommand::Prompt(input, limits) => session.send_with_limits(input, limits).await?.accepted().seq(),
        TurnCommand::Continue(from) => from,
        TurnCommand::Decide(call, decision, from) => {
            session.decide(call, decision).await?;
            from
        }
    };
    session.subscribe(from).await
}

/// Closes the handle, so that the turn keeps waiting after the command ends and is not interrupted. Nothing is decided.
async fn leave_waiting(session: Session) -> Result<QuestionEnd, SessionError> {
    session.close().await.map(|()| QuestionEnd::Undecided)
}

/// Whether another event of the same append follows. The user is asked after that event.
fn is_followed(event: &SessionEvent) -> bool {
    matches!(event.kind, SessionEventKind::UserToolConfirmation { result: "deny", .. })
}

async fn pending<T>(future: &mut Option<BoxFuture<'static, T>>) -> T {
    match future {
        Some(future) => future.await,
        None => std::future::pending().await,
    }
}

async fn next(subscription: &mut Option<Subscription>) -> Result<Update, SessionError> {
    match subscription {
        Some(subscription) => subscription.next().await,
        None => std::future::pending().await,
    }
}
