//! [`CallContext`]: what a decoder must know of the request whose answer it reads.

use std::sync::{Arc, OnceLock};

use conjure_conversation::{Origin, ToolDefinition, Usage};
use conjure_model_http::{RequestSize, TokenEstimator};

use crate::provider::provider_name;
use crate::tool_names::ToolNames;

/// What the decoder of one call knows of its request.
#[derive(Debug)]
pub(crate) struct CallContext {
    /// Who answers.
    pub(crate) origin: Origin,
    /// Its name for telemetry.
    pub(crate) provider: &'static str,
    /// The names of the tools of the request.
    pub(crate) names: ToolNames,
    /// The size of the request, once its body is written.
    pub(crate) size: OnceLock<RequestSize>,
    /// The most output tokens that the request allows.
    pub(crate) max_tokens: Option<u32>,
    /// Shared by all calls of the model.
    pub(crate) estimator: Arc<TokenEstimator>,
}

impl CallContext {
    /// The context of a call with these tools, whose body is not written yet.
    pub(crate) fn new(
        origin: Origin,
        tools: &[ToolDefinition],
        max_tokens: Option<u32>,
        estimator: Arc<TokenEstimator>,
    ) -> Self {
        Self {
            provider: provider_name(origin.service.split(':').next().unwrap_or_default()),
            origin,
            names: ToolNames::new(tools),
            size: OnceLock::new(),
            max_tokens,
            estimator,
        }
    }

    /// A context without a request.
    pub(crate) fn detached(origin: Origin) -> Self {
        Self::new(origin, &[], None, Arc::default())
    }

    /// The usage that the service reported, or an estimate.
    pub(crate) fn usage(&self, reported: Option<Usage>, answer_bytes: u64) -> Usage {
        let size = self.size.get().copied().unwrap_or_default();
        self.estimator.usage(size, reported, answer_bytes)
    }
}
