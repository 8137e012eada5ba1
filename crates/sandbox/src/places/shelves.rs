//! The place of a running sandbox, shared by what keeps the sandbox and what gives it content.
//!
//! State: the place. It goes when [`Shelves::remove`] is called, which waits for what is being put there; afterwards
//! nothing can be.

use std::sync::{Arc, PoisonError, RwLock};

use futures_util::future::BoxFuture;

use super::place::Place;
use crate::error::{SandboxError, SandboxErrorKind};
use crate::provision::{Consent, Provider, Provision};

/// The place of a running sandbox. Clones are the same.
#[derive(Debug, Clone)]
pub struct Shelves {
    /// `None` once it was removed.
    place: Arc<RwLock<Option<Place>>>,
}

impl Shelves {
    /// Of this place, which is the sandbox's from now on.
    #[must_use]
    pub fn new(place: Place) -> Self {
        Self { place: Arc::new(RwLock::new(Some(place))) }
    }

    /// Removes the place with all that is in it. Nothing may run in the sandbox any more. Blocks, also for what is being
    /// put there just now. Calling it again does nothing.
    ///
    /// # Errors
    /// When something in it cannot be removed; a later sweep tries again.
    pub fn remove(&self) -> Result<(), SandboxError> {
        let place = self.place.write().unwrap_or_else(PoisonError::into_inner).take();
        place.map_or(Ok(()), Place::remove)
    }

    fn put(&self, provision: &Provision, consent: &Consent) -> Result<(), SandboxError> {
        let place = self.place.read().unwrap_or_else(PoisonError::into_inner);
        let place = place.as_ref().ok_or_else(|| {
            SandboxError::new(SandboxErrorKind::Lost, "the sandbox has ended, and its folder is gone")
        })?;
        place.provide(provision, consent)
    }
}

impl Provider for Shelves {
    fn provide(
        &self,
        provision: Provision,
        consent: Consent,
    ) -> BoxFuture<'static, Result<(), SandboxError>> {
        let shelves = self.clone();
        Box::pin(async move {
            // Dropped before its end, the thread goes on until it asks for consent, and cleans up.
            let put = tokio::task::spawn_blocking(move || shelves.put(&provision, &consent)).await;
            put.unwrap_or_else(|error| Err(SandboxError::new(SandboxErrorKind::Io, error.to_string())))
        })
    }
}
