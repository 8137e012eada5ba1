//! The Messages client: a [`Model`] over HTTP.
//!
//! A [`Client`] stands for one key and is shared by all sessions that use it, and with it the limiter, the
//! connections and the prices. [`Messages`] is one model of it with its options; it is cheap to clone.
//!
//! A call that is dropped at any point is over: its connection closes, its place at the limiter is free. Nothing is
//! kept of it, here or in a crash; whether the service had begun to answer is for the caller to record before.

use std::collections::{BTreeSet, VecDeque};
use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use conjure_artifact::ServiceFiles;
use conjure_base::{Clock, SystemClock};
use conjure_conversation::{
    CallEffects, HostedFiles, Hosting, Model, ModelError, ModelEvent, ModelStream, Request, Usage,
};
use futures_util::{Stream, StreamExt, stream};
use reqwest::Url;
use reqwest::header::HeaderValue;

use crate::answer::{Answer, WireMessage};
use crate::body::{Delivery, body};
use crate::call::Call;
use crate::config::{Config, ConfigError, Profile};
use crate::effects::effects_of;
use crate::hosted::{Hosted, HostedOutputs, HostedRemoval, HostedUploads};
use crate::limiter::Limiter;
use crate::options::Options;
use crate::prices::Prices;
use crate::random::Jitter;
use crate::transport::Transport;

/// The client of one key.
#[derive(Clone)]
pub struct Client(Arc<Shared>);

/// What all calls under one key share.
pub(crate) struct Shared {
    pub(crate) transport: Transport,
    pub(crate) limiter: Arc<Limiter>,
    pub(crate) jitter: Jitter,
    pub(crate) retries: u32,
    prices: Prices,
    /// The models that answered and have no price, cleaned for people to read.
    unpriced: Mutex<BTreeSet<String>>,
}

/// How many models without a price are kept by name: the service names them.
const MOST_UNPRICED: usize = 16;
/// How long such a name may be, in characters.
const LONGEST_MODEL: usize = 100;

/// One model, with its options, under one key.
#[derive(Debug, Clone)]
pub struct Messages(Arc<Inner>);

pub(crate) struct Inner {
    pub(crate) shared: Arc<Shared>,
    pub(crate) options: Options,
    pub(crate) betas: Option<HeaderValue>,
    pub(crate) url: Url,
}

/// What [`Messages::events`] yields.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum AnswerEvent {
    /// A preview; never [`ModelEvent::Finished`].
    Preview(ModelEvent),
    /// The whole answer; the last event of a good stream.
    Finished(Box<Answer>),
}

/// A streamed call under way. Dropping it abandons the call.
pub type AnswerStream = Pin<Box<dyn Stream<Item = Result<AnswerEvent, ModelError>> + Send>>;

impl Client {
    /// A client by the machine's clock. Within a Tokio runtime only.
    ///
    /// # Errors
    /// [`ConfigError`].
    pub fn new(config: &Config) -> Result<Self, ConfigError> {
        Self::with_clock(config, Arc::new(SystemClock))
    }

    /// A client by this clock, which times its waits and reads the dates of `retry-after`.
    ///
    /// # Errors
    /// [`ConfigError`].
    pub fn with_clock(config: &Config, clock: Arc<dyn Clock>) -> Result<Self, ConfigError> {
        let shared = Shared {
            transport: Transport::new(config, Arc::clone(&clock))?,
            limiter: Arc::new(Limiter::new(clock)),
            jitter: config.seed.map_or_else(Jitter::random, Jitter::seeded),
            retries: config.retries,
            prices: config.prices.clone(),
            unpriced: Mutex::default(),
        };
        Ok(Self(Arc::new(shared)))
    }

    /// A model under this key.
    ///
    /// # Errors
    /// [`ConfigError::Beta`] for a beta that cannot be sent.
    pub fn messages(&self, options: Options) -> Result<Messages, ConfigError> {
        let betas = beta_header(&options)?;
        let url = self.0.transport.url(["messages"]);
        Ok(Messages(Arc::new(Inner { shared: Arc::clone(&self.0), options, betas, url })))
    }

    pub(crate) const fn shared(&self) -> &Arc<Shared> {
        &self.0
    }

    /// The models whose answers so far count as free because no price of them is known, in order; at most 16. The
    /// service tells which model answered, which may be another one than was asked for.
    #[must_use]
    pub fn unpriced_models(&self) -> Vec<String> {
        self.0.unpriced().iter().cloned().collect()
    }
}

/// The value of `anthropic-beta`, where there is one.
fn beta_header(options: &Options) -> Result<Option<HeaderValue>, ConfigError> {
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
    pub fn options(&self) -> &Options {
        &self.0.options
    }

    /// The same model, with the service's containers at its hand: each request asks for these skills and the tool that
    /// runs code, and names the betas of the profile. It shares the limiter, the connections and the prices.
    ///
    /// Which container an answer ran in is in its [`Response`](conjure_conversation::Response::container), and goes with
    /// the requests that follow; one that is gone is [`ModelErrorKind::ContainerGone`](conjure_conversation::ModelErrorKind).
    #[must_use]
    pub fn with_hosted(&self, hosted: &Hosted) -> Self {
        let shared = &self.0.shared;
        let options = hosted.applied_to(self.0.options.clone(), shared.transport.profile());
        // Names that were good stay good beside those of the profile.
        let betas = beta_header(&options).unwrap_or_else(|_| self.0.betas.clone());
        let mut url = self.0.url.clone();
        // What the official SDK of that profile sends.
        url.set_query((shared.transport.profile() == Profile::Beta).then_some("beta=true"));
        Self(Arc::new(Inner { shared: Arc::clone(shared), options, betas, url }))
    }

    /// The same model with the skills that the request itself names, where it names some. The service may refuse them.
    fn with_skills_of(&self, request: &Request) -> Self {
        if request.hosted.is_empty() {
            return self.clone();
        }
        self.with_hosted(&Hosted::unchecked(&request.hosted))
    }

    /// The body that a streamed call of `request` sends. Deterministic; without cache marks it is, up
    /// to the end of its messages, a byte prefix of the next call's body.
    #[must_use]
    pub fn body(&self, request: &Request) -> Vec<u8> {
        body(request, &self.with_skills_of(request).0.options, Delivery::Streamed)
    }

    /// One call, streamed, with all that the service says of the answer. Nothing happens before it is polled.
    #[must_use]
    pub fn events(&self, request: Request) -> AnswerStream {
        struct State {
            inner: Arc<Inner>,
            /// Made at the first poll.
            begin: Option<Request>,
            call: Option<Call>,
            ready: VecDeque<ModelEvent>,
            /// How the call ended, once all that came before is shown.
            ended: Option<Result<AnswerEvent, ModelError>>,
        }
        let state = State {
            inner: self.with_skills_of(&request).0,
            begin: Some(request),
            call: None,
            ready: VecDeque::new(),
            ended: None,
        };
        let events = stream::unfold(state, |mut state| async move {
            if let Some(request) = state.begin.take() {
                state.call = Some(Call::new(Arc::clone(&state.inner), &request, Delivery::Streamed));
            }
            loop {
                if let Some(event) = state.ready.pop_front() {
                    return Some((Ok(AnswerEvent::Preview(event)), state));
                }
                if let Some(ended) = state.ended.take() {
                    return Some((ended, state));
                }
                let mut call = state.call.take()?;
                match call.next(&mut state.ready).await {
                    Ok(None) => state.call = Some(call),
                    Ok(Some(answer)) => state.ended = Some(Ok(AnswerEvent::Finished(Box::new(answer)))),
                    Err(error) => state.ended = Some(Err(error)),
                }
            }
        });
        Box::pin(events.fuse())
    }

    /// One call whose answer comes as a whole. For answers of more than a few minutes use the stream: nothing tells
    /// a slow answer from a dead connection here.
    ///
    /// # Errors
    /// [`ModelError`].
    pub async fn create(&self, request: &Request) -> Result<Answer, ModelError> {
        Call::new(self.with_skills_of(request).0, request, Delivery::Whole).whole().await
    }
}

impl Model for Messages {
    fn stream(&self, request: Request) -> ModelStream {
        Box::pin(self.events(request).map(|item| {
            item.map(|event| match event {
                AnswerEvent::Preview(event) => event,
                AnswerEvent::Finished(answer) => ModelEvent::Finished(Box::new(answer.response)),
            })
        }))
    }

    fn hosting(&self) -> Hosting {
        Hosting::Skills
    }

    fn hosted_files(&self) -> HostedFiles {
        let files = Client(Arc::clone(&self.0.shared)).files();
        let outputs = Arc::new(HostedOutputs::new(files.clone()));
        let removal = Arc::new(HostedRemoval::new(files.clone()));
        ServiceFiles { outputs, uploads: Arc::new(HostedUploads::new(files)), removal }.into()
    }

    fn effects(&self, request: &Request) -> CallEffects {
        effects_of(request, &self.0.options)
    }
}

impl Shared {
    fn unpriced(&self) -> MutexGuard<'_, BTreeSet<String>> {
        // A set with one name more or less is whole either way.
        self.unpriced.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    /// Adds what only we know: the cost and the request id.
    pub(crate) fn complete(&self, answer: &mut Answer, request_id: Option<String>) {
        let response = &mut answer.response;
        response.request_id = request_id;
        let model = response.model.as_deref().unwrap_or(self.options.model());
        match self.shared.prices.of(model) {
            Some(prices) => response.usage.cost_micros = prices.cost_micros(&response.usage),
            None => {
                let model = self.shared.transport.reporter.clean(model, LONGEST_MODEL);
                let mut unpriced = self.shared.unpriced();
                if unpriced.len() < MOST_UNPRICED && !unpriced.contains(&model) {
                    tracing::debug!(model, "no price is known of this model; its answers count as free");
                    unpriced.insert(model);
                }
            }
        }
    }

    /// The same with what an answer has used so far.
    pub(crate) fn priced(&self, event: ModelEvent) -> ModelEvent {
        let ModelEvent::Used(usage) = event else { return event };
        let prices = self.shared.prices.of(self.options.model());
        let cost_micros = prices.map_or(0, |prices| prices.cost_micros(&usage));
        ModelEvent::Used(Usage { cost_micros, ..usage })
    }

    /// A whole answer from a body that was not streamed.
    pub(crate) fn read_whole(&self, body: &[u8]) -> Result<Answer, String> {
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
        message.answer_of(content)
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("host", &self.0.transport.host()).finish_non_exhaustive()
    }
}

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Messages").field("options", &self.options).finish_non_exhaustive()
    }
}
