//! Monitors: each reports once that an incarnation is gone.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::sync::oneshot;

use crate::supervision::running::incarnation::Incarnation;
use crate::supervision::specs::exit::Exit;
use crate::supervision::specs::id::ChildId;

/// The report that an incarnation and everything below it are gone.
#[derive(Debug, Clone)]
pub struct Down {
    /// The actor.
    pub id: ChildId,
    /// The incarnation, from 1.
    pub incarnation: u64,
    /// How it ended.
    pub exit: Exit,
}

/// A future that resolves to the [`Down`] of an incarnation. It also resolves if the incarnation is already gone.
/// Dropping it ends the monitor.
#[derive(Debug)]
#[must_use = "dropping it ends the monitor"]
pub struct Monitor {
    incarnation: Arc<Incarnation>,
    end: oneshot::Receiver<Exit>,
}

impl Monitor {
    pub(crate) fn of(incarnation: &Arc<Incarnation>) -> Self {
        Self { incarnation: Arc::clone(incarnation), end: incarnation.watch() }
    }

    /// The monitored actor.
    #[must_use]
    pub fn id(&self) -> &ChildId {
        self.incarnation.id()
    }
}

impl Future for Monitor {
    type Output = Down;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Down> {
        // The sender is stored in the incarnation, which this monitor holds, and it sends before it is dropped. So an
        // error is not expected here.
        let received = ready!(Pin::new(&mut self.end).poll(cx));
        let exit = received.unwrap_or_else(|_| self.incarnation.exit());
        let (id, incarnation) = (self.incarnation.id().clone(), self.incarnation.number);
        Poll::Ready(Down { id, incarnation, exit })
    }
}
