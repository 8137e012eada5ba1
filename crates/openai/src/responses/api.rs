//! [`Responses`]: the Responses API as a [`Model`](conjure_conversation::Model).

use std::borrow::Cow;

use conjure_conversation::{ModelApi, Origin, Request};
use conjure_model_http::{
    CallOptions, DecoderContext, HttpClient, RequestSize, ServiceApi, ServiceError, ServiceModel,
    StreamError, Url,
};

use super::decoder::ResponsesDecoder;
use super::request_body::request_body;
use crate::error_body::read_error_body;
use crate::provider::provider_name;
use crate::tool_names::wire_name;

/// One Responses API model, with its options. `/responses` is appended to the client's base URL, as with
/// [`DEFAULT_BASE_URL`](crate::DEFAULT_BASE_URL).
pub type Responses = ServiceModel<ResponsesApi>;

/// The Responses API.
#[derive(Debug, Clone, Copy)]
pub struct ResponsesApi;

impl ServiceApi for ResponsesApi {
    type Decoder = ResponsesDecoder;

    const API: ModelApi = ModelApi::Responses;
    const NAME: &'static str = "the Responses API";
    /// Among them are the members that make the service store the conversation.
    const RESERVED: &'static [&'static str] = &[
        "model",
        "input",
        "instructions",
        "tools",
        "stream",
        "store",
        "include",
        "max_output_tokens",
        "parallel_tool_calls",
        "previous_response_id",
        "conversation",
        "background",
    ];
    const NO_END: &'static str = "it has no status";

    fn provider(host: &str) -> &'static str {
        provider_name(host)
    }

    fn url(client: &HttpClient, _model: &str) -> Url {
        client.url(["responses"])
    }

    fn wire_name(name: &str) -> Cow<'_, str> {
        wire_name(name)
    }

    fn body(request: &Request, options: &CallOptions, origin: &Origin) -> (Vec<u8>, RequestSize) {
        request_body(request, options, origin)
    }

    fn decoder(context: DecoderContext) -> ResponsesDecoder {
        ResponsesDecoder::new(context)
    }

    fn push_whole(decoder: &mut ResponsesDecoder, json: &str) -> Result<(), StreamError> {
        decoder.end_with(json, &mut |_| {})
    }

    fn read_error(status: u16, body: &[u8]) -> Option<ServiceError> {
        read_error_body(status, body)
    }
}
