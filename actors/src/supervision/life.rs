//! One incarnation of an actor: what is known of it, and what stands for its being there.
//!
//! A [`Presence`] is held by the actor's task, by its tracked work and, through theirs, by everything below it. When the last
//! is dropped, nothing of the incarnation is left: then and only then its supervisor and its monitors are told, from
//! the `Drop` itself, so that no way to end (a panic, a kill, a runtime that goes) can leave it untold or tell it
//! twice. What was never recorded as another exit is [`Exit::Killed`].

use std::collections::BTreeMap;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use ractor::{ActorCell, ActorRef};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use super::control::{Control, Report};
use super::exit::Exit;
use super::id::ChildId;
use super::machine::{Generation, Key};
use super::node::Node;
use super::tree::Status;

/// What is known of one incarnation. It outlives it.
pub(crate) struct Life {
    pub(crate) node: Arc<Node>,
    /// From 1, and not begun anew when the supervisor is.
    pub(crate) incarnation: u64,
    /// Its supervisor wants it to stop.
    pub(crate) stopping: CancellationToken,
    pub(crate) cell: OnceLock<ActorCell>,
    end: Mutex<End>,
}

struct End {
    recorded: Option<Exit>,
    watchers: Watchers,
}

enum Watchers {
    Waiting { next: u64, list: BTreeMap<u64, Watcher> },
    Told(Exit),
}

/// What is done, once, when the end is there.
type Watcher = Box<dyn FnOnce(Exit) + Send>;

impl Life {
    pub(crate) fn new(node: Arc<Node>, incarnation: u64) -> Self {
        let watchers = Watchers::Waiting { next: 0, list: BTreeMap::new() };
        Self {
            node,
            incarnation,
            stopping: CancellationToken::new(),
            cell: OnceLock::new(),
            end: Mutex::new(End { recorded: None, watchers }),
        }
    }

    pub(crate) fn id(&self) -> &ChildId {
        &self.node.id
    }

    fn end(&self) -> MutexGuard<'_, End> {
        self.end.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Says how it ends. The first word stands.
    pub(crate) fn record(&self, exit: Exit) {
        self.end().recorded.get_or_insert(exit);
    }

    /// How it ends, as far as that is known.
    pub(crate) fn exit(&self) -> Exit {
        self.end().recorded.clone().unwrap_or(Exit::Killed)
    }

    /// Has `watcher` called once, with the end: then, or now when the end is there already. The number is for
    /// [`Life::unwatch`].
    pub(crate) fn watch(&self, watcher: Watcher) -> Option<u64> {
        let exit = match &mut self.end().watchers {
            Watchers::Waiting { next, list } => {
                *next += 1;
                list.insert(*next, watcher);
                return Some(*next);
            }
            Watchers::Told(exit) => exit.clone(),
        };
        watcher(exit);
        None
    }

    pub(crate) fn unwatch(&self, number: u64) {
        if let Watchers::Waiting { list, .. } = &mut self.end().watchers {
            list.remove(&number);
        }
    }

    /// Ends it at whatever it awaits, without asking.
    pub(crate) fn kill(&self) {
        if let Some(cell) = self.cell.get() {
            cell.kill();
        }
    }

    fn conclude(&self) -> Exit {
        let (exit, watchers) = {
            let mut end = self.end();
            let exit = end.recorded.clone().unwrap_or(Exit::Killed);
            (exit.clone(), std::mem::replace(&mut end.watchers, Watchers::Told(exit)))
        };
        if let Watchers::Waiting { list, .. } = watchers {
            for watcher in list.into_values() {
                // A watcher makes a message of the end, which is its owner's code; the others are told all the same.
                if catch_unwind(AssertUnwindSafe(|| watcher(exit.clone()))).is_err() {
                    tracing::error!(actor = %self.node.path, "a monitor of this actor panicked");
                }
            }
        }
        exit
    }
}

impl fmt::Debug for Life {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}#{}", self.node.path, self.incarnation)
    }
}

/// Who is told of a start and an end.
pub(crate) enum Above {
    Supervisor {
        supervisor: ActorRef<Control>,
        key: Key,
        generation: Generation,
        presence: Arc<Presence>,
    },
    /// It is the root: whoever spawned it waits.
    Nobody {
        ready: Mutex<Option<oneshot::Sender<()>>>,
    },
}

/// Something of an incarnation is there.
pub(crate) struct Presence {
    pub(crate) life: Arc<Life>,
    above: Above,
}

impl Presence {
    pub(crate) fn new(life: Arc<Life>, above: Above) -> Arc<Self> {
        Arc::new(Self { life, above })
    }

    /// The start is over, and it was good.
    pub(crate) fn report_started(&self) {
        match &self.above {
            Above::Supervisor { .. } => self.report(Report::Started),
            Above::Nobody { ready } => {
                self.set_root_status(Status::Running);
                if let Some(ready) = ready.lock().unwrap_or_else(PoisonError::into_inner).take() {
                    // Whoever spawned it may have gone; then it is stopped by that.
                    let _ = ready.send(());
                }
            }
        }
    }

    /// What a root is at: nobody above it writes that down.
    pub(crate) fn set_root_status(&self, status: Status) {
        if let Above::Nobody { .. } = self.above {
            self.life.node.state().status = status;
        }
    }

    /// It takes no more messages, and ends by itself.
    pub(crate) fn report_leaving(&self) {
        self.report(Report::Leaving);
    }

    fn report(&self, report: Report) {
        if let Above::Supervisor { supervisor, key, generation, presence } = &self.above {
            let message = Control::Report { key: *key, generation: *generation, report };
            if supervisor.send_message(message).is_err() {
                tracing::debug!(supervisor = ?presence.life, child = ?self.life, "a supervisor that is gone misses a report");
            }
        }
    }
}

impl Drop for Presence {
    fn drop(&mut self) {
        let exit = self.life.conclude();
        self.set_root_status(Status::Finished);
        if let Above::Nobody { .. } = self.above {
            self.life.node.state().last_exit = Some(exit.clone());
        }
        self.report(Report::Gone(exit));
    }
}
