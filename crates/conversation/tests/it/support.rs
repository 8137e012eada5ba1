//! A fixture for the driver that gives way at every await, so that a test can stop it anywhere.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use conjure_base::{CallId, Clock as _, SessionId, SystemClock, Timestamp};
use conjure_conversation::{
    Authorization, AwaitedResult, Block, CallConcurrency, CallContext, CallTraits, Command, CommandKind,
    Conversation, ConversationObserver, Event, EventLog, EventLogError, EventProjection, InboxMessage,
    InboxMessageKind, InputForm, InputQuestion, InputRequest, Limits, MemoryEventLog, Message, Model,
    ModelError, ModelEvent, ModelStream, PromptPrefix, Receipt, Rejection, Request, Response, ResultFrom,
    SessionEvent, SessionState, SessionView, SideEffects, StopReason, ToolCall, ToolResult, ToolRunOutcome,
    ToolRunner, TurnOptions, TurnOutcome, TurnServices, TurnStop, Usage, apply, decide, pairing, run_turn,
};
use futures_util::future::BoxFuture;
use futures_util::{FutureExt, StreamExt, stream};
use serde_json::json;

/// Gives way once: one more place at which a test can stop.
pub(crate) async fn give_way() {
    struct Once(bool);
    impl Future for Once {
        type Output = ();
        fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
            if std::mem::replace(&mut self.0, true) {
                return Poll::Ready(());
            }
            cx.waker().wake_by_ref();
            Poll::Pending
        }
    }
    Once(false).await;
}

/// Polls the future this many times at most.
pub(crate) fn poll_times<F: Future + Unpin>(future: &mut F, polls: usize) -> Option<F::Output> {
    let mut cx = Context::from_waker(std::task::Waker::noop());
    (0..polls).find_map(|_| match future.poll_unpin(&mut cx) {
        Poll::Ready(output) => Some(output),
        Poll::Pending => None,
    })
}

/// The outcome of a turn that the model ended itself.
pub(crate) const ANSWERED: TurnOutcome = TurnOutcome::Finished(TurnStop::Answered(StopReason::EndTurn));

/// An event log in memory that gives way before and after it records.
#[derive(Debug, Clone, Default)]
pub(crate) struct SlowEventLog(pub(crate) MemoryEventLog);

impl EventLog for SlowEventLog {
    fn append<'a>(
        &'a self,
        expected_seq: u64,
        events: &'a [Event],
    ) -> BoxFuture<'a, Result<u64, EventLogError>> {
        async move {
            give_way().await;
            let seq = self.0.append(expected_seq, events).await;
            give_way().await;
            seq
        }
        .boxed()
    }

    fn load(&self) -> BoxFuture<'_, Result<Vec<Event>, EventLogError>> {
        self.0.load()
    }
}

type Answers = dyn Fn(&Request) -> Vec<Result<ModelEvent, ModelError>> + Send + Sync;

/// A model whose words are a function of what it is sent. It keeps every request.
#[derive(Clone)]
pub(crate) struct FakeModel {
    answers: Arc<Answers>,
    /// What it says of every call; none: it says nothing.
    effects: Option<SideEffects>,
    pub(crate) requests: Arc<Mutex<Vec<Request>>>,
}

impl FakeModel {
    pub(crate) fn events(
        answers: impl Fn(&Request) -> Vec<Result<ModelEvent, ModelError>> + Send + Sync + 'static,
    ) -> Self {
        Self { answers: Arc::new(answers), effects: None, requests: Arc::default() }
    }

    /// One whole answer for each request.
    pub(crate) fn answering(answer: impl Fn(&Request) -> Response + Send + Sync + 'static) -> Self {
        Self::events(move |request| {
            let delta = ModelEvent::TextDelta { index: 0, text: "…".to_owned() };
            vec![Ok(ModelEvent::Started), Ok(delta), Ok(ModelEvent::Finished(Box::new(answer(request))))]
        })
    }

    /// One answer for each model call of a turn, the last one for all further calls.
    pub(crate) fn in_turn(answers: Vec<Response>) -> Self {
        Self::answering(move |request| answers[(request.call as usize - 1).min(answers.len() - 1)].clone())
    }

    /// The same, whose service acts by what its client is configured with.
    pub(crate) fn acting(self) -> Self {
        Self { effects: Some(SideEffects::Possible), ..self }
    }

    pub(crate) fn request_count(&self) -> usize {
        self.requests.lock().unwrap().len()
    }

    /// Every request so far was one that the service accepts.
    pub(crate) fn assert_requests_valid(&self, when: &str) {
        for request in self.requests.lock().unwrap().iter() {
            if let Err(error) = pairing::check(&request.messages) {
                panic!("{when}: {error}: {:#?}", request.messages);
            }
        }
    }
}

impl Model for FakeModel {
    fn stream(&self, request: Request) -> ModelStream {
        let events = (self.answers)(&request);
        self.requests.lock().unwrap().push(request);
        stream::iter(events)
            .then(|event| async move {
                give_way().await;
                event
            })
            .boxed()
    }

    fn side_effects(&self, request: &Request) -> SideEffects {
        self.effects.unwrap_or_else(|| request.side_effects())
    }
}

/// Tools by name: `read` is shared and idempotent, `bash` shared, `write` exclusive; `panic` panics, `hang` never
/// ends, `deny` is denied, `ask` must be asked for, and so must `ask_write`, which is exclusive. `obey` ends when it is cancelled. The client
/// provides the results of `client`, and would have to provide those of `hasty_client` at once.
#[derive(Clone, Default)]
pub(crate) struct FakeTools {
    /// `start NAME ID` and `end NAME ID`, as they happened.
    pub(crate) log: Arc<Mutex<Vec<String>>>,
}

impl FakeTools {
    pub(crate) fn log(&self) -> Vec<String> {
        self.log.lock().unwrap().clone()
    }

    fn note(&self, what: &str, call: &ToolCall) {
        self.log.lock().unwrap().push(format!("{what} {} {}", call.name, call.id));
    }

    /// No call that has effects was started twice.
    pub(crate) fn assert_no_effect_repeated(&self, when: &str) {
        let mut starts: HashMap<String, u32> = HashMap::new();
        for line in self.log().into_iter().filter(|line| line.starts_with("start ")) {
            *starts.entry(line).or_default() += 1;
        }
        for (line, count) in starts {
            assert!(count == 1 || line.starts_with("start read"), "{when}: {line} happened {count} times");
        }
    }
}

impl ToolRunner for FakeTools {
    fn traits(&self, call: &ToolCall) -> CallTraits {
        let access =
            if call.name.ends_with("write") { CallConcurrency::Exclusive } else { CallConcurrency::Shared };
        CallTraits { concurrency: access, idempotent: call.name == "read" }
    }

    fn authorize<'a>(&'a self, call: &'a ToolCall, _: &'a SessionView) -> BoxFuture<'a, Authorization> {
        async move {
            give_way().await;
            match call.name.as_str() {
                "deny" => Authorization::Deny { reason: "not here".to_owned() },
                "ask" | "ask_write" => Authorization::Ask { reason: "may it?".to_owned() },
                "ponder" => {
                    SystemClock.sleep_until(SystemClock.deadline(Duration::from_secs(60))).await;
                    Authorization::Allow
                }
                _ => Authorization::Allow,
            }
        }
        .boxed()
    }

    fn awaits(&self, call: &ToolCall) -> Option<AwaitedResult> {
        let timeout = match call.name.as_str() {
            "client" => None,
            "hasty_client" => Some(Duration::ZERO),
            _ => return None,
        };
        Some(AwaitedResult { from: ResultFrom::Client, timeout })
    }

    fn run<'a>(&'a self, call: &'a ToolCall, context: CallContext) -> BoxFuture<'a, ToolRunOutcome> {
        async move {
            self.note("start", call);
            give_way().await;
            match call.name.as_str() {
                "panic" => panic!("this tool panics"),
                "hang" => std::future::pending().await,
                "obey" => context.cancel.cancelled().await,
                _ => {}
            }
            give_way().await;
            self.note("end", call);
            if call.name.starts_with("elicit") && context.provided_input.is_none() {
                return ToolRunOutcome::InputRequired(Box::new(question()));
            }
            let answers = context.provided_input.map(|input| {
                let state = input.state.unwrap_or_default();
                format!(" with {} and {state}", serde_json::json!(input.answers))
            });
            let answers = answers.unwrap_or_default();
            ToolResult::text_result(&call.id, format!("{} done{answers}", call.name)).into()
        }
        .boxed()
    }
}

/// What the tools `elicit` and `elicit_write` ask a person.
pub(crate) fn question() -> InputRequest {
    let form = InputForm::Form { requested_schema: serde_json::json!({"type": "object"}) };
    let question = InputQuestion { message: "Which branch?".to_owned(), form };
    InputRequest {
        asked_by: "git".to_owned(),
        questions: [("branch".to_owned(), question)].into(),
        state: Some("half".to_owned()),
    }
}

pub(crate) fn text(text: &str) -> Response {
    answer(vec![Block::text(text)], StopReason::EndTurn)
}

pub(crate) fn answer(content: Vec<Block>, stop_reason: StopReason) -> Response {
    let usage = Usage { input_tokens: 10, output_tokens: 5, ..Usage::default() };
    Response { usage, ..Response::new(content, stop_reason) }
}

/// An answer that calls tools, each given by its name and id.
pub(crate) fn calls(calls: &[(&str, &str)]) -> Response {
    answer(calls.iter().map(|(name, id)| tool_use(name, id)).collect(), StopReason::ToolUse)
}

pub(crate) fn tool_use(name: &str, id: &str) -> Block {
    let block = format!(r#"{{"id":"{id}","input":{{"for":"{id}"}},"name":"{name}","type":"tool_use"}}"#);
    Block::from_json(block).unwrap()
}

pub(crate) fn call(name: &str, id: &str) -> ToolCall {
    ToolCall::new(id, name, &json!({}))
}

pub(crate) fn id(id: &str) -> CallId {
    CallId::new(id)
}

/// A post whose receipt is put with the others.
pub(crate) fn posting(kind: InboxMessageKind, words: &str, told: &Arc<Mutex<Vec<Receipt>>>) -> InboxMessage {
    let told = Arc::clone(told);
    InboxMessage::new(kind, vec![Block::text(words)], move |receipt| told.lock().unwrap().push(receipt))
}

pub(crate) fn start(words: &str) -> CommandKind {
    start_within(words, Limits::default())
}

/// The model is about to be called, and only answers.
pub(crate) const fn start_call() -> CommandKind {
    start_call_with(SideEffects::None)
}

pub(crate) const fn start_call_with(effects: SideEffects) -> CommandKind {
    CommandKind::StartModelCall { effects }
}

pub(crate) fn start_within(words: &str, limits: Limits) -> CommandKind {
    CommandKind::StartTurn { input: vec![Block::text(words)], limits }
}

/// The answer to the model call that runs.
pub(crate) fn accept_response(state: &SessionState, response: Response) -> CommandKind {
    let turn = state.turn().unwrap();
    let (turn, call) = (turn.id(), turn.model_calls());
    CommandKind::AcceptResponse { turn, call, response: Box::new(response) }
}

/// Decides at this time, in milliseconds, and applies the events, which are read from the record as they were written.
pub(crate) fn submit_at(
    state: &mut SessionState,
    millis: u64,
    kind: CommandKind,
) -> Result<Vec<Event>, Rejection> {
    let events = decide(state, Command { at: Timestamp::from_millis(millis), kind })?;
    for event in &events {
        let written = serde_json::to_string(event).unwrap();
        assert_eq!(serde_json::from_str::<Event>(&written).unwrap(), *event, "{written}");
        apply(state, event);
    }
    Ok(events)
}

pub(crate) fn submit(state: &mut SessionState, kind: CommandKind) -> Result<Vec<Event>, Rejection> {
    submit_at(state, 0, kind)
}

/// What the record adds up to, read anew from what is written.
pub(crate) fn reload(events: &[Event]) -> SessionState {
    let mut state = SessionState::default();
    for event in events {
        apply(&mut state, &serde_json::from_str(&serde_json::to_string(event).unwrap()).unwrap());
    }
    state
}

/// Each message as `role: block | block`, with calls as `NAME(ID)` and results as `ID=TEXT`.
pub(crate) fn outline<M: std::borrow::Borrow<Message>>(messages: &[M]) -> Vec<String> {
    use conjure_conversation::{BlockKind, Role};
    messages
        .iter()
        .map(|message| {
            let message: &Message = message.borrow();
            let role = if message.role == Role::User { "user" } else { "assistant" };
            let blocks: Vec<String> = message
                .content
                .iter()
                .map(|block| match block.kind() {
                    BlockKind::Text(text) => text.clone(),
                    BlockKind::ToolUse(call) => format!("{}({})", call.name, call.id),
                    BlockKind::ToolResult { tool_use_id, is_error, text } => {
                        format!("{tool_use_id}{}{text}", if *is_error { "!" } else { "=" })
                    }
                    other => format!("{other:?}"),
                })
                .collect();
            format!("{role}: {}", blocks.join(" | "))
        })
        .collect()
}

/// A model, tools and an event log, and conversations over them.
#[derive(Clone)]
pub(crate) struct Fixture {
    pub(crate) model: FakeModel,
    pub(crate) tools: FakeTools,
    pub(crate) event_log: SlowEventLog,
}

impl Fixture {
    pub(crate) fn new(model: FakeModel) -> Self {
        Self { model, tools: FakeTools::default(), event_log: SlowEventLog::default() }
    }

    pub(crate) async fn load(&self) -> Conversation {
        self.load_with(Arc::new(())).await
    }

    /// The conversation with a turn that has begun with these words.
    pub(crate) async fn begin(&self, words: &str) -> Conversation {
        let mut conversation = self.load().await;
        conversation.submit(start(words)).await.unwrap();
        conversation
    }

    pub(crate) async fn load_with(&self, observer: Arc<dyn ConversationObserver>) -> Conversation {
        Conversation::load(Arc::new(self.event_log.clone()), Arc::new(SystemClock), observer).await.unwrap()
    }

    pub(crate) async fn drive(
        &self,
        conversation: &mut Conversation,
        options: TurnOptions<'_>,
    ) -> Result<TurnOutcome, conjure_conversation::DriveError> {
        self.drive_model(&self.model, conversation, options).await
    }

    /// The same with another model.
    pub(crate) async fn drive_model(
        &self,
        model: &dyn Model,
        conversation: &mut Conversation,
        options: TurnOptions<'_>,
    ) -> Result<TurnOutcome, conjure_conversation::DriveError> {
        let composer = PromptPrefix::default();
        let services = TurnServices { model, composer: &composer, tools: &self.tools };
        run_turn(conversation, services, options).await
    }

    /// Starts a turn and drives it to its end.
    pub(crate) async fn turn(&self, conversation: &mut Conversation, start: CommandKind) -> TurnOutcome {
        conversation.submit(start).await.unwrap();
        self.drive(conversation, TurnOptions::default()).await.unwrap()
    }
}

/// The session events of these recorded events, of which the first has the sequence number `first`.
pub(crate) fn project(session: SessionId, first: u64, events: &[Event]) -> Vec<SessionEvent> {
    let mut projection = EventProjection::new(session);
    (first..).zip(events).flat_map(|(seq, event)| projection.apply(seq, event)).collect()
}
