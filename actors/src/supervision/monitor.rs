//! Being told, once, that an incarnation is gone.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::sync::oneshot;

use super::exit::Exit;
use super::id::ChildId;
use super::life::Life;

/// An incarnation is gone, and everything below it.
#[derive(Debug, Clone)]
pub struct Down {
    /// Whose.
    pub id: ChildId,
    /// Which, from 1.
    pub incarnation: u64,
    /// How it ended.
    pub exit: Exit,
}

/// A future of the one [`Down`] of an incarnation, also when it was gone before. Dropping it ends the watch.
#[derive(Debug)]
#[must_use = "dropping a monitor ends the watch"]
pub struct Monitor {
    watch: Watch,
    end: oneshot::Receiver<Down>,
}

/// A watch that tells an actor, by a message, of the one [`Down`] of an incarnation. Dropping it ends the watch; a message
/// that is on its way still comes.
#[derive(Debug)]
#[must_use = "dropping a watch ends it"]
pub struct Watch {
    life: Arc<Life>,
    number: Option<u64>,
}

impl Monitor {
    pub(crate) fn of(life: &Arc<Life>) -> Self {
        let (teller, end) = oneshot::channel();
        // Whoever watched may be gone when it is told.
        let watch = Watch::of(life, move |down| drop(teller.send(down)));
        Self { watch, end }
    }

    /// Whom it watches.
    #[must_use]
    pub fn id(&self) -> &ChildId {
        self.watch.life.id()
    }
}

impl Future for Monitor {
    type Output = Down;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Down> {
        // The other end is used before it is dropped: by the end of a life that we keep.
        let told = ready!(Pin::new(&mut self.end).poll(cx));
        Poll::Ready(told.unwrap_or_else(|_| self.watch.down(self.watch.life.exit())))
    }
}

impl Watch {
    /// Has `tell` called with the one [`Down`], where the incarnation ends or, when that was before, here.
    pub(crate) fn of(life: &Arc<Life>, tell: impl FnOnce(Down) + Send + 'static) -> Self {
        let mut watch = Self { life: Arc::clone(life), number: None };
        let down = watch.down(Exit::Killed);
        watch.number = life.watch(Box::new(move |exit| tell(Down { exit, ..down })));
        watch
    }

    fn down(&self, exit: Exit) -> Down {
        Down { id: self.life.id().clone(), incarnation: self.life.incarnation, exit }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            self.life.unwatch(number);
        }
    }
}
