//! The supervisor of a session's sandbox: one in a tree, or one that the first call starts.

use std::num::NonZeroU32;
use std::sync::{Arc, OnceLock};

use conjure_base::Deadline;

use super::options::ExecutorOptions;
use crate::supervision::{
    ChildId, ChildScope, ChildSpec, Intensity, IntensityScope, StartError, Supervisor, SupervisorSpec,
};

/// The supervisor below which the sandbox's actor is started.
pub(crate) enum SupervisorRef {
    /// A supervisor in a tree, which calls do not start.
    InTree(Supervisor),
    /// A supervisor below a session, which the first call starts.
    Lazy(LazySupervisor),
}

/// A supervisor that is created and started when it is first needed.
pub(crate) struct LazySupervisor {
    id: ChildId,
    intensity: Intensity,
    attempts: NonZeroU32,
    child_scope: ChildScope,
    supervisor: OnceLock<(Arc<ChildSpec>, Supervisor)>,
    /// Held by the caller that starts the supervisor.
    start_lock: tokio::sync::Mutex<()>,
}

/// The supervisor of a session's sandbox, and its spec.
pub(crate) fn supervisor(id: ChildId, intensity: Intensity, attempts: NonZeroU32) -> (ChildSpec, Supervisor) {
    SupervisorSpec::dynamic(id)
        .capacity(1)
        .intensity_scope(IntensityScope::PerChild)
        .intensity(intensity)
        .quarantine_after(attempts)
        .build()
}

impl LazySupervisor {
    pub(crate) fn new(id: ChildId, options: &ExecutorOptions, child_scope: ChildScope) -> Self {
        let (intensity, attempts) = (options.intensity, options.attempts);
        Self {
            id,
            intensity,
            attempts,
            child_scope,
            supervisor: OnceLock::new(),
            start_lock: tokio::sync::Mutex::default(),
        }
    }

    fn get_or_create(&self) -> &(Arc<ChildSpec>, Supervisor) {
        self.supervisor.get_or_init(|| {
            let (spec, supervisor) = supervisor(self.id.clone(), self.intensity, self.attempts);
            (Arc::new(spec), supervisor)
        })
    }
}

impl SupervisorRef {
    pub(super) fn supervisor(&self) -> &Supervisor {
        match self {
            Self::InTree(supervisor) => supervisor,
            Self::Lazy(lazy) => &lazy.get_or_create().1,
        }
    }

    /// Returns when the supervisor runs. Starts it if it is lazy and does not run.
    pub(super) async fn ensure_running(&self, deadline: Deadline) -> Result<(), StartError> {
        let Self::Lazy(lazy) = self else { return Ok(()) };
        let (spec, supervisor) = lazy.get_or_create();
        let _one = lazy.start_lock.lock().await;
        if supervisor.is_running() {
            return Ok(());
        }
        // Waits until nothing is left of a supervisor that was ended.
        if let Some(last) = supervisor.monitor() {
            last.await;
        }
        lazy.child_scope.start(Arc::clone(spec), deadline).await
    }
}
