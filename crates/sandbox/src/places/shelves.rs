//! The place of a running sandbox, shared by what keeps the sandbox and what gives it content.
//!
//! State: the place. It goes when [`Shelves::remove`] is called, which waits for what is being put there; afterwards
//! nothing can be.

use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};

use futures_util::future::BoxFuture;

use super::place::{Had, Place};
use crate::error::{SandboxError, SandboxErrorKind};
use crate::provision::{Consent, Provider, Provision, Shelf};

/// The place of a running sandbox. Clones are the same.
#[derive(Debug, Clone)]
pub struct Shelves {
    /// `None` once it was removed.
    place: Arc<RwLock<Option<Place>>>,
    had: Had,
}

impl Shelves {
    /// Of this place, which is the sandbox's from now on.
    #[must_use]
    pub fn new(place: Place) -> Self {
        Self { place: Arc::new(RwLock::new(Some(place))), had: Had::Linked }
    }

    /// Of a sandbox that sees this place where the host has it, and could write there: it has copies, of artifacts alone.
    pub(crate) fn in_the_open(place: Place) -> Self {
        Self { had: Had::Copied, ..Self::new(place) }
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

    fn put(&self, provision: &Provision, consent: &Consent) -> Result<PathBuf, SandboxError> {
        let place = self.place.read().unwrap_or_else(PoisonError::into_inner);
        let place = place.as_ref().ok_or_else(gone)?;
        if self.had == Had::Copied && provision.shelf != Shelf::Artifacts {
            let message = "this kind of sandbox has skills where the host has them";
            return Err(SandboxError::new(SandboxErrorKind::Unsupported, message));
        }
        place.provide_as(self.had, provision, consent)?;
        Ok(match self.had {
            Had::Linked => provision.path(),
            Had::Copied => place.shelf(provision.shelf).join(&provision.name),
        })
    }

    /// Nobody puts anything there meanwhile: so one that is not waited for any more is over before.
    fn take_off(&self, shelf: Shelf, name: &str, consent: &Consent) -> Result<(), SandboxError> {
        let place = self.place.write().unwrap_or_else(PoisonError::into_inner);
        place.as_ref().ok_or_else(gone)?.withdraw(shelf, name, consent)
    }
}

fn gone() -> SandboxError {
    SandboxError::new(SandboxErrorKind::Lost, "the sandbox has ended, and its folder is gone")
}

impl Provider for Shelves {
    fn provide(
        &self,
        provision: Provision,
        consent: Consent,
    ) -> BoxFuture<'static, Result<PathBuf, SandboxError>> {
        let shelves = self.clone();
        // Dropped before its end, the thread goes on until it asks for consent, and cleans up.
        Box::pin(on_a_thread(move || shelves.put(&provision, &consent)))
    }

    fn withdraw(
        &self,
        shelf: Shelf,
        name: String,
        consent: Consent,
    ) -> BoxFuture<'static, Result<(), SandboxError>> {
        let shelves = self.clone();
        Box::pin(on_a_thread(move || shelves.take_off(shelf, &name, &consent)))
    }
}

async fn on_a_thread<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, SandboxError> + Send + 'static,
) -> Result<T, SandboxError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|error| Err(SandboxError::new(SandboxErrorKind::Io, error.to_string())))
}
