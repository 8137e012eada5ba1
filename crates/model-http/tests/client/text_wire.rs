//! A wire of a few lines: each event is a piece of text, `[DONE]` ends the response.

use std::sync::Arc;
use std::time::Duration;

use conjure_conversation::{
    ApiErrorKind, Block, Message, ModelError, ModelErrorKind, ModelEvent, Request, Response,
};
use conjure_model_http::{
    Decoder, HeaderMap, HttpCall, HttpClient, HttpConfig, KeyHeader, OutputShown, RetryAdvice, ServiceError,
    SseEvent, StreamError, Wire,
};
use futures_util::StreamExt as _;
use serde_json::Value;

pub(crate) const KEY: &str = "sk-canary-0123456789";

pub(crate) struct TextWire;

#[derive(Default)]
pub(crate) struct TextDecoder {
    text: String,
    is_complete: bool,
}

impl Decoder for TextDecoder {
    fn push(&mut self, event: SseEvent<'_>, show: &mut dyn FnMut(ModelEvent)) -> Result<(), StreamError> {
        assert!(!self.is_complete, "nothing is read after the end");
        if let Some(message) = event.data.strip_prefix("error ") {
            return Err(ServiceError::new(ApiErrorKind::Overloaded, message).into());
        }
        if event.data == "[DONE]" {
            self.is_complete = true;
            return Ok(());
        }
        if self.text.is_empty() {
            show(ModelEvent::Started);
        }
        self.text.push_str(event.data);
        show(ModelEvent::TextDelta { index: 0, text: event.data.to_owned() });
        Ok(())
    }

    fn shown(&self) -> OutputShown {
        if self.text.is_empty() { OutputShown::Nothing } else { OutputShown::Something }
    }

    fn is_complete(&self) -> bool {
        self.is_complete
    }

    fn finish(self) -> Result<Option<Response>, StreamError> {
        Ok(self.is_complete.then(|| Response::text(self.text)))
    }
}

impl Wire for TextWire {
    type Decoder = TextDecoder;

    fn provider(&self) -> &str {
        "text"
    }

    fn api_name(&self) -> &str {
        "the API of texts"
    }

    fn decoder(&self, _: &HttpCall) -> TextDecoder {
        TextDecoder::default()
    }

    fn read_whole(&self, body: &[u8]) -> Result<Response, String> {
        let body: Value = serde_json::from_slice(body).map_err(|error| error.to_string())?;
        body["text"].as_str().map(Response::text).ok_or_else(|| "it has no text".to_owned())
    }

    fn read_error(&self, _: u16, _: &HeaderMap, body: &[u8]) -> Option<ServiceError> {
        let body: Value = serde_json::from_slice(body).ok()?;
        let (kind, message) = (body["error"]["type"].as_str()?, body["error"]["message"].as_str()?);
        let error = ServiceError::new(ApiErrorKind::from(kind.to_owned()), message);
        Some(match kind {
            "quota_error" => error.with_retry(RetryAdvice::GiveUp),
            "slow_error" => error.with_retry_after(Some(Duration::from_millis(30))),
            _ => error,
        })
    }

    fn error_kind(&self, call: &HttpCall, error: &ServiceError) -> ModelErrorKind {
        match &call.container {
            Some(container) if error.message.contains(container) => ModelErrorKind::ContainerGone,
            _ => ModelErrorKind::Api(error.kind.clone()),
        }
    }
}

pub(crate) fn config(url: &str) -> HttpConfig {
    HttpConfig::new(url)
        .with_key(KEY.to_owned().into(), KeyHeader::Bearer)
        .with_key_name("TEXT_API_KEY")
        .with_retries(0)
        .with_seed(1)
}

pub(crate) fn request() -> Request {
    Request::new(vec![Arc::new(Message::user(vec![Block::text("Hi")]))])
}

pub(crate) fn call(client: &HttpClient) -> HttpCall {
    HttpCall::new(client.url(["texts"]), r#"{"ask":"Hi"}"#, &request(), "m")
}

/// The previews of a streamed call, and how it ended.
pub(crate) async fn drain(
    client: &HttpClient,
    call: HttpCall,
) -> (Vec<ModelEvent>, Result<Response, ModelError>) {
    let mut events = client.stream(Arc::new(TextWire), move || Ok(call));
    let mut previews = Vec::new();
    let mut result = None;
    while let Some(event) = events.next().await {
        assert!(result.is_none(), "nothing follows the end");
        match event {
            Ok(ModelEvent::Finished(answer)) => result = Some(Ok(*answer)),
            Ok(event) => previews.push(event),
            Err(error) => result = Some(Err(error)),
        }
    }
    assert!(events.next().await.is_none(), "a stream that ended stays ended");
    (previews, result.unwrap())
}

/// How a streamed call ends.
pub(crate) async fn result(config: &HttpConfig) -> Result<Response, ModelError> {
    let client = HttpClient::new(config).unwrap();
    let call = call(&client);
    let result = drain(&client, call).await.1;
    if let Err(error) = &result {
        assert!(!format!("{error} {error:?}").contains("canary"), "{error:?}");
    }
    result
}

pub(crate) fn text(response: &Response) -> String {
    Message::assistant(response.content.clone()).text()
}
