//! Several dynamic supervisors behind one handle, for many dynamic children.

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

/// Dynamic supervisors among which the children are divided by their ids. An id always belongs to the same partition
/// while the number of partitions stays the same, so ids are unique over all partitions.
#[derive(Debug, Clone)]
pub struct Partitions {
    partitions: Vec<Supervisor>,
}

impl Partitions {
    /// The spec of a one-for-one supervisor of `count` partitions, and the handle. `partition` returns the spec of each
    /// partition for its id, which is the partition's number. A capacity applies to each partition separately.
    ///
    /// # Errors
    /// If `partition` gives two partitions the same id, or makes one significant.
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

    /// Calls [`Supervisor::start_child`] of the id's partition.
    ///
    /// # Errors
    /// Those of [`Supervisor::start_child`].
    pub async fn start_child(&self, spec: ChildSpec, deadline: Deadline) -> Result<Child, StartError> {
        self.partition_for(spec.id()).start_child(spec, deadline).await
    }

    /// Calls [`Supervisor::terminate_child`] of the id's partition.
    ///
    /// # Errors
    /// Those of [`Supervisor::terminate_child`].
    pub async fn terminate_child(&self, id: &ChildId, deadline: Deadline) -> Result<(), RequestError> {
        self.partition_for(id).terminate_child(id, deadline).await
    }

    /// The number of children in all partitions.
    #[must_use]
    pub fn count(&self) -> usize {
        self.partitions.iter().map(|partition| partition.count().all).sum()
    }
}
