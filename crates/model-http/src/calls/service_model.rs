//! [`ServiceModel`]: a model of a service, for every API whose client has nothing but model calls.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use conjure_base::TurnId;
use conjure_conversation::{Model, ModelApi, ModelStream, Origin, Request, Response, StopReason, Usage};
use reqwest::Url;
use reqwest::header::HeaderMap;

use crate::calls::call_options::CallOptions;
use crate::calls::client::HttpClient;
use crate::calls::http_call::HttpCall;
use crate::calls::service_error::ServiceError;
use crate::calls::wire::Wire;
use crate::stream::decoder::{Decoder, StreamError};
use crate::stream::token_estimate::{RequestSize, TokenEstimator};
use crate::stream::tool_names::ToolNames;

/// The parts of a [`ServiceModel`] that are specific to one API.
pub trait ServiceApi: Send + Sync + 'static {
    /// Reads a streamed answer.
    type Decoder: Decoder;

    /// The API, in the origin of its answers.
    const API: ModelApi;
    /// Its name in error messages, with its article.
    const NAME: &'static str;
    /// The members of a body that the client writes itself: see [`CallOptions::new`].
    const RESERVED: &'static [&'static str];
    /// What an unstreamed answer lacks if it is not complete, as a fragment that fits in brackets.
    const NO_END: &'static str;

    /// The name of the service at this host, for telemetry.
    fn provider(host: &str) -> &'static str;

    /// The URL of a call of this model.
    fn url(client: &HttpClient, model: &str) -> Url;

    /// The name of a tool in the form that the service accepts.
    fn wire_name(name: &str) -> Cow<'_, str>;

    /// Writes the body of a streamed call. Also returns the size from which its tokens are estimated.
    fn body(request: &Request, options: &CallOptions, origin: &Origin) -> (Vec<u8>, RequestSize);

    /// Creates a decoder for the answer of one call.
    fn decoder(context: DecoderContext) -> Self::Decoder;

    /// Reads an unstreamed answer.
    ///
    /// # Errors
    /// As [`Decoder::push`].
    fn push_whole(decoder: &mut Self::Decoder, json: &str) -> Result<(), StreamError>;

    /// Reads the body of an error: see [`Wire::read_error`].
    fn read_error(status: u16, body: &[u8]) -> Option<ServiceError>;
}

/// The facts about a call that the decoder of its answer needs.
#[derive(Debug, Clone)]
pub struct DecoderContext {
    /// The origin of the answer.
    pub origin: Origin,
    /// The tool names of the request.
    pub tool_names: ToolNames,
    /// The turn that the call belongs to.
    pub turn: TurnId,
    /// The number of the call in the turn.
    pub call: u32,
    /// The maximum number of output tokens, if the request sets one.
    pub max_tokens: Option<u32>,
    /// The size of the request.
    pub size: RequestSize,
    /// The estimator that all calls of the model share.
    pub estimator: Arc<TokenEstimator>,
}

impl DecoderContext {
    /// The context of an answer of this origin without a call, such as a recorded stream.
    #[must_use]
    pub fn new(origin: Origin) -> Self {
        Self {
            origin,
            tool_names: ToolNames::default(),
            turn: TurnId::FIRST,
            call: 1,
            max_tokens: None,
            size: RequestSize::default(),
            estimator: Arc::default(),
        }
    }

    /// The usage that the service reported, or an estimate.
    #[must_use]
    pub fn usage(&self, reported: Option<Usage>, answer_bytes: u64) -> Usage {
        self.estimator.usage(self.size, reported, answer_bytes)
    }
}

/// One model of a service, with its options, under one key. Cheap to clone.
#[derive(Clone)]
pub struct ServiceModel<A>(Arc<ModelState<A>>);

struct ModelState<A> {
    client: HttpClient,
    options: CallOptions,
    origin: Origin,
    url: Url,
    estimator: Arc<TokenEstimator>,
    api: PhantomData<A>,
}

impl<A: ServiceApi> ServiceModel<A> {
    /// Creates options for this model.
    #[must_use]
    pub fn options(model: impl Into<String>) -> CallOptions {
        CallOptions::new(model, A::RESERVED)
    }

    /// Creates a model that sends its calls through this client. The path of the API is appended to the client's base URL.
    #[must_use]
    pub fn new(client: HttpClient, options: CallOptions) -> Self {
        let origin = Origin { api: A::API, service: client.service(), model: options.model().to_owned() };
        let url = A::url(&client, options.model());
        Self(Arc::new(ModelState {
            client,
            options,
            origin,
            url,
            estimator: Arc::default(),
            api: PhantomData,
        }))
    }

    /// The origin of its answers. Only answers of the same origin are sent back unchanged.
    #[must_use]
    pub fn origin(&self) -> &Origin {
        &self.0.origin
    }

    /// The body of a streamed call. It is deterministic, and a byte prefix of the next call's body up to the end of its history.
    #[must_use]
    pub fn body(&self, request: &Request) -> Vec<u8> {
        A::body(request, &self.0.options, &self.0.origin).0
    }
}

impl<A: ServiceApi> ModelState<A> {
    fn call(&self, request: &Request) -> HttpCall {
        let (body, size) = A::body(request, &self.options, &self.origin);
        HttpCall {
            max_tokens: self.options.max_tokens(),
            tool_names: ToolNames::new(&request.tools, A::wire_name),
            size,
            ..HttpCall::new(self.url.clone(), body, request, self.options.model())
        }
    }
}

impl<A: ServiceApi> Model for ServiceModel<A> {
    fn stream(&self, request: Request) -> ModelStream {
        let state = Arc::clone(&self.0);
        self.0.client.stream(Arc::clone(&self.0), move || state.call(&request))
    }
}

impl<A: ServiceApi> Wire for ModelState<A> {
    type Decoder = A::Decoder;

    fn provider(&self) -> &str {
        A::provider(self.client.host())
    }

    fn api_name(&self) -> &str {
        A::NAME
    }

    fn decoder(&self, call: &HttpCall) -> A::Decoder {
        A::decoder(DecoderContext {
            origin: self.origin.clone(),
            tool_names: call.tool_names.clone(),
            turn: call.turn,
            call: call.call,
            max_tokens: call.max_tokens,
            size: call.size,
            estimator: Arc::clone(&self.estimator),
        })
    }

    fn read_whole(&self, call: &HttpCall, body: &[u8]) -> Result<Response, String> {
        let json = std::str::from_utf8(body).map_err(|error| error.to_string())?;
        let mut decoder = self.decoder(call);
        match A::push_whole(&mut decoder, json).and_then(|()| decoder.finish()) {
            Ok(Some(response)) if response.stop_reason != StopReason::Missing => Ok(response),
            Ok(_) => Err(A::NO_END.to_owned()),
            Err(StreamError::Service(error)) => Err(format!("it is an error: {}", error.message)),
            Err(error) => Err(error.to_string()),
        }
    }

    fn read_error(&self, status: u16, _: &HeaderMap, body: &[u8]) -> Option<ServiceError> {
        A::read_error(status, body)
    }
}

impl<A> fmt::Debug for ServiceModel<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServiceModel").field("origin", &self.0.origin).finish_non_exhaustive()
    }
}
