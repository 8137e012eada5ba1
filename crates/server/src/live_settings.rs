//! The current settings: the models and skills that clients may name.
//!
//! State: these settings, which a reload replaces. A restart reads them again.

use std::sync::{Arc, Mutex};

use conjure_base::lock;
use conjure_runtime::ServeSettings;

/// The current settings.
#[derive(Debug)]
pub(crate) struct LiveSettings(Mutex<Arc<ServeSettings>>);

impl LiveSettings {
    pub(crate) fn new(settings: ServeSettings) -> Self {
        Self(Mutex::new(Arc::new(settings)))
    }

    /// The current settings. A later reload does not change the returned value.
    pub(crate) fn get(&self) -> Arc<ServeSettings> {
        Arc::clone(&lock(&self.0))
    }

    /// Replaces the settings for all later calls of [`LiveSettings::get`].
    pub(crate) fn exchange(&self, settings: ServeSettings) {
        *lock(&self.0) = Arc::new(settings);
    }
}
