//! Handles one request: records, validates and answers it.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use conjure_base::{Clock, Timestamp};
use conjure_conversation::ApiErrorKind;
use http_body_util::{BodyExt as _, Limited};
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use hyper::{HeaderMap, Method, Request, Response, StatusCode};
use serde_json::Value;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::auth::Auth;
use super::hosted::{HostedRequest, Hosting, Origin, Store, is_hosted};
use super::paced_body::{Body, BodyChunks, paced, whole};
use super::rate_limit::{RateDecision, RateLimit, RateWindows};
use super::refusal::Refusal;
use super::reply::{Reply, ReplyBody};
use super::reply_router::{ReplyRouter, rate_limited};
use super::request_log::{RecordedRequest, RequestLog};
use super::response_writer::{Ending, FakeResponse, ProducedFile, ResponseIds};
use super::validate::{ValidatedRequest, validate};
use crate::config::ApiProfile;

/// The largest body, in bytes, as at the service.
const MAX_BODY: usize = 32 << 20;
/// The largest upload, in bytes.
const MAX_UPLOAD: usize = 512 << 20;

const EVENTS: &str = "text/event-stream; charset=utf-8";
const JSON: &str = "application/json";

/// The state that all connections share.
#[derive(Debug)]
pub(super) struct FakeState {
    pub(super) auth: Auth,
    pub(super) models: Vec<String>,
    pub(super) rate: Option<RateLimit>,
    pub(super) router: ReplyRouter,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) log: Mutex<RequestLog>,
    pub(super) windows: Mutex<RateWindows>,
    pub(super) hosting: Option<Hosting>,
    pub(super) store: Mutex<Store>,
    pub(super) hosted_faults: Mutex<VecDeque<Reply>>,
    pub(super) hosted_outage: Mutex<Option<Reply>>,
    pub(super) received: watch::Sender<u64>,
    pub(super) stop: CancellationToken,
}

/// What a response needs to know about its request.
struct ResponseContext {
    number: u64,
    model: String,
    is_streamed: bool,
    limits: Vec<(&'static str, String)>,
}

impl FakeState {
    /// Answers one request. An error closes the connection without an answer.
    pub(super) async fn answer(self: Arc<Self>, request: Request<Incoming>) -> io::Result<Response<Body>> {
        let (head, body) = request.into_parts();
        let largest = if is_hosted(head.uri.path()) { MAX_UPLOAD } else { MAX_BODY };
        let read = Limited::new(body, largest).collect().await;
        let body = match read {
            Ok(body) => Some(body.to_bytes()),
            Err(error) if error.is::<http_body_util::LengthLimitError>() => None,
            Err(error) => return Err(io::Error::other(error)),
        };
        let number = self.record_request(&head, body.clone().unwrap_or_default());
        let mut exchange =
            ResponseContext { number, model: String::new(), is_streamed: false, limits: Vec::new() };
        let reply = match self.reply(&head, body, &mut exchange).await {
            Ok(reply) => reply,
            Err(refusal) => Reply::error(refusal),
        };
        let delay = self.clock.deadline(reply.timing.delay);
        if !reply.timing.delay.is_zero()
            && self.stop.run_until_cancelled(self.clock.sleep_until(delay)).await.is_none()
        {
            return Err(io::Error::from(io::ErrorKind::ConnectionAborted));
        }
        self.respond(reply, exchange).await
    }

    fn record_request(&self, head: &hyper::http::request::Parts, body: Bytes) -> u64 {
        let headers =
            head.headers.iter().map(|(name, value)| (name.as_str().to_owned(), value.as_bytes().to_vec()));
        let captured = RecordedRequest {
            number: 0,
            at: self.clock.timestamp(),
            method: head.method.to_string(),
            path: head.uri.to_string(),
            headers: headers.collect(),
            body,
            status: None,
        };
        let number = self.log.lock().unwrap_or_else(PoisonError::into_inner).add(captured);
        self.received.send_modify(|received| *received = number.max(*received));
        number
    }

    /// Chooses the reply, with checks in the order of the service.
    async fn reply(
        &self,
        head: &hyper::http::request::Parts,
        body: Option<Bytes>,
        exchange: &mut ResponseContext,
    ) -> Result<Reply, Refusal> {
        let is_hosted = is_hosted(head.uri.path());
        if head.uri.path() != "/v1/messages" && !is_hosted {
            return Err(Refusal::new(ApiErrorKind::NotFound, "Not found"));
        }
        if head.method != Method::POST && !is_hosted {
            return Err(Refusal::invalid("Method Not Allowed").with_status(405));
        }
        let (key, profile) = self.auth.check(&head.headers)?;
        let body = body.ok_or_else(Refusal::too_large)?;
        if let Some(limit) = self.rate {
            let now = self.clock.timestamp();
            let standing =
                self.windows.lock().unwrap_or_else(PoisonError::into_inner).admit(limit, &key, now);
            exchange.limits.push(("anthropic-ratelimit-requests-limit", limit.requests.to_string()));
            let remaining = match standing {
                RateDecision::Admitted { remaining } => remaining,
                RateDecision::Refused { .. } => 0,
            };
            exchange.limits.push(("anthropic-ratelimit-requests-remaining", remaining.to_string()));
            if let RateDecision::Refused { wait } = standing {
                let reset = now.millis().saturating_add(u64::try_from(wait.as_millis()).unwrap_or(u64::MAX));
                let reset = Timestamp::from_millis(reset).to_string();
                exchange.limits.push(("anthropic-ratelimit-requests-reset", reset));
                return Ok(rate_limited(wait));
            }
        }
        let betas = betas(&head.headers);
        if is_hosted {
            return self.hosted_reply(head, &body, profile, &betas);
        }
        check_content_type(&head.headers)?;
        let checked = validate(&body, &self.models, &betas)?;
        let now = self.clock.timestamp();
        let container = match self.hosting {
            Some(hosting) => checked.container_request.enter(hosting, &self.store, profile, &betas, now)?,
            None => None,
        };
        let mut reply = self.router.reply(&checked, &self.clock).await;
        if let ReplyBody::Answer(answer) = &mut reply.body {
            self.materialize_files(answer, container, exchange.number, now);
        }
        let ValidatedRequest { model, is_streamed, .. } = checked;
        exchange.model = model;
        exchange.is_streamed = is_streamed;
        Ok(reply)
    }

    pub(super) fn store(&self) -> MutexGuard<'_, Store> {
        self.store.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The answer to a request for skills or files.
    fn hosted_reply(
        &self,
        head: &hyper::http::request::Parts,
        body: &Bytes,
        profile: ApiProfile,
        betas: &[String],
    ) -> Result<Reply, Refusal> {
        if let Some(fault) = self.hosted_faults.lock().unwrap_or_else(PoisonError::into_inner).pop_front() {
            return Ok(fault);
        }
        if let Some(answer) = &*self.hosted_outage.lock().unwrap_or_else(PoisonError::into_inner) {
            return Ok(answer.clone());
        }
        let content_type = head.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
        let hosted = HostedRequest {
            profile,
            method: &head.method,
            path: head.uri.path(),
            query: head.uri.query().unwrap_or_default(),
            betas,
            content_type: content_type.unwrap_or_default(),
            body,
            now: self.clock.timestamp(),
        };
        hosted.answer(&mut self.store())
    }

    /// Creates the files of a response, fills in its placeholders, and sets its container.
    fn materialize_files(
        &self,
        answer: &mut FakeResponse,
        container: Option<Value>,
        number: u64,
        now: Timestamp,
    ) {
        let mut store = self.store();
        let files: Vec<(String, String)> = std::mem::take(&mut answer.produced)
            .into_iter()
            .map(|ProducedFile { placeholder, name, media_type, content }| {
                (placeholder, store.add_file(&name, media_type, content, Origin::Tool, now))
            })
            .collect();
        answer.name(&format!("srvtoolu_fake_{number:06}"), &files);
        match (answer.container_id(), self.hosting) {
            (None, _) => answer.container = container,
            // The script names another container, which exists from now on.
            (Some(id), Some(hosting)) => {
                store.begin_container(id, hosting.lifetime, now);
            }
            (Some(_), None) => {}
        }
    }

    async fn respond(&self, reply: Reply, exchange: ResponseContext) -> io::Result<Response<Body>> {
        let request_id =
            reply.request_id.clone().unwrap_or_else(|| format!("req_fake_{:06}", exchange.number));
        let message = format!("msg_fake_{:06}", exchange.number);
        let names = ResponseIds { message: &message, model: &exchange.model, request: &request_id };
        let travel = |pieces| paced(pieces, &reply.timing, Arc::clone(&self.clock), self.stop.clone());
        let (status, content_type, body) = match &reply.body {
            ReplyBody::HangUp => return Err(io::Error::from(io::ErrorKind::ConnectionAborted)),
            ReplyBody::Silence => {
                self.stop.cancelled().await;
                return Err(io::Error::from(io::ErrorKind::ConnectionAborted));
            }
            ReplyBody::Error(refusal) => (
                refusal.status(),
                Some(JSON),
                travel(BodyChunks::once(vec![refusal.body(&request_id).into()])),
            ),
            ReplyBody::Answer(answer) if exchange.is_streamed => {
                let mut pace = reply.timing.clone();
                let events = answer.events(names);
                if matches!(answer.ending, Ending::Cut { .. }) {
                    pace.end = super::reply::BodyEnd::Cut { after: events.iter().map(Bytes::len).sum() };
                }
                let body = paced(BodyChunks::once(events), &pace, Arc::clone(&self.clock), self.stop.clone());
                (200, Some(EVENTS), body)
            }
            ReplyBody::Answer(answer) => match &answer.ending {
                Ending::Whole => (200, Some(JSON), travel(BodyChunks::once(vec![answer.body(names).into()]))),
                Ending::Broken { refusal, .. } => {
                    (refusal.status(), Some(JSON), whole(refusal.body(&request_id)))
                }
                Ending::Cut { .. } => return Err(io::Error::from(io::ErrorKind::ConnectionAborted)),
            },
            ReplyBody::Raw { status, content_type, body } if body.is_empty() => {
                (*status, content_type.as_deref(), whole(Bytes::new()))
            }
            ReplyBody::Raw { status, content_type, body } => {
                (*status, content_type.as_deref(), travel(BodyChunks::once(vec![body.clone()])))
            }
            ReplyBody::Endless { beginning, repeated } => {
                let pieces = BodyChunks { pieces: vec![beginning.clone()], repeated: Some(repeated.clone()) };
                (200, Some(EVENTS), travel(pieces))
            }
        };
        self.log.lock().unwrap_or_else(PoisonError::into_inner).set_status(exchange.number, status);
        let mut response = Response::new(body);
        *response.status_mut() = StatusCode::from_u16(status).map_err(io::Error::other)?;
        let headers = response.headers_mut();
        if let Some(content_type) = content_type {
            headers.insert(CONTENT_TYPE, HeaderValue::try_from(content_type).map_err(io::Error::other)?);
        }
        headers.insert("request-id", HeaderValue::try_from(&request_id).map_err(io::Error::other)?);
        headers.insert("anthropic-organization-id", HeaderValue::from_static("fake-organization"));
        for (name, value) in exchange.limits {
            headers.insert(name, HeaderValue::try_from(value).map_err(io::Error::other)?);
        }
        for (name, value) in &reply.headers {
            let name = HeaderName::try_from(name).map_err(io::Error::other)?;
            headers.append(name, HeaderValue::try_from(value).map_err(io::Error::other)?);
        }
        Ok(response)
    }
}

/// The betas that a request names.
fn betas(headers: &HeaderMap) -> Vec<String> {
    let lines = headers.get_all("anthropic-beta").iter().filter_map(|line| line.to_str().ok());
    lines.flat_map(|line| line.split(',')).map(|beta| beta.trim().to_owned()).collect()
}

fn check_content_type(headers: &HeaderMap) -> Result<(), Refusal> {
    let content_type = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if content_type.starts_with(JSON) {
        return Ok(());
    }
    Err(Refusal::invalid("content-type: application/json is required").with_status(415))
}
