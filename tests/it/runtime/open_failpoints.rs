//! Failpoints of session opens: an open halts at a chosen stage until the test releases it.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use conjure::journal::SessionKey;
use conjure::runtime::{ConnectorSource, Deadline, ExecutorSource};
use conjure::sandbox::{ExecutionContext, Executor, Jail, Layout, SandboxError};
use conjure::{Clock as _, Runtime, RuntimeOptions, SessionSpec, SystemClock};
use futures_util::future::BoxFuture;

use crate::runtime::fixture::{Fixture, soon, spec, tenant};

/// The stage at which an open halts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OpenStage {
    /// Its skills are pinned and its workspace exists; it is not recorded.
    Preparation,
    /// It is recorded, and about to be started.
    Start,
}

/// Where openings halt that have the sandbox `halting`.
#[derive(Debug, Clone)]
pub(crate) struct OpenHalt {
    point: OpenStage,
    inner: Arc<(Mutex<FailpointState>, Condvar)>,
}

#[derive(Debug, Default)]
struct FailpointState {
    arrived: usize,
    is_open: bool,
}

impl OpenHalt {
    pub(crate) fn at(point: OpenStage) -> Self {
        Self { point, inner: Arc::default() }
    }

    /// A session that halts.
    pub(crate) fn spec() -> SessionSpec {
        spec().sandbox("halting")
    }

    pub(crate) fn options(&self, options: RuntimeOptions) -> RuntimeOptions {
        let halt = self.clone();
        options.executor("halting", move |_: &SessionKey, context: ExecutionContext| {
            let jail = Jail::new(BTreeMap::<OsString, OsString>::new());
            let source = ConnectorSource::new(Arc::new(jail), context)?;
            halt.arrive(OpenStage::Preparation);
            Ok(Arc::new(HaltingSource { source, halt: halt.clone() }) as _)
        })
    }

    pub(crate) async fn start(&self, fixture: &Fixture) -> Runtime {
        Runtime::spawn(self.options(fixture.options())).await.unwrap()
    }

    fn arrive(&self, point: OpenStage) {
        if point != self.point {
            return;
        }
        let (gate, changed) = &*self.inner;
        let mut gate = gate.lock().unwrap();
        gate.arrived += 1;
        let (gate, waited) =
            changed.wait_timeout_while(gate, Duration::from_secs(120), |gate| !gate.is_open).unwrap();
        drop(gate);
        assert!(!waited.timed_out(), "the test did not release it");
    }

    /// Waits until this many have halted.
    pub(crate) async fn reached(&self, many: usize) {
        let deadline = soon();
        while self.inner.0.lock().unwrap().arrived < many {
            assert!(!SystemClock.remaining(deadline).is_zero(), "no opening came so far");
            pause().await;
        }
    }

    /// Lets all continue, from now on.
    pub(crate) fn release(&self) {
        self.inner.0.lock().unwrap().is_open = true;
        self.inner.1.notify_all();
    }
}

#[derive(Debug)]
struct HaltingSource {
    source: ConnectorSource,
    halt: OpenHalt,
}

impl ExecutorSource for HaltingSource {
    fn layout(&self) -> &Layout {
        self.halt.arrive(OpenStage::Start);
        self.source.layout()
    }

    fn create(&self, deadline: Deadline) -> BoxFuture<'_, Result<Box<dyn Executor>, SandboxError>> {
        self.source.create(deadline)
    }
}

pub(crate) async fn pause() {
    SystemClock.sleep_until(SystemClock.deadline(Duration::from_millis(2))).await;
}

/// The files of the tenant's sessions: workspaces, pinned skills, intent records.
pub(crate) fn on_disk(fixture: &Fixture) -> [usize; 3] {
    ["workspaces", "skills", "pending"].map(|name| {
        let dir = fixture.data().join("tenants/acme").join(name);
        std::fs::read_dir(dir).map_or(0, Iterator::count)
    })
}

/// True if sessions of the tenant are being opened or deleted.
pub(crate) fn is_busy(fixture: &Fixture) -> bool {
    let lock = std::fs::File::open(fixture.data().join("tenants/acme/tenant.lock"));
    lock.is_ok_and(|lock| lock.try_lock().is_err())
}

/// The rows and the files of the tenant's sessions.
pub(crate) async fn leftovers(fixture: &Fixture, runtime: &Runtime) -> (usize, [usize; 3]) {
    (runtime.session_ids(&tenant("acme")).await.unwrap().len(), on_disk(fixture))
}

/// Waits until nothing is left of any session.
pub(crate) async fn until_nothing_is_left(fixture: &Fixture, runtime: &Runtime) {
    let deadline = soon();
    loop {
        let found = (leftovers(fixture, runtime).await, runtime.health().live_sessions, is_busy(fixture));
        if found == ((0, [0; 3]), 0, false) {
            return;
        }
        assert!(!SystemClock.remaining(deadline).is_zero(), "left: {found:?}");
        pause().await;
    }
}
