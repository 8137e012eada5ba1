//! [`ModelWithContext`]: a model whose context is known.

use std::sync::Arc;

use conjure_conversation::{HostedFiles, HostedSupport, Model, ModelStream, Request, SideEffects};
use conjure_model_http::known_model;

use crate::models::model_target::ModelTarget;

/// A model, and the tokens that its context holds.
pub(super) struct ModelWithContext {
    model: Arc<dyn Model>,
    tokens: u64,
}

/// The model of a target with its context: the configured one, else that of the table of known models. Unknown contexts stay unknown.
pub(super) fn with_context(model: Arc<dyn Model>, target: &ModelTarget) -> Arc<dyn Model> {
    let known = || known_model(&target.model).map(|known| known.context_tokens);
    match target.settings.context_length.or_else(known) {
        Some(tokens) => Arc::new(ModelWithContext { model, tokens }),
        None => model,
    }
}

impl Model for ModelWithContext {
    fn stream(&self, request: Request) -> ModelStream {
        self.model.stream(request)
    }

    fn hosted_support(&self) -> HostedSupport {
        self.model.hosted_support()
    }

    fn hosted_files(&self) -> HostedFiles {
        self.model.hosted_files()
    }

    fn context_tokens(&self) -> Option<u64> {
        Some(self.tokens)
    }

    fn side_effects(&self, request: &Request) -> SideEffects {
        self.model.side_effects(request)
    }
}
