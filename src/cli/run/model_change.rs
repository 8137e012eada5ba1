//! [`ModelChange`]: the change of a resumed session to the model of `--model`.
//!
//! A turn that is under way keeps the name of the session's model, so the new model answers under that name until the turn has ended.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use conjure::hosted::{HostedFiles, HostedSupport};
use conjure::model::{ModelStream, SideEffects};
use conjure::{Model, Request, Session, SessionError};

/// The change to another model, as soon as no turn is under way.
pub(crate) struct ModelChange {
    name: String,
    recorded: Arc<RecordedModel>,
}

/// The model that the session had. The new one answers in its place until the change is made.
pub(crate) struct RecordedModel {
    new: Arc<dyn Model>,
    /// The model itself; `None` if it cannot be connected.
    own: Option<Arc<dyn Model>>,
    is_changed: AtomicBool,
}

impl ModelChange {
    /// A change to the model of this name.
    pub(crate) const fn new(name: String, recorded: Arc<RecordedModel>) -> Self {
        Self { name, recorded }
    }

    /// Makes the change. It fails while a turn is under way.
    pub(crate) async fn apply(&self, session: &Session) -> Result<(), SessionError> {
        session.set_model(self.name.as_str()).await?;
        self.recorded.is_changed.store(true, Ordering::Relaxed);
        Ok(())
    }
}

impl RecordedModel {
    pub(crate) const fn new(new: Arc<dyn Model>, own: Option<Arc<dyn Model>>) -> Self {
        Self { new, own, is_changed: AtomicBool::new(false) }
    }

    fn current(&self) -> &dyn Model {
        match &self.own {
            Some(own) if self.is_changed.load(Ordering::Relaxed) => &**own,
            _ => &*self.new,
        }
    }
}

impl Model for RecordedModel {
    fn stream(&self, request: Request) -> ModelStream {
        self.current().stream(request)
    }

    fn hosted_support(&self) -> HostedSupport {
        self.current().hosted_support()
    }

    fn hosted_files(&self) -> HostedFiles {
        self.current().hosted_files()
    }

    fn context_tokens(&self) -> Option<u64> {
        self.current().context_tokens()
    }

    fn side_effects(&self, request: &Request) -> SideEffects {
        self.current().side_effects(request)
    }
}
