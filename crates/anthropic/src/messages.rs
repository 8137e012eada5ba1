//! [`Client`] and [`Messages`]: the Messages API as a [`Model`].
//!
//! A [`Client`] belongs to one API key. All sessions that use the key share its rate limiter, connections and prices. [`Messages`] is one
//! model with its options. Both are cheap to clone.
//!
//! Dropping a call closes its connection and releases its rate limiter permit. Nothing is stored. The caller must record whether the call
//! was sent.

use std::fmt;
use std::sync::Arc;

use conjure_artifact::ServiceFiles;
use conjure_base::{Clock, SystemClock};
use conjure_conversation::{HostedFiles, HostedSupport, Model, ModelStream, Request, SideEffects};
use conjure_model_http::{HeaderMap, HeaderValue, HttpCall, HttpClient, Url};

use crate::client_state::ClientState;
use crate::config::{ApiProfile, Config, ConfigError};
use crate::hosted::hosted_options::with_hosted_skills;
use crate::hosted::{HostedFileDeletion, HostedOutputs, HostedUploads};
use crate::options::ModelOptions;
use crate::request_body::container_id;
use crate::request_body::request_body;
use crate::response::effects::effects_of;

/// The client of one API key. Cheap to clone.
#[derive(Clone)]
pub struct Client(Arc<ClientState>);

/// One model, with its options, under one key.
#[derive(Debug, Clone)]
pub struct Messages(Arc<MessagesInner>);

struct MessagesInner {
    shared: Arc<ClientState>,
    options: ModelOptions,
    betas: HeaderMap,
    url: Url,
}

impl Client {
    /// The HTTP client, for requests that are not model calls.
    #[must_use]
    pub fn http(&self) -> &HttpClient {
        &self.0.http
    }

    /// Creates a client with the system clock. Needs a Tokio runtime.
    ///
    /// # Errors
    /// [`ConfigError`].
    pub fn new(config: &Config) -> Result<Self, ConfigError> {
        Self::with_clock(config, Arc::new(SystemClock))
    }

    /// Creates a client with this clock. It times the waits and reads the dates in `retry-after`.
    ///
    /// # Errors
    /// [`ConfigError`].
    pub fn with_clock(config: &Config, clock: Arc<dyn Clock>) -> Result<Self, ConfigError> {
        Ok(Self(Arc::new(ClientState::new(config, clock)?)))
    }

    /// A model under this key.
    ///
    /// # Errors
    /// [`ConfigError::Beta`] for a beta that cannot be sent.
    pub fn messages(&self, options: ModelOptions) -> Result<Messages, ConfigError> {
        let betas = beta_header(&options)?;
        let url = self.0.http.url(["v1", "messages"]);
        Ok(Messages(Arc::new(MessagesInner { shared: Arc::clone(&self.0), options, betas, url })))
    }

    pub(crate) const fn shared(&self) -> &Arc<ClientState> {
        &self.0
    }

    /// The names of models that responded and have no known price: sorted, at most 16. Their responses count as free. The service says
    /// which model responded, and that may not be the requested one.
    #[must_use]
    pub fn models_without_price(&self) -> Vec<String> {
        self.0.http.models_without_price()
    }
}

/// The `anthropic-beta` header, if any.
fn beta_header(options: &ModelOptions) -> Result<HeaderMap, ConfigError> {
    let mut headers = HeaderMap::new();
    for name in options.betas() {
        let is_token = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
        if name.is_empty() || !name.bytes().all(is_token) {
            return Err(ConfigError::Beta { name: name.clone() });
        }
    }
    if !options.betas().is_empty() {
        let names = options.betas().join(",");
        let value = HeaderValue::try_from(&names).map_err(|_| ConfigError::Beta { name: names })?;
        headers.insert("anthropic-beta", value);
    }
    Ok(headers)
}

impl Messages {
    /// The options of this model.
    #[must_use]
    pub fn options(&self) -> &ModelOptions {
        &self.0.options
    }

    /// Adds the skills that the request names, if any, with the code execution tool and the betas.
    fn with_hosted_skills(&self, request: &Request) -> Self {
        if request.hosted.is_empty() {
            return self.clone();
        }
        let shared = &self.0.shared;
        let options = with_hosted_skills(self.0.options.clone(), &request.hosted, shared.profile());
        // The names are valid already, so this cannot fail.
        let betas = beta_header(&options).unwrap_or_else(|_| self.0.betas.clone());
        let mut url = shared.http.url(["v1", "messages"]);
        if shared.profile() == ApiProfile::Beta {
            // The official SDK sends this parameter too.
            url.query_pairs_mut().append_pair("beta", "true");
        }
        Self(Arc::new(MessagesInner { shared: Arc::clone(shared), options, betas, url }))
    }

    /// The body of a streamed call. It is deterministic. Without cache breakpoints, it is a byte prefix of the next call's body up to the
    /// end of its messages.
    #[must_use]
    pub fn body(&self, request: &Request) -> Vec<u8> {
        request_body(request, &self.with_hosted_skills(request).0.options)
    }
}

impl Model for Messages {
    fn stream(&self, request: Request) -> ModelStream {
        let shared = &self.0.shared;
        let messages = self.clone();
        shared
            .http
            .stream(Arc::clone(&shared.wire), move || messages.with_hosted_skills(&request).0.call(&request))
    }

    fn hosted_support(&self) -> HostedSupport {
        HostedSupport::Skills
    }

    fn hosted_files(&self) -> HostedFiles {
        let files = Client(Arc::clone(&self.0.shared)).files();
        let outputs = Arc::new(HostedOutputs::new(files.clone()));
        let removal = Arc::new(HostedFileDeletion::new(files.clone()));
        ServiceFiles { outputs, uploads: Arc::new(HostedUploads::new(files)), deletion: removal }.into()
    }

    fn side_effects(&self, request: &Request) -> SideEffects {
        effects_of(request, &self.0.options)
    }
}

impl MessagesInner {
    fn call(&self, request: &Request) -> HttpCall {
        let body = request_body(request, &self.options);
        HttpCall {
            headers: self.betas.clone(),
            max_tokens: Some(self.options.max_tokens()),
            effects: effects_of(request, &self.options),
            container: container_id(request, &self.options),
            ..HttpCall::new(self.url.clone(), body, request, self.options.model())
        }
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("host", &self.0.http.host()).finish_non_exhaustive()
    }
}

impl fmt::Debug for MessagesInner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Messages").field("options", &self.options).finish_non_exhaustive()
    }
}
