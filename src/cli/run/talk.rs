//! Following a session to the end of a turn, and ending the turn when the user, or the time, wants it.

use std::sync::Arc;

use conjure::{
    Block, Clock as _, Deadline, Limits, Session, SessionError, Subscription, SystemClock, TurnStop, Update,
};
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use tokio_util::sync::CancellationToken;

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
    /// Why the turn was interrupted from here.
    pub(crate) cause: Option<Cause>,
}

impl Talk<'_> {
    /// Says it, and follows until the turn is over. The first signal interrupts the turn, a second one ends the wait; that
    /// nobody reads the events any more interrupts it, too, as does the deadline.
    pub(crate) async fn follow(&mut self, say: Say) -> Talked {
        let session = self.session.clone();
        let goes_on = matches!(say, Say::GoOn(_));
        let mut beginning = Some(begin(session.clone(), say).boxed());
        let mut subscription: Option<Subscription> = None;
        let mut interrupting: Option<BoxFuture<'static, Result<(), SessionError>>> = None;
        loop {
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
                            if let Some(end) = self.chronicle.take(&event)
                                && self.is_over(&end, goes_on).await
                            {
                                return Talked::Ended(end);
                            }
                        }
                        // Previews, and that some were missed.
                        Ok(_) => {}
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
    async fn is_over(&self, end: &End, goes_on: bool) -> bool {
        if !goes_on || *end == End::Waits || self.cause.is_some() {
            return true;
        }
        if matches!(end, End::Stopped(TurnStop::Interrupted)) {
            return true;
        }
        self.session.snapshot().await.is_ok_and(|snapshot| snapshot.queue.is_empty())
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
    };
    session.subscribe(from).await
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
