//! What the model is told beside the messages.

use std::sync::Arc;

use crate::standing::Standing;
use crate::tool::ToolDefinition;

/// The instructions and tools of one model call.
#[derive(Debug, Clone, Default)]
pub struct Composition {
    /// The top-level instructions, in order. Deterministic, and equal from call to call unless the session's
    /// skills changed: the service caches by prefix.
    pub instructions: Vec<String>,
    /// The tools, in a deterministic order.
    pub tools: Arc<[ToolDefinition]>,
}

/// Composes what the model is told. Implemented by `conjure-prompt`; pure, called before each model call.
pub trait Composer: Send + Sync {
    /// The instructions and tools of the next call, where the session stands so.
    fn compose(&self, standing: &Standing) -> Composition;

    /// What the model must be told again when the beginning of its history is replaced by a summary, as a whole text for it to
    /// read; none where nothing is lost. `standing` holds the active skills whose load was answered in what is replaced, and those
    /// alone: where their instructions were delivered in that result ([`crate::Delivery::Result`]), this is they again. It is asked
    /// once for each compaction before which there are such skills, and what it says stands behind the summary until the next one replaces both.
    fn preserved(&self, standing: &Standing) -> Option<String> {
        let _ = standing;
        None
    }
}

impl<C: Composer + ?Sized> Composer for Arc<C> {
    fn compose(&self, standing: &Standing) -> Composition {
        (**self).compose(standing)
    }

    fn preserved(&self, standing: &Standing) -> Option<String> {
        (**self).preserved(standing)
    }
}

/// A composition that never changes composes itself.
impl Composer for Composition {
    fn compose(&self, _: &Standing) -> Composition {
        self.clone()
    }
}
