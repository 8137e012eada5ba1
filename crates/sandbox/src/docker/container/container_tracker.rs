//! [`ContainerTracker`]: an engine, and the names of the containers that this process has on it.
//!
//! State: the names in use, and the tasks that remove containers in the background. [`crate::docker::Docker::sweep`]
//! removes the containers that these tasks could not remove. The next process removes the containers of a process
//! that died.

use std::collections::BTreeSet;
use std::future::Future;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use conjure_base::lock;
use tokio::runtime::Handle;
use tokio_util::task::TaskTracker;

use super::owner_labels::name_of;
use crate::docker::engine::drop_budget::DropTimeBudget;
use crate::docker::engine::engine_client::EngineClient;

/// An engine, and the names of the containers that one connector has on it.
#[derive(Debug)]
pub(crate) struct ContainerTracker {
    pub(crate) engine: EngineClient,
    instance: String,
    next: AtomicU64,
    names: Mutex<BTreeSet<String>>,
    /// Whether a removal was left to the next sweep since the last sweep.
    needs_sweep: AtomicBool,
    tasks: TaskTracker,
    /// The total time budget of removals without a runtime.
    pub(crate) budget: DropTimeBudget,
}

impl ContainerTracker {
    pub(crate) fn new(engine: EngineClient, instance: &str) -> Arc<Self> {
        Arc::new(Self {
            engine,
            instance: instance.to_owned(),
            next: AtomicU64::new(0),
            names: Mutex::default(),
            needs_sweep: AtomicBool::new(false),
            tasks: TaskTracker::new(),
            budget: DropTimeBudget::default(),
        })
    }

    /// Reserves a name that no other container has.
    pub(crate) fn reserve_name(&self) -> String {
        let name = name_of(&self.instance, self.next.fetch_add(1, Ordering::Relaxed));
        self.names().insert(name.clone());
        name
    }

    /// Whether a container of this name is in use, or being removed.
    pub(crate) fn holds(&self, name: &str) -> bool {
        self.names().contains(name)
    }

    /// Returns whether a removal was left to the next sweep, and clears the flag. The caller must sweep now.
    pub(crate) fn take_sweep_flag(&self) -> bool {
        self.needs_sweep.swap(false, Ordering::Relaxed)
    }

    /// Records that a removal is left to the next sweep.
    pub(crate) fn set_sweep_flag(&self) {
        self.needs_sweep.store(true, Ordering::Relaxed);
    }

    /// Runs `work` to its end in a task, also when the caller does not wait. Without a runtime it drops `work`.
    pub(crate) fn run(&self, work: impl Future<Output = ()> + Send + 'static) {
        if let Ok(runtime) = Handle::try_current() {
            self.tasks.spawn_on(work, &runtime);
        }
    }

    /// The names that are in use, locked.
    pub(crate) fn names(&self) -> std::sync::MutexGuard<'_, BTreeSet<String>> {
        lock(&self.names)
    }
}
