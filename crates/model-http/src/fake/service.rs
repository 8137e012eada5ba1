//! [`FakeService`]: the part of a fake that is specific to one service. [`FakeState`] uses it to handle each HTTP request.

use std::fmt;
use std::io;
use std::sync::Arc;

use bytes::Bytes;
use conjure_base::{Clock, Timestamp};
use http_body_util::{BodyExt as _, Limited};
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use hyper::http::request::Parts;
use hyper::{Request, Response, StatusCode};
use tokio_util::sync::CancellationToken;

use super::paced_body::{Body, paced};
use super::reply::{Ending, FakeReply, ReplyBody, WireAnswer, WireError};
use super::reply_router::ReplyRouter;
use super::request_log::RequestLog;

/// A reply of this service.
pub type ReplyOf<S> = FakeReply<<S as FakeService>::Answer, <S as FakeService>::Error>;

/// The part of a fake that is specific to one service.
pub trait FakeService: fmt::Debug + Send + Sync + Sized + 'static {
    /// The answer type of the service.
    type Answer: WireAnswer;
    /// The error type of the service.
    type Error: WireError;
    /// The facts about a request that its response needs.
    type Exchange: Default + Send + Sync;

    /// The media type of a JSON body.
    const JSON: &'static str;
    /// The media type of a stream.
    const EVENTS: &'static str;
    /// The header with the id of the request, if there is one.
    const REQUEST_ID: Option<&'static str>;

    /// The largest body of a request to this path, in bytes.
    fn max_body(&self, path: &str) -> usize;

    /// Checks a request and chooses its reply. The checks are in the order of the service.
    fn reply(
        &self,
        request: &ReceivedRequest,
        state: &FakeState<Self>,
        exchange: &mut Self::Exchange,
    ) -> impl Future<Output = Result<ReplyOf<Self>, Self::Error>> + Send;

    /// Whether the answer is streamed as events.
    fn is_streamed(exchange: &Self::Exchange) -> bool;

    /// The events of a streamed answer, each one chunk of the body.
    fn events(
        &self,
        answer: &Self::Answer,
        ending: &Ending<Self::Error>,
        context: AnswerContext<'_, Self>,
    ) -> Vec<Bytes>;

    /// The body of an answer that is not streamed.
    fn body(&self, answer: &Self::Answer, context: AnswerContext<'_, Self>) -> String;

    /// The service's own headers of a response.
    fn headers(&self, _exchange: &Self::Exchange) -> Vec<(&'static str, String)> {
        Vec::new()
    }
}

/// A received request.
#[derive(Debug)]
pub struct ReceivedRequest {
    /// The number among all received requests, from 1.
    pub number: u64,
    /// The method, the path and the headers.
    pub head: Parts,
    /// The body; `None` if it is too large.
    pub body: Option<Bytes>,
}

impl ReceivedRequest {
    /// The first value of a header, if it is a text.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.head.headers.get(name).and_then(|value| value.to_str().ok())
    }
}

/// The facts that a response needs beside its answer.
#[derive(Debug)]
pub struct AnswerContext<'a, S: FakeService> {
    /// The number of the request.
    pub number: u64,
    /// The id of the request.
    pub request_id: &'a str,
    /// The time of the response.
    pub now: Timestamp,
    /// The facts about the request.
    pub exchange: &'a S::Exchange,
}

/// The state that all connections share.
#[derive(Debug)]
pub struct FakeState<S: FakeService> {
    /// The part that is specific to the service.
    pub service: S,
    /// Chooses the replies.
    pub router: ReplyRouter<S::Answer, S::Error>,
    /// The clock for times.
    pub clock: Arc<dyn Clock>,
    pub(super) keys: Vec<String>,
    pub(super) models: Vec<String>,
    pub(super) log: RequestLog,
    pub(super) stop: CancellationToken,
}

fn aborted() -> io::Error {
    io::Error::from(io::ErrorKind::ConnectionAborted)
}

impl<S: FakeService> FakeState<S> {
    /// Whether this key is accepted. If no keys are configured, every key is.
    #[must_use]
    pub fn accepts_key(&self, key: &str) -> bool {
        self.keys.is_empty() || self.keys.iter().any(|known| known == key)
    }

    /// The known models. If empty, every model is known.
    #[must_use]
    pub fn models(&self) -> &[String] {
        &self.models
    }

    /// Handles one request. An error closes the connection without a response.
    pub(super) async fn answer(self: Arc<Self>, request: Request<Incoming>) -> io::Result<Response<Body>> {
        let (head, body) = request.into_parts();
        let body = match Limited::new(body, self.service.max_body(head.uri.path())).collect().await {
            Ok(body) => Some(body.to_bytes()),
            Err(error) if error.is::<http_body_util::LengthLimitError>() => None,
            Err(error) => return Err(io::Error::other(error)),
        };
        let number = self.log.add(&head, body.clone().unwrap_or_default(), self.clock.timestamp());
        let received = ReceivedRequest { number, head, body };
        let mut exchange = S::Exchange::default();
        let reply = self.service.reply(&received, &self, &mut exchange).await;
        let reply = reply.unwrap_or_else(|error| FakeReply::new(ReplyBody::Error(error)));
        self.respond(&reply, &exchange, number).await
    }

    async fn respond(
        &self,
        reply: &ReplyOf<S>,
        exchange: &S::Exchange,
        number: u64,
    ) -> io::Result<Response<Body>> {
        let request_id = reply.request_id.clone().unwrap_or_else(|| format!("req_fake_{number:06}"));
        let context =
            AnswerContext { number, request_id: &request_id, now: self.clock.timestamp(), exchange };
        let once = |bytes: String| vec![Bytes::from(bytes)];
        let mut pacing = reply.pacing;
        let (status, content_type, chunks) = match &reply.body {
            ReplyBody::HangUp => return Err(aborted()),
            ReplyBody::Silence => {
                self.stop.cancelled().await;
                return Err(aborted());
            }
            ReplyBody::Answer { answer, ending } if S::is_streamed(exchange) => {
                let events = self.service.events(answer, ending, context);
                if matches!(ending, Ending::Cut { .. }) {
                    pacing.cut = Some(events.iter().map(Bytes::len).sum());
                }
                (200, Some(S::EVENTS), events)
            }
            ReplyBody::Answer { answer, ending: Ending::Whole } => {
                (200, Some(S::JSON), once(self.service.body(answer, context)))
            }
            ReplyBody::Answer { ending: Ending::Cut { .. }, .. } => return Err(aborted()),
            ReplyBody::Answer { ending: Ending::Broken { error, .. }, .. } | ReplyBody::Error(error) => {
                (error.http_status(), Some(S::JSON), once(error.json(&request_id)))
            }
            ReplyBody::Raw { status, content_type, body } => {
                (*status, content_type.as_deref(), vec![body.clone()])
            }
        };
        let body = paced(chunks, pacing);
        self.log.set_status(number, status);
        let mut response = Response::new(body);
        *response.status_mut() = StatusCode::from_u16(status).map_err(io::Error::other)?;
        let headers = response.headers_mut();
        if let Some(content_type) = content_type {
            headers.insert(CONTENT_TYPE, HeaderValue::try_from(content_type).map_err(io::Error::other)?);
        }
        if let Some(name) = S::REQUEST_ID {
            headers.insert(name, HeaderValue::try_from(&request_id).map_err(io::Error::other)?);
        }
        for (name, value) in self.service.headers(exchange) {
            headers.insert(name, HeaderValue::try_from(value).map_err(io::Error::other)?);
        }
        for (name, value) in &reply.headers {
            let name = HeaderName::try_from(name).map_err(io::Error::other)?;
            headers.append(name, HeaderValue::try_from(value).map_err(io::Error::other)?);
        }
        Ok(response)
    }
}
