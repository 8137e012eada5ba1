//! [`Gemini`]: `streamGenerateContent` as a [`Model`].

use std::fmt;
use std::sync::Arc;

use conjure_conversation::{Model, ModelApi, ModelStream, Origin, Request};
use conjure_model_http::{HttpCall, HttpClient, KeyHeader, TokenEstimator};

use crate::options::GeminiOptions;
use crate::request_body::request_body;
use crate::wire::GeminiWire;

/// The default address of the service. It includes the version of the API, because older gateways only know `v1beta`.
pub const DEFAULT_BASE_URL: &str = "https://generativelanguage.googleapis.com/v1";

/// The header that carries the key.
pub const KEY_HEADER: KeyHeader = KeyHeader::Named("x-goog-api-key");

/// One model, with its options, under one key. Cheap to clone.
///
/// ```no_run
/// use conjure_gemini::{DEFAULT_BASE_URL, Gemini, GeminiOptions, KEY_HEADER};
/// use conjure_model_http::{HttpClient, HttpConfig};
/// # let key = "not a real key".replace(' ', "-");
///
/// let config = HttpConfig::new(DEFAULT_BASE_URL).with_key(key.into(), KEY_HEADER);
/// let model = Gemini::new(HttpClient::new(&config)?, GeminiOptions::new("gemini-3-pro"));
/// println!("{}", model.origin()); // gemini-3-pro at generativelanguage.googleapis.com
/// # Ok::<(), conjure_model_http::HttpConfigError>(())
/// ```
#[derive(Clone)]
pub struct Gemini(Arc<GeminiInner>);

struct GeminiInner {
    client: HttpClient,
    options: GeminiOptions,
    origin: Origin,
    estimator: Arc<TokenEstimator>,
}

impl Gemini {
    /// Creates a model that sends its calls through this client.
    #[must_use]
    pub fn new(client: HttpClient, options: GeminiOptions) -> Self {
        let origin =
            Origin { api: ModelApi::Gemini, service: client.service(), model: options.model().to_owned() };
        Self(Arc::new(GeminiInner { client, options, origin, estimator: Arc::default() }))
    }

    /// The options of this model.
    #[must_use]
    pub fn options(&self) -> &GeminiOptions {
        &self.0.options
    }

    /// The origin of its answers. Only answers of the same origin are sent back unchanged.
    #[must_use]
    pub fn origin(&self) -> &Origin {
        &self.0.origin
    }

    /// The body of a call. It is deterministic, and a byte prefix of the next call's body up to the end of its contents.
    #[must_use]
    pub fn body(&self, request: &Request) -> Vec<u8> {
        request_body(request, &self.0.options, &self.0.origin).0
    }
}

impl GeminiInner {
    fn wire(&self, request: &Request) -> Arc<GeminiWire> {
        Arc::new(GeminiWire::new(self.origin.clone(), request, Arc::clone(&self.estimator)))
    }

    fn call(&self, request: &Request, wire: &GeminiWire) -> HttpCall {
        let model = format!("{}:streamGenerateContent", self.options.model());
        let mut url = match model.contains('/') {
            // The name is a complete path: `models/NAME`, `tunedModels/NAME`.
            true => self.client.url(model.split('/')),
            false => self.client.url(["models", model.as_str()]),
        };
        // Without this parameter, the answer is one list and not a stream of events.
        url.query_pairs_mut().append_pair("alt", "sse");
        let (body, size) = request_body(request, &self.options, &self.origin);
        wire.set_size(size);
        let mut call = HttpCall::new(url, body, request, self.options.model());
        call.max_tokens = self.options.max_tokens();
        call
    }
}

impl Model for Gemini {
    fn stream(&self, request: Request) -> ModelStream {
        let inner = Arc::clone(&self.0);
        let wire = inner.wire(&request);
        let called = Arc::clone(&wire);
        self.0.client.stream(wire, move || Ok(inner.call(&request, &called)))
    }
}

impl fmt::Debug for Gemini {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gemini")
            .field("service", &self.0.origin.service)
            .field("options", &self.0.options)
            .finish_non_exhaustive()
    }
}
