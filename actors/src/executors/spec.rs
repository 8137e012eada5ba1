//! What a session's part of the tree for sandboxes is made of.

use std::num::NonZeroU32;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use super::berth::{Berth, Mooring};
use super::notice::Notice;
use super::source::ExecutorSource;
use super::supervised::{Place, SupervisedExecutor};
use crate::metrics::SandboxMeter;
use crate::supervision::{
    Backoff, ChildId, ChildSpec, Domain, Intensity, SpecError, Supervisor, SupervisorSpec,
};

/// How a session's sandbox is treated.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct ExecutorOptions {
    /// How long its start may take, preparation included.
    pub start_within: Duration,
    /// How long it may take until nothing of it is left. Then it is complained about by its names, and given up: the session
    /// goes on, or ends, and another may be made in the same workspace.
    pub clear_within: Duration,
    /// When it is put away because no call used it, long before its session is: the workspace stays, and the next call has another
    /// made. The model is told what went with it: what ran in the background, among others. `None`: when its session is.
    pub unused_after: Option<Duration>,
    /// How long it is waited before it is replaced again.
    pub backoff: Backoff,
    /// How many replacements are too many: then the next call asks for one, and nobody before.
    pub intensity: Intensity,
    /// After so many replacements in a row that did not start, it is left to the next call, too.
    pub attempts: NonZeroU32,
}

impl Default for ExecutorOptions {
    /// A minute to start, two to be cleared away, which it is with its session; at most 2 ms until the first replacement, doubling up to 5 s; 5 replacements in 30 s; 3 attempts.
    fn default() -> Self {
        Self {
            start_within: Duration::from_secs(60),
            clear_within: Duration::from_secs(120),
            unused_after: None,
            backoff: Backoff::new(Duration::from_millis(2), Duration::from_secs(5), Duration::from_secs(60)),
            intensity: Intensity::new(5, Duration::from_secs(30)),
            attempts: NonZeroU32::MIN.saturating_add(2),
        }
    }
}

/// Where a session's sandboxes are watched over, before it is known what they are made of.
#[derive(Debug, Clone)]
pub struct Executors {
    supervisor: Supervisor,
    /// Who has it started, where the first call does.
    above: Arc<OnceLock<Supervisor>>,
    options: ExecutorOptions,
    began: Began,
    mooring: Arc<Mooring>,
    meter: Option<SandboxMeter>,
}

/// What a session knows of sandboxes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Began {
    /// It has had none.
    Now,
    /// It had one, which ended when it rested or its host did.
    Before,
}

impl Executors {
    /// The supervisor's spec, and the way to it.
    pub(crate) fn vacant(options: ExecutorOptions) -> Result<(ChildSpec, Self), SpecError> {
        let (spec, supervisor) = SupervisorSpec::dynamic(ChildId::new("executors")?)
            .capacity(1)
            .domain(Domain::EachChild)
            .intensity(options.intensity)
            .quarantine_after(options.attempts)
            .build();
        let (began, mooring, above) = (Began::Now, Arc::default(), Arc::default());
        Ok((spec, Self { supervisor, above, options, began, mooring, meter: None }))
    }

    /// It runs from the first call on: this is whose child it is.
    pub(crate) fn begin_under(&self, above: Supervisor) {
        // Once, by whoever made both.
        let _ = self.above.set(above);
    }

    pub(crate) fn counted_by(mut self, meter: SandboxMeter) -> Self {
        self.meter = Some(meter);
        self
    }

    pub(crate) fn began(mut self, began: Began) -> Self {
        self.began = began;
        self
    }

    /// The same for one incarnation of a session.
    pub(crate) fn anew(&self) -> Self {
        Self { mooring: Arc::default(), ..self.clone() }
    }

    /// Returns when nothing of a sandbox is left; none is made afterwards. That takes no longer than a sandbox may take to be
    /// cleared away.
    pub(crate) async fn close(&self) {
        self.mooring.close().await;
    }

    /// An executor for the session's tools, over sandboxes of this source. None is made before the first call. Of a
    /// session that goes on and had a sandbox before, the model is told so with the first result.
    ///
    /// # Errors
    /// None that a caller could cause.
    pub fn supervise(self, source: Arc<dyn ExecutorSource>) -> Result<SupervisedExecutor, SpecError> {
        let notice = (self.began == Began::Before).then(|| Notice::resumed(source.isolation()));
        let berth = Arc::new(Berth::new(notice, self.mooring, self.meter));
        let id = ChildId::new("executor")?;
        let place = Place { supervisor: self.supervisor, above: self.above };
        Ok(SupervisedExecutor::new(id, source, place, berth, self.options))
    }
}

/// A supervisor of executors for one source, and the executor.
#[derive(Debug)]
pub struct ExecutorsSpec {
    source: Arc<dyn ExecutorSource>,
    options: ExecutorOptions,
    began: Began,
}

impl ExecutorsSpec {
    /// For a session that begins, with sandboxes of this source. None is made before the first call.
    #[must_use]
    pub fn new(source: Arc<dyn ExecutorSource>) -> Self {
        Self { source, options: ExecutorOptions::default(), began: Began::Now }
    }

    /// Treats the sandbox so.
    #[must_use]
    pub fn options(mut self, options: ExecutorOptions) -> Self {
        self.options = options;
        self
    }

    /// For a session that goes on and had a sandbox before, which ended when it rested or its host did: the model is told
    /// so, with the first result.
    #[must_use]
    pub fn resumed(mut self) -> Self {
        self.began = Began::Before;
        self
    }

    /// The supervisor's spec, for the session's part of the tree, and the executor, which works while that runs.
    ///
    /// # Errors
    /// None that a caller could cause.
    pub fn build(self) -> Result<(ChildSpec, SupervisedExecutor), SpecError> {
        let (spec, executors) = Executors::vacant(self.options)?;
        Ok((spec, executors.began(self.began).supervise(self.source)?))
    }
}
