//! [`Wire`]: what is special to one API of model services.

use conjure_conversation::{ModelErrorKind, Response};
use reqwest::header::HeaderMap;

use crate::calls::http_call::HttpCall;
use crate::calls::service_error::ServiceError;
use crate::stream::decoder::Decoder;

/// What is special to one API. Everything else (limits, retries, timeouts, TLS, redaction) is the client's.
pub trait Wire: Send + Sync + 'static {
    /// A complete response, with the parts that a conversation does not keep.
    type Answer: Send + 'static;
    /// Reads a streamed response.
    type Decoder: Decoder<Answer = Self::Answer>;

    /// The name for telemetry (`gen_ai.provider.name`): `anthropic`, `openai`, `gcp.gemini`.
    fn provider(&self) -> &str;

    /// The name of the API in error messages, with its article: `the Messages API`.
    fn api_name(&self) -> &str {
        "this API"
    }

    /// A decoder for a new stream.
    fn decoder(&self, call: &HttpCall) -> Self::Decoder;

    /// Reads the body of a response without streaming.
    ///
    /// # Errors
    /// Why it is not a response of this API, as a fragment that fits in brackets.
    fn read_whole(&self, body: &[u8]) -> Result<Self::Answer, String>;

    /// Reads the body of an error. It is also asked about a successful status whose body is no response, since some servers report errors
    /// with status 200. `None`: the body is not an error of this API.
    fn read_error(&self, status: u16, headers: &HeaderMap, body: &[u8]) -> Option<ServiceError>;

    /// The part of a response that the conversation keeps. The client sets its request id and its cost.
    fn response_mut(answer: &mut Self::Answer) -> &mut Response;

    /// The headers with the id of a request, best first.
    fn request_id_headers(&self) -> &[&'static str] {
        &["x-request-id", "request-id"]
    }

    /// The class of an error that the service reported. A wire overrides it if some errors are more than that, such as a missing container.
    /// Any class but [`ModelErrorKind::Api`] is final.
    fn error_kind(&self, call: &HttpCall, error: &ServiceError) -> ModelErrorKind {
        let _ = call;
        ModelErrorKind::Api(error.kind.clone())
    }
}
