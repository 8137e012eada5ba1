//! [`MessagesService`]: checks a request, chooses its reply and writes its answer.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard};

use bytes::Bytes;
use conjure_artifact::content_type_of;
use conjure_base::{Timestamp, lock};
use conjure_conversation::ApiErrorKind;
use conjure_model_http::HeaderMap;
use conjure_model_http::fake::{
    AnswerContext, Ending, FakeReply, FakeService, FakeState, HistoryPosition, ReceivedRequest, ReplyOf,
};
use serde_json::Value;

use super::auth;
use super::compaction::{self, ResponseStart};
use super::hosted::{HostedRequest, Hosting, Origin, Store, is_hosted};
use super::rate_limit::{RateDecision, RateLimit, RateWindows};
use super::refusal::Refusal;
use super::reply::Reply;
use super::response_writer::{FakeResponse, ProducedFile, ResponseIds};
use super::validate::ValidatedRequest;
use super::validate::validate;
use crate::config::ApiProfile;

/// The largest body that the service accepts, in bytes.
const MAX_BODY: usize = 32 << 20;
/// The largest upload, in bytes.
const MAX_UPLOAD: usize = 512 << 20;

/// The part of the fake that is specific to the Messages service.
#[derive(Debug)]
pub struct MessagesService {
    /// The only accepted profile; `None` for both.
    pub(super) profile: Option<ApiProfile>,
    pub(super) rate: Option<RateLimit>,
    pub(super) windows: Mutex<RateWindows>,
    pub(super) hosting: Option<Hosting>,
    pub(super) store: Mutex<Store>,
    pub(super) hosted_faults: Mutex<VecDeque<Reply>>,
    pub(super) hosted_outage: Mutex<Option<Reply>>,
}

/// The facts about a request that its response needs.
#[derive(Debug, Default)]
pub struct Exchange {
    model: String,
    is_streamed: bool,
    limits: Vec<(&'static str, String)>,
}

impl FakeService for MessagesService {
    type Answer = FakeResponse;
    type Error = Refusal;
    type Exchange = Exchange;

    const JSON: &'static str = "application/json";
    const EVENTS: &'static str = "text/event-stream; charset=utf-8";
    const REQUEST_ID: Option<&'static str> = Some("request-id");

    fn max_body(&self, path: &str) -> usize {
        if is_hosted(path) { MAX_UPLOAD } else { MAX_BODY }
    }

    async fn reply(
        &self,
        received: &ReceivedRequest,
        state: &FakeState<Self>,
        exchange: &mut Exchange,
    ) -> Result<ReplyOf<Self>, Refusal> {
        let head = &received.head;
        let is_hosted = is_hosted(head.uri.path());
        if head.uri.path() != "/v1/messages" && !is_hosted {
            return Err(Refusal::new(ApiErrorKind::NotFound, "Not found"));
        }
        if head.method != "POST" && !is_hosted {
            return Err(Refusal::invalid("Method Not Allowed").with_status(405));
        }
        let (key, profile) = auth::check(received, self.profile, |key| state.accepts_key(key))?;
        let body = received.body.as_ref().ok_or_else(Refusal::too_large)?;
        let now = state.clock.timestamp();
        if let Some(limited) = self.limit_rate(key, now, exchange) {
            return Ok(limited.into());
        }
        let betas = betas(&head.headers);
        if is_hosted {
            return self.hosted_reply(received, body, profile, &betas, now).map(Into::into);
        }
        if !received.header("content-type").unwrap_or_default().starts_with(Self::JSON) {
            return Err(Refusal::invalid("content-type: application/json is required").with_status(415));
        }
        let checked = validate(body, state.models(), &betas)?;
        let container = match self.hosting {
            Some(hosting) => checked.container_request.enter(hosting, &self.store, profile, &betas, now)?,
            None => None,
        };
        let mut reply = next_reply(&checked, state).await;
        if let Some(answer) = reply.answer_mut() {
            self.materialize_files(answer, container, received.number, now);
        }
        exchange.model = checked.model;
        exchange.is_streamed = checked.is_streamed;
        Ok(reply)
    }

    fn is_streamed(exchange: &Exchange) -> bool {
        exchange.is_streamed
    }

    fn events(
        &self,
        answer: &FakeResponse,
        ending: &Ending<Refusal>,
        context: AnswerContext<'_, Self>,
    ) -> Vec<Bytes> {
        answer.events(ending, ids(&context))
    }

    fn body(&self, answer: &FakeResponse, context: AnswerContext<'_, Self>) -> String {
        answer.body(ids(&context))
    }

    fn headers(&self, exchange: &Exchange) -> Vec<(&'static str, String)> {
        let mut headers = vec![("anthropic-organization-id", "fake-organization".to_owned())];
        headers.extend_from_slice(&exchange.limits);
        headers
    }
}

impl MessagesService {
    pub(super) fn store(&self) -> MutexGuard<'_, Store> {
        lock(&self.store)
    }

    /// Counts the request against the rate limit, and refuses it above the limit.
    fn limit_rate(&self, key: &str, now: Timestamp, exchange: &mut Exchange) -> Option<Reply> {
        let limit = self.rate?;
        let decision = lock(&self.windows).admit(limit, key, now);
        exchange.limits.push(("anthropic-ratelimit-requests-limit", limit.requests.to_string()));
        let remaining = match decision {
            RateDecision::Admitted { remaining } => remaining,
            RateDecision::Refused { .. } => 0,
        };
        exchange.limits.push(("anthropic-ratelimit-requests-remaining", remaining.to_string()));
        let RateDecision::Refused { wait } = decision else { return None };
        let reset = now.millis().saturating_add(u64::try_from(wait.as_millis()).unwrap_or(u64::MAX));
        let reset = Timestamp::from_millis(reset).to_string();
        exchange.limits.push(("anthropic-ratelimit-requests-reset", reset));
        let message = "This request would exceed the rate limit of this key. Please try again later.";
        let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
        let reply = Reply::error(Refusal::new(ApiErrorKind::RateLimit, message));
        Some(reply.with_header("retry-after", seconds.to_string()).with_header("x-should-retry", "true"))
    }

    /// The reply to a request for skills or files.
    fn hosted_reply(
        &self,
        received: &ReceivedRequest,
        body: &Bytes,
        profile: ApiProfile,
        betas: &[String],
        now: Timestamp,
    ) -> Result<Reply, Refusal> {
        if let Some(fault) = lock(&self.hosted_faults).pop_front() {
            return Ok(fault);
        }
        if let Some(answer) = &*lock(&self.hosted_outage) {
            return Ok(answer.clone());
        }
        let hosted = HostedRequest {
            profile,
            method: &received.head.method,
            path: received.head.uri.path(),
            query: received.head.uri.query().unwrap_or_default(),
            betas,
            content_type: received.header("content-type").unwrap_or_default(),
            body,
            now,
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
            .map(|ProducedFile { placeholder, name, content }| {
                (placeholder, store.add_file(&name, &content_type_of(&name, b""), content, Origin::Tool, now))
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
}

/// The reply to a checked request: a fault, the summary of its history, or the next turn.
async fn next_reply(
    checked: &ValidatedRequest,
    state: &FakeState<MessagesService>,
) -> ReplyOf<MessagesService> {
    let router = &state.router;
    if let Some(fault) = router.take_fault() {
        return fault;
    }
    let position = HistoryPosition::new(&checked.model, &checked.session, checked.blocks);
    let turn = router.turn_at(position).unwrap_or(checked.assistant_messages);
    if let ResponseStart::Paused { messages } = checked.response_start {
        // The turn follows when the client sends the request again.
        router.record(position.after(1), turn);
        return FakeReply::answer(compaction::paused(messages));
    }
    let mut reply = router.reply_for_turn(turn, checked.request.clone()).await;
    if let (ResponseStart::Compacted { messages }, Some(answer)) =
        (&checked.response_start, reply.answer_mut())
    {
        compaction::prepend_summary(answer, *messages);
    }
    // An answer is recorded at the position after its blocks. A failure adds no blocks, so it is recorded at its own position.
    let added = reply.complete_answer().map_or(0, |answer| answer.response.content.len());
    router.record(position.after(added), turn.saturating_add(1));
    reply
}

fn ids<'a>(context: &AnswerContext<'a, MessagesService>) -> ResponseIds<'a> {
    ResponseIds { number: context.number, model: &context.exchange.model, request: context.request_id }
}

/// The betas that a request names.
fn betas(headers: &HeaderMap) -> Vec<String> {
    let lines = headers.get_all("anthropic-beta").iter().filter_map(|line| line.to_str().ok());
    lines.flat_map(|line| line.split(',')).map(|beta| beta.trim().to_owned()).collect()
}
