//! [`HttpCall`]: the content of one model call, and what the client must know about it.

use std::fmt;

use bytes::Bytes;
use conjure_base::TurnId;
use conjure_conversation::{Request, SideEffects};
use reqwest::Url;
use reqwest::header::HeaderMap;

use crate::stream::token_estimate::RequestSize;
use crate::stream::tool_names::ToolNames;

/// One model call, ready to be sent with `POST`.
#[derive(Clone)]
pub struct HttpCall {
    /// The URL: see [`HttpClient::url`](crate::HttpClient::url).
    pub url: Url,
    /// The headers of this call. The client adds its configured headers and the content type of JSON.
    pub headers: HeaderMap,
    /// The JSON body.
    pub body: Bytes,
    /// The model, as the request names it.
    pub model: String,
    /// The maximum number of output tokens, if the request sets one.
    pub max_tokens: Option<u32>,
    /// The possible side effects. A call that may have some is retried only if the service has not started it.
    pub effects: SideEffects,
    /// The turn that the call belongs to.
    pub turn: TurnId,
    /// The number of the call in the turn.
    pub call: u32,
    /// The container that the request names, if any.
    pub container: Option<String>,
    /// The tool names that the body has in another form.
    pub tool_names: ToolNames,
    /// The size of the body, from which its tokens are estimated.
    pub size: RequestSize,
}

impl HttpCall {
    /// Creates the call of this request. It has the side effects of the request.
    #[must_use]
    pub fn new(url: Url, body: impl Into<Bytes>, request: &Request, model: impl Into<String>) -> Self {
        Self {
            url,
            headers: HeaderMap::new(),
            body: body.into(),
            model: model.into(),
            max_tokens: None,
            effects: request.side_effects(),
            turn: request.turn,
            call: request.call,
            container: None,
            tool_names: ToolNames::default(),
            size: RequestSize::default(),
        }
    }
}

/// `Debug` shows neither the body nor the values of headers.
impl fmt::Debug for HttpCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpCall")
            .field("host", &self.url.host_str())
            .field("path", &self.url.path())
            .field("body_bytes", &self.body.len())
            .field("model", &self.model)
            .field("turn", &self.turn)
            .field("call", &self.call)
            .finish_non_exhaustive()
    }
}
