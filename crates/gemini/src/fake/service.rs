//! Handles one request: records, validates and answers it.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use conjure_base::{Clock, TurnId};
use conjure_conversation::{ApiErrorKind, Request as ModelRequest};
use http_body_util::{BodyExt as _, Limited};
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use hyper::http::request::Parts;
use hyper::{Method, Request, Response, StatusCode};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::answer_writer::{AnswerContext, Ending, GivenIds};
use super::history::History;
use super::paced_body::{Body, BodyChunks, BodyEnd, BodyTiming, paced, whole};
use super::refusal::Refusal;
use super::reply::{Reply, ReplyBody};
use super::reply_router::{ReplyRouter, RoutedRequest};
use super::request_log::{RecordedRequest, RequestLog};
use super::validate::{ValidatedBody, validate};

/// The largest body, in bytes.
const MAX_BODY: usize = 32 << 20;

const EVENTS: &str = "text/event-stream";
const JSON: &str = "application/json; charset=UTF-8";

/// The state that all connections share.
#[derive(Debug)]
pub(super) struct FakeState {
    /// The accepted keys. If empty, every key is accepted.
    pub(super) keys: Vec<String>,
    /// The known models. If empty, every model is known.
    pub(super) models: Vec<String>,
    pub(super) ids: GivenIds,
    pub(super) router: ReplyRouter,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) log: Mutex<RequestLog>,
    pub(super) received: watch::Sender<u64>,
    pub(super) stop: CancellationToken,
}

/// The form of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AnswerForm {
    /// `streamGenerateContent?alt=sse`
    Events,
    /// `streamGenerateContent`
    List,
    /// `generateContent`
    Whole,
}

/// What the path of a request asks for.
#[derive(Debug)]
struct Target {
    model: String,
    version: String,
    form: AnswerForm,
}

impl FakeState {
    /// Answers one request. An error closes the connection without an answer.
    pub(super) async fn answer(self: Arc<Self>, request: Request<Incoming>) -> io::Result<Response<Body>> {
        let (head, body) = request.into_parts();
        let body = match Limited::new(body, MAX_BODY).collect().await {
            Ok(body) => Some(body.to_bytes()),
            Err(error) if error.is::<http_body_util::LengthLimitError>() => None,
            Err(error) => return Err(io::Error::other(error)),
        };
        let number = self.record_request(&head, body.clone().unwrap_or_default());
        let target = target(&head);
        let reply = match &target {
            Ok(target) => self.reply(&head, body, target).await.unwrap_or_else(Reply::error),
            Err(refusal) => Reply::error(refusal.clone()),
        };
        let delay = self.clock.deadline(reply.delay);
        if !reply.delay.is_zero()
            && self.stop.run_until_cancelled(self.clock.sleep_until(delay)).await.is_none()
        {
            return Err(io::Error::from(io::ErrorKind::ConnectionAborted));
        }
        self.respond(&reply, target.ok(), number).await
    }

    fn record_request(&self, head: &Parts, body: Bytes) -> u64 {
        let headers =
            head.headers.iter().map(|(name, value)| (name.as_str().to_owned(), value.as_bytes().to_vec()));
        let recorded = RecordedRequest {
            number: 0,
            at: self.clock.timestamp(),
            method: head.method.to_string(),
            path: head.uri.to_string(),
            headers: headers.collect(),
            body,
            status: None,
        };
        let number = self.log.lock().unwrap_or_else(PoisonError::into_inner).add(recorded);
        self.received.send_modify(|received| *received = number.max(*received));
        number
    }

    /// Chooses the reply.
    async fn reply(&self, head: &Parts, body: Option<Bytes>, target: &Target) -> Result<Reply, Refusal> {
        self.check_key(head)?;
        let body = body.ok_or_else(|| Refusal::invalid("Request payload size exceeds the limit."))?;
        if !self.models.is_empty() && !self.models.contains(&target.model) {
            let Target { model, version, .. } = target;
            let message = format!(
                "models/{model} is not found for API version {version}, or is not supported for generateContent."
            );
            return Err(Refusal::new(ApiErrorKind::NotFound, message));
        }
        let ValidatedBody { instructions, tools, contents, token } = validate(&body)?;
        let history = History::of(&contents)?;
        let routed = RoutedRequest {
            model: target.model.clone(),
            session: history.first_text(),
            token,
            answers: history.answers,
            request: ModelRequest {
                turn: TurnId::FIRST,
                call: u32::try_from(history.answers).unwrap_or(u32::MAX).saturating_add(1),
                instructions,
                tools: tools.into(),
                messages: history.messages,
                container: None,
                hosted: Arc::default(),
            },
        };
        Ok(self.router.reply(&routed, &self.clock).await)
    }

    fn check_key(&self, head: &Parts) -> Result<(), Refusal> {
        let header = head.headers.get("x-goog-api-key").and_then(|value| value.to_str().ok());
        let in_query = || head.uri.query()?.split('&').find_map(|pair| pair.strip_prefix("key="));
        match header.or_else(in_query).filter(|key| !key.is_empty()) {
            None => Err(Refusal::new(
                ApiErrorKind::Permission,
                "Method doesn't allow unregistered callers (callers without established identity). Please use API \
                 Key or other form of API consumer identity to call this API.",
            )),
            Some(key) if self.keys.is_empty() || self.keys.iter().any(|known| known == key) => Ok(()),
            Some(_) => Err(Refusal::new(
                ApiErrorKind::Authentication,
                "API key not valid. Please pass a valid API key.",
            )),
        }
    }

    async fn respond(
        &self,
        reply: &Reply,
        target: Option<Target>,
        number: u64,
    ) -> io::Result<Response<Body>> {
        let id = format!("fake_{number:06}");
        let model = target.as_ref().map(|target| target.model.as_str()).unwrap_or_default();
        let form = target.as_ref().map_or(AnswerForm::Whole, |target| target.form);
        let context = AnswerContext { id: &id, model, ids: self.ids };
        let paced_as =
            |pieces, timing: &BodyTiming| paced(pieces, timing, Arc::clone(&self.clock), self.stop.clone());
        let once = |body: String| paced_as(BodyChunks::once(vec![body.into()]), &reply.timing);
        let (status, content_type, body) = match &reply.body {
            ReplyBody::HangUp => return Err(io::Error::from(io::ErrorKind::ConnectionAborted)),
            ReplyBody::Silence => {
                self.stop.cancelled().await;
                return Err(io::Error::from(io::ErrorKind::ConnectionAborted));
            }
            ReplyBody::Error(refusal) => (refusal.status(), Some(JSON), once(refusal.body())),
            ReplyBody::Answer(answer) if form == AnswerForm::Events => {
                let mut timing = reply.timing.clone();
                let events = answer.events(context);
                if matches!(answer.ending, Ending::Cut { .. }) {
                    timing.end = BodyEnd::Cut { after: events.iter().map(Bytes::len).sum() };
                }
                (200, Some(EVENTS), paced_as(BodyChunks::once(events), &timing))
            }
            ReplyBody::Answer(answer) => match &answer.ending {
                Ending::Whole if form == AnswerForm::List => (200, Some(JSON), once(answer.list(context))),
                Ending::Whole => (200, Some(JSON), once(answer.body(context))),
                Ending::Broken { refusal, .. } => (refusal.status(), Some(JSON), whole(refusal.body())),
                Ending::Cut { .. } => return Err(io::Error::from(io::ErrorKind::ConnectionAborted)),
            },
            ReplyBody::Raw { status, content_type, body } if body.is_empty() => {
                (*status, content_type.as_deref(), whole(Bytes::new()))
            }
            ReplyBody::Raw { status, content_type, body } => {
                let body = paced_as(BodyChunks::once(vec![body.clone()]), &reply.timing);
                (*status, content_type.as_deref(), body)
            }
            ReplyBody::Endless { beginning, repeated } => {
                let pieces = BodyChunks { pieces: vec![beginning.clone()], repeated: Some(repeated.clone()) };
                (200, Some(EVENTS), paced_as(pieces, &reply.timing))
            }
        };
        self.log.lock().unwrap_or_else(PoisonError::into_inner).set_status(number, status);
        let mut response = Response::new(body);
        *response.status_mut() = StatusCode::from_u16(status).map_err(io::Error::other)?;
        let headers = response.headers_mut();
        if let Some(content_type) = content_type {
            headers.insert(CONTENT_TYPE, HeaderValue::try_from(content_type).map_err(io::Error::other)?);
        }
        for (name, value) in &reply.headers {
            let name = HeaderName::try_from(name).map_err(io::Error::other)?;
            headers.append(name, HeaderValue::try_from(value).map_err(io::Error::other)?);
        }
        Ok(response)
    }
}

/// Reads `/v1/models/MODEL:METHOD`.
fn target(head: &Parts) -> Result<Target, Refusal> {
    let not_found = || Refusal::new(ApiErrorKind::NotFound, "Requested entity was not found.");
    let path = head.uri.path().strip_prefix('/').ok_or_else(not_found)?;
    let (version, path) = path.split_once('/').ok_or_else(not_found)?;
    let (model, method) =
        path.strip_prefix("models/").and_then(|path| path.split_once(':')).ok_or_else(not_found)?;
    let is_sse = head.uri.query().is_some_and(|query| query.split('&').any(|pair| pair == "alt=sse"));
    let form = match method {
        "streamGenerateContent" if is_sse => AnswerForm::Events,
        "streamGenerateContent" => AnswerForm::List,
        "generateContent" => AnswerForm::Whole,
        _ => return Err(not_found()),
    };
    if head.method != Method::POST || !matches!(version, "v1" | "v1beta") || model.is_empty() {
        return Err(not_found());
    }
    Ok(Target { model: model.to_owned(), version: version.to_owned(), form })
}
