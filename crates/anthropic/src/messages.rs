//! [`Client`] and [`Messages`]: the Messages API as a [`Model`].
//!
//! A [`Client`] belongs to one API key. All sessions that use the key share its rate limiter, connections and prices. [`Messages`] is one
//! model with its options; it is cheap to clone.
//!
//! Dropping a call closes its connection and releases its place at the limiter. Nothing is stored; the caller records whether the call
//! was sent.

use std::collections::{BTreeSet, VecDeque};
use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use conjure_artifact::ServiceFiles;
use conjure_base::{Clock, SystemClock};
use conjure_conversation::{
    HostedFiles, HostedSupport, Model, ModelError, ModelEvent, ModelStream, Request, SideEffects, Usage,
};
use futures_util::{Stream, StreamExt, stream};
use reqwest::Url;
use reqwest::header::HeaderValue;

use crate::api_response::{ApiResponse, WireMessage};
use crate::config::{ApiProfile, Config, ConfigError};
use crate::effects::effects_of;
use crate::hosted::{ContainerRequest, HostedFileDeletion, HostedOutputs, HostedUploads};
use crate::jitter::Jitter;
use crate::limiter::Limiter;
use crate::model_call::ModelCall;
use crate::options::ModelOptions;
use crate::prices::Prices;
use crate::request_body::{Delivery, request_body};
use crate::transport::Transport;

/// The client of one API key. Cheap to clone.
#[derive(Clone)]
pub struct Client(Arc<ClientState>);

/// The state that all calls of one key share.
pub(crate) struct ClientState {
    pub(crate) transport: Transport,
    pub(crate) limiter: Arc<Limiter>,
    pub(crate) jitter: Jitter,
    pub(crate) retries: u32,
    prices: Prices,
    /// The models that responded and have no price, cleaned for display.
    models_without_price: Mutex<BTreeSet<String>>,
}

/// The most names of models without a price, which the service chooses.
const MAX_MODELS_WITHOUT_PRICE: usize = 16;
/// The longest such name, in characters.
const MAX_MODEL_CHARS: usize = 100;

/// One model, with its options, under one key.
#[derive(Debug, Clone)]
pub struct Messages(Arc<MessagesInner>);

pub(crate) struct MessagesInner {
    pub(crate) shared: Arc<ClientState>,
    pub(crate) options: ModelOptions,
    pub(crate) betas: Option<HeaderValue>,
    pub(crate) url: Url,
}

/// What [`Messages::events`] yields.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum ResponseEvent {
    /// A preview; never [`ModelEvent::Finished`].
    Preview(ModelEvent),
    /// The complete response; the last event of a successful stream.
    Finished(Box<ApiResponse>),
}

/// A streamed call. Dropping it abandons the call.
pub type ResponseEventStream = Pin<Box<dyn Stream<Item = Result<ResponseEvent, ModelError>> + Send>>;

impl Client {
    /// Creates a client with the system clock. Needs a Tokio runtime.
    ///
    /// # Errors
    /// [`ConfigError`].
    pub fn new(config: &Config) -> Result<Self, ConfigError> {
        Self::with_clock(config, Arc::new(SystemClock))
    }

    /// Creates a client with this clock, for its waits and for dates in `retry-after`.
    ///
    /// # Errors
    /// [`ConfigError`].
    pub fn with_clock(config: &Config, clock: Arc<dyn Clock>) -> Result<Self, ConfigError> {
        let shared = ClientState {
            transport: Transport::new(config, Arc::clone(&clock))?,
            limiter: Arc::new(Limiter::new(clock)),
            jitter: config.seed.map_or_else(Jitter::random, Jitter::seeded),
            retries: config.retries,
            prices: config.prices.clone(),
            models_without_price: Mutex::default(),
        };
        Ok(Self(Arc::new(shared)))
    }

    /// A model under this key.
    ///
    /// # Errors
    /// [`ConfigError::Beta`] for a beta that cannot be sent.
    pub fn messages(&self, options: ModelOptions) -> Result<Messages, ConfigError> {
        let betas = beta_header(&options)?;
        let url = self.0.transport.url(["messages"]);
        Ok(Messages(Arc::new(MessagesInner { shared: Arc::clone(&self.0), options, betas, url })))
    }

    pub(crate) const fn shared(&self) -> &Arc<ClientState> {
        &self.0
    }

    /// The models without a known price, whose responses count as free; sorted, at most 16. The service says which model responded,
    /// which may differ from the requested one.
    #[must_use]
    pub fn models_without_price(&self) -> Vec<String> {
        self.0.lock_models_without_price().iter().cloned().collect()
    }
}

/// The value of the `anthropic-beta` header, if any.
fn beta_header(options: &ModelOptions) -> Result<Option<HeaderValue>, ConfigError> {
    for name in options.betas() {
        let is_token = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
        if name.is_empty() || !name.bytes().all(is_token) {
            return Err(ConfigError::Beta { name: name.clone() });
        }
    }
    (!options.betas().is_empty())
        .then(|| HeaderValue::try_from(options.betas().join(",")))
        .transpose()
        .map_err(|_| ConfigError::Beta { name: options.betas().join(",") })
}

impl Messages {
    /// The options of this model.
    #[must_use]
    pub fn options(&self) -> &ModelOptions {
        &self.0.options
    }

    /// Returns a model that runs code in the service's containers: each request asks for these skills and the code execution tool. It
    /// shares limiter, connections and prices.
    ///
    /// The [`Response`](conjure_conversation::Response::container) names its container, and later requests reuse it. A missing container
    /// is the error [`ModelErrorKind::ContainerGone`](conjure_conversation::ModelErrorKind).
    #[must_use]
    pub fn with_container_request(&self, hosted: &ContainerRequest) -> Self {
        let shared = &self.0.shared;
        let options = hosted.applied_to(self.0.options.clone(), shared.transport.profile());
        // The names are valid already, so this cannot fail.
        let betas = beta_header(&options).unwrap_or_else(|_| self.0.betas.clone());
        let mut url = self.0.url.clone();
        // As the official SDK sends it.
        url.set_query((shared.transport.profile() == ApiProfile::Beta).then_some("beta=true"));
        Self(Arc::new(MessagesInner { shared: Arc::clone(shared), options, betas, url }))
    }

    /// Adds the skills that the request names, if any. The service may refuse them.
    fn with_hosted_skills(&self, request: &Request) -> Self {
        if request.hosted.is_empty() {
            return self.clone();
        }
        self.with_container_request(&ContainerRequest::unchecked(&request.hosted))
    }

    /// The body of a streamed call. It is deterministic. Without cache breakpoints, it is a byte prefix of the next call's body up to the
    /// end of its messages.
    #[must_use]
    pub fn body(&self, request: &Request) -> Vec<u8> {
        request_body(request, &self.with_hosted_skills(request).0.options, Delivery::Streamed)
    }

    /// Starts a streamed call and returns its events, with the complete API response. Nothing happens before it is polled.
    #[must_use]
    pub fn events(&self, request: Request) -> ResponseEventStream {
        struct State {
            inner: Arc<MessagesInner>,
            /// Made at the first poll.
            begin: Option<Request>,
            call: Option<ModelCall>,
            ready: VecDeque<ModelEvent>,
            /// The result, emitted after all events.
            ended: Option<Result<ResponseEvent, ModelError>>,
        }
        let state = State {
            inner: self.with_hosted_skills(&request).0,
            begin: Some(request),
            call: None,
            ready: VecDeque::new(),
            ended: None,
        };
        let events = stream::unfold(state, |mut state| async move {
            if let Some(request) = state.begin.take() {
                state.call = Some(ModelCall::new(Arc::clone(&state.inner), &request, Delivery::Streamed));
            }
            loop {
                if let Some(event) = state.ready.pop_front() {
                    return Some((Ok(ResponseEvent::Preview(event)), state));
                }
                if let Some(ended) = state.ended.take() {
                    return Some((ended, state));
                }
                let mut call = state.call.take()?;
                match call.next(&mut state.ready).await {
                    Ok(None) => state.call = Some(call),
                    Ok(Some(answer)) => state.ended = Some(Ok(ResponseEvent::Finished(Box::new(answer)))),
                    Err(error) => state.ended = Some(Err(error)),
                }
            }
        });
        Box::pin(events.fuse())
    }

    /// Runs a call without streaming. Use the stream for responses that take minutes, because a slow response cannot be told from a dead
    /// connection here.
    ///
    /// # Errors
    /// [`ModelError`].
    pub async fn create(&self, request: &Request) -> Result<ApiResponse, ModelError> {
        ModelCall::new(self.with_hosted_skills(request).0, request, Delivery::Whole).unstreamed().await
    }
}

impl Model for Messages {
    fn stream(&self, request: Request) -> ModelStream {
        Box::pin(self.events(request).map(|item| {
            item.map(|event| match event {
                ResponseEvent::Preview(event) => event,
                ResponseEvent::Finished(answer) => ModelEvent::Finished(Box::new(answer.response)),
            })
        }))
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

impl ClientState {
    fn lock_models_without_price(&self) -> MutexGuard<'_, BTreeSet<String>> {
        // The set is consistent after a panic.
        self.models_without_price.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl MessagesInner {
    /// Adds the cost and the request id.
    pub(crate) fn complete(&self, answer: &mut ApiResponse, request_id: Option<String>) {
        let response = &mut answer.response;
        response.request_id = request_id;
        let model = response.model.as_deref().unwrap_or(self.options.model());
        match self.shared.prices.for_model(model) {
            Some(prices) => response.usage.cost_micros = prices.cost_micros(&response.usage),
            None => {
                let model = self.shared.transport.errors.clean(model, MAX_MODEL_CHARS);
                let mut unpriced = self.shared.lock_models_without_price();
                if unpriced.len() < MAX_MODELS_WITHOUT_PRICE && !unpriced.contains(&model) {
                    tracing::debug!(model, "no price is known of this model; its answers count as free");
                    unpriced.insert(model);
                }
            }
        }
    }

    /// Adds the cost to a usage event.
    pub(crate) fn priced(&self, event: ModelEvent) -> ModelEvent {
        let ModelEvent::UsageReported(usage) = event else { return event };
        let prices = self.shared.prices.for_model(self.options.model());
        let cost_micros = prices.map_or(0, |prices| prices.cost_micros(&usage));
        ModelEvent::UsageReported(Usage { cost_micros, ..usage })
    }

    /// Parses the body of a response without streaming.
    pub(crate) fn read_whole(&self, body: &[u8]) -> Result<ApiResponse, String> {
        #[derive(serde::Deserialize)]
        struct Kind {
            #[serde(rename = "type")]
            kind: String,
        }
        let kind: Kind = serde_json::from_slice(body).map_err(|error| error.to_string())?;
        if kind.kind != "message" {
            return Err(format!("its type is `{}`", kind.kind.chars().take(100).collect::<String>()));
        }
        let mut message: WireMessage = serde_json::from_slice(body).map_err(|error| error.to_string())?;
        let content = std::mem::take(&mut message.content);
        message.with_content(content)
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("host", &self.0.transport.host()).finish_non_exhaustive()
    }
}

impl fmt::Debug for MessagesInner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Messages").field("options", &self.options).finish_non_exhaustive()
    }
}
