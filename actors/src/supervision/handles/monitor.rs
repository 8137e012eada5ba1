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
    watch: MessageMonitor,
    end: oneshot::Receiver<Down>,
}

/// A monitor that sends the [`Down`] of an incarnation to an actor, once. Dropping it ends the monitor, but a message
/// that was sent still arrives.
#[derive(Debug)]
#[must_use = "dropping it ends the monitor"]
pub struct MessageMonitor {
    incarnation: Arc<Incarnation>,
    number: Option<u64>,
}

impl Monitor {
    pub(crate) fn of(incarnation: &Arc<Incarnation>) -> Self {
        let (sender, end) = oneshot::channel();
        // The receiver may have been dropped.
        let watch = MessageMonitor::of(incarnation, move |down| drop(sender.send(down)));
        Self { watch, end }
    }

    /// The monitored actor.
    #[must_use]
    pub fn id(&self) -> &ChildId {
        self.watch.incarnation.id()
    }
}

impl Future for Monitor {
    type Output = Down;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Down> {
        // The sender is stored in the incarnation, which this monitor holds, and it sends before it is dropped. So an
        // error is not expected here.
        let received = ready!(Pin::new(&mut self.end).poll(cx));
        Poll::Ready(received.unwrap_or_else(|_| self.watch.down(self.watch.incarnation.exit())))
    }
}

impl MessageMonitor {
    /// Calls `notify` once with the [`Down`], when the incarnation is gone. If it is already gone, calls `notify` at
    /// once.
    pub(crate) fn of(incarnation: &Arc<Incarnation>, notify: impl FnOnce(Down) + Send + 'static) -> Self {
        let mut watch = Self { incarnation: Arc::clone(incarnation), number: None };
        let down = watch.down(Exit::Killed);
        watch.number = incarnation.watch(Box::new(move |exit| notify(Down { exit, ..down })));
        watch
    }

    fn down(&self, exit: Exit) -> Down {
        Down { id: self.incarnation.id().clone(), incarnation: self.incarnation.number, exit }
    }
}

impl Drop for MessageMonitor {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            self.incarnation.unwatch(number);
        }
    }
}
