//! One incarnation of an actor, and the guard that keeps it from being gone.
//!
//! The actor's task, its tracked work and everything below it hold an [`IncarnationGuard`]. When the last guard is
//! dropped, nothing of the incarnation is left. Only then are the supervisor and the monitors notified, by the guard's
//! `Drop`. So no kind of end (a panic, a kill, the end of the Tokio runtime) can skip or repeat the notification. An
//! exit that was never recorded is [`Exit::Killed`].

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use conjure_base::lock;
use ractor::{ActorCell, ActorRef};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use super::node::{Node, Status};
use super::supervisor_message::{ChildReport, SupervisorMessage};
use crate::supervision::machine::{ChildKey, Generation};
use crate::supervision::specs::exit::Exit;
use crate::supervision::specs::id::ChildId;

/// The data of one incarnation. It stays readable after the incarnation's end.
pub(crate) struct Incarnation {
    pub(crate) node: Arc<Node>,
    /// Counted from 1. A restart of the supervisor does not reset it.
    pub(crate) number: u64,
    /// Cancelled when the supervisor asks the actor to stop.
    pub(crate) stopping: CancellationToken,
    pub(crate) cell: OnceLock<ActorCell>,
    exit_state: Mutex<ExitState>,
}

struct ExitState {
    recorded: Option<Exit>,
    watchers: Watchers,
}

enum Watchers {
    Pending(Vec<oneshot::Sender<Exit>>),
    Fired(Exit),
}

impl Incarnation {
    pub(crate) fn new(node: Arc<Node>, number: u64) -> Self {
        Self {
            node,
            number,
            stopping: CancellationToken::new(),
            cell: OnceLock::new(),
            exit_state: Mutex::new(ExitState { recorded: None, watchers: Watchers::Pending(Vec::new()) }),
        }
    }

    pub(crate) fn id(&self) -> &ChildId {
        &self.node.id
    }

    fn exit_state(&self) -> MutexGuard<'_, ExitState> {
        lock(&self.exit_state)
    }

    /// Records the exit. Only the first record counts.
    pub(crate) fn record(&self, exit: Exit) {
        self.exit_state().recorded.get_or_insert(exit);
    }

    /// The recorded exit; [`Exit::Killed`] if none is recorded.
    pub(crate) fn exit(&self) -> Exit {
        self.exit_state().recorded.clone().unwrap_or(Exit::Killed)
    }

    /// The exit, sent when the incarnation is gone, or at once if it is already gone. Dropping the receiver ends the watch.
    pub(crate) fn watch(&self) -> oneshot::Receiver<Exit> {
        let (watcher, end) = oneshot::channel();
        match &mut self.exit_state().watchers {
            Watchers::Pending(list) => {
                list.retain(|watcher| !watcher.is_closed());
                list.push(watcher);
            }
            Watchers::Fired(exit) => drop(watcher.send(exit.clone())),
        }
        end
    }

    /// Kills the actor at its next await.
    pub(crate) fn kill(&self) {
        if let Some(cell) = self.cell.get() {
            cell.kill();
        }
    }

    /// Returns the final exit, and sends it to all watchers.
    fn finish(&self) -> Exit {
        let (exit, watchers) = {
            let mut state = self.exit_state();
            let exit = state.recorded.clone().unwrap_or(Exit::Killed);
            (exit.clone(), std::mem::replace(&mut state.watchers, Watchers::Fired(exit)))
        };
        if let Watchers::Pending(list) = watchers {
            list.into_iter().for_each(|watcher| drop(watcher.send(exit.clone())));
        }
        exit
    }
}

impl fmt::Debug for Incarnation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}#{}", self.node.path, self.number)
    }
}

/// The receiver of the reports about an incarnation's start and end.
pub(crate) enum Parent {
    Supervisor {
        supervisor: ActorRef<SupervisorMessage>,
        key: ChildKey,
        generation: Generation,
        guard: Arc<IncarnationGuard>,
    },
    /// The incarnation is a root. Its spawner waits for `ready`.
    None { ready: Mutex<Option<oneshot::Sender<()>>> },
}

/// While one exists, the incarnation is not gone.
pub(crate) struct IncarnationGuard {
    pub(crate) incarnation: Arc<Incarnation>,
    parent: Parent,
}

impl IncarnationGuard {
    pub(crate) fn new(incarnation: Arc<Incarnation>, parent: Parent) -> Arc<Self> {
        Arc::new(Self { incarnation, parent })
    }

    /// Reports that the start succeeded.
    pub(crate) fn report_started(&self) {
        match &self.parent {
            Parent::Supervisor { .. } => self.report(ChildReport::Started),
            Parent::None { ready } => {
                self.set_root_status(Status::Running);
                if let Some(ready) = lock(ready).take() {
                    // If the spawner has stopped waiting, it has dropped the `Root`, which stops the actor.
                    let _ = ready.send(());
                }
            }
        }
    }

    /// Sets the status if this is a root. For other actors, their supervisor does it.
    pub(crate) fn set_root_status(&self, status: Status) {
        if let Parent::None { .. } = self.parent {
            self.incarnation.node.state().status = status;
        }
    }

    /// Reports that the actor accepts no more messages and stops by itself.
    pub(crate) fn report_leaving(&self) {
        self.report(ChildReport::Leaving);
    }

    fn report(&self, report: ChildReport) {
        if let Parent::Supervisor { supervisor, key, generation, guard } = &self.parent {
            let message = SupervisorMessage::ChildReport { key: *key, generation: *generation, report };
            if supervisor.send_message(message).is_err() {
                tracing::debug!(supervisor = ?guard.incarnation, child = ?self.incarnation, "a supervisor ended before a report reached it");
            }
        }
    }
}

impl Drop for IncarnationGuard {
    fn drop(&mut self) {
        let exit = self.incarnation.finish();
        self.set_root_status(Status::Finished);
        if let Parent::None { .. } = self.parent {
            self.incarnation.node.state().last_exit = Some(exit.clone());
        }
        self.report(ChildReport::Gone(exit));
    }
}
