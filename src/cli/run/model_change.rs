//! [`ModelChange`]: changes a resumed session to the model of `--model`.
//!
//! A turn in progress keeps the name of the session's model. So the new model answers under that name until the turn has ended.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use conjure::model::ModelStream;
use conjure::{Model, Request, Session, SessionError};

/// The change to another model, as soon as no turn is in progress.
pub(crate) struct ModelChange {
    name: String,
    recorded: Arc<RecordedModelProxy>,
}

/// The model of the session's recorded name. The new model answers in its place until the change is made.
pub(crate) struct RecordedModelProxy {
    new: Arc<dyn Model>,
    /// The recorded model itself; `None` if it cannot be created.
    own: Option<Arc<dyn Model>>,
    is_changed: AtomicBool,
}

impl ModelChange {
    /// A change to the model with this name.
    pub(crate) const fn new(name: String, recorded: Arc<RecordedModelProxy>) -> Self {
        Self { name, recorded }
    }

    /// Makes the change. Fails while a turn is in progress.
    pub(crate) async fn apply(&self, session: &Session) -> Result<(), SessionError> {
        session.set_model(self.name.as_str()).await?;
        self.recorded.is_changed.store(true, Ordering::Relaxed);
        Ok(())
    }
}

impl RecordedModelProxy {
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

impl Model for RecordedModelProxy {
    fn stream(&self, request: Request) -> ModelStream {
        self.current().stream(request)
    }

    fn inner(&self) -> Option<&dyn Model> {
        Some(self.current())
    }
}
