//! An errand: the task that owns the conversation while something is done with it.
//!
//! It is given the conversation by move, carries out one order, drives the turn that is then due, takes in what comes
//! meanwhile, and gives the conversation back. A crash of it loses the conversation's copy and nothing else: its actor
//! fails, and the next incarnation loads what is recorded.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use conjure_base::{CallId, Clock as _, Deadline, SystemClock};
use conjure_conversation::{
    ArtifactChange, Block, BlockKind, CallStatus, CommandKind, Conversation, Decision, DriveError,
    InterruptCause, LedgerError, Limits, ModelErrorKind, OpenCall, Post, QueueId, Rejection, Rim, State,
    Step, SubmitError, TurnOptions, TurnStop, next, run_turn,
};
use futures_util::{FutureExt, StreamExt, stream};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::bringing::{HeldEnd, bring_back};
use super::error::SessionError;
use super::message::Answer;
use super::producing::{Occasion, record_files};
use super::shared::{Driven, Shared};
use super::spec::SessionParts;
use super::subscription::Accepted;
use super::uploading::Giving;
use crate::artifacts::{ArtifactParts, have_expired};
use crate::tenants::{NotReserved, estimate};

/// What an errand is sent for.
pub(crate) enum Order {
    Start {
        input: Vec<Block>,
        limits: Limits,
        reply: Answer<Accepted>,
    },
    StartQueued {
        /// Where what waits says nothing else.
        limits: Limits,
    },
    Queue {
        input: Vec<Block>,
        limits: Option<Limits>,
        reply: Answer<Accepted>,
    },
    Steer {
        input: Vec<Block>,
        reply: Answer<u64>,
    },
    TakeBack {
        id: QueueId,
        reply: Answer<()>,
    },
    Decide {
        call: CallId,
        decision: Decision,
        reply: Answer<()>,
    },
    Interrupt {
        replies: Vec<Answer<()>>,
    },
    Artifacts {
        change: ArtifactChange,
        reply: Answer<()>,
    },
    /// Nothing but to drive on.
    Resume,
}

pub(crate) struct Errand {
    pub(crate) order: Order,
    pub(crate) conversation: Box<Conversation>,
    pub(crate) inbox: mpsc::Receiver<Post>,
    pub(crate) cancel: CancellationToken,
    pub(crate) parts: Arc<SessionParts>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) grace: Duration,
    /// Whether what waits for its turn goes on waiting: it does not fit into the tenant's budget, or somebody is to look first
    /// at what the last turn came to.
    pub(crate) is_held: bool,
}

/// What comes back of an errand.
pub(crate) enum Outcome {
    Done(Box<Conversation>),
    /// What waits for its turn goes on waiting, for the tenant's budget or for somebody who says that it may begin.
    Held(Box<Conversation>),
    /// The journal failed; the conversation loads itself anew before its next command.
    Journal(Box<Conversation>, LedgerError),
    /// The machine or the driver did what it must not. The conversation is gone.
    Crashed(String),
}

impl Outcome {
    /// Whether it is sure that no turn is under way.
    pub(crate) fn has_no_turn(&self) -> bool {
        matches!(self, Self::Done(conversation) | Self::Held(conversation) if conversation.state().turn().is_none())
    }
}

/// Whether what waits for its turn is not begun by itself: nobody knows what the service did in the last one. It is with the next message,
/// or when one is taken back.
pub(crate) fn awaits_somebody(state: &State) -> bool {
    let stop = state.last_turn().map(|last| &last.stop);
    state.turn().is_none()
        && matches!(stop, Some(TurnStop::ModelFailed(error)) if error.kind == ModelErrorKind::OutcomeUnknown)
}

impl Errand {
    pub(crate) async fn run(mut self) -> Outcome {
        let carried_out = AssertUnwindSafe(self.carry_out()).catch_unwind().await;
        match carried_out {
            Ok(Ok(())) if self.is_held => Outcome::Held(self.conversation),
            Ok(Ok(())) => Outcome::Done(self.conversation),
            Ok(Err(error)) => Outcome::Journal(self.conversation, error),
            Err(_) => Outcome::Crashed("the work on the conversation panicked".to_owned()),
        }
    }

    async fn carry_out(&mut self) -> Result<(), LedgerError> {
        let order = std::mem::replace(&mut self.order, Order::Resume);
        let mut is_said = matches!(order, Order::Queue { .. } | Order::TakeBack { .. });
        let mut result = match self.obey(order).await {
            Ok(()) => self.drive().await,
            failed => failed,
        };
        // What came too late for the turn is queued, or goes back to whoever sent it.
        self.inbox.close();
        while let Some(post) = self.inbox.recv().await {
            // Whoever said it may have seen how the turn ended.
            is_said = true;
            match &result {
                Ok(()) => result = post.submit(&mut self.conversation).await,
                Err(error) => post.fail(error.clone()),
            }
        }
        self.is_held |= !is_said && awaits_somebody(self.conversation.state());
        result
    }

    /// Drives the turn on, where one runs that waits for nobody.
    async fn drive(&mut self) -> Result<(), LedgerError> {
        let state = self.conversation.state();
        match next(state) {
            Step::AwaitApproval => return Ok(()),
            Step::Idle => return self.record_files_later().await,
            _ => {}
        }
        self.shared.observe(state, self.conversation.seq(), Driven::Yes);
        let (uploads, artifacts) = (self.parts.uploads.as_ref(), self.parts.artifacts.as_ref());
        let giving = uploads.zip(artifacts).map(|(uploads, artifacts)| {
            Giving::new(&self.shared.key, uploads, &artifacts.resolver, &self.cancel)
        });
        let inbox = &mut self.inbox;
        let options = TurnOptions {
            cancel: self.cancel.clone(),
            deadline: Deadline::NEVER,
            grace: self.grace,
            compaction: self.shared.setting.options.compaction.clone(),
            preparation: match &giving {
                Some(giving) => giving,
                None => &(),
            },
            inbox: stream::poll_fn(|cx| inbox.poll_recv(cx)).boxed(),
        };
        let rim =
            Rim { model: &*self.parts.model, composer: &*self.parts.composer, tools: &*self.parts.tools };
        let has_files = self.parts.executor.is_some() || !self.parts.outputs.is_empty();
        let _end = has_files.then(|| HeldEnd::of(&self.shared));
        let driven = run_turn(&mut self.conversation, rim, options).await;
        bring_back(&self.shared.key, self.parts.executor.as_deref(), &self.cancel).await;
        match driven {
            Ok(_) | Err(DriveError::NoTurn) => {
                let occasion = Occasion::TurnEnded(&self.cancel);
                let (shared, outputs) = (&self.shared, &self.parts.outputs);
                record_files(&mut self.conversation, shared, outputs, occasion).await
            }
            Err(DriveError::Ledger(error)) => Err(error),
            Err(other) => Err(LedgerError::Failed { reason: other.to_string() }),
        }
    }

    /// Records the files of the turn before, where that did not come about behind it.
    async fn record_files_later(&mut self) -> Result<(), LedgerError> {
        let (shared, outputs) = (&self.shared, &self.parts.outputs);
        record_files(&mut self.conversation, shared, outputs, Occasion::Later).await
    }

    /// What is to be recorded before anybody uses the session again.
    async fn put_in_order(&mut self) -> Result<(), LedgerError> {
        self.record_files_later().await?;
        let options = self.parts.artifacts.as_ref().map(ArtifactParts::options);
        if options
            .is_some_and(|options| have_expired(self.conversation.state(), options, SystemClock.timestamp()))
        {
            tracing::info!(session = %self.shared.key, "the session's artifacts have expired");
            self.submit(CommandKind::ClearArtifacts).await.map(drop)?;
        }
        Ok(())
    }

    async fn obey(&mut self, order: Order) -> Result<(), LedgerError> {
        if let Order::Start { .. } | Order::StartQueued { .. } | Order::Artifacts { .. } = order
            && let Err(error) = self.put_in_order().await
        {
            match order {
                Order::Start { reply, .. } => reply.send(Err(error.clone().into())),
                Order::Artifacts { reply, .. } => reply.send(Err(error.clone().into())),
                _ => {}
            }
            return Err(error);
        }
        match order {
            Order::Resume => self.submit(CommandKind::Recover).await.map(drop),
            Order::StartQueued { limits } => {
                let first = self.conversation.state().queue().next();
                let input = first.map(|queued| queued.input.clone()).unwrap_or_default();
                match self.afford(&input).await {
                    Ok(()) => {
                        let submitted = self.submit(CommandKind::StartQueued { limits }).await;
                        self.turn_begins();
                        submitted.map(drop)
                    }
                    Err(error) => {
                        tracing::info!(session = %self.shared.key, %error, "what waits goes on waiting");
                        self.is_held = true;
                        Ok(())
                    }
                }
            }
            Order::Start { input, limits, reply } => {
                if let Err(error) = self.afford(&input).await {
                    reply.send(Err(error));
                    return Ok(());
                }
                let submitted = self.submit(CommandKind::StartTurn { input, limits }).await;
                self.turn_begins();
                let turn = self.conversation.state().turn().map(|turn| turn.id());
                let accepted = turn.map(|turn| Accepted::Started { turn, seq: self.last_seq() });
                self.answer(reply, submitted, accepted.ok_or(SessionError::Lost))
            }
            Order::Queue { input, limits, reply } => {
                let most = self.shared.account.terms().queued_messages;
                if self.conversation.state().queue().len() >= most {
                    reply.send(Err(self.shared.refused(Rejection::QueueFull { limit: most })));
                    return Ok(());
                }
                let submitted = self.submit(CommandKind::Queue { input, limits }).await;
                let id = self.conversation.state().queue().last().map(|queued| queued.id);
                let accepted = id.map(|id| Accepted::Queued { id, seq: self.last_seq() });
                self.answer(reply, submitted, accepted.ok_or(SessionError::Lost))
            }
            Order::Steer { input, reply } => {
                let submitted = self.submit(CommandKind::Steer { input }).await;
                self.answer(reply, submitted, Ok(self.last_seq()))
            }
            Order::TakeBack { id, reply } => {
                let submitted = self.submit(CommandKind::Unqueue { id }).await;
                self.answer(reply, submitted, Ok(()))
            }
            Order::Artifacts { change, reply } => {
                let submitted = self.submit(change.into()).await;
                self.answer(reply, submitted, Ok(()))
            }
            Order::Decide { call, decision, reply } => {
                let submitted = self.submit(CommandKind::Decide { call, decision }).await;
                self.answer(reply, submitted, Ok(()))
            }
            Order::Interrupt { replies } => {
                let cause = InterruptCause::Cancelled;
                let (result, ended) = match self.submit(CommandKind::Interrupt { cause }).await {
                    // Else it was over by then.
                    Ok(Ok(()) | Err(Rejection::NoTurn)) => (Ok(()), Ok(())),
                    Ok(Err(rejection)) => (Err(rejection.into()), Ok(())),
                    Err(error) => (Err(error.clone().into()), Err(error)),
                };
                answer_all(replies, &result);
                ended
            }
        }
    }

    /// Whoever lists what the turn produces is told that it begins, where it does.
    fn turn_begins(&self) {
        let Some(turn) = self.conversation.state().turn() else { return };
        for store in &self.parts.outputs {
            // A crash of it costs no more than exactness.
            let _ = std::panic::catch_unwind(AssertUnwindSafe(|| store.turn_begins(turn.id())));
        }
    }

    /// Whether the tenant's budget has room for a turn that begins so.
    async fn afford(&self, input: &[Block]) -> Result<(), SessionError> {
        let account = &self.shared.account;
        if account.terms().budget.allowances().is_empty() {
            return Ok(());
        }
        let composer = &self.parts.composer;
        // A crash of it is the turn's, and told there.
        let composed = std::panic::catch_unwind(AssertUnwindSafe(|| {
            composer.compose(self.conversation.state().standing())
        }))
        .unwrap_or_default();
        let bytes = estimate(&composed, self.conversation.state().messages(), input);
        match account.check(self.shared.key.session, bytes).await {
            // What others have reserved may come back before the call, which waits for it.
            Ok(()) | Err(NotReserved::Waited) => Ok(()),
            Err(NotReserved::Exceeded(exceeded)) => Err(exceeded.into()),
            Err(NotReserved::Journal(error)) => Err(SessionError::Journal { reason: error.to_string() }),
        }
    }

    fn last_seq(&self) -> u64 {
        self.conversation.seq().saturating_sub(1)
    }

    /// A command, refused or carried out; only the ledger's failure ends the errand.
    async fn submit(&mut self, kind: CommandKind) -> Result<Result<(), Rejection>, LedgerError> {
        match self.conversation.submit(kind).await {
            Ok(()) => Ok(Ok(())),
            Err(SubmitError::Rejected(rejection)) => Ok(Err(rejection)),
            Err(SubmitError::Ledger(error)) => Err(error),
            Err(other) => Err(LedgerError::Failed { reason: other.to_string() }),
        }
    }

    fn answer<T: Send + 'static>(
        &self,
        reply: Answer<T>,
        submitted: Result<Result<(), Rejection>, LedgerError>,
        value: Result<T, SessionError>,
    ) -> Result<(), LedgerError> {
        match submitted {
            Ok(Ok(())) => reply.send(value),
            Ok(Err(rejection)) => reply.send(Err(self.shared.refused(rejection))),
            Err(error) => {
                reply.send(Err(error.clone().into()));
                return Err(error);
            }
        }
        Ok(())
    }
}

/// Whether a tool of it was ever started.
pub(crate) fn has_run_tools(state: &State) -> bool {
    let is_result = |block: &Block| matches!(block.kind(), BlockKind::ToolResult { .. });
    let is_begun =
        |open: &OpenCall| matches!(open.status, CallStatus::Started { .. } | CallStatus::Finished(_));
    state.messages().iter().any(|message| message.content.iter().any(is_result))
        || state.open_calls().iter().any(is_begun)
}

/// Tells everybody who waits for the same.
pub(crate) fn answer_all(replies: Vec<Answer<()>>, result: &Result<(), SessionError>) {
    for reply in replies {
        reply.send(result.clone());
    }
}
