//! [`Chat`]: Chat Completions as a [`Model`](conjure_conversation::Model).

use std::borrow::Cow;

use conjure_conversation::{ModelApi, Origin, Request};
use conjure_model_http::{
    CallOptions, DecoderContext, HttpClient, RequestSize, ServiceApi, ServiceError, ServiceModel,
    StreamError, Url,
};

use super::decoder::ChatDecoder;
use super::request_body::request_body;
use crate::error_body::read_error_body;
use crate::provider::provider_name;
use crate::tool_names::wire_name;

/// One Chat Completions model, with its options. `/chat/completions` is appended to the client's base URL, as with
/// [`DEFAULT_BASE_URL`](crate::DEFAULT_BASE_URL).
///
/// For OpenAI's own reasoning models, use [`Responses`](crate::Responses). With Chat Completions they call tools only without reasoning
/// (`reasoning_effort` is `none`), and their reasoning is lost between calls.
pub type Chat = ServiceModel<ChatApi>;

/// Chat Completions.
#[derive(Debug, Clone, Copy)]
pub struct ChatApi;

impl ServiceApi for ChatApi {
    type Decoder = ChatDecoder;

    const API: ModelApi = ModelApi::Chat;
    const NAME: &'static str = "Chat Completions";
    const RESERVED: &'static [&'static str] = &[
        "model",
        "messages",
        "tools",
        "stream",
        "stream_options",
        "max_tokens",
        "max_completion_tokens",
        "parallel_tool_calls",
        "n",
    ];
    const NO_END: &'static str = "it has no choice with a `finish_reason`";

    fn provider(host: &str) -> &'static str {
        provider_name(host)
    }

    fn url(client: &HttpClient, _model: &str) -> Url {
        client.url(["chat", "completions"])
    }

    fn wire_name(name: &str) -> Cow<'_, str> {
        wire_name(name)
    }

    fn body(request: &Request, options: &CallOptions, origin: &Origin) -> (Vec<u8>, RequestSize) {
        request_body(request, options, origin)
    }

    fn decoder(context: DecoderContext) -> ChatDecoder {
        ChatDecoder::new(context)
    }

    fn push_whole(decoder: &mut ChatDecoder, json: &str) -> Result<(), StreamError> {
        decoder.push_object(json, &mut |_| {})
    }

    fn read_error(status: u16, body: &[u8]) -> Option<ServiceError> {
        read_error_body(status, body)
    }
}
