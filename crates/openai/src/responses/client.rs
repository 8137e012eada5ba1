//! [`Responses`]: the Responses API as a [`Model`].

use std::fmt;
use std::sync::Arc;

use conjure_conversation::{Model, ModelApi, ModelStream, Origin, Request, Response, StopReason};
use conjure_model_http::{
    Decoder as _, HeaderMap, HttpCall, HttpClient, RequestSize, ServiceError, StreamError, TokenEstimator,
    Url, Wire,
};

use super::decoder::ResponsesDecoder;
use super::request_body::request_body;
use crate::call_context::CallContext;
use crate::error_body::read_error_body;
use crate::options::ResponsesOptions;

/// One Responses API model, with its options. Cheap to clone.
#[derive(Clone)]
pub struct Responses(Arc<ResponsesState>);

struct ResponsesState {
    client: HttpClient,
    options: ResponsesOptions,
    origin: Origin,
    url: Url,
    estimator: Arc<TokenEstimator>,
}

/// The wire of one call.
struct ResponsesWire(Arc<CallContext>);

impl Responses {
    /// Creates a model with these options, which sends its calls through this client. `/responses` is appended to the client's base URL, as
    /// with [`DEFAULT_BASE_URL`](crate::DEFAULT_BASE_URL).
    #[must_use]
    pub fn new(client: HttpClient, options: ResponsesOptions) -> Self {
        let origin =
            Origin { api: ModelApi::Responses, service: client.service(), model: options.model().to_owned() };
        Self(Arc::new(ResponsesState {
            url: client.url(["responses"]),
            client,
            options,
            origin,
            estimator: Arc::default(),
        }))
    }

    /// The options of this model.
    #[must_use]
    pub fn options(&self) -> &ResponsesOptions {
        &self.0.options
    }

    /// The origin of its answers.
    #[must_use]
    pub fn origin(&self) -> &Origin {
        &self.0.origin
    }

    /// The body of a streamed call. It is deterministic, and a byte prefix of the next call's body up to the end of its input.
    #[must_use]
    pub fn body(&self, request: &Request) -> Vec<u8> {
        self.0.body(request).0
    }
}

impl ResponsesState {
    fn wire(&self, request: &Request) -> Arc<ResponsesWire> {
        let context = CallContext::new(
            self.origin.clone(),
            &request.tools,
            self.options.max_tokens(),
            Arc::clone(&self.estimator),
        );
        Arc::new(ResponsesWire(Arc::new(context)))
    }

    fn body(&self, request: &Request) -> (Vec<u8>, RequestSize) {
        request_body(request, &self.options, &self.origin)
    }

    fn call(&self, request: &Request, wire: &ResponsesWire) -> HttpCall {
        let (body, size) = self.body(request);
        // The size is set once, because each call's body is written once.
        let _ = wire.0.size.set(size);
        HttpCall {
            max_tokens: self.options.max_tokens(),
            ..HttpCall::new(self.url.clone(), body, request, self.options.model())
        }
    }
}

impl Model for Responses {
    fn stream(&self, request: Request) -> ModelStream {
        let state = Arc::clone(&self.0);
        let wire = state.wire(&request);
        let called = Arc::clone(&wire);
        self.0.client.stream(wire, move || Ok(state.call(&request, &called)))
    }
}

impl Wire for ResponsesWire {
    type Decoder = ResponsesDecoder;

    fn provider(&self) -> &str {
        self.0.provider
    }

    fn api_name(&self) -> &str {
        "the Responses API"
    }

    fn decoder(&self, _call: &HttpCall) -> ResponsesDecoder {
        ResponsesDecoder::with_context(Arc::clone(&self.0))
    }

    fn read_whole(&self, body: &[u8]) -> Result<Response, String> {
        let json = std::str::from_utf8(body).map_err(|error| error.to_string())?;
        let mut decoder = ResponsesDecoder::with_context(Arc::clone(&self.0));
        let read = decoder.end_with(json, &mut |_| {}).and_then(|()| decoder.finish());
        match read {
            Ok(Some(response)) if response.stop_reason != StopReason::Missing => Ok(response),
            Ok(_) => Err("it has no status".to_owned()),
            Err(StreamError::Service(error)) => Err(format!("it is an error: {}", error.message)),
            Err(error) => Err(error.to_string()),
        }
    }

    fn read_error(&self, status: u16, _headers: &HeaderMap, body: &[u8]) -> Option<ServiceError> {
        read_error_body(status, body)
    }
}

impl fmt::Debug for Responses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Responses").field("origin", &self.0.origin).finish_non_exhaustive()
    }
}
