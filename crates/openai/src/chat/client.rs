//! [`Chat`]: Chat Completions as a [`Model`].

use std::fmt;
use std::sync::Arc;

use conjure_conversation::{Model, ModelApi, ModelStream, Origin, Request, Response};
use conjure_model_http::{
    Decoder as _, HeaderMap, HttpCall, HttpClient, RequestSize, ServiceError, StreamError, TokenEstimator,
    Url, Wire,
};

use super::decoder::ChatDecoder;
use super::request_body::{BodyOptions, request_body};
use crate::call_context::CallContext;
use crate::error_body::read_error_body;
use crate::options::{ChatOptions, TokensField};

/// The host of OpenAI itself.
const OPENAI_HOST: &str = "api.openai.com";
/// The host of DeepSeek, which requires the reasoning of all answers with calls.
const DEEPSEEK_HOST: &str = "api.deepseek.com";

/// One Chat Completions model, with its options. Cheap to clone.
///
/// For OpenAI's own reasoning models, use [`Responses`](crate::Responses). With Chat Completions they call tools only without reasoning
/// (`reasoning_effort` is `none`), and their reasoning is lost between calls.
#[derive(Clone)]
pub struct Chat(Arc<ChatState>);

struct ChatState {
    client: HttpClient,
    options: ChatOptions,
    origin: Origin,
    tokens_field: TokensField,
    replayed_reasoning: Option<String>,
    url: Url,
    estimator: Arc<TokenEstimator>,
}

/// The wire of one call.
struct ChatWire(Arc<CallContext>);

impl Chat {
    /// Creates a model with these options, which sends its calls through this client. `/chat/completions` is appended to the client's base
    /// URL, as with [`DEFAULT_BASE_URL`](crate::DEFAULT_BASE_URL).
    #[must_use]
    pub fn new(client: HttpClient, options: ChatOptions) -> Self {
        let default_field = match client.host() {
            OPENAI_HOST => TokensField::MaxCompletionTokens,
            _ => TokensField::MaxTokens,
        };
        let default_reasoning = (client.host() == DEEPSEEK_HOST).then(|| "reasoning_content".to_owned());
        let origin =
            Origin { api: ModelApi::Chat, service: client.service(), model: options.model().to_owned() };
        Self(Arc::new(ChatState {
            url: client.url(["chat", "completions"]),
            tokens_field: options.tokens_field.unwrap_or(default_field),
            replayed_reasoning: options.replayed_reasoning.clone().or(default_reasoning),
            client,
            options,
            origin,
            estimator: Arc::default(),
        }))
    }

    /// The options of this model.
    #[must_use]
    pub fn options(&self) -> &ChatOptions {
        &self.0.options
    }

    /// The origin of its answers.
    #[must_use]
    pub fn origin(&self) -> &Origin {
        &self.0.origin
    }

    /// The body of a streamed call. It is deterministic, and a byte prefix of the next call's body up to the end of its messages.
    #[must_use]
    pub fn body(&self, request: &Request) -> Vec<u8> {
        self.0.body(request).0
    }
}

impl ChatState {
    fn wire(&self, request: &Request) -> Arc<ChatWire> {
        let context = CallContext::new(
            self.origin.clone(),
            &request.tools,
            self.options.max_tokens(),
            Arc::clone(&self.estimator),
        );
        Arc::new(ChatWire(Arc::new(context)))
    }

    fn body(&self, request: &Request) -> (Vec<u8>, RequestSize) {
        let with = BodyOptions {
            options: &self.options,
            origin: &self.origin,
            tokens_field: self.tokens_field,
            replayed_reasoning: self.replayed_reasoning.as_deref(),
        };
        request_body(request, with)
    }

    fn call(&self, request: &Request, wire: &ChatWire) -> HttpCall {
        let (body, size) = self.body(request);
        // The size is set once, because each call's body is written once.
        let _ = wire.0.size.set(size);
        HttpCall {
            max_tokens: self.options.max_tokens(),
            ..HttpCall::new(self.url.clone(), body, request, self.options.model())
        }
    }
}

impl Model for Chat {
    fn stream(&self, request: Request) -> ModelStream {
        let state = Arc::clone(&self.0);
        let wire = state.wire(&request);
        let called = Arc::clone(&wire);
        self.0.client.stream(wire, move || Ok(state.call(&request, &called)))
    }
}

impl Wire for ChatWire {
    type Decoder = ChatDecoder;

    fn provider(&self) -> &str {
        self.0.provider
    }

    fn api_name(&self) -> &str {
        "Chat Completions"
    }

    fn decoder(&self, _call: &HttpCall) -> ChatDecoder {
        ChatDecoder::with_context(Arc::clone(&self.0))
    }

    fn read_whole(&self, body: &[u8]) -> Result<Response, String> {
        let json = std::str::from_utf8(body).map_err(|error| error.to_string())?;
        let mut decoder = ChatDecoder::with_context(Arc::clone(&self.0));
        let read = decoder.push_object(json, &mut |_| {}).and_then(|()| decoder.finish());
        match read {
            Ok(Some(response)) => Ok(response),
            Ok(None) => Err("it has no choice with a `finish_reason`".to_owned()),
            Err(StreamError::Service(error)) => Err(format!("it is an error: {}", error.message)),
            Err(error) => Err(error.to_string()),
        }
    }

    fn read_error(&self, status: u16, _headers: &HeaderMap, body: &[u8]) -> Option<ServiceError> {
        read_error_body(status, body)
    }
}

impl fmt::Debug for Chat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Chat").field("origin", &self.0.origin).finish_non_exhaustive()
    }
}
