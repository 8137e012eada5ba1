//! Following a session to the end of a turn, and ending the turn when the user, or the time, wants it.

use std::sync::Arc;

use conjure::{
    Block, CallId, Clock as _, Deadline, Decision, Limits, Session, SessionError, SessionEvent,
    SessionEventKind, Subscription, SystemClock, ToolCall, TurnStop, Update,
};
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use tokio_util::sync::CancellationToken;

use crate::cli::approvals::{Answer, Person};
use crate::cli::exit::Exit;
use crate::cli::failure::Failure;
use crate::cli::run::chronicle::{Chronicle, End};
use crate::cli::run::ending::Cause;
use crate::cli::run::progress::Watcher;
use crate::cli::signals::Signals;

/// What is done with a session.
#[derive(Debug)]
pub(crate) enum Say {
    /// It is told this, within these limits or its own.
    Prompt(Vec<Block>, Option<Limits>),
    /// It goes on with what was under way, which is told from this event on.
    GoOn(u64),
    /// It is decided on a tool call that waits, and it goes on, which is told from this event on.
    Decide(CallId, Decision, u64),
}

/// What came of it.
#[derive(Debug)]
pub(crate) enum Talked {
    /// The turn ended, or waits.
    Ended(End),
    /// It cannot be known how it ended, or it could not begin.
    Failed(Failure),
    /// A second signal ended the wait for it.
    LeftAlone,
}

/// Who talks, and what ends it.
pub(crate) struct Talk<'a> {
    pub(crate) session: &'a Session,
    pub(crate) signals: &'a mut Signals,
    pub(crate) watcher: &'a Arc<Watcher>,
    pub(crate) unread: &'a CancellationToken,
    pub(crate) deadline: Deadline,
    pub(crate) chronicle: &'a mut Chronicle,
    /// Who decides on tool calls; nobody may be there.
    pub(crate) person: Option<&'a Arc<Person>>,
    /// Why the turn was interrupted from here.
    pub(crate) cause: Option<Cause>,
}

impl Talk<'_> {
    /// Says it, and follows until the turn is over. The first signal interrupts the turn, a second one ends the wait; that
    /// nobody reads the events any more interrupts it, too, as does the deadline.
    pub(crate) async fn follow(&mut self, say: Say) -> Talked {
        let session = self.session.clone();
        let goes_on = !matches!(say, Say::Prompt(..));
        // What was just decided is told first.
        let mut awaits_news = !matches!(say, Say::GoOn(_));
        let mut asking: Option<BoxFuture<'static, Result<Option<CallId>, SessionError>>> = None;
        let mut beginning = Some(begin(session.clone(), say).boxed());
        let mut subscription: Option<Subscription> = None;
        let mut interrupting: Option<BoxFuture<'static, Result<(), SessionError>>> = None;
        loop {
            if subscription.is_some()
                && asking.is_none()
                && !awaits_news
                && self.cause.is_none()
                && let Some(call) = self.chronicle.waiting().first()
            {
                asking = Some(match self.person {
                    Some(person) => self.ask(Arc::clone(person), call.clone()).boxed(),
                    None => put_away(session.clone()).boxed(),
                });
            }
            let cause = tokio::select! {
                begun = pending(&mut beginning) => {
                    beginning = None;
                    match begun {
                        Ok(begun) => subscription = Some(begun),
                        Err(error) => return Talked::Failed(error.into()),
                    }
                    continue;
                }
                update = next(&mut subscription) => {
                    match update {
                        Ok(Update::Recorded(event)) => {
                            self.watcher.tell(&event);
                            if let Some(stop) = self.chronicle.take(&event)
                                && self.is_over(&stop, goes_on).await
                            {
                                return Talked::Ended(End::Stopped(stop));
                            }
                            awaits_news = has_more(&event);
                        }
                        // Previews, and that some were missed.
                        Ok(_) => {}
                        Err(error) => return Talked::Failed(error.into()),
                    }
                    continue;
                }
                decided = pending(&mut asking) => {
                    asking = None;
                    match decided {
                        Ok(Some(call)) => self.chronicle.decided(&call),
                        Ok(None) => {
                            while let Some(Ok(Update::Recorded(event))) = next(&mut subscription).now_or_never() {
                                self.watcher.tell(&event);
                                self.chronicle.take(&event);
                            }
                            if let Some(call) = self.chronicle.waiting().first() {
                                return Talked::Ended(End::Waits(call.clone()));
                            }
                        }
                        Err(error) => return Talked::Failed(error.into()),
                    }
                    continue;
                }
                interrupted = pending(&mut interrupting) => {
                    interrupting = None;
                    if let Err(error) = interrupted {
                        return Talked::Failed(error.into());
                    }
                    continue;
                }
                exit = self.signals.next() => {
                    if matches!(self.cause, Some(Cause::Signal(_))) {
                        return Talked::LeftAlone;
                    }
                    self.watcher.note("interrupted: ending what was started (a second signal does not wait for it)");
                    Cause::Signal(exit)
                }
                () = self.unread.cancelled(), if self.cause.is_none() => Cause::Unread,
                () = SystemClock.sleep_until(self.deadline), if self.cause.is_none() => Cause::OutOfTime,
            };
            let is_first = self.cause.is_none();
            self.cause = Some(cause);
            asking = None;
            if is_first {
                let session = session.clone();
                // What is about to begin is interrupted when it has begun.
                let begun = beginning.take();
                if let Some(begun) = begun {
                    match begun.await {
                        Ok(begun) => subscription = Some(begun),
                        Err(error) => return Talked::Failed(error.into()),
                    }
                }
                interrupting = Some(async move { session.interrupt().await }.boxed());
            }
        }
    }

    /// Whether nothing more is to come: after a turn that was under way, those that wait come next.
    async fn is_over(&self, stop: &TurnStop, goes_on: bool) -> bool {
        if !goes_on || self.cause.is_some() || *stop == TurnStop::Interrupted {
            return true;
        }
        self.session.snapshot().await.is_ok_and(|snapshot| snapshot.queue.is_empty())
    }

    /// Asks the person about this call, after all that happened before was told, and decides as they say. Gives the call, if
    /// they did.
    fn ask(
        &self,
        person: Arc<Person>,
        call: ToolCall,
    ) -> impl Future<Output = Result<Option<CallId>, SessionError>> + Send + use<> {
        let (session, watcher) = (self.session.clone(), Arc::clone(self.watcher));
        async move {
            watcher.told().await;
            match person.ask(&call).await {
                Answer::None => put_away(session).await,
                Answer::Decided(decision) => {
                    session.decide(call.id.clone(), decision).await.map(|()| Some(call.id))
                }
            }
        }
    }

    /// The exit code of the signal that came, if one did.
    pub(crate) const fn signal(&self) -> Option<Exit> {
        match self.cause {
            Some(Cause::Signal(exit)) => Some(exit),
            _ => None,
        }
    }
}

async fn begin(session: Session, say: Say) -> Result<Subscription, SessionError> {
    let from = match say {
        Say::Prompt(input, limits) => session.send_within(input, limits).await?.accepted().seq(),
        Say::GoOn(from) => from,
        Say::Decide(call, decision, from) => {
            session.decide(call, decision).await?;
            from
        }
    };
    session.subscribe(from).await
}

/// Has all calls of the answer looked at, so that the turn waits and is not interrupted when the command ends. Nothing is
/// decided.
async fn put_away(session: Session) -> Result<Option<CallId>, SessionError> {
    session.close().await.map(|()| None)
}

/// Whether what is recorded together with this event comes next: a person is asked after it.
fn has_more(event: &SessionEvent) -> bool {
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
