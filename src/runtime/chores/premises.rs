//! What chores work on.

use std::sync::{Arc, OnceLock, Weak};

use conjure_actors::supervision::Failure;

use super::super::handle::{Inner, Runtime};
use super::super::home::Home;
use super::super::hosts::Presence;
use super::super::sweep::Engines;

/// What chores work on: the data, from the beginning, and the runtime, once it has started and for as long as somebody has it.
pub(in crate::runtime) struct Premises {
    pub(super) home: Arc<Home>,
    pub(super) presence: Option<Arc<Presence>>,
    pub(super) engines: Engines,
    runtime: OnceLock<Weak<Inner>>,
}

impl Premises {
    pub(in crate::runtime) fn new(
        home: Arc<Home>,
        presence: Option<Arc<Presence>>,
        engines: Engines,
    ) -> Arc<Self> {
        Arc::new(Self { home, presence, engines, runtime: OnceLock::new() })
    }

    /// Other processes may have the data, too.
    pub(super) const fn is_shared(&self) -> bool {
        self.presence.is_some()
    }

    /// The runtime has started.
    pub(in crate::runtime) fn opened(&self, runtime: &Runtime) {
        // It is one runtime's.
        let _ = self.runtime.set(Arc::downgrade(&runtime.inner));
    }

    /// The runtime.
    pub(super) fn runtime(&self) -> Result<Runtime, Failure> {
        let inner = self.runtime.get().and_then(Weak::upgrade);
        inner.map(|inner| Runtime { inner }).ok_or_else(|| "the runtime is about to start or to end".into())
    }
}
