//! Passes a client's request on to the Messages API unchanged, except for the key of this client and the name of the model.
//!
//! Such a request passes no rate limiter and is not retried: its sender sees the service's response and decides.

use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use conjure_conversation::{ModelError, ModelErrorKind};
use conjure_model_http::{HeaderMap, HeaderValue, RawObject, quoted};
use futures_util::{Stream, stream};
use reqwest::Method;

use crate::messages::Client;

/// A request to the Messages API.
#[derive(Debug, Clone)]
pub struct PassthroughRequest {
    /// The segments of the path after `/v1`: `messages`, or `messages` and `count_tokens`.
    pub path: &'static [&'static str],
    /// The JSON body. Only its `model` is replaced.
    pub body: Bytes,
    /// The service's name of the model.
    pub model: String,
    /// The value of `anthropic-beta`.
    pub betas: Option<HeaderValue>,
}

/// The body of a response, as it arrives.
pub type PassthroughBody = Pin<Box<dyn Stream<Item = Result<Bytes, ModelError>> + Send>>;

/// The response of the service, which may be an error.
pub struct PassthroughResponse {
    /// The HTTP status.
    pub status: u16,
    /// The headers.
    pub headers: HeaderMap,
    /// The body.
    pub body: PassthroughBody,
}

impl Client {
    /// Passes a request on. Dropping the response closes its connection.
    ///
    /// # Errors
    /// If the body is not a JSON object, if the service cannot be reached, or if it does not begin to respond in time.
    pub async fn pass_on(&self, request: PassthroughRequest) -> Result<PassthroughResponse, ModelError> {
        let PassthroughRequest { path, body, model, betas } = request;
        let mut object: RawObject = serde_json::from_slice(&body).map_err(|error| {
            ModelError::new(ModelErrorKind::Protocol, format!("the body is not a JSON object: {error}"))
        })?;
        object.set("model", quoted(&model));
        let shared = Arc::clone(self.shared());
        let transport = shared.http.transport();
        let mut url = transport.url(std::iter::once("v1").chain(path.iter().copied()));
        let mut post = |betas: Option<HeaderValue>| {
            if betas.is_some() {
                // The official SDK sends this parameter too.
                url.query_pairs_mut().append_pair("beta", "true");
            }
            let request =
                transport.request(Method::POST, url.clone()).header("content-type", "application/json");
            match betas {
                Some(betas) => request.header("anthropic-beta", betas),
                None => request,
            }
        };
        // The head of an unstreamed response arrives only when the response is complete.
        let total = transport.timeouts().total;
        let deadline = transport.clock().deadline(total);
        let sent = transport.head(post(betas).body(object.to_json()), total, deadline).await;
        let response = sent.map_err(|failure| failure.error)?;
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let body = stream::unfold(Some((shared, response)), move |state| async move {
            let (shared, mut response) = state?;
            match shared.http.transport().chunk(&mut response, deadline).await {
                Ok(Some(chunk)) => Some((Ok(chunk), Some((shared, response)))),
                Ok(None) => None,
                Err(failure) => Some((Err(failure.error), None)),
            }
        });
        Ok(PassthroughResponse { status, headers, body: Box::pin(body) })
    }
}
