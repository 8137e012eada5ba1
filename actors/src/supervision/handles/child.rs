//! The handle of a started child.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use super::address::{Address, WorkerEndpoint};
use super::monitor::Monitor;
use crate::supervision::running::incarnation::Incarnation;
use crate::supervision::specs::id::ChildId;

/// A child of a supervisor: the incarnation that ran when this handle was created.
#[derive(Clone)]
pub struct Child {
    incarnation: Option<Arc<Incarnation>>,
    id: ChildId,
    pub(crate) endpoint: Arc<dyn Any + Send + Sync>,
}

impl Child {
    /// `endpoint` is type-erased, because a supervisor does not know the message types of its children.
    pub(crate) const fn new(
        id: ChildId,
        endpoint: Arc<dyn Any + Send + Sync>,
        incarnation: Option<Arc<Incarnation>>,
    ) -> Self {
        Self { incarnation, id, endpoint }
    }

    /// The child's id.
    #[must_use]
    pub const fn id(&self) -> &ChildId {
        &self.id
    }

    /// The child's address, if it is a worker with messages of type `M`.
    #[must_use]
    pub fn address<M: Send + 'static>(&self) -> Option<Address<M>> {
        Arc::clone(&self.endpoint).downcast::<WorkerEndpoint<M>>().ok().map(Address::new)
    }

    /// Monitors this incarnation; `None` if the child did not run when this handle was created.
    #[must_use]
    pub fn monitor(&self) -> Option<Monitor> {
        self.incarnation.as_ref().map(Monitor::of)
    }

    /// Kills this incarnation at its next await. The supervisor treats this as an abnormal exit.
    pub fn kill(&self) {
        if let Some(incarnation) = &self.incarnation {
            incarnation.kill();
        }
    }
}

impl fmt::Debug for Child {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Child({})", self.id)
    }
}
