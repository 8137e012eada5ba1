//! What the driver does with models that fail, people who must be asked, deadlines and event logs.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use conjure_base::{Clock, Deadline, SystemClock};
use conjure_conversation::{
    ActionNeed, ApiErrorKind, Block, CommandKind, Composer, Conversation, ConversationObserver, Decision,
    DriveError, Event, EventKind, EventLog, EventLogError, InboxMessageKind, Limits, LoopError, LoopOptions,
    MemoryEventLog, Message, ModelError, ModelErrorKind, ModelEvent, PairingError, PromptPrefix, QueueId,
    Receipt, Rejection, SessionView, Step, SubmitError, TurnOptions, TurnOutcome, TurnServices, TurnStop,
    model_fn, next, parse_response, run_loop, run_turn,
};
use futures_util::future::BoxFuture;
use futures_util::{FutureExt, StreamExt, stream};
use tokio_util::sync::CancellationToken;

use crate::support::{
    ANSWERED, FakeModel, FakeTools, Fixture, calls, give_way, id, outline, posting, start, text,
};

#[tokio::test(start_paused = true)]
async fn a_stream_without_an_end_is_a_truncated_answer() {
    let fixture = Fixture::new(FakeModel::events(|_| vec![Ok(ModelEvent::Started)]));
    let mut conversation = fixture.load().await;
    let outcome = fixture.turn(&mut conversation, start("hi")).await;
    let TurnOutcome::Finished(TurnStop::ModelFailed(error)) = outcome else { panic!("{outcome:?}") };
    assert_eq!(error.kind, ModelErrorKind::Truncated);
    assert_eq!(fixture.model.request_count(), 1, "the driver repeats no call");
}

#[tokio::test(start_paused = true)]
async fn a_model_that_panics_has_failed() {
    let fixture = Fixture::new(FakeModel::answering(|_| panic!("this client panics")));
    let mut conversation = fixture.load().await;
    let outcome = fixture.turn(&mut conversation, start("hi")).await;
    assert!(matches!(outcome, TurnOutcome::Finished(TurnStop::ModelFailed(_))), "{outcome:?}");
}

/// A service that refuses every request which holds the picture `bad`.
fn picky(location: &'static str) -> FakeModel {
    FakeModel::events(move |request| {
        let holds = |message: &Arc<Message>| message.content.iter().any(|block| block.json().contains("bad"));
        vec![if request.messages.iter().any(holds) {
            let kind = ModelErrorKind::Api(ApiErrorKind::InvalidRequest);
            Err(ModelError::new(kind, format!("{location}.image.source.base64: image exceeds 5 MB maximum")))
        } else {
            Ok(ModelEvent::Finished(Box::new(text("I see"))))
        }]
    })
}

fn picture() -> CommandKind {
    let image = r#"{"type":"image","source":{"type":"base64","media_type":"image/png","data":"bad"}}"#;
    CommandKind::StartTurn {
        input: vec![Block::text("look"), Block::from_json(image).unwrap()],
        limits: Limits::default(),
    }
}

#[tokio::test(start_paused = true)]
async fn a_block_that_the_service_refuses_does_not_brick_the_session() {
    for named in ["messages.0.content.1", "could not process "] {
        let fixture = Fixture::new(picky(named));
        let mut conversation = fixture.load().await;
        assert_eq!(fixture.turn(&mut conversation, picture()).await, ANSWERED);
        assert_eq!(fixture.model.request_count(), 2);
        let said = outline(conversation.state().messages());
        assert!(
            said[0].starts_with("user: look | [left out: the service refused this content: "),
            "{said:?}"
        );
        assert_eq!(fixture.turn(&mut conversation, start("and now?")).await, ANSWERED);
    }
}

#[tokio::test(start_paused = true)]
async fn a_refusal_that_names_the_wrong_block_fails_after_one_try_for_it() {
    let fixture = Fixture::new(picky("messages.0.content.0"));
    let mut conversation = fixture.load().await;
    let outcome = fixture.turn(&mut conversation, picture()).await;
    assert!(matches!(outcome, TurnOutcome::Finished(TurnStop::ModelFailed(_))), "{outcome:?}");
    assert_eq!(fixture.model.request_count(), 2);
}

#[tokio::test(start_paused = true)]
async fn allowed_calls_run_while_a_person_is_asked_and_the_wait_survives() {
    let answers = vec![calls(&[("bash", "1"), ("ask", "2"), ("ask", "3")]), text("done")];
    let fixture = Fixture::new(FakeModel::in_turn(answers));
    let mut conversation = fixture.load().await;
    let TurnOutcome::RequiresAction(approvals) = fixture.turn(&mut conversation, start("go")).await else {
        panic!("nobody was asked");
    };
    assert_eq!(approvals.iter().map(|a| a.call.id.as_str()).collect::<Vec<_>>(), ["2", "3"]);
    assert_eq!(approvals[0].need, ActionNeed::Approval { reason: "may it?".to_owned() });
    assert_eq!(fixture.tools.log(), ["start bash 1", "end bash 1"]);

    let mut conversation = fixture.load().await;
    let again = fixture.drive(&mut conversation, TurnOptions::default()).await.unwrap();
    assert_eq!(again, TurnOutcome::RequiresAction(approvals.clone()));
    // Whoever stops driving does not end a wait that nobody drives.
    let cancelled = TurnOptions::default();
    cancelled.cancel.cancel();
    let again = fixture.drive(&mut conversation, cancelled).await.unwrap();
    assert_eq!(again, TurnOutcome::RequiresAction(approvals));
    let deny = Decision::Deny { reason: "no".to_owned() };
    for (call, decision) in [("2", Decision::Allow), ("3", deny)] {
        conversation.submit(CommandKind::Decide { call: id(call), decision }).await.unwrap();
    }
    let mut conversation = fixture.load().await;
    let outcome = fixture.drive(&mut conversation, TurnOptions::default()).await.unwrap();
    assert_eq!(outcome, ANSWERED);
    let results = "user: 1=bash done | 2=ask done | 3!denied: no";
    assert_eq!(outline(conversation.state().messages())[2], results);
}

#[tokio::test(start_paused = true)]
async fn steering_reaches_the_model_after_the_results() {
    let fixture = Fixture::new(FakeModel::in_turn(vec![calls(&[("bash", "1")]), text("done")]));
    let mut conversation = fixture.begin("go").await;
    let told = Arc::new(Mutex::new(Vec::new()));
    let inbox = stream::iter([
        posting(InboxMessageKind::Steer, "", &told),
        posting(InboxMessageKind::Queue, "and then this", &told),
        posting(InboxMessageKind::Steer, "be brief", &told),
    ]);
    let options = TurnOptions { inbox: inbox.boxed(), ..TurnOptions::default() };
    assert_eq!(fixture.drive(&mut conversation, options).await, Ok(ANSWERED));
    assert_eq!(outline(conversation.state().messages())[2], "user: 1=bash done | be brief");

    let queued: Vec<QueueId> = conversation.state().queue().map(|queued| queued.id).collect();
    let told = std::mem::take(&mut *told.lock().unwrap());
    let [Receipt::Refused(Rejection::EmptyInput), Receipt::Queued { id, .. }, Receipt::Steered { .. }] =
        &told[..]
    else {
        panic!("{told:?}");
    };
    assert_eq!(queued, [*id]);
}

/// What comes too late to steer goes back; what was to be queued is.
#[tokio::test(start_paused = true)]
async fn a_message_after_the_turn_is_queued_or_returned() {
    let fixture = Fixture::new(FakeModel::in_turn(vec![text("done")]));
    let mut conversation = fixture.load().await;
    fixture.turn(&mut conversation, start("go")).await;
    let told = Arc::new(Mutex::new(Vec::new()));
    for kind in [InboxMessageKind::Steer, InboxMessageKind::Queue] {
        posting(kind, "late", &told).submit(&mut conversation).await.unwrap();
    }
    let told = std::mem::take(&mut *told.lock().unwrap());
    let [Receipt::Returned(input), Receipt::Queued { .. }] = &told[..] else { panic!("{told:?}") };
    assert_eq!(input, &[Block::text("late")]);
    let limits = Limits::default();
    assert_eq!(fixture.turn(&mut conversation, CommandKind::StartQueued { limits }).await, ANSWERED);
    assert_eq!(outline(conversation.state().messages())[2], "user: late");
    assert_eq!(conversation.state().queue().len(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_composer_that_panics_fails_the_turn_and_nothing_else() {
    struct Broken;
    impl Composer for Broken {
        fn compose(&self, _: &SessionView) -> PromptPrefix {
            panic!("this composer panics")
        }
    }
    let fixture = Fixture::new(FakeModel::in_turn(vec![text("done")]));
    let mut conversation = fixture.begin("go").await;
    let services = TurnServices { model: &fixture.model, composer: &Broken, tools: &fixture.tools };
    let outcome = run_turn(&mut conversation, services, TurnOptions::default()).await.unwrap();
    let TurnOutcome::Finished(TurnStop::ModelFailed(error)) = outcome else { panic!("{outcome:?}") };
    assert_eq!(error.message, "the composer of the request has crashed");
    assert_eq!(fixture.turn(&mut conversation, start("go on")).await, ANSWERED);
    fixture.model.assert_requests_valid("after a composer's panic");
}

#[tokio::test(start_paused = true)]
async fn a_deadline_covers_the_whole_run() {
    let silent = FakeModel::answering(|_| text("never heard"));
    let hanging = FakeModel::in_turn(vec![calls(&[("hang", "h")])]);
    for (model, silent) in [(silent, true), (hanging, false)] {
        let fixture = Fixture::new(model);
        let mut conversation = fixture.begin("go").await;
        let deadline = SystemClock.deadline(Duration::from_secs(30));
        let options = TurnOptions { deadline, ..TurnOptions::default() };
        let outcome = if silent {
            // A model that has begun and says nothing more.
            let mute = model_fn(|_| std::future::pending());
            let composer = PromptPrefix::default();
            let services = TurnServices { model: &mute, composer: &composer, tools: &fixture.tools };
            run_turn(&mut conversation, services, options).await
        } else {
            fixture.drive(&mut conversation, options).await
        };
        assert_eq!(outcome, Ok(TurnOutcome::Finished(TurnStop::Deadline)));
        assert_eq!(SystemClock.remaining(deadline), Duration::ZERO);
        let fixture = Fixture { model: FakeModel::in_turn(vec![text("fine")]), ..fixture };
        assert_eq!(fixture.turn(&mut conversation, start("go on")).await, ANSWERED);
        fixture.model.assert_requests_valid("after a deadline");
    }
}

#[tokio::test(start_paused = true)]
async fn a_model_that_never_stops_talking_can_be_cancelled() {
    let babble = |_| {
        let delta = || Ok(ModelEvent::TextDelta { index: 0, text: "bla".to_owned() });
        stream::repeat_with(delta).boxed()
    };
    struct Babbler<F>(F);
    impl<F> conjure_conversation::Model for Babbler<F>
    where
        F: Fn(conjure_conversation::Request) -> conjure_conversation::ModelStream + Send + Sync,
    {
        fn stream(&self, request: conjure_conversation::Request) -> conjure_conversation::ModelStream {
            (self.0)(request)
        }
    }
    struct CancelAfter(CancellationToken, AtomicUsize);
    impl ConversationObserver for CancelAfter {
        fn on_preview(&self, _: &ModelEvent) {
            if self.1.fetch_add(1, Ordering::Relaxed) == 100 {
                self.0.cancel();
            }
        }
    }
    let cancel = CancellationToken::new();
    let fixture = Fixture::new(FakeModel::answering(|_| text("")));
    let observer = Arc::new(CancelAfter(cancel.clone(), AtomicUsize::new(0)));
    let mut conversation = fixture.load_with(observer).await;
    conversation.submit(start("go")).await.unwrap();
    let (model, composer) = (Babbler(babble), PromptPrefix::default());
    let services = TurnServices { model: &model, composer: &composer, tools: &fixture.tools };
    let options = TurnOptions { cancel, ..TurnOptions::default() };
    let outcome = run_turn(&mut conversation, services, options).await;
    assert_eq!(outcome, Ok(TurnOutcome::Finished(TurnStop::Interrupted)));
}

#[tokio::test(start_paused = true)]
async fn without_a_turn_there_is_nothing_to_drive() {
    let fixture = Fixture::new(FakeModel::answering(|_| text("")));
    let mut conversation = fixture.load().await;
    let outcome = fixture.drive(&mut conversation, TurnOptions::default()).await;
    assert_eq!(outcome, Err(DriveError::NoTurn));
}

/// Records, but fails to say so at one append; or fails before it records.
struct Flaky {
    inner: MemoryEventLog,
    fails_at: usize,
    records_first: bool,
    appends: AtomicUsize,
}

impl EventLog for Flaky {
    fn append<'a>(&'a self, seq: u64, events: &'a [Event]) -> BoxFuture<'a, Result<u64, EventLogError>> {
        async move {
            give_way().await;
            let fails = self.appends.fetch_add(1, Ordering::Relaxed) == self.fails_at;
            if fails && !self.records_first {
                return Err(EventLogError::Failed { reason: "disk full".to_owned() });
            }
            let seq = self.inner.append(seq, events).await?;
            if fails { Err(EventLogError::Failed { reason: "no answer".to_owned() }) } else { Ok(seq) }
        }
        .boxed()
    }

    fn load(&self) -> BoxFuture<'_, Result<Vec<Event>, EventLogError>> {
        self.inner.load()
    }
}

#[tokio::test(start_paused = true)]
async fn after_a_failed_append_the_state_is_what_the_event_log_holds() {
    for records_first in [false, true] {
        for fails_at in 0.. {
            let model = FakeModel::in_turn(vec![
                calls(&[("bash", "1"), ("write", "2"), ("deny", "3")]),
                text("done"),
            ]);
            let fixture = Fixture::new(model);
            let event_log =
                Flaky { inner: MemoryEventLog::new(), fails_at, records_first, appends: AtomicUsize::new(0) };
            let record = event_log.inner.clone();
            let mut conversation =
                Conversation::load(Arc::new(event_log), Arc::new(SystemClock), Arc::new(())).await.unwrap();
            let mut failed = matches!(
                conversation.submit(start("go")).await,
                Err(SubmitError::EventLog(EventLogError::Failed { .. }))
            );
            match fixture.drive(&mut conversation, TurnOptions::default()).await {
                Ok(ANSWERED) => {}
                Err(DriveError::EventLog(EventLogError::Failed { .. })) => failed = true,
                Err(DriveError::NoTurn) if failed => {}
                other => panic!("{fails_at}: {other:?}"),
            }
            // The conversation finds back to its event log by itself.
            conversation.submit(CommandKind::Recover).await.unwrap();
            if conversation.state().turn().is_some() {
                assert_eq!(fixture.drive(&mut conversation, TurnOptions::default()).await, Ok(ANSWERED));
            }
            let when = format!("append {fails_at} failed, recorded: {records_first}");
            fixture.model.assert_requests_valid(&when);
            fixture.tools.assert_no_effect_repeated(&when);
            let reloaded =
                Conversation::load(Arc::new(record), Arc::new(SystemClock), Arc::new(())).await.unwrap();
            assert_eq!(reloaded.state(), conversation.state(), "{when}");
            if !failed {
                assert!(fails_at > 6, "only {fails_at} appends");
                break;
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn two_writers_of_one_event_log_are_noticed() {
    let fixture = Fixture::new(FakeModel::answering(|_| text("hello")));
    let (mut one, mut two) = (fixture.load().await, fixture.load().await);
    one.submit(start("one")).await.unwrap();
    let refused = two.submit(start("two")).await;
    assert_eq!(refused, Err(SubmitError::EventLog(EventLogError::Conflict { expected: 0, found: 1 })));
    assert!(matches!(two.submit(start("two")).await, Err(SubmitError::Rejected(_))), "it was read anew");
}

#[tokio::test(start_paused = true)]
async fn observers_see_every_event_in_order_after_it_was_recorded() {
    #[derive(Default)]
    struct Seen(Mutex<Vec<(u64, Event)>>, AtomicUsize);
    impl ConversationObserver for Seen {
        fn on_recorded(&self, seq: u64, event: &Event) {
            self.0.lock().unwrap().push((seq, event.clone()));
        }
        fn on_preview(&self, _: &ModelEvent) {
            self.1.fetch_add(1, Ordering::Relaxed);
        }
    }
    let fixture = Fixture::new(FakeModel::in_turn(vec![calls(&[("bash", "1")]), text("done")]));
    let seen = Arc::new(Seen::default());
    let mut conversation = fixture.load_with(seen.clone()).await;
    fixture.turn(&mut conversation, start("go")).await;
    let recorded: Vec<(u64, Event)> = (0..).zip(fixture.event_log.0.events()).collect();
    assert_eq!(*seen.0.lock().unwrap(), recorded);
    assert_eq!(seen.1.load(Ordering::Relaxed), 4);
    let position =
        |wanted: fn(&EventKind) -> bool| recorded.iter().position(|(_, e)| wanted(&e.kind)).unwrap();
    let started = position(|kind| matches!(kind, EventKind::ToolStarted { .. }));
    assert!(started < position(|kind| matches!(kind, EventKind::ToolFinished { .. })));
}

#[tokio::test(start_paused = true)]
async fn the_stateless_loop_goes_from_messages_to_messages() {
    let model = FakeModel::in_turn(vec![calls(&[("bash", "1")]), text("done")]);
    let question = vec![Message::user(vec![Block::text("go")])];
    let (composer, tools) = (PromptPrefix::default(), FakeTools::default());
    let outcome = run_loop(question, &model, &composer, &tools, LoopOptions::default()).await.unwrap();
    assert_eq!(outcome.stop, ANSWERED);
    assert_eq!(outcome.text(), "done");
    assert_eq!(outcome.usage.total(), 30);
    let expected = ["user: go", "assistant: bash(1)", "user: 1=bash done", "assistant: done"];
    assert_eq!(outline(&outcome.messages), expected);
}

#[tokio::test(start_paused = true)]
async fn the_stateless_loop_refuses_messages_that_the_service_would_refuse() {
    let model = model_fn(|_| async { Ok(parse_response(r#"{"content":[]}"#).unwrap()) });
    let (composer, tools) = (PromptPrefix::default(), FakeTools::default());
    let cases = [
        (vec![], PairingError::NoMessages),
        (vec![Message::assistant(vec![Block::text("hi")])], PairingError::AssistantFirst),
    ];
    for (messages, expected) in cases {
        let error = run_loop(messages, &model, &composer, &tools, LoopOptions::default()).await.unwrap_err();
        assert_eq!(error, LoopError::Messages(expected));
    }
}

#[tokio::test(start_paused = true)]
async fn a_passed_deadline_prevents_all_calls() {
    let fixture = Fixture::new(FakeModel::answering(|_| text("no")));
    let mut conversation = fixture.begin("go").await;
    let deadline = SystemClock.deadline(Duration::ZERO);
    assert_ne!(deadline, Deadline::NEVER);
    let options = TurnOptions { deadline, ..TurnOptions::default() };
    let outcome = fixture.drive(&mut conversation, options).await;
    assert_eq!(outcome, Ok(TurnOutcome::Finished(TurnStop::Deadline)));
    assert_eq!(fixture.model.request_count(), 0);
}

#[tokio::test(start_paused = true)]
async fn an_event_log_that_never_answers_does_not_keep_a_turn_from_ending() {
    #[derive(Default)]
    struct Stuck(MemoryEventLog);
    impl EventLog for Stuck {
        fn append<'a>(&'a self, seq: u64, events: &'a [Event]) -> BoxFuture<'a, Result<u64, EventLogError>> {
            match events[0].kind {
                EventKind::ModelAnswered { .. } => std::future::pending().boxed(),
                _ => self.0.append(seq, events),
            }
        }
        fn load(&self) -> BoxFuture<'_, Result<Vec<Event>, EventLogError>> {
            self.0.load()
        }
    }
    let fixture = Fixture::new(FakeModel::in_turn(vec![text("unheard")]));
    let event_log = Arc::new(Stuck::default());
    let mut conversation = Conversation::load(event_log, Arc::new(SystemClock), Arc::new(())).await.unwrap();
    conversation.submit(start("go")).await.unwrap();
    let options =
        TurnOptions { deadline: SystemClock.deadline(Duration::from_secs(30)), ..TurnOptions::default() };
    let outcome = fixture.drive(&mut conversation, options).await;
    assert!(matches!(outcome, Err(DriveError::EventLog(EventLogError::Failed { .. }))), "{outcome:?}");
    conversation.submit(CommandKind::Recover).await.unwrap();
    assert_eq!(next(conversation.state()), Step::CallModel, "it was read anew and can go on");
}

#[tokio::test(start_paused = true)]
async fn a_turn_can_be_driven_in_a_task() {
    let fixture = Fixture::new(FakeModel::in_turn(vec![calls(&[("bash", "1")]), text("done")]));
    let mut conversation = fixture.begin("go").await;
    let mut tasks = tokio::task::JoinSet::new();
    tasks.spawn(async move { fixture.drive(&mut conversation, TurnOptions::default()).await });
    assert_eq!(tasks.join_next().await.unwrap().unwrap(), Ok(ANSWERED));
}
