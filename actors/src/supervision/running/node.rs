//! The live tree, readable without asking an actor: one node for each child, over all its incarnations.
//!
//! Each supervisor writes the nodes of its children. Each worker writes what it waits for. Each lock is held only for a
//! few instructions, and never while another is held. So the tree can be read even if all actors hang.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use conjure_base::{Deadline, SessionId, TenantId, lock};
use tokio::sync::{Notify, Semaphore};

use crate::supervision::machine::ChildKey;
use crate::supervision::specs::exit::Exit;
use crate::supervision::specs::id::ChildId;
use crate::supervision::specs::policy::Kind;

/// The tenant and session of an actor, for its events. An actor without a label inherits that of its supervisor.
#[derive(Debug, Clone, Default)]
pub(crate) struct ActorLabels {
    pub(crate) tenant: Option<TenantId>,
    pub(crate) session: Option<SessionId>,
}

impl ActorLabels {
    pub(crate) fn inherit_from(&self, parent: &Self) -> Self {
        Self {
            tenant: self.tenant.clone().or_else(|| parent.tenant.clone()),
            session: self.session.or(parent.session),
        }
    }
}

/// The number of waiting messages, computed from the permits that they hold.
#[derive(Debug, Clone)]
pub(crate) struct MailboxGauge {
    pub(crate) permits: Arc<Semaphore>,
    pub(crate) capacity: usize,
}

impl MailboxGauge {
    pub(crate) fn new(capacity: usize) -> Self {
        let capacity = capacity.clamp(1, Semaphore::MAX_PERMITS);
        Self { permits: Arc::new(Semaphore::new(capacity)), capacity }
    }

    pub(crate) fn waiting(&self) -> usize {
        self.capacity.saturating_sub(self.permits.available_permits())
    }
}

/// The status of a child.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Status {
    /// It was not started yet, because earlier siblings must start first.
    Waiting,
    /// It is starting.
    Starting,
    /// It runs.
    Running,
    /// It is stopping, or has ended and something below it still exists.
    Stopping,
    /// It failed or belongs to the group of a failed child. It is restarted at this time, or when its group is gone.
    Restarting {
        /// The time.
        at: Deadline,
    },
    /// It has finished, and is kept for [`crate::supervision::Supervisor::restart_child`].
    Finished,
    /// It failed too often and is not restarted.
    Quarantined,
}

#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) id: ChildId,
    /// The ids from the root to this node, separated by `/`.
    pub(crate) path: Arc<str>,
    pub(crate) kind: Kind,
    pub(crate) labels: ActorLabels,
    pub(crate) gauge: MailboxGauge,
    /// Notified of each change of the status, and of the node's removal.
    pub(crate) changes: Notify,
    state: Mutex<NodeState>,
    children: Mutex<BTreeMap<ChildKey, Arc<Node>>>,
}

#[derive(Debug, Clone)]
pub(crate) struct NodeState {
    pub(crate) status: Status,
    pub(crate) incarnation: u64,
    /// How often its supervisor restarted it.
    pub(crate) restarts: u64,
    pub(crate) last_exit: Option<Exit>,
    pub(crate) waiting_for: Option<Cow<'static, str>>,
}

impl Node {
    pub(crate) fn new(
        id: ChildId,
        kind: Kind,
        labels: &ActorLabels,
        gauge: MailboxGauge,
        parent: Option<&Self>,
    ) -> Self {
        let path = parent
            .map_or_else(|| Arc::from(id.as_str()), |parent| Arc::from(format!("{}/{id}", parent.path)));
        let labels = parent.map_or_else(|| labels.clone(), |parent| labels.inherit_from(&parent.labels));
        let state = NodeState {
            status: Status::Waiting,
            incarnation: 0,
            restarts: 0,
            last_exit: None,
            waiting_for: None,
        };
        let (state, children) = (Mutex::new(state), Mutex::default());
        Self { id, path, kind, labels, gauge, changes: Notify::new(), state, children }
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, NodeState> {
        lock(&self.state)
    }

    pub(crate) fn children(&self) -> Vec<Arc<Self>> {
        self.table().values().cloned().collect()
    }

    /// The child with this id. It does not clone the other entries.
    pub(crate) fn child(&self, id: &ChildId) -> Option<Arc<Self>> {
        self.table().values().find(|child| child.id == *id).cloned()
    }

    pub(crate) fn insert_child(&self, key: ChildKey, child: Arc<Self>) {
        self.table().insert(key, child);
    }

    /// Adds a child after all others.
    pub(crate) fn append_child(&self, child: Arc<Self>) -> ChildKey {
        let mut table = self.table();
        let key = ChildKey(table.last_key_value().map_or(0, |(last, _)| last.0) + 1);
        table.insert(key, child);
        key
    }

    pub(crate) fn remove_child(&self, key: ChildKey) {
        let removed = self.table().remove(&key);
        if let Some(child) = removed {
            child.changes.notify_waiters();
        }
    }

    /// Removes all children. Called when a new incarnation of a supervisor starts.
    pub(crate) fn remove_children(&self) {
        let removed = std::mem::take(&mut *self.table());
        for child in removed.into_values() {
            child.changes.notify_waiters();
        }
    }

    fn table(&self) -> MutexGuard<'_, BTreeMap<ChildKey, Arc<Self>>> {
        lock(&self.children)
    }
}
