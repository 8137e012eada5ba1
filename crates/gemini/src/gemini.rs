//! [`Gemini`]: `streamGenerateContent` as a [`Model`](conjure_conversation::Model).

use std::borrow::Cow;

use conjure_conversation::{ModelApi, Origin, Request};
use conjure_model_http::{
    CallOptions, DecoderContext, HttpClient, KeyHeader, RequestSize, ServiceApi, ServiceError, ServiceModel,
    StreamError, Url,
};

use crate::request_body::request_body;
use crate::response::decoder::GeminiDecoder;
use crate::response::error_body::read_error;
use crate::tool_names::wire_name;

/// The default address of the service. It includes the version of the API, because older gateways only know `v1beta`.
pub const DEFAULT_BASE_URL: &str = "https://generativelanguage.googleapis.com/v1";

/// The header that carries the key.
pub const KEY_HEADER: KeyHeader = KeyHeader::Named("x-goog-api-key");

/// One model, with its options, under one key. The members of a `generationConfig` among the options are merged with those of the client.
///
/// ```no_run
/// use conjure_gemini::{DEFAULT_BASE_URL, Gemini, KEY_HEADER};
/// use conjure_model_http::{HttpClient, HttpConfig};
/// # let key = "not a real key".replace(' ', "-");
///
/// let config = HttpConfig::new(DEFAULT_BASE_URL).with_key(key.into(), KEY_HEADER);
/// let model = Gemini::new(HttpClient::new(&config)?, Gemini::options("gemini-3-pro"));
/// println!("{}", model.origin()); // gemini-3-pro at generativelanguage.googleapis.com
/// # Ok::<(), conjure_model_http::HttpConfigError>(())
/// ```
pub type Gemini = ServiceModel<GeminiApi>;

/// The Gemini API.
#[derive(Debug, Clone, Copy)]
pub struct GeminiApi;

impl ServiceApi for GeminiApi {
    type Decoder = GeminiDecoder;

    const API: ModelApi = ModelApi::Gemini;
    const NAME: &'static str = "the Gemini API";
    /// Among them are members whose results the client cannot read.
    const RESERVED: &'static [&'static str] = &[
        "contents",
        "continuationToken",
        "model",
        "systemInstruction",
        "system_instruction",
        "tools",
        "generation_config",
        "generationConfig.maxOutputTokens",
        "generationConfig.max_output_tokens",
        "generationConfig.candidateCount",
        "generationConfig.candidate_count",
    ];
    const NO_END: &'static str = "it has no `finishReason`";

    fn provider(host: &str) -> &'static str {
        if host.ends_with("aiplatform.googleapis.com") { "gcp.vertex_ai" } else { "gcp.gemini" }
    }

    fn url(client: &HttpClient, model: &str) -> Url {
        let method = format!("{model}:streamGenerateContent");
        let mut url = match model.contains('/') {
            // The name is a complete path: `models/NAME`, `tunedModels/NAME`.
            true => client.url(method.split('/')),
            false => client.url(["models", method.as_str()]),
        };
        // Without this parameter, the answer is one list and not a stream of events.
        url.query_pairs_mut().append_pair("alt", "sse");
        url
    }

    fn wire_name(name: &str) -> Cow<'_, str> {
        wire_name(name)
    }

    fn body(request: &Request, options: &CallOptions, origin: &Origin) -> (Vec<u8>, RequestSize) {
        request_body(request, options, origin)
    }

    fn decoder(context: DecoderContext) -> GeminiDecoder {
        GeminiDecoder::new(context)
    }

    fn push_whole(decoder: &mut GeminiDecoder, json: &str) -> Result<(), StreamError> {
        decoder.push_json(json, &mut |_| {})
    }

    fn read_error(status: u16, body: &[u8]) -> Option<ServiceError> {
        read_error(Some(status), std::str::from_utf8(body).ok()?)
    }
}
