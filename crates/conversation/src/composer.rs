//! The composer of the system prompt and the tools.

use std::sync::Arc;

use crate::session::session_view::SessionView;
use crate::tools::tool::ToolDefinition;

/// The system prompt and the tools of one model call: the prefix that the service caches.
#[derive(Debug, Clone, Default)]
pub struct PromptPrefix {
    /// The top-level instructions, in order. They must be deterministic, and equal from call to call unless the session's skills changed.
    pub instructions: Vec<String>,
    /// The tools, in a deterministic order.
    pub tools: Arc<[ToolDefinition]>,
}

/// Composes the system prompt and the tools. `conjure-prompt` implements it. It is pure, and called before each model call.
pub trait Composer: Send + Sync {
    /// The instructions and tools of the next call for this view of the session.
    fn compose(&self, view: &SessionView) -> PromptPrefix;

    /// The text that must follow a summary; `None` when nothing is lost.
    ///
    /// `view` holds only the active skills whose load was answered in the replaced messages. If their instructions were delivered
    /// in that result ([`crate::SkillDelivery::Result`]), this text repeats them. The driver calls this once for each compaction
    /// that replaces such results. The text stays behind the summary until the next compaction replaces both.
    fn after_compaction(&self, view: &SessionView) -> Option<String> {
        let _ = view;
        None
    }
}

impl<C: Composer + ?Sized> Composer for Arc<C> {
    fn compose(&self, view: &SessionView) -> PromptPrefix {
        (**self).compose(view)
    }

    fn after_compaction(&self, view: &SessionView) -> Option<String> {
        (**self).after_compaction(view)
    }
}

/// A constant prefix is its own composer.
impl Composer for PromptPrefix {
    fn compose(&self, _: &SessionView) -> PromptPrefix {
        self.clone()
    }
}
