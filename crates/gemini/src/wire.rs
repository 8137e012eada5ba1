//! [`GeminiWire`]: the parts of this API that the HTTP client needs, for one call.

use std::sync::{Arc, OnceLock};

use conjure_base::TurnId;
use conjure_conversation::{Origin, Request, Response};
use conjure_model_http::{HeaderMap, HttpCall, RequestSize, ServiceError, TokenEstimator, Wire};

use crate::response::decoder::GeminiDecoder;
use crate::response::error_body::read_error;
use crate::tool_names::ToolNames;

/// The wire of one call.
pub(crate) struct GeminiWire {
    origin: Origin,
    names: ToolNames,
    provider: &'static str,
    turn: TurnId,
    call: u32,
    /// The size of the request, once its body is written.
    size: OnceLock<RequestSize>,
    /// The estimator that all calls of the model share.
    estimator: Arc<TokenEstimator>,
}

impl GeminiWire {
    /// Creates the wire of this request's call. Its body is not written yet.
    pub(crate) fn new(origin: Origin, request: &Request, estimator: Arc<TokenEstimator>) -> Self {
        let is_vertex = origin.service.ends_with("aiplatform.googleapis.com");
        Self {
            origin,
            names: ToolNames::new(&request.tools),
            provider: if is_vertex { "gcp.vertex_ai" } else { "gcp.gemini" },
            turn: request.turn,
            call: request.call,
            size: OnceLock::new(),
            estimator,
        }
    }

    /// Sets the size of the request. The body is written once for each call, so this is called once.
    pub(crate) fn set_size(&self, size: RequestSize) {
        let _ = self.size.set(size);
    }

    fn new_decoder(&self) -> GeminiDecoder {
        GeminiDecoder::new(self.origin.clone())
            .with_tool_names(self.names.clone())
            .with_call(self.turn, self.call)
            .with_estimator(self.size.get().copied().unwrap_or_default(), Arc::clone(&self.estimator))
    }
}

impl Wire for GeminiWire {
    type Decoder = GeminiDecoder;

    fn provider(&self) -> &str {
        self.provider
    }

    fn api_name(&self) -> &str {
        "the Gemini API"
    }

    fn decoder(&self, _: &HttpCall) -> GeminiDecoder {
        self.new_decoder()
    }

    fn read_whole(&self, body: &[u8]) -> Result<Response, String> {
        let body = std::str::from_utf8(body).map_err(|error| error.to_string())?;
        self.new_decoder().read_whole(body)
    }

    fn read_error(&self, status: u16, _: &HeaderMap, body: &[u8]) -> Option<ServiceError> {
        read_error(Some(status), std::str::from_utf8(body).ok()?)
    }
}
