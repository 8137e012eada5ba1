//! [`MessagesWire`]: the Messages API as the client of all model services sees it.

use conjure_conversation::{ModelErrorKind, Response};
use conjure_model_http::{HeaderMap, HttpCall, ServiceError, Wire};
use serde::Deserialize;

use crate::response::container_gone::ServiceErrorText;
use crate::response::error_body;
use crate::response::message_accumulator::MessageAccumulator;
use crate::response::wire_message::WireMessage;

/// The headers with the id of a request. Other servers that speak this API use the second.
pub(crate) const REQUEST_ID_HEADERS: &[&str] = &["request-id", "x-request-id"];

/// The Messages API.
#[derive(Debug)]
pub(crate) struct MessagesWire;

impl Wire for MessagesWire {
    type Decoder = MessageAccumulator;

    fn provider(&self) -> &str {
        "anthropic"
    }

    fn api_name(&self) -> &str {
        "the Messages API"
    }

    fn decoder(&self, _: &HttpCall) -> MessageAccumulator {
        MessageAccumulator::new()
    }

    fn read_whole(&self, _: &HttpCall, body: &[u8]) -> Result<Response, String> {
        #[derive(Deserialize)]
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
        message.with_content(content)
    }

    fn read_error(&self, status: u16, _: &HeaderMap, body: &[u8]) -> Option<ServiceError> {
        error_body::from_response(status, body)
    }

    fn request_id_headers(&self) -> &[&'static str] {
        REQUEST_ID_HEADERS
    }

    fn error_kind(&self, call: &HttpCall, error: &ServiceError) -> ModelErrorKind {
        let text =
            ServiceErrorText { kind: &error.kind, code: error.code.as_deref(), message: &error.message };
        match &call.container {
            Some(container) if text.is_container_gone(container) => ModelErrorKind::ContainerGone,
            _ => ModelErrorKind::Api(error.kind.clone()),
        }
    }
}
