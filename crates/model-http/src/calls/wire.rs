//! [`Wire`]: the parts of a client that are specific to one API.

use conjure_conversation::{ModelErrorKind, Response};
use reqwest::header::HeaderMap;

use crate::calls::http_call::HttpCall;
use crate::calls::service_error::ServiceError;
use crate::stream::decoder::Decoder;

/// The parts that are specific to one API. The client does everything else: limits, retries, timeouts, TLS, redaction.
pub trait Wire: Send + Sync + 'static {
    /// Reads a streamed response.
    type Decoder: Decoder;

    /// The name for telemetry (`gen_ai.provider.name`): `anthropic`, `openai`, `gcp.gemini`.
    fn provider(&self) -> &str;

    /// The name of the API in error messages, with its article: `the Messages API`.
    fn api_name(&self) -> &str {
        "this API"
    }

    /// Creates a decoder for a new stream.
    fn decoder(&self, call: &HttpCall) -> Self::Decoder;

    /// Reads the body of an unstreamed response to this call. The client sets its request id and its cost.
    ///
    /// # Errors
    /// Why it is not a response of this API, as a fragment that fits in brackets.
    fn read_whole(&self, call: &HttpCall, body: &[u8]) -> Result<Response, String>;

    /// Reads the body of an error; `None` if the body is not an error of this API. The client also calls it for a successful status whose
    /// body is no response, because some servers report errors with status 200.
    fn read_error(&self, status: u16, headers: &HeaderMap, body: &[u8]) -> Option<ServiceError>;

    /// The headers with the id of a request, best first.
    fn request_id_headers(&self) -> &[&'static str] {
        &["x-request-id", "request-id"]
    }

    /// The class of an error that the service reported. A wire overrides it if some errors have a class of their own, such as a missing
    /// container. No error except [`ModelErrorKind::Api`] is retried.
    fn error_kind(&self, call: &HttpCall, error: &ServiceError) -> ModelErrorKind {
        let _ = call;
        ModelErrorKind::Api(error.kind.clone())
    }
}
