//! [`GeminiService`]: checks a request, chooses its reply and writes its answer.

use bytes::Bytes;
use conjure_conversation::{ApiErrorKind, Request};
use conjure_model_http::fake::{
    AnswerContext, Ending, FakeService, FakeState, HistoryPosition, ReceivedRequest, ReplyOf,
};

use super::answer_writer::{AnswerNames, CallIds, FakeAnswer, TOKEN};
use super::history::History;
use super::refusal::Refusal;
use super::validate::ValidatedBody;
use super::validate::validate;

/// The largest accepted body, in bytes.
const MAX_BODY: usize = 32 << 20;

/// The part of the fake that is specific to the Gemini service.
#[derive(Debug)]
pub struct GeminiService {
    pub(super) ids: CallIds,
}

/// The form of an answer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum AnswerForm {
    /// `streamGenerateContent?alt=sse`
    Events,
    /// `streamGenerateContent`
    List,
    /// `generateContent`
    #[default]
    Whole,
}

/// The model and the method in the path of a request.
#[derive(Debug, Default)]
pub struct Target {
    model: String,
    version: String,
    form: AnswerForm,
}

impl FakeService for GeminiService {
    type Answer = FakeAnswer;
    type Error = Refusal;
    type Exchange = Target;

    const JSON: &'static str = "application/json; charset=UTF-8";
    const EVENTS: &'static str = "text/event-stream";
    const REQUEST_ID: Option<&'static str> = None;

    fn max_body(&self, _path: &str) -> usize {
        MAX_BODY
    }

    async fn reply(
        &self,
        received: &ReceivedRequest,
        state: &FakeState<Self>,
        exchange: &mut Target,
    ) -> Result<ReplyOf<Self>, Refusal> {
        *exchange = target(received)?;
        check_key(received, state)?;
        let body = received
            .body
            .as_ref()
            .ok_or_else(|| Refusal::invalid("Request payload size exceeds the limit."))?;
        let Target { model, version, .. } = exchange;
        if !state.models().is_empty() && !state.models().contains(model) {
            let message = format!(
                "models/{model} is not found for API version {version}, or is not supported for generateContent."
            );
            return Err(Refusal::new(ApiErrorKind::NotFound, message));
        }
        let ValidatedBody { instructions, tools, contents, token } = validate(body)?;
        let history = History::of(&contents)?;
        let (session, answers) = (history.first_text(), history.answers);
        let request = Request {
            call: u32::try_from(answers).unwrap_or(u32::MAX).saturating_add(1),
            instructions,
            tools: tools.into(),
            ..Request::new(history.messages)
        };
        // An answer that is being continued is not in the history. Its token is in the request.
        let position =
            |token: &str, answers| HistoryPosition::new(model, &format!("{token}\n{session}"), answers);
        let here = position(token.as_deref().unwrap_or_default(), answers);
        let next = |answer: &FakeAnswer| match answer.is_continued() {
            true => position(TOKEN, answers),
            false => position("", answers.saturating_add(1)),
        };
        Ok(state.router.reply(request, here, answers, next).await)
    }

    fn is_streamed(target: &Target) -> bool {
        target.form == AnswerForm::Events
    }

    fn events(
        &self,
        answer: &FakeAnswer,
        ending: &Ending<Refusal>,
        context: AnswerContext<'_, Self>,
    ) -> Vec<Bytes> {
        answer.events(ending, self.names(&context))
    }

    fn body(&self, answer: &FakeAnswer, context: AnswerContext<'_, Self>) -> String {
        match context.exchange.form {
            AnswerForm::List => answer.list(self.names(&context)),
            _ => answer.body(self.names(&context)),
        }
    }
}

impl GeminiService {
    fn names<'a>(&self, context: &AnswerContext<'a, Self>) -> AnswerNames<'a> {
        AnswerNames { number: context.number, model: &context.exchange.model, ids: self.ids }
    }
}

fn check_key(received: &ReceivedRequest, state: &FakeState<GeminiService>) -> Result<(), Refusal> {
    let in_query = || received.head.uri.query()?.split('&').find_map(|pair| pair.strip_prefix("key="));
    match received.header("x-goog-api-key").or_else(in_query).filter(|key| !key.is_empty()) {
        None => Err(Refusal::new(
            ApiErrorKind::Permission,
            "Method doesn't allow unregistered callers (callers without established identity). Please use API Key \
             or other form of API consumer identity to call this API.",
        )),
        Some(key) if state.accepts_key(key) => Ok(()),
        Some(_) => {
            Err(Refusal::new(ApiErrorKind::Authentication, "API key not valid. Please pass a valid API key."))
        }
    }
}

/// Parses `/v1/models/MODEL:METHOD`.
fn target(received: &ReceivedRequest) -> Result<Target, Refusal> {
    let not_found = || Refusal::new(ApiErrorKind::NotFound, "Requested entity was not found.");
    let uri = &received.head.uri;
    let path = uri.path().strip_prefix('/').ok_or_else(not_found)?;
    let (version, path) = path.split_once('/').ok_or_else(not_found)?;
    let (model, method) =
        path.strip_prefix("models/").and_then(|path| path.split_once(':')).ok_or_else(not_found)?;
    let is_sse = uri.query().is_some_and(|query| query.split('&').any(|pair| pair == "alt=sse"));
    let form = match method {
        "streamGenerateContent" if is_sse => AnswerForm::Events,
        "streamGenerateContent" => AnswerForm::List,
        "generateContent" => AnswerForm::Whole,
        _ => return Err(not_found()),
    };
    if received.head.method != "POST" || !matches!(version, "v1" | "v1beta") || model.is_empty() {
        return Err(not_found());
    }
    Ok(Target { model: model.to_owned(), version: version.to_owned(), form })
}
