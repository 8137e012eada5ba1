//! Histories that have grown long are compacted as long as that makes progress. Requests stay valid throughout.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use conjure_base::{Clock as _, Digest, SystemClock};
use conjure_conversation::{
    Block, Compaction, CompactionError, CompactionPolicy, Composer, Event, EventKind, Limits, LoopOptions,
    Message, ModelError, ModelErrorKind, PinnedSkill, PromptPrefix, Request, Response, SUMMARY_PROMPT,
    SessionState, SessionView, StopReason, Summarizer, Summary, TurnOptions, TurnOutcome, TurnServices,
    TurnStop, Usage, apply, pairing, run_loop, run_turn,
};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio_util::sync::CancellationToken;

use crate::support::{
    ANSWERED, FakeModel, Fixture, answer, calls, outline, project, start, start_within, text,
};

/// Bytes of what a request holds, as a service would count tokens.
fn counted(messages: &[Arc<Message>]) -> u64 {
    messages.iter().flat_map(|message| &message.content).map(|block| block.json().len() as u64).sum()
}

pub(crate) fn is_summary(request: &Request) -> bool {
    request.messages.last().unwrap().text().contains(SUMMARY_PROMPT)
}

/// Calls a tool until it has been called so often in this turn, and then is done. It counts what it is sent, and writes short summaries.
fn busy(tool_calls: u32) -> FakeModel {
    FakeModel::answering(move |request| {
        let input_tokens = counted(&request.messages);
        let mut response = if is_summary(request) {
            text("<summary>In short.</summary>")
        } else if request.call <= tool_calls {
            let name = format!("call-{}-{}-{}", request.turn, request.call, "x".repeat(200));
            calls(&[("bash", &name)])
        } else {
            text("done")
        };
        response.usage = Usage { input_tokens, output_tokens: 5, cost_micros: 1, ..Usage::default() };
        response
    })
}

fn within(compaction: impl Into<Compaction>) -> TurnOptions<'static> {
    TurnOptions { compaction: Some(compaction.into()), ..TurnOptions::default() }
}

/// What became of each compaction.
fn outcomes(events: &[Event]) -> Vec<&'static str> {
    let outcome = |event: &Event| match &event.kind {
        EventKind::Compacted { .. } => Some("compacted"),
        EventKind::CompactionFailed { error: CompactionError::NoProgress { .. }, .. } => Some("no progress"),
        EventKind::CompactionFailed { error: CompactionError::Empty, .. } => Some("empty"),
        EventKind::CompactionFailed { .. } => Some("failed"),
        EventKind::CompactionAbandoned { .. } => Some("abandoned"),
        _ => None,
    };
    events.iter().filter_map(outcome).collect()
}

#[tokio::test(start_paused = true)]
async fn a_long_turn_continues_with_a_summary_of_its_first_messages() {
    let fixture = Fixture::new(busy(23));
    let mut conversation = fixture.begin("first").await;
    let policy = CompactionPolicy::with_threshold(5_000).with_kept_messages(4);
    assert_eq!(fixture.drive(&mut conversation, within(policy)).await, Ok(ANSWERED));
    fixture.model.assert_requests_valid("compacted");
    fixture.tools.assert_no_effect_repeated("compacted");

    let events = fixture.event_log.0.events();
    assert_eq!(outcomes(&events), ["compacted"; 3]);
    // Every call was answered, the original words are in the record, and the history is short.
    assert_eq!(fixture.tools.log().len(), 2 * 23);
    assert!(conversation.state().messages().len() < 20);
    assert_eq!(outline(conversation.state().messages()).join("").matches("first").count(), 0);
    let session = conjure_base::SessionId::from_bits(7);
    let lines: Vec<String> =
        project(session, 0, &events).iter().map(conjure_conversation::SessionEvent::to_line).collect();
    assert!(lines[0].contains("user.message") && lines[0].contains("first"));
    let told = |what: &str| lines.iter().filter(|line| line.contains(&format!(r#""type":"{what}""#))).count();
    assert_eq!(
        (told("session.compacted"), told("span.compaction_start"), told("span.compaction_end")),
        (3, 3, 3)
    );
    assert_eq!(told("agent.tool_result"), 23);

    // What summaries use counts, and they are no model calls of the turn.
    let requests = fixture.model.requests.lock().unwrap().clone();
    assert_eq!(requests.len(), 24 + 3);
    let used: u64 = requests.iter().map(|request| counted(&request.messages)).sum();
    let turn = conversation.state().last_turn().unwrap();
    assert_eq!((turn.usage.input_tokens, turn.usage.cost_micros, turn.model_calls), (used, 27, 24));
    assert_eq!(conversation.state().usage(), &turn.usage);
    assert_eq!(fixture.load().await.state(), conversation.state(), "the record tells the same");

    // Between compactions, each request continues the one before. A summary is requested at the end of what was sent.
    let flat = |request: &Request| -> Vec<String> {
        request
            .messages
            .iter()
            .flat_map(|message| &message.content)
            .map(|block| block.json().to_owned())
            .collect()
    };
    let mut breaks = 0;
    for pair in requests.windows(2) {
        let (before, now) = (flat(&pair[0]), flat(&pair[1]));
        if is_summary(&pair[1]) {
            assert!(before.starts_with(&now[..now.len() - 1]));
        } else if is_summary(&pair[0]) {
            assert!(pair[1].messages[0].text().ends_with("In short."), "{}", pair[1].messages[0].text());
            breaks += 1;
        } else {
            assert!(now.starts_with(&before));
        }
    }
    assert_eq!(breaks, 3);
}

/// A summariser of the host's, which says this much.
struct Says {
    bytes: usize,
    asked: AtomicUsize,
}

impl Says {
    fn bytes(bytes: usize) -> Arc<Self> {
        Arc::new(Self { bytes, asked: AtomicUsize::new(0) })
    }
}

impl Summarizer for Says {
    fn summarize(&self, part: Request) -> BoxFuture<'_, Result<Summary, ModelError>> {
        assert_eq!(pairing::check(&part.messages), Ok(()));
        self.asked.fetch_add(1, Ordering::SeqCst);
        async { Ok(Summary { text: "s".repeat(self.bytes), ..Summary::default() }) }.boxed()
    }
}

fn by(summarizer: Arc<dyn Summarizer>, policy: CompactionPolicy) -> Compaction {
    Compaction { policy, summarizer: Some(summarizer) }
}

#[tokio::test(start_paused = true)]
async fn a_summary_that_is_no_smaller_changes_nothing_and_is_not_tried_again_before_the_history_has_grown() {
    let fixture = Fixture::new(busy(23));
    let mut conversation = fixture.begin("first").await;
    let says = Says::bytes(1 << 20);
    let policy = CompactionPolicy::with_threshold(3_000).with_kept_messages(4).with_regrowth(4_000);
    let options = within(by(Arc::clone(&says) as _, policy));
    assert_eq!(fixture.drive(&mut conversation, options).await, Ok(ANSWERED));
    fixture.model.assert_requests_valid("no progress");
    // The history came to some 20,000: at 3,000, 7,000, 11,000, 15,000 and 19,000.
    let last = counted(&fixture.model.requests.lock().unwrap().last().unwrap().messages);
    let most = 1 + (last - 3_000) / 4_000;
    let asked = says.asked.load(Ordering::SeqCst) as u64;
    assert!(asked >= 3 && asked <= most, "{asked} of {most} at {last}");
    assert_eq!(outcomes(&fixture.event_log.0.events()), vec!["no progress"; asked as usize]);
    assert_eq!(outline(conversation.state().messages())[0], "user: first");
    assert_eq!(conversation.state().messages().len(), 2 + 2 * 23);
}

#[tokio::test(start_paused = true)]
async fn a_history_that_is_still_too_long_is_not_compacted_again_before_it_has_grown() {
    let fixture = Fixture::new(busy(23));
    let mut conversation = fixture.begin("first").await;
    let says = Says::bytes(10);
    // Every answer is over it.
    let policy = CompactionPolicy::with_threshold(1).with_kept_messages(2).with_regrowth(2_000);
    let options = within(by(Arc::clone(&says) as _, policy));
    assert_eq!(fixture.drive(&mut conversation, options).await, Ok(ANSWERED));
    fixture.model.assert_requests_valid("over it");
    let events = fixture.event_log.0.events();
    // Each attempt but the first is 2,000 after what was measured after the one before.
    let mut measured: Option<u64> = None;
    let mut floor = 0;
    let mut is_first = false;
    for event in &events {
        match &event.kind {
            EventKind::CompactionStarted { .. } => {
                assert!(measured.unwrap() >= floor, "{measured:?} is below {floor}");
            }
            EventKind::Compacted { .. } => (measured, is_first) = (None, true),
            EventKind::CompactionFailed { .. } => floor = measured.unwrap() + 2_000,
            EventKind::ModelAnswered { response, .. } => {
                measured = Some(response.usage.input_tokens);
                if std::mem::take(&mut is_first) {
                    floor = response.usage.input_tokens + 2_000;
                }
            }
            _ => {}
        }
    }
    let done = outcomes(&events);
    assert!((2..10).contains(&done.len()), "{done:?}");
}

#[tokio::test(start_paused = true)]
async fn a_summariser_that_fails_panics_or_says_nothing_does_not_end_the_turn() {
    struct Broken(&'static str);
    impl Summarizer for Broken {
        fn summarize(&self, _: Request) -> BoxFuture<'_, Result<Summary, ModelError>> {
            assert!(self.0 != "panics early", "as said");
            async {
                match self.0 {
                    "fails" => Err(ModelError::new(ModelErrorKind::Connection, "gone")),
                    "panics" => panic!("as said"),
                    _ => Ok(Summary {
                        usage: Usage { output_tokens: 7, ..Usage::default() },
                        ..Summary::default()
                    }),
                }
            }
            .boxed()
        }
    }
    for (how, expected) in
        [("fails", "failed"), ("panics", "failed"), ("panics early", "failed"), ("empty", "empty")]
    {
        let fixture = Fixture::new(busy(9));
        let mut conversation = fixture.begin("first").await;
        let policy = CompactionPolicy::with_threshold(1_500).with_regrowth(100_000);
        let options = within(by(Arc::new(Broken(how)), policy));
        assert_eq!(fixture.drive(&mut conversation, options).await, Ok(ANSWERED), "{how}");
        assert_eq!(outcomes(&fixture.event_log.0.events()), [expected], "{how}");
        assert_eq!(conversation.state().messages().len(), 2 + 2 * 9);
        let paid = if how == "empty" { 7 } else { 0 };
        assert_eq!(conversation.state().usage().output_tokens, 10 * 5 + paid);
    }
}

#[tokio::test(start_paused = true)]
async fn a_summary_ends_with_the_turns_time_or_when_it_is_cancelled() {
    struct Hangs(CancellationToken);
    impl Summarizer for Hangs {
        fn summarize(&self, _: Request) -> BoxFuture<'_, Result<Summary, ModelError>> {
            self.0.cancel();
            std::future::pending().boxed()
        }
    }
    for expected in [TurnStop::Interrupted, TurnStop::Deadline] {
        let fixture = Fixture::new(busy(9));
        let mut conversation = fixture.begin("first").await;
        let cancel = CancellationToken::new();
        let is_cancelled = expected == TurnStop::Interrupted;
        let told = if is_cancelled { cancel.clone() } else { CancellationToken::new() };
        let deadline = SystemClock.deadline(Duration::from_secs(if is_cancelled { 3_600 } else { 60 }));
        let compaction = by(Arc::new(Hangs(told)), CompactionPolicy::with_threshold(1_500));
        let options = TurnOptions { cancel, deadline, ..within(compaction) };
        let outcome = fixture.drive(&mut conversation, options).await;
        assert_eq!(outcome, Ok(TurnOutcome::Finished(expected)));
        assert_eq!(fixture.turn(&mut conversation, start("second")).await, ANSWERED);
        fixture.model.assert_requests_valid("after a summary that hung");
    }
}

#[tokio::test(start_paused = true)]
async fn what_summaries_use_counts_for_the_turns_limits() {
    let fixture = Fixture::new(busy(23));
    let mut conversation = fixture.load().await;
    let limits = Limits { cost_micros: Some(12), ..Limits::default() };
    conversation.submit(start_within("first", limits)).await.unwrap();
    let policy = CompactionPolicy::with_threshold(1_500).with_kept_messages(2).with_regrowth(1);
    let outcome = fixture.drive(&mut conversation, within(policy)).await;
    assert_eq!(outcome, Ok(TurnOutcome::Finished(TurnStop::Limit(conjure_conversation::Limit::Cost))));
    assert_eq!(fixture.model.request_count(), 12);
    assert!(conversation.state().last_turn().unwrap().model_calls < 12);
}

/// Instructions of active skills stood in the results of their loads.
struct Preserving {
    asked: Mutex<Vec<Vec<String>>>,
}

impl Composer for Preserving {
    fn compose(&self, _: &SessionView) -> PromptPrefix {
        PromptPrefix::default()
    }

    fn after_compaction(&self, view: &SessionView) -> Option<String> {
        let names: Vec<String> = view.active_skills().iter().map(|skill| skill.name.clone()).collect();
        self.asked.lock().unwrap().push(names.clone());
        Some(format!("[{}]", names.join(" ")))
    }
}

#[tokio::test(start_paused = true)]
async fn active_skills_are_delivered_again_exactly_once() {
    use conjure_conversation::{
        Authorization, CallConcurrency, CallContext, CallTraits, ToolCall, ToolResult, ToolRunOutcome,
        ToolRunner,
    };

    /// A call loads the skill of its id's first word; a third of them is loaded late.
    struct Loading;
    impl ToolRunner for Loading {
        fn traits(&self, _: &ToolCall) -> CallTraits {
            CallTraits { concurrency: CallConcurrency::Exclusive, idempotent: false }
        }
        fn authorize<'a>(&'a self, _: &'a ToolCall, _: &'a SessionView) -> BoxFuture<'a, Authorization> {
            async { Authorization::Allow }.boxed()
        }
        fn run<'a>(&'a self, call: &'a ToolCall, context: CallContext) -> BoxFuture<'a, ToolRunOutcome> {
            let mut active = context.view.active_skills().to_vec();
            let result = ToolResult::text_result(&call.id, "z".repeat(300));
            let result = match call.id.as_str().split('-').nth(2) {
                Some("1") => "early",
                Some("2") => "gone",
                Some("11") => "late",
                Some("3") => {
                    active.retain(|skill| skill.name != "gone");
                    return async { result.with_active_skills(active).into() }.boxed();
                }
                _ => return async { result.into() }.boxed(),
            };
            let name = result.to_owned();
            active.push(PinnedSkill { digest: Digest::of_bytes(name.as_bytes()), name });
            let result = ToolResult::text_result(&call.id, "z".repeat(300)).with_active_skills(active);
            async { result.into() }.boxed()
        }
    }

    let fixture = Fixture::new(busy(23));
    let mut conversation = fixture.begin("first").await;
    let composer = Preserving { asked: Mutex::default() };
    let services = TurnServices { model: &fixture.model, composer: &composer, tools: &Loading };
    let options = within(CompactionPolicy::with_threshold(7_000).with_kept_messages(4));
    assert_eq!(run_turn(&mut conversation, services, options).await, Ok(ANSWERED));
    fixture.model.assert_requests_valid("skills");
    // Those that were loaded in what is replaced, each time; not what is active by a result that stays.
    let asked = composer.asked.lock().unwrap().clone();
    assert!(asked.len() >= 2, "{asked:?}");
    assert_eq!(asked[0], ["early"]);
    assert_eq!(asked.last().unwrap(), &["early", "late"]);
    let first = &conversation.state().messages()[0];
    assert_eq!(first.content.len(), 2);
    assert!(first.text().ends_with("\n[early late]"), "{}", first.text());
    let history = outline(conversation.state().messages()).join("\n");
    assert_eq!(history.matches("[early").count(), 1);
}

#[tokio::test(start_paused = true)]
async fn what_the_user_adds_meanwhile_is_shown_after_it() {
    use conjure_conversation::{InboxMessageKind, Receipt};
    use futures_util::{StreamExt, stream};

    /// Ends when something was posted, so that it is posted in the middle of it.
    struct Slow(CancellationToken, CancellationToken);
    impl Summarizer for Slow {
        fn summarize(&self, _: Request) -> BoxFuture<'_, Result<Summary, ModelError>> {
            async {
                self.0.cancel();
                self.1.cancelled().await;
                Ok(Summary { text: "in short".to_owned(), ..Summary::default() })
            }
            .boxed()
        }
    }
    let fixture = Fixture::new(busy(12));
    let mut conversation = fixture.begin("first").await;
    let (begun, posted) = (CancellationToken::new(), CancellationToken::new());
    let told: Arc<Mutex<Vec<Receipt>>> = Arc::default();
    let (wait, done, receipts) = (begun.clone(), posted.clone(), Arc::clone(&told));
    let inbox = stream::once(async move {
        wait.cancelled().await;
        conjure_conversation::InboxMessage::new(
            InboxMessageKind::Steer,
            vec![Block::text("and quickly")],
            move |receipt| {
                receipts.lock().unwrap().push(receipt);
                done.cancel();
            },
        )
    });
    let compaction =
        by(Arc::new(Slow(begun, posted)), CompactionPolicy::with_threshold(2_500).with_regrowth(1 << 20));
    let options = TurnOptions { inbox: inbox.boxed(), ..within(compaction) };
    assert_eq!(fixture.drive(&mut conversation, options).await, Ok(ANSWERED));
    assert!(matches!(told.lock().unwrap().as_slice(), [Receipt::Steered { .. }]));
    let history = outline(conversation.state().messages()).join("\n");
    assert_eq!(history.matches("and quickly").count(), 1, "{history}");
    fixture.model.assert_requests_valid("steered");
}

#[tokio::test(start_paused = true)]
async fn the_stateless_loop_compacts_too() {
    let fixture = Fixture::new(busy(12));
    let question = vec![Message::user(vec![Block::text("first")])];
    let options = LoopOptions {
        compaction: Some(CompactionPolicy::with_threshold(2_500).into()),
        ..LoopOptions::default()
    };
    let outcome =
        run_loop(question, &fixture.model, &PromptPrefix::default(), &fixture.tools, options).await.unwrap();
    assert_eq!(outcome.stop, ANSWERED);
    assert!(outcome.messages[0].text().contains("In short."), "{:?}", outcome.messages[0]);
    assert_eq!(pairing::check_history(&outcome.messages), Ok(()));
}

#[tokio::test(start_paused = true)]
async fn the_services_own_word_that_it_is_too_long_ends_the_turn_as_before() {
    let model = FakeModel::answering(|request| match request.call {
        1..=8 => calls(&[("bash", &format!("c{}", request.call))]),
        _ => Response {
            usage: Usage::default(),
            ..answer(vec![Block::text("cut")], StopReason::ContextWindowExceeded)
        },
    });
    let fixture = Fixture::new(model);
    let mut conversation = fixture.begin("first").await;
    let options = within(by(Says::bytes(1 << 20), CompactionPolicy::with_threshold(1)));
    let outcome = fixture.drive(&mut conversation, options).await;
    assert_eq!(outcome, Ok(TurnOutcome::Finished(TurnStop::Truncated(StopReason::ContextWindowExceeded))));
}

#[test]
fn a_reader_that_begins_in_the_middle_of_a_record_is_not_led_astray() {
    let events = {
        let fixture = Fixture::new(busy(23));
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let mut conversation = fixture.begin("first").await;
            fixture.drive(&mut conversation, within(CompactionPolicy::with_threshold(5_000))).await.unwrap();
        });
        fixture.event_log.0.events()
    };
    let answered = |event: &Event| matches!(event.kind, EventKind::ModelAnswered { .. });
    let last = events.iter().rposition(answered).unwrap();
    for from in 0..=last {
        let mut state = SessionState::default();
        events[from..].iter().for_each(|event| apply(&mut state, event));
        assert_eq!(state.last_text(), "done", "{from}");
    }
}

/// A summary that takes longer than a turn may does not keep every turn from the model.
#[tokio::test(start_paused = true)]
async fn a_summariser_that_is_always_too_slow_is_given_up_after_two_turns() {
    struct Slow;
    impl Summarizer for Slow {
        fn summarize(&self, _: Request) -> BoxFuture<'_, Result<Summary, ModelError>> {
            Box::pin(std::future::pending())
        }
    }
    let fixture = Fixture::new(busy(5));
    let mut conversation = fixture.load().await;
    let mut ended = Vec::new();
    for words in ["one", "two", "three", "four"] {
        conversation.submit(start(words)).await.unwrap();
        let mut options = within(by(
            Arc::new(Slow),
            CompactionPolicy::with_threshold(1).with_kept_messages(1).with_regrowth(1_000_000),
        ));
        options.deadline = SystemClock.deadline(Duration::from_secs(60));
        ended.push(fixture.drive(&mut conversation, options).await.unwrap());
    }
    let is_late = |outcome: &&TurnOutcome| matches!(outcome, TurnOutcome::Finished(TurnStop::Deadline));
    assert_eq!(ended.iter().filter(is_late).count(), 2, "{ended:?}");
    let abandoned = fixture.event_log.0.events();
    let abandoned =
        abandoned.iter().filter(|event| matches!(event.kind, EventKind::CompactionAbandoned { .. }));
    assert_eq!(abandoned.count(), 2, "each has its end");
}

#[tokio::test(start_paused = true)]
async fn a_summary_is_written_in_no_container() {
    let fixture = Fixture::new(FakeModel::answering(|request| {
        let input_tokens = counted(&request.messages);
        let said = match (is_summary(request), request.call) {
            (true, _) => text("<summary>In short.</summary>"),
            (false, 1..=23) => calls(&[("bash", &format!("call-{}-{}", request.call, "x".repeat(200)))]),
            (false, _) => text("done"),
        };
        let usage = Usage { input_tokens, output_tokens: 5, ..Usage::default() };
        Response { usage, container: Some(conjure_base::ContainerId::new("c_1")), ..said }
    }));
    let mut conversation = fixture.begin("first").await;
    let policy = CompactionPolicy::with_threshold(5_000).with_kept_messages(4);
    assert_eq!(fixture.drive(&mut conversation, within(policy)).await, Ok(ANSWERED));
    let requests = fixture.model.requests.lock().unwrap().clone();
    assert!(requests.iter().any(is_summary));
    for request in &requests[1..] {
        assert_eq!(request.container.is_none(), is_summary(request));
    }
}
