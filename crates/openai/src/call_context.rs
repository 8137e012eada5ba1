//! [`CallContext`]: the facts about a request that the decoder of its answer needs.

use std::sync::{Arc, OnceLock};

use conjure_conversation::{Origin, ToolDefinition, Usage};
use conjure_model_http::{RequestSize, TokenEstimator};

use crate::provider::provider_name;
use crate::tool_names::ToolNames;

/// The facts about the request of one call that its decoder needs.
#[derive(Debug)]
pub(crate) struct CallContext {
    /// The origin of the answer.
    pub(crate) origin: Origin,
    /// The provider's name for telemetry.
    pub(crate) provider: &'static str,
    /// The tool names of the request.
    pub(crate) names: ToolNames,
    /// The size of the request, once its body is written.
    pub(crate) size: OnceLock<RequestSize>,
    /// The maximum number of output tokens, if the request sets one.
    pub(crate) max_tokens: Option<u32>,
    /// The estimator that all calls of the model share.
    pub(crate) estimator: Arc<TokenEstimator>,
}

impl CallContext {
    /// Creates the context of a call with these tools. Its body is not written yet.
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

    /// Creates a context without a request.
    pub(crate) fn detached(origin: Origin) -> Self {
        Self::new(origin, &[], None, Arc::default())
    }

    /// The usage that the service reported, or an estimate.
    pub(crate) fn usage(&self, reported: Option<Usage>, answer_bytes: u64) -> Usage {
        let size = self.size.get().copied().unwrap_or_default();
        self.estimator.usage(size, reported, answer_bytes)
    }
}
