//! The runtime: tenants, the index, what one session's failures mean to others, the journal's loss, draining, shutting down.

use std::sync::Arc;

use conjure_actors::journal::OpenJournal;
use conjure_actors::runtime::{NewSession, SessionRuntime, TreeError, TreeOptions, TurnAdmission};
use conjure_actors::session::{SessionError, SessionStatus};
use conjure_base::{SessionId, TenantId};
use conjure_conversation::{Block, Message, SessionProfile};
use conjure_journal::{Journal, LeaseOwner, MemoryJournal};
use futures_util::future::join_all;

use crate::scenario::{Scenario, answered, error_of, lines_until_answer};
use crate::support::{FailingJournal, PATIENCE, SECOND, TempDisk, memory, now, soon};

fn tenant(name: &str) -> TenantId {
    TenantId::new(name).unwrap()
}

fn options(open: Arc<OpenJournal>, scenario: &Scenario, owner: &str) -> TreeOptions {
    let mut options = TreeOptions::new(open, Arc::new(scenario.clone()), LeaseOwner::new(owner).unwrap());
    options.sessions.deadline = SECOND * 300;
    options.journal_timeout = PATIENCE;
    options
}

async fn runtime(open: Arc<OpenJournal>, scenario: &Scenario) -> SessionRuntime {
    SessionRuntime::spawn(options(open, scenario, "first")).await.unwrap()
}

/// It may be passivated before whoever had it started hears of that: then it is started again.
#[tokio::test]
async fn a_session_with_immediate_passivation_opens_and_answers() {
    let scenario = Scenario::default();
    let mut options = options(memory(), &scenario, "first");
    options.sessions.idle_after = SECOND / 200;
    let runtime = SessionRuntime::spawn(options).await.unwrap();
    // More at once than are started in that time.
    for _ in 0..2 {
        let opened = (0..200).map(|_| async {
            let session = runtime.open(NewSession::new(tenant("acme"))).await?;
            Ok::<_, TreeError>(session.send("hello").await?.end().await)
        });
        for stop in join_all(opened).await {
            assert_eq!(stop.unwrap(), Ok(answered()));
        }
    }
    runtime.shutdown(soon()).await.unwrap();
}

#[tokio::test]
async fn a_session_is_found_only_by_its_tenant_before_and_after_a_restart() {
    let disk = TempDisk::new();
    let scenario = Scenario::default();
    let first = runtime(disk.sqlite(), &scenario).await;
    let profile = SessionProfile { base_prompt: "Be brief.".to_owned(), ..SessionProfile::default() };
    let history =
        vec![Message::user(vec![Block::text("before")]), Message::assistant(vec![Block::text("yes")])];
    let spec = NewSession::new(tenant("acme")).profile(profile).history(history);
    let session = first.open(spec).await.unwrap();
    assert_eq!(session.send("hello").await.unwrap().end().await, Ok(answered()));
    let id = session.id();

    let revived = first.session(&tenant("acme"), id).await.unwrap();
    assert_eq!(revived.snapshot().await.unwrap().last_text, "heard: hello");
    let health = first.health();
    assert!(health.is_good());
    assert_eq!((health.tenants, health.live_sessions, health.known_sessions), (1, 1, 1));
    let tree_text = first.tree().to_string();
    for part in ["journal running", "acme running", &format!("{id} running")] {
        assert!(tree_text.contains(part), "{tree_text}");
    }

    // A foreign id and one that was never given are the same, and leave nothing.
    for (whose, id) in [("other", id), ("acme", SessionId::from_bits(7))] {
        let error = first.session(&tenant(whose), id).await.unwrap_err();
        assert!(matches!(error, TreeError::NotFound { session } if session == id), "{error}");
    }
    assert_eq!((first.health().tenants, first.health().known_sessions), (1, 1));
    first.shutdown(soon()).await.unwrap();
    let over = session.send("anybody?").await.unwrap_err();
    assert!(matches!(over, SessionError::NotStarted { .. } | SessionError::ShuttingDown), "{over}");

    let second = SessionRuntime::spawn(options(disk.sqlite(), &scenario, "second")).await.unwrap();
    let session = second.session(&tenant("acme"), id).await.unwrap();
    assert_eq!(session.send("and again").await.unwrap().end().await, Ok(answered()));
    let requests = scenario.requests.lock().unwrap().clone();
    let texts = crate::scenario::texts_of(&requests.last().unwrap().messages);
    assert_eq!(texts, ["before", "yes", "hello", "heard: hello", "and again"]);
    second.shutdown(soon()).await.unwrap();
    scenario.check();
}

#[tokio::test(start_paused = true)]
async fn a_passivated_session_without_handles_uses_no_memory() {
    let scenario = Scenario::default();
    let mut options = options(memory(), &scenario, "first");
    options.sessions.idle_after = SECOND * 30;
    let runtime = SessionRuntime::spawn(options).await.unwrap();
    let mut ids = Vec::new();
    for number in 0..50 {
        let session = runtime.open(NewSession::new(tenant("acme"))).await.unwrap();
        assert_eq!(session.send(format!("{number}")).await.unwrap().end().await, Ok(answered()));
        ids.push(session.id());
    }
    while runtime.health().known_sessions > 0 {
        tokio::time::sleep(SECOND * 10).await;
    }
    assert_eq!(runtime.health().live_sessions, 0);
    // All at once, each by several: there is one of each.
    let found = join_all(ids.iter().chain(&ids).map(|id| {
        let runtime = runtime.clone();
        async move { runtime.session(&tenant("acme"), *id).await.unwrap() }
    }));
    let found = found.await;
    assert_eq!(runtime.health().known_sessions, 50);
    assert_eq!(runtime.health().live_sessions, 50);
    drop(found);
    runtime.shutdown(soon()).await.unwrap();
}

/// The actor of one session is killed again and again: its supervisor gives up, and its subscribers get an error. Its siblings and other
/// tenants hear nothing of it.
#[tokio::test(start_paused = true)]
async fn a_crash_loop_affects_no_other_session() {
    let scenario = Scenario::default();
    let runtime = runtime(memory(), &scenario).await;
    let bad = runtime.open(NewSession::new(tenant("acme"))).await.unwrap();
    let sibling = runtime.open(NewSession::new(tenant("acme"))).await.unwrap();
    let other_tenant = runtime.open(NewSession::new(tenant("other"))).await.unwrap();
    let turns = [sibling.send("door").await.unwrap(), other_tenant.send("door").await.unwrap()];
    let mut bad_turn = bad.send("door").await.unwrap();
    scenario.reached(3).await;
    scenario.broken.lock().unwrap().1 = u32::MAX;
    bad.kill();
    let reported = error_of(&mut bad_turn).await;
    assert!(matches!(reported, SessionError::NotStarted { .. }), "{reported}");
    let error = loop {
        match bad.send("hello").await {
            Err(error @ SessionError::Quarantined { .. }) => break error,
            Err(SessionError::NotStarted { .. }) => {}
            other => panic!("{other:?}"),
        }
    };
    assert!(error.to_string().contains("lift the quarantine"), "{error}");
    assert_eq!(runtime.health().live_sessions, 2);
    scenario.open();
    for turn in turns {
        assert_eq!(turn.end().await, Ok(answered()));
    }
    let tree = runtime.tree();
    for path in [vec!["tenants"], vec!["journal"]] {
        assert_eq!(tree.find(&path).unwrap().actor.restarts, 0);
    }
    scenario.broken.lock().unwrap().1 = 0;
    bad.clear_quarantine();
    // The turn continues where it was.
    lines_until_answer(&mut bad.subscribe(0).await.unwrap()).await;
    assert_eq!(bad.send("hello").await.unwrap().end().await, Ok(answered()));
    runtime.shutdown(soon()).await.unwrap();
    scenario.check();
}

/// The journal's writer is lost again and again while many sessions of many tenants work.
#[tokio::test(start_paused = true)]
async fn a_journal_failure_under_load_loses_no_acknowledged_event() {
    let inner = MemoryJournal::new();
    let failing_journal = FailingJournal::new(inner);
    let opened = failing_journal.clone();
    let open: Arc<OpenJournal> = Arc::new(move || {
        // The next one lives a little longer.
        let losses = opened.losses();
        opened.mend();
        if losses < 20 {
            opened.lose_after(7 + losses);
        }
        let journal: Arc<dyn Journal> = Arc::new(opened.clone());
        Box::pin(async move { Ok(journal) })
    });
    let scenario = Scenario::default();
    let runtime = runtime(open, &scenario).await;
    let work = (0..24).map(|number| {
        let runtime = runtime.clone();
        async move {
            let whose = tenant(&format!("tenant-{}", number % 5));
            let session = loop {
                match runtime.open(NewSession::new(whose.clone())).await {
                    Ok(session) => break session,
                    Err(TreeError::Journal { .. } | TreeError::Session(_)) => {}
                    Err(other) => panic!("{other}"),
                }
            };
            let mut acknowledged = 0;
            for _ in 0..5 {
                match session.send("call note read").await {
                    Ok(turn) => {
                        assert_eq!(turn.end().await, Ok(answered()));
                        acknowledged += 1;
                    }
                    Err(SessionError::Journal { .. }) => {}
                    Err(other) => panic!("{other}"),
                }
            }
            let (mut listening, mut started) = (session.subscribe(0).await.unwrap(), 0);
            let last = session.snapshot().await.unwrap().events;
            while listening.next_seq() < last {
                let update = listening.next().await.unwrap();
                if let conjure_actors::session::Update::Recorded(event) = update {
                    started += u32::from(event.to_line().contains("user.message"));
                }
            }
            assert!(started >= acknowledged, "{started} of {acknowledged}");
        }
    });
    join_all(work).await;
    assert!(failing_journal.losses() >= 20, "{} losses", failing_journal.losses());
    assert!(runtime.health().is_good());
    runtime.shutdown(soon()).await.unwrap();
    scenario.check();
}

#[tokio::test]
async fn draining_finishes_running_turns_and_starts_none() {
    let scenario = Scenario::default();
    let runtime = runtime(memory(), &scenario).await;
    let session = runtime.open(NewSession::new(tenant("acme"))).await.unwrap();
    let waiting = runtime.open(NewSession::new(tenant("acme"))).await.unwrap();
    waiting.send("call ask").await.unwrap();
    let turn = session.send("door").await.unwrap();
    scenario.reached(1).await;
    session.send("queued").await.unwrap();
    let error = runtime.drain(now()).await.unwrap_err();
    assert!(matches!(error, TreeError::Session(SessionError::DeadlinePassed)), "{error}");
    assert_eq!(runtime.health().turn_admission, TurnAdmission::Draining);
    assert!(!runtime.health().is_good());
    assert_eq!(session.send("one more").await.unwrap_err(), SessionError::Draining);
    let refused = runtime.open(NewSession::new(tenant("acme"))).await.unwrap_err();
    assert!(matches!(refused, TreeError::Draining), "{refused}");
    let (drained, ()) = tokio::join!(runtime.drain(soon()), async { scenario.open() });
    drained.unwrap();
    assert_eq!(turn.end().await, Ok(answered()));
    let snapshot = session.snapshot().await.unwrap();
    assert_eq!((snapshot.status, snapshot.queue.len()), (SessionStatus::Idle, 1));
    runtime.shutdown(soon()).await.unwrap();
}

/// A shutdown under load completes in time, and every end is recorded.
#[tokio::test]
async fn a_shutdown_under_load_records_everything_in_time() {
    let disk = TempDisk::new();
    let scenario = Scenario::default();
    let first = runtime(disk.sqlite(), &scenario).await;
    let mut keys = Vec::new();
    for number in 0..30 {
        let whose = tenant(&format!("tenant-{}", number % 3));
        let session = first.open(NewSession::new(whose.clone())).await.unwrap();
        let text = if number % 2 == 0 { "call slow" } else { "door" };
        session.send(text).await.unwrap();
        session.send("and then").await.unwrap();
        keys.push((whose, session.id()));
    }
    scenario.reached(15).await;
    first.shutdown(soon()).await.unwrap();
    assert_eq!(first.tree().size(), 1, "{}", first.tree());

    scenario.open();
    let second = SessionRuntime::spawn(options(disk.sqlite(), &scenario, "second")).await.unwrap();
    for (whose, id) in keys {
        let session = second.session(&whose, id).await.unwrap();
        let mut listening = session.subscribe(0).await.unwrap();
        // The queued message gets its turn now, after the interrupted one.
        let lines = lines_until_answer(&mut listening).await;
        assert_eq!(lines.matches(r#"{"type":"interrupted"}"#).count(), 1, "{lines}");
    }
    second.shutdown(soon()).await.unwrap();
    scenario.check();
}

/// A journal that cannot be opened is reported, and nothing is left.
#[tokio::test]
async fn a_runtime_without_a_journal_does_not_start() {
    let open: Arc<OpenJournal> = Arc::new(|| Box::pin(async { Err(conjure_journal::JournalError::Closed) }));
    let error = SessionRuntime::spawn(options(open, &Scenario::default(), "first")).await.unwrap_err();
    assert!(error.to_string().contains("the journal is closed"), "{error}");
}
