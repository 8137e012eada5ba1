//! The port for the model: the trait, its request, its response and its errors.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use conjure_base::{ContainerId, TurnId};
use futures_util::{Stream, StreamExt as _};
use serde::{Deserialize, Serialize};

use crate::content::block::Block;
use crate::content::message::Message;
use crate::content::native::NativeContent;
use crate::content::stop_reason::StopReason;
use crate::session::hosted::{HostedFiles, HostedSkill, HostedSupport};
use crate::state::limits::Limit;
use crate::tools::tool::ToolDefinition;

/// The request of one model call. Cheap to clone: messages and tools are shared.
#[derive(Debug, Clone)]
pub struct Request {
    /// The turn that this call belongs to.
    pub turn: TurnId,
    /// The number of the call in its turn, from 1.
    pub call: u32,
    /// The top-level instructions, in order; blocks that change come last. May be empty.
    pub instructions: Vec<String>,
    /// The tools, in a deterministic order. May be empty.
    pub tools: Arc<[ToolDefinition]>,
    /// The history. Roles alternate; the first and the last message are the user's. Only a resumed pause ends with an assistant message.
    pub messages: Vec<Arc<Message>>,
    /// The container that the service's tools ran in before, to be reused.
    pub container: Option<ContainerId>,
    /// The hosted skills that the service runs in that container or in a fresh one. May be empty. A call with hosted skills may
    /// have side effects, so it must not be sent again once it may have arrived.
    pub hosted: Arc<[HostedSkill]>,
}

impl Request {
    /// The first call of a session's first turn, with this history and nothing else.
    #[must_use]
    pub fn new(messages: Vec<Arc<Message>>) -> Self {
        Self {
            turn: TurnId::FIRST,
            call: 1,
            instructions: Vec::new(),
            tools: [].into(),
            messages,
            container: None,
            hosted: [].into(),
        }
    }

    /// The side effects that follow from the request itself: from hosted skills or a container. [`Model::side_effects`] adds those of the
    /// model's configuration.
    #[must_use]
    pub fn side_effects(&self) -> SideEffects {
        if self.container.is_some() || !self.hosted.is_empty() {
            SideEffects::Possible
        } else {
            SideEffects::None
        }
    }
}

/// Whether a model call may have side effects at the service, which runs skills, code or other tools.
///
/// It is recorded before the call. If the process ends before it has recorded the response, a call with possible side effects is not
/// repeated automatically ([`ModelErrorKind::OutcomeUnknown`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SideEffects {
    /// It has none. Repeating it costs money only.
    None,
    /// It may have side effects.
    Possible,
}

/// A complete response.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Response {
    /// The service's id of the message, if it sent one.
    #[serde(default)]
    pub id: Option<String>,
    /// The model that answered, if the service reported it.
    #[serde(default)]
    pub model: Option<String>,
    /// The content blocks, byte for byte.
    pub content: Vec<Block>,
    /// Why it ended.
    pub stop_reason: StopReason,
    /// Its usage.
    #[serde(default)]
    pub usage: Usage,
    /// The `request-id` of the service, for support.
    #[serde(default)]
    pub request_id: Option<String>,
    /// The container that the service's tools ran in, if any. Every later request names it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container: Option<ContainerId>,
    /// The response in the form of its service, if that form differs from the blocks or holds more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub native: Option<Arc<NativeContent>>,
}

impl Response {
    /// A complete response with this text, for clients of your own.
    #[must_use]
    pub fn text(text: impl Into<String>) -> Self {
        Self::new(vec![Block::text(text)], StopReason::EndTurn)
    }

    /// A complete response with these blocks, without usage and ids. To call tools, use [`Block::tool_use`] and [`StopReason::ToolUse`].
    #[must_use]
    pub fn new(content: Vec<Block>, stop_reason: StopReason) -> Self {
        Self {
            id: None,
            model: None,
            content,
            stop_reason,
            usage: Usage::default(),
            request_id: None,
            container: None,
            native: None,
        }
    }
}

/// The usage of one response, or a sum. All counts are tokens.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Usage {
    /// Input that was neither read from the cache nor written to it.
    pub input_tokens: u64,
    /// Output of the model.
    pub output_tokens: u64,
    /// Input written to the cache.
    pub cache_creation_input_tokens: u64,
    /// Input read from the cache.
    pub cache_read_input_tokens: u64,
    /// Cost in millionths of a dollar, if the client knows prices; otherwise 0.
    pub cost_micros: u64,
}

impl Usage {
    /// All input tokens: uncached, written to the cache and read from it.
    #[must_use]
    pub const fn total_input(&self) -> u64 {
        self.input_tokens
            .saturating_add(self.cache_creation_input_tokens)
            .saturating_add(self.cache_read_input_tokens)
    }

    /// All tokens, input and output.
    #[must_use]
    pub const fn total(&self) -> u64 {
        self.total_input().saturating_add(self.output_tokens)
    }

    /// Adds another usage.
    pub const fn add(&mut self, other: &Self) {
        self.input_tokens = self.input_tokens.saturating_add(other.input_tokens);
        self.output_tokens = self.output_tokens.saturating_add(other.output_tokens);
        self.cache_creation_input_tokens =
            self.cache_creation_input_tokens.saturating_add(other.cache_creation_input_tokens);
        self.cache_read_input_tokens =
            self.cache_read_input_tokens.saturating_add(other.cache_read_input_tokens);
        self.cost_micros = self.cost_micros.saturating_add(other.cost_micros);
    }
}

/// An event of a model's stream. Deltas are previews and may be lost; [`ModelEvent::Finished`] has the response.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum ModelEvent {
    /// The request waits before it is sent: for the rate limit, or after a failed attempt. [`ModelEvent::Sent`] follows.
    Queued,
    /// The request was sent. From now on the service may bill it.
    Sent,
    /// The usage so far, as reported by the service. Each replaces the last one, and the response's usage replaces all.
    UsageReported(Usage),
    /// The response has started. From now on the call must not be repeated silently.
    Started,
    /// More text of the block at this index.
    TextDelta {
        /// The index of the content block.
        index: usize,
        /// The fragment.
        text: String,
    },
    /// More thinking of the block at this index.
    ThinkingDelta {
        /// The index of the content block.
        index: usize,
        /// The fragment.
        text: String,
    },
    /// A tool call began at this index.
    ToolUseStarted {
        /// The index of the content block.
        index: usize,
        /// The tool's name.
        name: String,
    },
    /// More of a tool call's input, as a fragment of JSON text.
    ToolInputDelta {
        /// The index of the content block.
        index: usize,
        /// The fragment.
        partial_json: String,
    },
    /// The complete response; the last event of a successful stream.
    Finished(Box<Response>),
}

/// A running model call. It ends after [`ModelEvent::Finished`] or an error; the driver reports any other end as a truncated stream.
/// Dropping it abandons the call.
pub type ModelStream = Pin<Box<dyn Stream<Item = Result<ModelEvent, ModelError>> + Send>>;

/// Answers requests: a client of a service, a script, or the embedder's own client.
///
/// The implementation retries failed attempts before the response starts. The driver never repeats a call.
pub trait Model: Send + Sync {
    /// Starts one call. Nothing happens before the stream is polled.
    ///
    /// An interrupted call counts as sent from the first event other than [`ModelEvent::Queued`]. So a client should emit
    /// [`ModelEvent::Sent`], and [`ModelEvent::UsageReported`] when it knows more.
    fn stream(&self, request: Request) -> ModelStream;

    /// The model that this one wraps. The methods below answer as it does, unless the wrapper overrides them.
    fn inner(&self) -> Option<&dyn Model> {
        None
    }

    /// Whether its service supports hosted skills. A session with hosted skills needs such a model.
    fn hosted_support(&self) -> HostedSupport {
        self.inner().map_or(HostedSupport::None, Model::hosted_support)
    }

    /// Access to the files of its service's containers. A model with hosted skills implements it.
    fn hosted_files(&self) -> HostedFiles {
        self.inner().map_or(HostedFiles::Unknown, Model::hosted_files)
    }

    /// The size of the model's context in tokens, if that is known. A session's history is compacted before it reaches this size.
    fn context_tokens(&self) -> Option<u64> {
        self.inner().and_then(Model::context_tokens)
    }

    /// The possible side effects of this call. It is called once, before the call is recorded and made.
    ///
    /// Without a wrapped model, the default follows from the request alone ([`Request::side_effects`]). A model whose configuration
    /// adds side effects overrides this method.
    fn side_effects(&self, request: &Request) -> SideEffects {
        self.inner().map_or_else(|| request.side_effects(), |inner| inner.side_effects(request))
    }
}

impl<M: Model + ?Sized> Model for Arc<M> {
    fn stream(&self, request: Request) -> ModelStream {
        (**self).stream(request)
    }

    fn inner(&self) -> Option<&dyn Model> {
        (**self).inner()
    }

    fn hosted_support(&self) -> HostedSupport {
        (**self).hosted_support()
    }

    fn hosted_files(&self) -> HostedFiles {
        (**self).hosted_files()
    }

    fn context_tokens(&self) -> Option<u64> {
        (**self).context_tokens()
    }

    fn side_effects(&self, request: &Request) -> SideEffects {
        (**self).side_effects(request)
    }
}

/// A model from a function that turns a request into a complete response: the callback form of the specification (10.1, 11.2), for
/// embedders with their own client.
pub fn model_fn<F, Fut>(call: F) -> impl Model
where
    F: Fn(Request) -> Fut + Send + Sync,
    Fut: Future<Output = Result<Response, ModelError>> + Send + 'static,
{
    struct FnModel<F>(F);

    impl<F, Fut> Model for FnModel<F>
    where
        F: Fn(Request) -> Fut + Send + Sync,
        Fut: Future<Output = Result<Response, ModelError>> + Send + 'static,
    {
        fn stream(&self, request: Request) -> ModelStream {
            let answer = (self.0)(request);
            let finished = futures_util::stream::once(async move {
                answer.await.map(|response| ModelEvent::Finished(Box::new(response)))
            });
            // The function reports no progress, so the request counts as sent when it starts.
            Box::pin(futures_util::stream::iter([Ok(ModelEvent::Sent)]).chain(finished))
        }
    }

    FnModel(call)
}

/// Why a model call failed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct ModelError {
    /// The class of the failure.
    pub kind: ModelErrorKind,
    /// What happened, for people. It contains no secrets.
    pub message: String,
    /// How long the service wants the client to wait.
    #[serde(default)]
    pub retry_after: Option<Duration>,
    /// The `request-id` of the service, if any.
    #[serde(default)]
    pub request_id: Option<String>,
}

/// The classes of failure of a model call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ModelErrorKind {
    /// The service answered with an error.
    Api(ApiErrorKind),
    /// The connection failed, or broke before the response started.
    Connection,
    /// The stream ended or broke before the response was complete.
    Truncated,
    /// The response does not follow the protocol.
    Protocol,
    /// A deadline passed.
    Timeout,
    /// This process has too many running calls; nothing was sent.
    Overloaded,
    /// The tenant's budget is used up; nothing was sent. The turn ends with this limit.
    Exhausted(Limit),
    /// The service does not have the container that the request named: it has expired, or belongs to another key. There was no response.
    /// The same call without a container starts a fresh one, without the old files.
    ContainerGone,
    /// The process ended during the call, and the service may have acted on it ([`SideEffects`]). The outcome is not known.
    OutcomeUnknown,
    /// A scripted model got another request than its script expects, or its script has ended.
    Script,
}

/// The error types of the Messages API.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub enum ApiErrorKind {
    /// `invalid_request_error`
    InvalidRequest,
    /// `authentication_error`
    Authentication,
    /// `billing_error`
    Billing,
    /// `permission_error`
    Permission,
    /// `not_found_error`
    NotFound,
    /// `rate_limit_error`
    RateLimit,
    /// `timeout_error`
    Timeout,
    /// `api_error`
    Api,
    /// `overloaded_error`
    Overloaded,
    /// A type that this version does not know.
    Unknown(String),
}

const API_ERRORS: [(&str, ApiErrorKind); 9] = [
    ("invalid_request_error", ApiErrorKind::InvalidRequest),
    ("authentication_error", ApiErrorKind::Authentication),
    ("billing_error", ApiErrorKind::Billing),
    ("permission_error", ApiErrorKind::Permission),
    ("not_found_error", ApiErrorKind::NotFound),
    ("rate_limit_error", ApiErrorKind::RateLimit),
    ("timeout_error", ApiErrorKind::Timeout),
    ("api_error", ApiErrorKind::Api),
    ("overloaded_error", ApiErrorKind::Overloaded),
];

impl From<String> for ApiErrorKind {
    fn from(text: String) -> Self {
        API_ERRORS.into_iter().find(|(name, _)| *name == text).map_or(Self::Unknown(text), |(_, kind)| kind)
    }
}

impl From<ApiErrorKind> for String {
    fn from(kind: ApiErrorKind) -> Self {
        match kind {
            ApiErrorKind::Unknown(text) => text,
            known => API_ERRORS
                .into_iter()
                .find(|(_, kind)| *kind == known)
                .map_or_else(Self::new, |(name, _)| name.to_owned()),
        }
    }
}

impl ModelError {
    /// A failure of this class.
    pub fn new(kind: ModelErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), retry_after: None, request_id: None }
    }

    /// Whether the same call may well succeed later.
    #[must_use]
    pub const fn is_retryable(&self) -> bool {
        match &self.kind {
            ModelErrorKind::Api(kind) => matches!(
                kind,
                ApiErrorKind::RateLimit
                    | ApiErrorKind::Timeout
                    | ApiErrorKind::Api
                    | ApiErrorKind::Overloaded
            ),
            ModelErrorKind::Connection | ModelErrorKind::Truncated | ModelErrorKind::Timeout => true,
            // Without a retry time the tenant's share is zero, so a later call fails too.
            ModelErrorKind::Overloaded => self.retry_after.is_some(),
            ModelErrorKind::Protocol
            | ModelErrorKind::ContainerGone
            | ModelErrorKind::Script
            | ModelErrorKind::Exhausted(_)
            | ModelErrorKind::OutcomeUnknown => false,
        }
    }
}
