//! The model at the rim: one method, object safe, so that any client fits.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use conjure_base::{ContainerId, TurnId};
use futures_util::{Stream, StreamExt as _};
use serde::{Deserialize, Serialize};

use crate::content::Block;
use crate::hosted::{HostedFiles, HostedSkill, Hosting};
use crate::limits::Limit;
use crate::message::Message;
use crate::stop::StopReason;
use crate::tool::ToolDefinition;
use crate::usage::Usage;

/// All that one model call sends. Cheap to clone: messages and tools are shared.
#[derive(Debug, Clone)]
pub struct Request {
    /// The turn that this call belongs to.
    pub turn: TurnId,
    /// The call's place in its turn, from 1.
    pub call: u32,
    /// The top-level instructions, in order; blocks that change come last. May be empty.
    pub instructions: Vec<String>,
    /// The tools, in a deterministic order. May be empty.
    pub tools: Arc<[ToolDefinition]>,
    /// The history: strictly alternating roles, starting and ending with the user's, but for a resumed
    /// pause, which ends with the assistant's.
    pub messages: Vec<Arc<Message>>,
    /// The container that the service's tools ran in before, to be used again.
    pub container: Option<ContainerId>,
    /// Skills that the service is to run in that container, or in a fresh one. A call with any has effects: it must not be sent again once
    /// it may have arrived. May be empty.
    pub hosted: Arc<[HostedSkill]>,
}

impl Request {
    /// Whether its call may do something by what the request itself asks for: by hosted skills, or in a container. What its model is
    /// configured with is not known here; [`Model::effects`] knows both.
    #[must_use]
    pub fn effects(&self) -> CallEffects {
        if self.container.is_some() || !self.hosted.is_empty() {
            CallEffects::Possible
        } else {
            CallEffects::None
        }
    }
}

/// Whether a model call may do something where nobody here sees it: its service runs skills or code for it, or tools that act.
///
/// It is recorded before the call is made. One that may, and whose host ended before the answer was recorded, is not sent again by itself
/// ([`ModelErrorKind::OutcomeUnknown`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallEffects {
    /// It answers, and sending it twice costs no more than twice the money.
    None,
    /// It may.
    Possible,
}

/// A complete answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Response {
    /// The service's id of the message, where it gave one.
    #[serde(default)]
    pub id: Option<String>,
    /// The model that answered, where the service said so.
    #[serde(default)]
    pub model: Option<String>,
    /// What it said, byte for byte.
    pub content: Vec<Block>,
    /// Why it ended.
    pub stop_reason: StopReason,
    /// What it consumed.
    #[serde(default)]
    pub usage: Usage,
    /// The `request-id` of the service, for support.
    #[serde(default)]
    pub request_id: Option<String>,
    /// The container that the service's tools ran in, where they ran in one. It goes with every later request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container: Option<ContainerId>,
}

/// What a model's stream yields. Deltas are previews and may be lost; [`ModelEvent::Finished`] is the answer.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum ModelEvent {
    /// The request is not with the service now, and may not be for long: its key is limited, or an attempt has failed and is made again.
    /// [`ModelEvent::Sent`] follows when it goes out.
    Waiting,
    /// The request is on its way: from now on the service may bill it, though it says nothing yet.
    Sent,
    /// What the call has used so far, as far as the service has said it. Each counts in place of the last, and what the answer says
    /// in place of all.
    Used(Usage),
    /// The service began to answer; from now on the call must not be repeated unseen.
    Started,
    /// More text of the block at this index.
    TextDelta {
        /// Which content block.
        index: usize,
        /// The piece.
        text: String,
    },
    /// More thinking of the block at this index.
    ThinkingDelta {
        /// Which content block.
        index: usize,
        /// The piece.
        text: String,
    },
    /// A tool call began at this index.
    ToolUseStarted {
        /// Which content block.
        index: usize,
        /// The tool's name.
        name: String,
    },
    /// More of a tool call's input, as a piece of JSON text.
    ToolInputDelta {
        /// Which content block.
        index: usize,
        /// The piece.
        partial_json: String,
    },
    /// The whole answer; the last event of a good stream.
    Finished(Box<Response>),
}

/// A model call under way. It ends after [`ModelEvent::Finished`] or an error; ending without either is a
/// truncated stream, which the driver reports as such. Dropping it abandons the call.
pub type ModelStream = Pin<Box<dyn Stream<Item = Result<ModelEvent, ModelError>> + Send>>;

/// Something that answers requests: a service, a script, a host's own client.
///
/// Retries before anything was shown are the implementation's business (it knows the wire); the driver never
/// repeats a call.
pub trait Model: Send + Sync {
    /// Starts one call. Nothing happens before the stream is polled. Whoever pays for a call that is broken off goes by what its stream
    /// tells: it counts as sent with the first event other than [`ModelEvent::Waiting`], so a client whose service bills what it has sent
    /// should tell [`ModelEvent::Sent`], and [`ModelEvent::Used`] where it knows more.
    fn stream(&self, request: Request) -> ModelStream;

    /// What its service runs by itself. A session with hosted skills needs a model that says so.
    fn hosting(&self) -> Hosting {
        Hosting::None
    }

    /// Where the files of its service's containers are. A model that runs hosted skills says so; one that wraps another passes on what that
    /// one says.
    fn hosted_files(&self) -> HostedFiles {
        HostedFiles::Unsaid
    }

    /// Whether this call may do something where nobody here sees it. Asked once, before the call is recorded and made.
    ///
    /// A model that does not say goes by the request alone ([`Request::effects`]). One whose service runs something of its own accord,
    /// since its client is configured so, must say so; one that wraps another passes on what that one says.
    fn effects(&self, request: &Request) -> CallEffects {
        request.effects()
    }
}

impl<M: Model + ?Sized> Model for Arc<M> {
    fn stream(&self, request: Request) -> ModelStream {
        (**self).stream(request)
    }

    fn hosting(&self) -> Hosting {
        (**self).hosting()
    }

    fn hosted_files(&self) -> HostedFiles {
        (**self).hosted_files()
    }

    fn effects(&self, request: &Request) -> CallEffects {
        (**self).effects(request)
    }
}

/// A model made of a function from a request to a whole answer: the callback form of the specification (10.1,
/// 11.2), for hosts that have a client of their own.
pub fn model_fn<F, Fut>(call: F) -> impl Model
where
    F: Fn(Request) -> Fut + Send + Sync,
    Fut: Future<Output = Result<Response, ModelError>> + Send + 'static,
{
    struct Callback<F>(F);

    impl<F, Fut> Model for Callback<F>
    where
        F: Fn(Request) -> Fut + Send + Sync,
        Fut: Future<Output = Result<Response, ModelError>> + Send + 'static,
    {
        fn stream(&self, request: Request) -> ModelStream {
            let answer = (self.0)(request);
            let finished = futures_util::stream::once(async move {
                answer.await.map(|response| ModelEvent::Finished(Box::new(response)))
            });
            // What it does is not seen, so it counts as sent when it begins.
            Box::pin(futures_util::stream::iter([Ok(ModelEvent::Sent)]).chain(finished))
        }
    }

    Callback(call)
}

/// Why a model call failed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct ModelError {
    /// What class of failure.
    pub kind: ModelErrorKind,
    /// What happened, for people; free of secrets.
    pub message: String,
    /// How long the service asked to wait.
    #[serde(default)]
    pub retry_after: Option<Duration>,
    /// The `request-id` of the service, where there was one.
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
    /// No connection, or it broke before an answer began.
    Connection,
    /// The stream ended, or broke, before the answer was complete.
    Truncated,
    /// The answer was not what the protocol says.
    Protocol,
    /// A deadline passed.
    Timeout,
    /// The host has too many calls under way to take on another one in time; nothing was sent.
    Overloaded,
    /// What the session's tenant may use is used up; nothing was sent. The turn ends with this limit.
    Exhausted(Limit),
    /// The service no longer has the container that the request named: it has expired, or never was the key's. Nothing was
    /// answered; the same call that names none begins a new one, without the files of the old.
    ContainerGone,
    /// The call was under way when its host ended, and the service may have acted on it ([`CallEffects`]): what it did is not known.
    OutcomeUnknown,
    /// A scripted model was sent something else than its script expects, or is at its end.
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
            // Of a share that is nothing, nothing comes later.
            ModelErrorKind::Overloaded => self.retry_after.is_some(),
            ModelErrorKind::Protocol
            | ModelErrorKind::ContainerGone
            | ModelErrorKind::Script
            | ModelErrorKind::Exhausted(_)
            | ModelErrorKind::OutcomeUnknown => false,
        }
    }
}
