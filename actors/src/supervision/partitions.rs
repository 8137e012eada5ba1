//! Several dynamic supervisors that look like one: where many children come and go, no single actor handles them all.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::num::NonZeroUsize;

use conjure_base::Deadline;

use super::error::{RequestError, SpecError, StartError};
use super::handle::{Child, Supervisor};
use super::id::ChildId;
use super::policy::Strategy;
use super::spec::ChildSpec;
use super::supervisor_spec::{Dynamic, Ordered, SupervisorSpec};
use super::tree::{ActorInfo, ChildCounts};

/// Dynamic supervisors that share the children by their ids. A child is in the same partition as long as their number
/// is the same, so an id is there once.
#[derive(Debug, Clone)]
pub struct Partitions {
    partitions: Vec<Supervisor>,
}

impl Partitions {
    /// A supervisor over `count` partitions, one for one, and the handle on them. `partition` makes the spec of each from its
    /// id, which is its number; a capacity is of each partition.
    ///
    /// # Errors
    /// When `partition` gave two of them one id.
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

    /// The partition that a child of this id is in.
    #[must_use]
    pub fn partition_for(&self, id: &ChildId) -> &Supervisor {
        let mut hasher = DefaultHasher::new();
        id.hash(&mut hasher);
        let partitions = self.partitions.len();
        let index = hasher.finish() % u64::try_from(partitions).unwrap_or(u64::MAX);
        &self.partitions[usize::try_from(index).unwrap_or_default() % partitions]
    }

    /// All of them.
    #[must_use]
    pub fn all(&self) -> &[Supervisor] {
        &self.partitions
    }

    /// [`Supervisor::start_child`] in the partition of its id.
    ///
    /// # Errors
    /// As there.
    pub async fn start_child(&self, spec: ChildSpec, deadline: Deadline) -> Result<Child, StartError> {
        self.partition_for(spec.id()).start_child(spec, deadline).await
    }

    /// [`Supervisor::restart_child`] in the partition of its id.
    ///
    /// # Errors
    /// As there.
    pub async fn restart_child(&self, id: &ChildId, deadline: Deadline) -> Result<Child, StartError> {
        self.partition_for(id).restart_child(id, deadline).await
    }

    /// [`Supervisor::terminate_child`] in the partition of its id.
    ///
    /// # Errors
    /// As there.
    pub async fn terminate_child(&self, id: &ChildId, deadline: Deadline) -> Result<(), RequestError> {
        self.partition_for(id).terminate_child(id, deadline).await
    }

    /// The child of this id.
    #[must_use]
    pub fn child(&self, id: &ChildId) -> Option<ActorInfo> {
        self.partition_for(id).child(id)
    }

    /// How many children there are in all of them.
    #[must_use]
    pub fn count(&self) -> ChildCounts {
        self.partitions.iter().map(Supervisor::count).fold(ChildCounts::default(), ChildCounts::plus)
    }
}
