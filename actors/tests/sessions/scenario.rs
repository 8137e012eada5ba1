//! A tree with a journal and sessions, a model whose words are a function of what it is sent, and tools that are counted.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use conjure_actors::journal::{JournalHandle, OpenJournal, journal_actor};
use conjure_actors::metrics::{MetricsOptions, RuntimeMetrics};
use conjure_actors::session::{
    ModelSetup, Session, SessionComponents, SessionError, SessionFactory, SessionOptions, SessionServices,
    SessionSetup, Subscription, TurnEvent, TurnHandle, Update,
};
use conjure_actors::supervision::{
    Backoff, ChildId, Failure, Intensity, IntensityScope, OnLimit, Root, Strategy, Supervisor, SupervisorSpec,
};
use conjure_actors::tenants::TenantAccounts;
use conjure_base::{CallId, Clock as _, Redactor, SessionId, SystemClock, TenantId};
use conjure_conversation::{
    Authorization, Block, BlockKind, CallConcurrency, CallContext, CallTraits, Composer, EventKind, Message,
    Model, ModelError, ModelErrorKind, ModelEvent, ModelStream, PromptPrefix, Request, Response, Role,
    SessionView, StopReason, ToolCall, ToolResult, ToolRunOutcome, ToolRunner, TurnStop, Usage, pairing,
};
use conjure_journal::{LeaseOwner, MemoryJournal, PageLimit, SessionKey};
use futures_util::future::BoxFuture;
use futures_util::{FutureExt, StreamExt, stream};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::support::{PATIENCE, SECOND, of, soon};

/// The calls of a test's model and tools, and the gates that block them.
#[derive(Clone, Default)]
pub(crate) struct Scenario {
    /// The names of the models that were called, in order.
    pub(crate) called: Arc<Mutex<Vec<String>>>,
    /// How often each tool was started, by `NAME ID`.
    pub(crate) started: Arc<Mutex<BTreeMap<String, u32>>>,
    pub(crate) requests: Arc<Mutex<Vec<Request>>>,
    /// The number of calls that reached the gate, and whether it is open.
    doors: Arc<Gates>,
    /// The numbers of builds that are still to fail, and to panic.
    pub(crate) broken: Arc<Mutex<(u32, u32)>>,
    /// How long a build takes.
    pub(crate) slow: Arc<Mutex<Duration>>,
}

struct Gates {
    reached: watch::Sender<u64>,
    open: watch::Sender<bool>,
}

impl Default for Gates {
    fn default() -> Self {
        Self { reached: watch::Sender::new(0), open: watch::Sender::new(false) }
    }
}

impl Scenario {
    /// Waits until the gate is open.
    async fn wait_at_gate(&self) {
        self.doors.reached.send_modify(|reached| *reached += 1);
        self.doors.open.subscribe().wait_for(|open| *open).await.unwrap();
    }

    /// Waits until this many calls have reached the gate.
    pub(crate) async fn reached(&self, count: u64) {
        self.doors.reached.subscribe().wait_for(|reached| *reached >= count).await.unwrap();
    }

    pub(crate) fn open(&self) {
        self.doors.open.send_replace(true);
    }

    /// Every request was one that the service accepts, and nothing with effects ran twice.
    pub(crate) fn check(&self) {
        for request in self.requests.lock().unwrap().iter() {
            assert_eq!(pairing::check(&request.messages), Ok(()), "{:#?}", request.messages);
        }
        for (call, count) in self.started.lock().unwrap().iter() {
            assert!(*count == 1 || call.starts_with("read"), "{call} was started {count} times");
        }
    }
}

/// The last text of the user, and whether results came after it.
fn last_text(request: &Request) -> (String, bool) {
    let Some(last) = request.messages.last().filter(|message| message.role == Role::User) else {
        return (String::new(), true);
    };
    let is_result = last.content.iter().any(|block| matches!(block.kind(), BlockKind::ToolResult { .. }));
    (last.text(), is_result)
}

/// `call NAME...` calls these tools, and then says what came of it; `door` waits at the gate; `panic` panics; `secret` tells one;
/// `lost` waits at the gate, and then it is not known what came of it;
/// anything else is repeated.
impl Model for Scenario {
    fn stream(&self, request: Request) -> ModelStream {
        let (text, has_results) = last_text(&request);
        let number = {
            let mut requests = self.requests.lock().unwrap();
            requests.push(request);
            requests.len() - 1
        };
        let response = |content, stop_reason| Response {
            usage: Usage {
                input_tokens: 1 + 1_000 * text.matches("long").count() as u64,
                ..Usage::default()
            },
            ..Response::new(content, stop_reason)
        };
        assert!(text != "panic", "the model panics");
        let answer = match text.strip_prefix("call ").filter(|_| !has_results) {
            Some(names) => {
                let calls = names.split(' ').enumerate().map(|(index, name)| {
                    let id = format!("{name}-{number}-{index}");
                    Block::from_json(format!(
                        r#"{{"type":"tool_use","id":"{id}","name":"{name}","input":{{}}}}"#
                    ))
                    .unwrap()
                });
                response(calls.collect(), StopReason::ToolUse)
            }
            None => response(vec![Block::text(format!("heard: {text}"))], StopReason::EndTurn),
        };
        let scenario = self.clone();
        let pieces = if text == "secret" { vec!["it is s3cr", "3t-va", "lue, hm"] } else { vec!["hm"] };
        let deltas =
            pieces.into_iter().map(|piece| ModelEvent::TextDelta { index: 0, text: piece.to_owned() });
        let events: Vec<_> = [ModelEvent::Started].into_iter().chain(deltas).map(Ok).collect();
        let finish = async move {
            if text == "door" || text == "lost" {
                scenario.wait_at_gate().await;
            }
            if text == "lost" {
                return Err(ModelError::new(ModelErrorKind::OutcomeUnknown, "it broke off"));
            }
            Ok(ModelEvent::Finished(Box::new(answer)))
        };
        stream::iter(events).chain(stream::once(finish)).boxed()
    }
}

/// The same with a name before each response. The model `small` has a context of a thousand tokens.
struct NamedModel(String, Scenario);

impl Model for NamedModel {
    fn stream(&self, request: Request) -> ModelStream {
        let name = self.0.clone();
        self.1.called.lock().unwrap().push(name.clone());
        let named = move |event| match event {
            Ok(ModelEvent::Finished(mut response)) => {
                for block in &mut response.content {
                    if let BlockKind::Text(text) = block.kind() {
                        *block = Block::text(format!("{name} {text}"));
                    }
                }
                Ok(ModelEvent::Finished(response))
            }
            event => event,
        };
        self.1.stream(request).map(named).boxed()
    }

    fn context_tokens(&self) -> Option<u64> {
        (self.0 == "small").then_some(1_000)
    }
}

impl Scenario {
    fn model(&self, name: Option<&str>) -> Arc<dyn Model> {
        match name {
            Some(name) => Arc::new(NamedModel(name.to_owned(), self.clone())),
            None => Arc::new(self.clone()),
        }
    }
}

impl Composer for Scenario {
    fn compose(&self, _: &SessionView) -> PromptPrefix {
        PromptPrefix::default()
    }
}

/// `ask` needs approval, `door` waits at the gate, `panic` panics, `slow` ends when it is cancelled; all others end at once.
/// `read` may run twice.
impl ToolRunner for Scenario {
    fn traits(&self, call: &ToolCall) -> CallTraits {
        CallTraits { concurrency: CallConcurrency::Shared, idempotent: call.name == "read" }
    }

    fn authorize<'a>(&'a self, call: &'a ToolCall, _: &'a SessionView) -> BoxFuture<'a, Authorization> {
        let ask = Authorization::Ask { reason: "may it?".to_owned() };
        std::future::ready(if call.name == "ask" { ask } else { Authorization::Allow }).boxed()
    }

    fn run<'a>(&'a self, call: &'a ToolCall, context: CallContext) -> BoxFuture<'a, ToolRunOutcome> {
        async move {
            *self.started.lock().unwrap().entry(format!("{} {}", call.name, call.id)).or_default() += 1;
            match call.name.as_str() {
                "door" => self.wait_at_gate().await,
                "panic" => panic!("the tool panics"),
                "slow" => context.cancel.cancelled().await,
                _ => {}
            }
            ToolResult::text_result(&call.id, format!("{} done", call.name)).into()
        }
        .boxed()
    }
}

impl SessionFactory for Scenario {
    fn build<'a>(&'a self, setup: SessionSetup<'a>) -> BoxFuture<'a, Result<SessionComponents, Failure>> {
        async move {
            let slow = *self.slow.lock().unwrap();
            SystemClock.sleep_until(SystemClock.deadline(slow)).await;
            let (fails, panics) = {
                let mut broken = self.broken.lock().unwrap();
                let now = (broken.0 > 0, broken.1 > 0);
                *broken = (broken.0.saturating_sub(1), broken.1.saturating_sub(1));
                now
            };
            assert!(!panics, "the session factory panics");
            if fails {
                return Err(
                    format!("there is no model `{}`", setup.profile.model.as_deref().unwrap_or("?")).into()
                );
            }
            Ok(SessionComponents {
                model: self.model(setup.profile.model.as_deref()),
                summarizer: None,
                composer: Arc::new(self.clone()),
                tools: Arc::new(self.clone()),
                redactor: Redactor::new([("KEY", "s3cr3t-value")]),
                executor: None,
                outputs: Vec::new(),
                artifacts: None,
                uploads: None,
                pre_call_hook: None,
            })
        }
        .boxed()
    }

    /// There is none called `missing`; one called `panic` panics; one called `door` waits at the gate.
    fn with_model<'a>(&'a self, setup: ModelSetup<'a>) -> BoxFuture<'a, Result<SessionComponents, Failure>> {
        async move {
            let name = setup.profile.model.as_deref();
            match name {
                Some("missing") => return Err("there is no model `missing`".into()),
                Some("panic") => panic!("the session factory panics"),
                Some("door") => self.wait_at_gate().await,
                _ => {}
            }
            Ok(SessionComponents { model: self.model(name), ..setup.components.clone() })
        }
        .boxed()
    }
}

/// One process: its tree, its name, what its sessions have in common.
pub(crate) struct Host {
    pub(crate) root: Root,
    pub(crate) access: JournalHandle,
    pub(crate) setting: SessionServices,
    sessions: Supervisor,
    pub(crate) scenario: Scenario,
}

pub(crate) fn options(owner: &str) -> SessionOptions {
    let mut options = SessionOptions::new(LeaseOwner::new(owner).unwrap());
    options.deadline = SECOND * 300;
    options
}

impl Host {
    /// Over a journal of its own, in memory.
    pub(crate) async fn new() -> Self {
        Self::over(of(MemoryJournal::new()), Scenario::default(), options("first")).await
    }

    pub(crate) async fn over(open: Arc<OpenJournal>, scenario: Scenario, options: SessionOptions) -> Self {
        let factory = Arc::new(scenario.clone());
        Self::with_factory(open, scenario, options, factory).await
    }

    /// With a session factory of the test's own.
    pub(crate) async fn with_factory(
        open: Arc<OpenJournal>,
        scenario: Scenario,
        options: SessionOptions,
        session_factory: Arc<dyn SessionFactory>,
    ) -> Self {
        let id = |text: &str| ChildId::new(text).unwrap();
        let (journal, access) = journal_actor(open, PATIENCE).unwrap();
        let (sessions_spec, sessions) = SupervisorSpec::dynamic(id("sessions"))
            .intensity_scope(IntensityScope::PerChild)
            .on_limit(OnLimit::Remove)
            .build();
        let spec = SupervisorSpec::ordered(id("root"), Strategy::OneForOne)
            .intensity(Intensity::new(1_000_000, SECOND))
            .backoff(Backoff::NONE);
        let (spec, _) = spec.child(journal).unwrap().child(sessions_spec).unwrap().build();
        let root = Root::spawn(spec, soon()).await.unwrap();
        let setting = SessionServices {
            journal: access.clone(),
            session_factory,
            options: Arc::new(options),
            metrics: RuntimeMetrics::new(MetricsOptions::default()),
            draining: CancellationToken::new(),
            accounts: TenantAccounts::new(access.clone(), Arc::new(SystemClock)),
        };
        Self { root, access, setting, sessions, scenario }
    }

    /// A new session.
    pub(crate) async fn open(&self) -> Session {
        let key = SessionKey::new(TenantId::new("acme").unwrap(), SessionId::random().unwrap());
        self.access.journal().await.unwrap().create(&key).await.unwrap();
        self.session(&key)
    }

    pub(crate) fn session(&self, key: &SessionKey) -> Session {
        Session::new(key.clone(), self.setting.clone(), self.sessions.clone())
    }

    /// Kills the supervisor of all sessions; it is started again, and they are not.
    pub(crate) fn kill_sessions(&self) {
        self.sessions.kill();
    }

    /// How many session trees there are.
    pub(crate) fn trees(&self) -> usize {
        self.sessions.count().all
    }

    /// Has a session stopped from above, in the background.
    pub(crate) fn leave(&self, session: &Session) {
        let (sessions, id) = (self.sessions.clone(), ChildId::new(session.id().to_string()).unwrap());
        drop(TaskTracker::new().spawn(async move { sessions.terminate_child(&id, soon()).await }));
    }

    /// The recorded events of a session.
    pub(crate) async fn events(&self, session: &Session) -> Vec<EventKind> {
        let journal = self.access.journal().await.unwrap();
        let limit = PageLimit { events: 10_000, ..PageLimit::default() };
        let page = journal.read(&key(session), 0, limit).await.unwrap();
        let read = |body: &[u8]| serde_json::from_slice::<conjure_conversation::Event>(body).unwrap().kind;
        page.events.iter().map(|event| read(&event.body)).collect()
    }

    pub(crate) async fn shutdown(self) {
        self.root.shutdown(soon()).await.unwrap();
        self.scenario.check();
    }
}

pub(crate) fn key(session: &Session) -> SessionKey {
    SessionKey::new(session.tenant().clone(), session.id())
}

/// Follows a turn to its end: the text that was recorded, and why it ended.
pub(crate) async fn follow(turn: &mut TurnHandle) -> (Vec<String>, TurnStop) {
    let mut lines = Vec::new();
    while let Some(event) = turn.next().await {
        match event.unwrap() {
            TurnEvent::Update(Update::Recorded(event)) => lines.push(event.to_line()),
            TurnEvent::Ended { stop, .. } => return (lines, stop),
            _ => {}
        }
    }
    panic!("the turn had no end: {lines:#?}");
}

/// Follows a turn to the error that ends its events.
pub(crate) async fn error_of(turn: &mut TurnHandle) -> SessionError {
    loop {
        if let Err(error) = turn.next().await.unwrap() {
            return error;
        }
    }
}

/// The recorded events up to the first answer of the model that ends a turn.
pub(crate) async fn lines_until_answer(listening: &mut Subscription) -> String {
    let mut lines = String::new();
    while !lines.contains("end_turn") {
        if let Update::Recorded(event) = listening.next().await.unwrap() {
            lines.push_str(&event.to_line());
        }
    }
    lines
}

/// The first call of the session that waits for an approval.
pub(crate) async fn awaited_approval(session: &Session) -> CallId {
    loop {
        match session.snapshot().await.unwrap().approvals.first() {
            Some(approval) => return approval.call.id.clone(),
            None => tokio::task::yield_now().await,
        }
    }
}

pub(crate) fn answered() -> TurnStop {
    TurnStop::Answered(StopReason::EndTurn)
}

/// The texts of users and model in the last request.
pub(crate) fn texts_of(messages: &[Arc<Message>]) -> Vec<String> {
    messages.iter().map(|message| message.text()).filter(|text| !text.is_empty()).collect()
}
