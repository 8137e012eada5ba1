//! [`CurrentToolsComposer`]: the composer of a session whose tools can change.

use std::sync::Arc;

use conjure_conversation::{Composer, PromptPrefix, SessionView};

use crate::toolbox::Toolbox;

/// Wraps a composer, and replaces its tools by those that a toolbox has at the time of the call.
pub struct CurrentToolsComposer<C> {
    composer: C,
    toolbox: Arc<Toolbox>,
}

impl<C: Composer> CurrentToolsComposer<C> {
    /// Creates a composer that wraps `composer` and takes the tools from `toolbox`.
    pub const fn new(composer: C, toolbox: Arc<Toolbox>) -> Self {
        Self { composer, toolbox }
    }
}

impl<C: Composer> Composer for CurrentToolsComposer<C> {
    fn compose(&self, view: &SessionView) -> PromptPrefix {
        PromptPrefix { tools: self.toolbox.current_definitions(), ..self.composer.compose(view) }
    }

    fn after_compaction(&self, view: &SessionView) -> Option<String> {
        self.composer.after_compaction(view)
    }
}
