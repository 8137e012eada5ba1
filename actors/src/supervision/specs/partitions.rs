//! Several dynamic supervisors behind one handle, for many children that come and go.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::num::NonZeroUsize;

use conjure_base::Deadline;

use super::id::{ChildId, SpecError};
use super::policy::Strategy;
use super::spec::ChildSpec;
use super::supervisor_spec::{Dynamic, Ordered, SupervisorSpec};
use crate::supervision::handles::child::Child;
use crate::supervision::handles::error::{RequestError, StartError};
use crate::supervision::handles::handle::Supervisor;
use crate::supervision::tree::{ActorInfo, ChildCounts};

/// Dynamic supervisors that divide the children by their ids. A child stays in its partition while the number of
/// partitions stays the same, so an id is unique.
#[derive(Debug, Clone)]
pub struct Partitions {
    partitions: Vec<Supervisor>,
}

impl Partitions {
    /// The spec of a one-for-one supervisor of `count` partitions, and the handle. `partition` makes the spec of each
    /// partition from its id, which is its number. A capacity applies to each partition.
    ///
    /// # Errors
    /// If `partition` gave two of them the same id.
    pub fn spec(
        id: ChildId,
        count: NonZeroUsize,
        mut partition: impl FnMut(ChildId) -> SupervisorSpec<Dynamic>,
    ) -> Result<(SupervisorSpec<Ordered>, Self), SpecError> {
        let mut spec = SupervisorSpec::ordered(id, Strategy::OneForOne);
        let mut partitions = Vec::with_capacity(count.get());
        for number in 0..count.get() {
            let (child, supervisor) = partition(ChildId::new(number.to_string())?).build();
            spec = spec.child(child)?;
            partitions.push(supervisor);
        }
        Ok((spec, Self { partitions }))
    }

    /// The partition of the child with this id.
    #[must_use]
    pub fn partition_for(&self, id: &ChildId) -> &Supervisor {
        let mut hasher = DefaultHasher::new();
        id.hash(&mut hasher);
        let partitions = self.partitions.len();
        let index = hasher.finish() % u64::try_from(partitions).unwrap_or(u64::MAX);
        &self.partitions[usize::try_from(index).unwrap_or_default() % partitions]
    }

    /// All partitions.
    #[must_use]
    pub fn all(&self) -> &[Supervisor] {
        &self.partitions
    }

    /// Calls [`Supervisor::start_child`] of the id's partition.
    ///
    /// # Errors
    /// As for that.
    pub async fn start_child(&self, spec: ChildSpec, deadline: Deadline) -> Result<Child, StartError> {
        self.partition_for(spec.id()).start_child(spec, deadline).await
    }

    /// Calls [`Supervisor::restart_child`] of the id's partition.
    ///
    /// # Errors
    /// As for that.
    pub async fn restart_child(&self, id: &ChildId, deadline: Deadline) -> Result<Child, StartError> {
        self.partition_for(id).restart_child(id, deadline).await
    }

    /// Calls [`Supervisor::terminate_child`] of the id's partition.
    ///
    /// # Errors
    /// As for that.
    pub async fn terminate_child(&self, id: &ChildId, deadline: Deadline) -> Result<(), RequestError> {
        self.partition_for(id).terminate_child(id, deadline).await
    }

    /// The child with this id.
    #[must_use]
    pub fn child(&self, id: &ChildId) -> Option<ActorInfo> {
        self.partition_for(id).child(id)
    }

    /// The number of children in all partitions.
    #[must_use]
    pub fn count(&self) -> ChildCounts {
        self.partitions.iter().map(Supervisor::count).fold(ChildCounts::default(), ChildCounts::plus)
    }
}
