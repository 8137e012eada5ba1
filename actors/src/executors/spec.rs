//! What watches over a session's sandboxes is made of.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use super::berth::{Berth, Mooring};
use super::notice::Notice;
use super::source::ExecutorSource;
use super::supervised::{Place, Stand, SupervisedExecutor, supervisor};
use crate::metrics::SandboxMeter;
use crate::supervision::{Backoff, ChildId, ChildSpec, Ground, Intensity, SpecError};

/// What the supervisor of a session's sandbox is called.
const SUPERVISOR: &str = "executors";

/// How a session's sandbox is treated.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct ExecutorOptions {
    /// How long its start may take, preparation included.
    pub start_within: Duration,
    /// How long it may take until nothing of it is left. Then it is complained about by its names, and given up: the session
    /// goes on, or ends, and another may be made in the same workspace.
    pub clear_within: Duration,
    /// When it is paused because no call uses it ([`Executor::pause`](conjure_sandbox::Executor::pause)): what runs in the background
    /// uses no processor then, and stands still with its memory and its connections, which others may give up meanwhile. The next
    /// call has all go on before it begins; nothing is lost, and the model is told nothing. Nothing changes for sandboxes that cannot
    /// be paused. A pause that is due no earlier than [`ExecutorOptions::unused_after`] never comes. `None`: never.
    pub pause_after: Option<Duration>,
    /// When it is put away because no call used it, paused or not, long before its session is: the workspace stays, and the next call has another
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
    /// A minute to start, two to be cleared away, which it is with its session; never paused; at most 2 ms until the first replacement, doubling up to 5 s; 5 replacements in 30 s; 3 attempts.
    fn default() -> Self {
        Self {
            start_within: Duration::from_secs(60),
            clear_within: Duration::from_secs(120),
            pause_after: None,
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
    /// Below whom, where the first call has the sandbox's supervisor started.
    ground: Ground,
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
    /// Below this incarnation of a session.
    pub(crate) fn vacant(options: ExecutorOptions, ground: Ground) -> Self {
        Self { ground, options, began: Began::Now, mooring: Arc::default(), meter: None }
    }

    pub(crate) fn counted_by(mut self, meter: SandboxMeter) -> Self {
        self.meter = Some(meter);
        self
    }

    pub(crate) fn began(mut self, began: Began) -> Self {
        self.began = began;
        self
    }

    /// Where its sandboxes are made, one at a time, until it is [closed](Mooring::close).
    pub(crate) fn mooring(&self) -> Arc<Mooring> {
        Arc::clone(&self.mooring)
    }

    /// An executor for the session's tools, over sandboxes of this source. None is made before the first call. Of a
    /// session that goes on and had a sandbox before, the model is told so with the first result.
    ///
    /// # Errors
    /// None that a caller could cause.
    pub fn supervise(self, source: Arc<dyn ExecutorSource>) -> Result<SupervisedExecutor, SpecError> {
        let place = Place::Stand(Stand::new(ChildId::new(SUPERVISOR)?, &self.options, self.ground));
        supervise(
            source,
            place,
            self.began,
            self.options,
            Berthing { mooring: self.mooring, meter: self.meter },
        )
    }
}

/// What a session's sandboxes have in common.
#[derive(Default)]
struct Berthing {
    mooring: Arc<Mooring>,
    meter: Option<SandboxMeter>,
}

fn supervise(
    source: Arc<dyn ExecutorSource>,
    place: Place,
    began: Began,
    options: ExecutorOptions,
    berthing: Berthing,
) -> Result<SupervisedExecutor, SpecError> {
    let notice = (began == Began::Before).then(|| Notice::resumed(source.isolation()));
    let berth = Arc::new(Berth::new(notice, berthing.mooring, berthing.meter));
    let id = ChildId::new("executor")?;
    Ok(SupervisedExecutor::new(id, source, place, berth, options))
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

    /// The supervisor's spec, for a tree, and the executor, which works while that runs.
    ///
    /// # Errors
    /// None that a caller could cause.
    pub fn build(self) -> Result<(ChildSpec, SupervisedExecutor), SpecError> {
        let ExecutorOptions { intensity, attempts, .. } = self.options;
        let (spec, supervisor) = supervisor(ChildId::new(SUPERVISOR)?, intensity, attempts);
        let place = Place::Tree(supervisor);
        Ok((spec, supervise(self.source, place, self.began, self.options, Berthing::default())?))
    }
}
