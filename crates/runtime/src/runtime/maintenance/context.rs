//! The data and the runtime that maintenance tasks work on.

use std::sync::{Arc, OnceLock, Weak};

use conjure_actors::supervision::Failure;

use crate::runtime::data::data_layout::RuntimeDir;
use crate::runtime::data::process_lock::ProcessLock;
use crate::runtime::handle::{Runtime, RuntimeInner};
use crate::runtime::sweep::Engines;

/// The data and the runtime that maintenance tasks work on. The runtime is available after its start, while a handle of
/// it exists.
pub(crate) struct MaintenanceContext {
    pub(super) home: Arc<RuntimeDir>,
    pub(super) process_lock: Option<Arc<ProcessLock>>,
    pub(super) engines: Engines,
    runtime: OnceLock<Weak<RuntimeInner>>,
}

impl MaintenanceContext {
    pub(crate) fn new(
        home: Arc<RuntimeDir>,
        process_lock: Option<Arc<ProcessLock>>,
        engines: Engines,
    ) -> Arc<Self> {
        Arc::new(Self { home, process_lock, engines, runtime: OnceLock::new() })
    }

    /// Whether other processes may use the data, too.
    pub(super) const fn is_shared(&self) -> bool {
        self.process_lock.is_some()
    }

    /// Sets the runtime once it has started.
    pub(crate) fn set_runtime(&self, runtime: &Runtime) {
        // It is set only once, since there is only one runtime.
        let _ = self.runtime.set(Arc::downgrade(&runtime.inner));
    }

    /// The runtime, if it runs.
    pub(super) fn runtime(&self) -> Result<Runtime, Failure> {
        let inner = self.runtime.get().and_then(Weak::upgrade);
        inner.map(|inner| Runtime { inner }).ok_or_else(|| "the runtime is starting or stopping".into())
    }
}
