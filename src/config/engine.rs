//! The container engine that the sessions of a host share.
//!
//! State: the engine as it was found, and the gate through which containers are started; gone with the last configuration
//! that shares it.

use std::sync::{Arc, OnceLock};

use conjure_sandbox::{ContainerEngine, EngineAddress};

/// The engine of a configuration. Clones are the same.
#[derive(Debug, Clone, Default)]
pub(super) struct SharedEngine(Arc<OnceLock<ContainerEngine>>);

impl SharedEngine {
    /// The engine; these are its addresses when it is asked for the first time.
    pub(super) fn at(&self, addresses: Vec<EngineAddress>) -> ContainerEngine {
        self.0.get_or_init(|| ContainerEngine::at(addresses)).clone()
    }
}

/// It is no setting: two configurations that say the same are equal, whichever engine they have found.
impl PartialEq for SharedEngine {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}
