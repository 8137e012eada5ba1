//! [`OpenAiService`]: checks a request, chooses its reply and writes its answer, for both APIs.

use bytes::Bytes;
use conjure_conversation::ApiErrorKind;
use conjure_model_http::fake::{
    AnswerContext, Ending, FakeReply, FakeService, FakeState, HistoryPosition, ReceivedRequest, ReplyOf,
};
use serde_json::{Value, json};

use super::answer::{AnswerNames, FakeAnswer};
use super::error::FakeError;
use super::{chat_history, chat_writer, responses_history, responses_writer};

/// The largest accepted body, in bytes.
const MAX_BODY: usize = 64 << 20;

/// The part of the fake that is specific to OpenAI's service.
#[derive(Debug)]
pub struct OpenAiService;

/// Which API a request is for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Api {
    #[default]
    Chat,
    Responses,
}

/// The facts about a request that its response needs.
#[derive(Debug, Default)]
pub struct Exchange {
    api: Api,
    model: String,
    is_streamed: bool,
    includes_usage: bool,
}

impl FakeService for OpenAiService {
    type Answer = FakeAnswer;
    type Error = FakeError;
    type Exchange = Exchange;

    const JSON: &'static str = "application/json";
    const EVENTS: &'static str = "text/event-stream; charset=utf-8";
    const REQUEST_ID: Option<&'static str> = Some("x-request-id");

    fn max_body(&self, _path: &str) -> usize {
        MAX_BODY
    }

    async fn reply(
        &self,
        received: &ReceivedRequest,
        state: &FakeState<Self>,
        exchange: &mut Exchange,
    ) -> Result<ReplyOf<Self>, FakeError> {
        check_key(received, state)?;
        exchange.api = match (received.head.method.as_str(), received.head.uri.path()) {
            ("POST", "/v1/chat/completions") => Api::Chat,
            ("POST", "/v1/responses") => Api::Responses,
            ("GET", "/v1/models") => return Ok(FakeReply::raw(200, Self::JSON, model_list(state.models()))),
            (method, path) => {
                let message = format!("Invalid URL ({method} {path})");
                return Err(FakeError::invalid(message).with_status(404));
            }
        };
        if !received.header("content-type").unwrap_or_default().starts_with(Self::JSON) {
            return Err(
                FakeError::invalid("Unsupported content type: send 'application/json'.").with_status(415)
            );
        }
        let too_large = || FakeError::invalid("The request body is too large.").with_status(413);
        let body = received.body.as_ref().ok_or_else(too_large)?;
        let valid = match exchange.api {
            Api::Chat => chat_history::validate(body, state.models())?,
            Api::Responses => responses_history::validate(body, state.models())?,
        };
        (exchange.is_streamed, exchange.includes_usage) = (valid.is_streamed, valid.includes_usage);
        let here = HistoryPosition::new(&valid.model, &valid.session, valid.answers);
        let next = |_: &FakeAnswer| here.after(1);
        let reply = state.router.reply(valid.request, here, valid.answers, next).await;
        exchange.model = valid.model;
        Ok(reply)
    }

    fn is_streamed(exchange: &Exchange) -> bool {
        exchange.is_streamed
    }

    fn events(
        &self,
        answer: &FakeAnswer,
        ending: &Ending<FakeError>,
        context: AnswerContext<'_, Self>,
    ) -> Vec<Bytes> {
        let names = names(&context);
        match context.exchange.api {
            Api::Chat => {
                let chunks = chat_writer::chunks(answer, ending, names, context.exchange.includes_usage);
                chunks.into_iter().map(|data| Bytes::from(format!("data: {data}\n\n"))).collect()
            }
            Api::Responses => {
                let events = responses_writer::events(answer, ending, names);
                let event = |(name, data)| Bytes::from(format!("event: {name}\ndata: {data}\n\n"));
                events.into_iter().map(event).collect()
            }
        }
    }

    fn body(&self, answer: &FakeAnswer, context: AnswerContext<'_, Self>) -> String {
        let names = names(&context);
        let body = match context.exchange.api {
            Api::Chat => chat_writer::body(answer, names),
            Api::Responses => responses_writer::body(answer, names),
        };
        body.to_string()
    }
}

fn names<'a>(context: &AnswerContext<'a, OpenAiService>) -> AnswerNames<'a> {
    AnswerNames {
        number: context.number,
        model: &context.exchange.model,
        created: context.now.millis() / 1000,
    }
}

fn model_list(models: &[String]) -> String {
    let model = |id: &String| json!({"id": id, "object": "model", "created": 0, "owned_by": "fake"});
    let models: Vec<Value> = models.iter().map(model).collect();
    json!({"object": "list", "data": models}).to_string()
}

fn check_key(received: &ReceivedRequest, state: &FakeState<OpenAiService>) -> Result<(), FakeError> {
    let refused = |message: &str| Err(FakeError::new(&ApiErrorKind::Authentication, message));
    let key = received.header("authorization").and_then(|value| value.strip_prefix("Bearer "));
    match key.unwrap_or_default() {
        key if state.accepts_key(key) => Ok(()),
        "" => refused("You didn't provide an API key. Send it as a bearer token."),
        _ => refused("Incorrect API key provided."),
    }
}
