//! The settings in force: the models and skills that clients may name.
//!
//! State: those settings, which a reload exchanges. A restart reads them again.

use std::sync::{Arc, Mutex};

use conjure_base::lock;
use conjure_runtime::ServeSettings;

/// The settings in force.
#[derive(Debug)]
pub(crate) struct LiveSettings(Mutex<Arc<ServeSettings>>);

impl LiveSettings {
    pub(crate) fn new(settings: ServeSettings) -> Self {
        Self(Mutex::new(Arc::new(settings)))
    }

    /// The settings at this time. They stay as they are for whoever has them.
    pub(crate) fn get(&self) -> Arc<ServeSettings> {
        Arc::clone(&lock(&self.0))
    }

    /// Has everybody who asks from now on get these settings.
    pub(crate) fn exchange(&self, settings: ServeSettings) {
        *lock(&self.0) = Arc::new(settings);
    }
}
