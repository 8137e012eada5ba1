//! Answers the HTTP requests of the fake.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use conjure_base::{Clock, lock};
use conjure_conversation::ApiErrorKind;
use conjure_model_http::{HeaderMap, HeaderName, HeaderValue};
use http_body_util::{BodyExt as _, Limited};
use hyper::body::Incoming;
use hyper::{Request, Response, StatusCode};
use serde_json::json;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::body::{Body, BodyEnd, chunked, whole};
use super::chat_writer::{self, AnswerNames};
use super::error::FakeError;
use super::reply::{Ending, FakeAnswer, Reply, ReplyBody};
use super::reply_router::ReplyRouter;
use super::validated::ValidatedRequest;
use super::{chat_history, responses_history, responses_writer};

/// The largest body that is read, in bytes.
const MAX_BODY: usize = 64 << 20;
const JSON: &str = "application/json";
const EVENTS: &str = "text/event-stream; charset=utf-8";

/// A received request.
#[derive(Debug, Clone)]
pub struct RecordedRequest {
    path: String,
    headers: HeaderMap,
    body: Bytes,
    status: Option<u16>,
}

impl RecordedRequest {
    /// The path, with its query.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The first value of a header, if it is a text.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// The exact bytes of the body.
    #[must_use]
    pub fn body(&self) -> &[u8] {
        &self.body
    }

    /// The status of its response; `None` before the response, or if there is none.
    #[must_use]
    pub const fn status(&self) -> Option<u16> {
        self.status
    }
}

/// The state that all connections share.
#[derive(Debug)]
pub(super) struct FakeState {
    pub(super) keys: Vec<String>,
    pub(super) models: Vec<String>,
    pub(super) router: ReplyRouter,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) log: Mutex<VecDeque<(u64, RecordedRequest)>>,
    pub(super) log_capacity: usize,
    pub(super) received: watch::Sender<u64>,
    pub(super) stop: CancellationToken,
}

/// Which API a request is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Api {
    Chat,
    Responses,
}

impl FakeState {
    pub(super) async fn answer(self: Arc<Self>, request: Request<Incoming>) -> io::Result<Response<Body>> {
        let (head, body) = request.into_parts();
        let body = match Limited::new(body, MAX_BODY).collect().await {
            Ok(body) => body.to_bytes(),
            Err(_) => return Err(io::Error::from(io::ErrorKind::ConnectionAborted)),
        };
        let path = head.uri.path_and_query().map_or_else(|| head.uri.path().to_owned(), ToString::to_string);
        let number = self.record(RecordedRequest {
            path,
            headers: head.headers.clone(),
            body: body.clone(),
            status: None,
        });
        let answered = self.route(head.method.as_str(), head.uri.path(), &head.headers, &body, number).await;
        let response = match answered {
            Ok(response) => response?,
            Err(error) => {
                let body = whole(error.body().to_string());
                self.respond(number, error.status(), JSON, body, &[])?
            }
        };
        Ok(response)
    }

    /// Records a request. Returns its number, from 1.
    fn record(&self, request: RecordedRequest) -> u64 {
        let mut number = 0;
        self.received.send_modify(|received| {
            *received += 1;
            number = *received;
        });
        let mut log = lock(&self.log);
        log.push_back((number, request));
        while log.len() > self.log_capacity {
            log.pop_front();
        }
        number
    }

    async fn route(
        &self,
        method: &str,
        path: &str,
        headers: &HeaderMap,
        body: &[u8],
        number: u64,
    ) -> Result<io::Result<Response<Body>>, FakeError> {
        self.check_key(headers)?;
        let api = match (method, path) {
            ("POST", "/v1/chat/completions") => Api::Chat,
            ("POST", "/v1/responses") => Api::Responses,
            ("GET", "/v1/models") => {
                let model =
                    |id: &String| json!({"id": id, "object": "model", "created": 0, "owned_by": "fake"});
                let models: Vec<serde_json::Value> = self.models.iter().map(model).collect();
                let body = json!({"object": "list", "data": models}).to_string();
                return Ok(self.respond(number, 200, JSON, whole(body), &[]));
            }
            _ => {
                return Err(FakeError::new(
                    &ApiErrorKind::InvalidRequest,
                    format!("Invalid URL ({method} {path})"),
                )
                .with_status(404));
            }
        };
        let content_type = headers.get("content-type").and_then(|value| value.to_str().ok());
        if !content_type.unwrap_or_default().starts_with(JSON) {
            return Err(
                FakeError::invalid("Unsupported content type: send 'application/json'.").with_status(415)
            );
        }
        let request = match api {
            Api::Chat => chat_history::validate(body, &self.models)?,
            Api::Responses => responses_history::validate(body, &self.models)?,
        };
        let reply = self.router.reply(&request, &self.clock).await;
        if !reply.delay.is_zero() {
            self.clock.sleep_until(self.clock.deadline(reply.delay)).await;
        }
        self.write(api, &request, &reply, number).await
    }

    fn check_key(&self, headers: &HeaderMap) -> Result<(), FakeError> {
        let refused = |message: &str| Err(FakeError::new(&ApiErrorKind::Authentication, message));
        let value = headers.get("authorization").and_then(|value| value.to_str().ok());
        let key = value.and_then(|value| value.strip_prefix("Bearer ")).unwrap_or_default();
        match key {
            _ if self.keys.is_empty() => Ok(()),
            "" => refused("You didn't provide an API key. Send it as a bearer token."),
            key if self.keys.iter().any(|known| known == key) => Ok(()),
            _ => refused("Incorrect API key provided."),
        }
    }

    async fn write(
        &self,
        api: Api,
        request: &ValidatedRequest,
        reply: &Reply,
        number: u64,
    ) -> Result<io::Result<Response<Body>>, FakeError> {
        let hung_up = || Ok(Err(io::Error::from(io::ErrorKind::ConnectionAborted)));
        let names =
            AnswerNames { number, model: &request.model, created: self.clock.timestamp().millis() / 1000 };
        let (status, content_type, body) = match &reply.body {
            ReplyBody::HangUp => return hung_up(),
            ReplyBody::Silence => {
                self.stop.cancelled().await;
                return hung_up();
            }
            ReplyBody::Error(error) => (error.status(), JSON, whole(error.body().to_string())),
            ReplyBody::Raw { status, content_type, body } => {
                (*status, content_type.as_str(), chunked(vec![body.clone()], reply.piece, BodyEnd::Complete))
            }
            ReplyBody::Answer(answer) if request.is_streamed => {
                let end = if matches!(answer.ending, Ending::Cut { .. }) {
                    BodyEnd::Cut
                } else {
                    BodyEnd::Complete
                };
                let events = events(api, answer, names, request.includes_usage);
                (200, EVENTS, chunked(events, reply.piece, end))
            }
            ReplyBody::Answer(answer) if matches!(answer.ending, Ending::Cut { .. }) => return hung_up(),
            ReplyBody::Answer(answer) => {
                let body = match api {
                    Api::Chat => chat_writer::body(answer, names)?,
                    Api::Responses => responses_writer::body(answer, names)?,
                };
                (200, JSON, whole(body.to_string()))
            }
        };
        Ok(self.respond(number, status, content_type, body, &reply.headers))
    }

    fn respond(
        &self,
        number: u64,
        status: u16,
        content_type: &str,
        body: Body,
        more: &[(String, String)],
    ) -> io::Result<Response<Body>> {
        if let Some((_, request)) = lock(&self.log).iter_mut().find(|(other, _)| *other == number) {
            request.status = Some(status);
        }
        let mut response = Response::new(body);
        *response.status_mut() = StatusCode::from_u16(status).map_err(io::Error::other)?;
        let headers = response.headers_mut();
        let mut set = |name: &str, value: &str| -> io::Result<()> {
            let name = HeaderName::try_from(name).map_err(io::Error::other)?;
            headers.append(name, HeaderValue::try_from(value).map_err(io::Error::other)?);
            Ok(())
        };
        set("content-type", content_type)?;
        set("x-request-id", &format!("req_fake_{number:06}"))?;
        for (name, value) in more {
            set(name, value)?;
        }
        Ok(response)
    }
}

/// The events of a streamed answer, each a chunk of the body.
fn events(api: Api, answer: &FakeAnswer, names: AnswerNames<'_>, includes_usage: bool) -> Vec<Bytes> {
    match api {
        Api::Chat => {
            let chunks = chat_writer::chunks(answer, names, includes_usage);
            chunks.into_iter().map(|data| Bytes::from(format!("data: {data}\n\n"))).collect()
        }
        Api::Responses => {
            let events = responses_writer::events(answer, names);
            let event = |(name, data)| Bytes::from(format!("event: {name}\ndata: {data}\n\n"));
            events.into_iter().map(event).collect()
        }
    }
}
