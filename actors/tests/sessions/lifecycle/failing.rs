//! What fails: killed actors, lost journals, takeovers, session factories that fail (A1, A9, A13).

use conjure_actors::session::{Accepted, SessionError, SessionStatus};
use conjure_base::{Clock as _, SystemClock};
use conjure_conversation::{CallOutcome, EventKind};
use conjure_journal::{Journal, MemoryJournal};
use futures_util::future::join_all;

use crate::support::{Disk, Faulty, SECOND, memory, of};
use crate::world::{Host, Stage, answered, follow, key, options};

/// How the tools of a session ended, by name.
async fn outcomes(host: &Host, session: &conjure_actors::session::Session) -> Vec<(String, CallOutcome)> {
    let name = |id: &str| id.split('-').next().unwrap_or_default().to_owned();
    let of = |kind: EventKind| match kind {
        EventKind::ToolFinished { result, outcome } => Some((name(result.tool_use_id.as_str()), outcome)),
        _ => None,
    };
    host.events(session).await.into_iter().filter_map(of).collect()
}

/// A13: killed in the middle of its tools, in memory and on disk.
#[tokio::test]
async fn a_killed_session_goes_on_with_outcome_unknown_and_repeats_no_effect() {
    let disk = Disk::new();
    for open in [memory(), disk.sqlite()] {
        let host = Host::over(open, Stage::default(), options("first")).await;
        let session = host.open().await;
        let mut turn = session.send("call door note").await.unwrap();
        host.stage.reached(1).await;
        let mut queued = session.send("and then this").await.unwrap();
        while host.stage.started.lock().unwrap().len() < 2 {
            tokio::task::yield_now().await;
        }
        session.kill();
        host.stage.open();
        assert_eq!(follow(&mut turn).await.1, answered());
        assert_eq!(follow(&mut queued).await.1, answered());
        let outcomes = outcomes(&host, &session).await;
        assert!(outcomes.contains(&("door".to_owned(), CallOutcome::Unknown)), "{outcomes:?}");
        assert_eq!(outcomes.len(), 2, "one result for each call: {outcomes:?}");
        host.shutdown().await;
    }
}

/// Killed while the model speaks: it is asked again, and what it would have said late is dropped.
#[tokio::test]
async fn a_session_killed_while_the_model_speaks_asks_again() {
    let host = Host::new().await;
    let session = host.open().await;
    let mut turn = session.send("door").await.unwrap();
    for number in 1..=3 {
        host.stage.reached(number).await;
        session.kill();
        session.attach().await.unwrap();
    }
    host.stage.reached(4).await;
    host.stage.open();
    assert_eq!(follow(&mut turn).await.1, answered());
    let is_answer = |kind: &&EventKind| matches!(kind, EventKind::ModelAnswered { .. });
    assert_eq!(host.events(&session).await.iter().filter(is_answer).count(), 1);
    host.shutdown().await;
}

/// The process is gone in the middle of a turn; the next one finds it, and drives it on once somebody attaches.
#[tokio::test]
async fn another_process_goes_on_with_what_was_under_way() {
    let disk = Disk::new();
    let stage = Stage::default();
    let first = Host::over(disk.sqlite(), stage.clone(), options("host")).await;
    let session = first.open().await;
    let key = key(&session);
    session.send("call door").await.unwrap();
    stage.reached(1).await;
    // No time to stop in order.
    let _ = first.root.shutdown(crate::support::now()).await;
    drop((first, session));

    let second = Host::over(disk.sqlite(), stage.clone(), options("host")).await;
    let session = second.session(&key);
    let mut listening = session.subscribe(0).await.unwrap();
    stage.open();
    let mut lines = String::new();
    while !lines.contains("end_turn") {
        if let conjure_actors::session::Update::Recorded(event) = listening.next().await.unwrap() {
            lines.push_str(&event.to_line());
        }
    }
    assert_eq!(lines.matches("agent.tool_result").count(), 1, "{lines}");
    assert_eq!(session.snapshot().await.unwrap().status, SessionStatus::Idle);
    second.shutdown().await;
}

/// Who had the session writes nothing more once another has it.
#[tokio::test(start_paused = true)]
async fn a_takeover_stops_the_old_owner() {
    let journal = MemoryJournal::new();
    let old = Host::over(of(journal.clone()), Stage::default(), options("old")).await;
    let session = old.open().await;
    let mut turn = session.send("door").await.unwrap();
    old.stage.reached(1).await;
    // While the lease holds, nobody else has it.
    let new = Host::over(of(journal.clone()), Stage::default(), options("new")).await;
    let same = new.session(&key(&session));
    let held = same.send("mine").await.unwrap_err();
    assert!(matches!(&held, SessionError::TakenOver { reason } if reason.contains("`old`")), "{held}");

    let info = journal.session(&key(&session)).await.unwrap();
    journal.release_lease(&key(&session), info.epoch).await.unwrap();
    let mine = same.send("mine").await.unwrap();
    new.stage.reached(1).await;
    old.stage.open();
    let reported = loop {
        match turn.next().await.unwrap() {
            Ok(_) => {}
            Err(error) => break error,
        }
    };
    assert!(reported.to_string().contains("taken over"), "{reported}");
    new.stage.open();
    assert_eq!(mine.end().await, Ok(answered()));
    let late = session.send("still me?").await.unwrap_err();
    assert!(matches!(late, SessionError::TakenOver { .. }), "{late}");
    new.shutdown().await;
    old.shutdown().await;
}

/// A lost writer: the journal is opened anew, and the turn goes on over it.
#[tokio::test(start_paused = true)]
async fn a_journal_that_is_lost_under_a_turn_is_a_value_and_the_turn_goes_on() {
    let inner = MemoryJournal::new();
    let faulty = Faulty::new(inner);
    let host = Host::over(faulty.mended_when_opened(), Stage::default(), options("first")).await;
    let session = host.open().await;
    for appends in 0..9 {
        faulty.lose_after(appends);
        // What was acknowledged has its turn; what was not says so.
        match session.send("call note read").await {
            Ok(turn) => assert_eq!(turn.end().await, Ok(answered()), "{appends}"),
            Err(error) => assert!(matches!(error, SessionError::Journal { .. }), "{appends}: {error}"),
        }
    }
    faulty.mend();
    assert_eq!(session.send("fine").await.unwrap().end().await, Ok(answered()));
    let tree = host.root.tree();
    let restarts = tree.find(&["journal"]).unwrap().actor.restarts;
    assert_eq!(restarts, faulty.losses(), "each loss is mended once");
    assert!(restarts >= 6, "{restarts} losses; the test lost its grip");
    let actor = tree.find(&["sessions", &session.id().to_string()]).unwrap();
    assert_eq!(actor.actor.restarts, 0, "a failure of the journal is a value");
    host.shutdown().await;
}

/// What was recorded without an answer is found, told, and gone on with.
#[tokio::test(start_paused = true)]
async fn what_the_journal_recorded_without_saying_so_is_told_and_gone_on_with() {
    let faulty = Faulty::new(MemoryJournal::new());
    let host = Host::over(faulty.mended_when_opened(), Stage::default(), options("first")).await;
    let session = host.open().await;
    let mut listening = session.subscribe(0).await.unwrap();
    for appends in 0..9 {
        faulty.lose_the_answer_after(appends);
        let sent = session.send(format!("number {appends}")).await;
        if appends == 0 {
            // It is not known; its turn is there all the same, whether or not anybody says more.
            assert!(matches!(sent, Err(SessionError::Journal { .. })), "{sent:?}");
        } else if let Ok(turn) = sent {
            let ended = tokio::time::timeout(SECOND * 600, turn.end()).await;
            assert_eq!(ended, Ok(Ok(answered())), "{appends}");
        }
        let mut lines = String::new();
        while !lines.contains(&format!("heard: number {appends}")) {
            let update = tokio::time::timeout(SECOND * 600, listening.next()).await;
            if let conjure_actors::session::Update::Recorded(event) = update.unwrap().unwrap() {
                lines.push_str(&event.to_line());
            }
        }
    }
    faulty.mend();
    assert!(faulty.losses() >= 3, "the test lost its grip");
    assert_eq!(session.send("fine").await.unwrap().end().await, Ok(answered()));
    host.shutdown().await;
}

/// A journal that is busy for a moment costs nothing but the moment; one that stays busy is told.
#[tokio::test(start_paused = true)]
async fn a_busy_journal_is_asked_again() {
    let faulty = Faulty::new(MemoryJournal::new());
    let host = Host::over(of(faulty.clone()), Stage::default(), options("first")).await;
    let session = host.open().await;
    let turn = session.send("call door").await.unwrap();
    host.stage.reached(1).await;
    // The tool's result is at hand.
    faulty.refuse(12);
    host.stage.open();
    assert_eq!(turn.end().await, Ok(answered()));
    assert_eq!(outcomes(&host, &session).await, [("door".to_owned(), CallOutcome::Finished)]);

    faulty.refuse(u64::MAX);
    let refused = session.send("hello").await.unwrap_err();
    assert!(matches!(&refused, SessionError::Journal { reason } if reason.contains("wait")), "{refused}");
    faulty.refuse(0);
    assert_eq!(session.send("fine").await.unwrap().end().await, Ok(answered()));
    host.shutdown().await;
}

/// What waits behind a message that cannot be recorded is told the same; where the actor is killed, it is sent again.
#[tokio::test(start_paused = true)]
async fn what_waits_behind_a_failing_journal_is_told_or_sent_again() {
    let faulty = Faulty::new(MemoryJournal::new());
    let host = Host::over(of(faulty.clone()), Stage::default(), options("first")).await;
    let session = host.open().await;
    session.attach().await.unwrap();
    faulty.refuse(u64::MAX);
    for refused in join_all([session.send("one"), session.send("two")]).await {
        let refused = refused.unwrap_err();
        assert!(matches!(&refused, SessionError::Journal { .. }), "{refused}");
    }
    let (lost, sent, ()) = tokio::join!(biased; session.send("three"), session.send("four"), async {
        tokio::time::sleep(SECOND).await;
        session.kill();
        faulty.refuse(0);
    });
    assert!(matches!(lost, Err(SessionError::Lost)), "{lost:?}");
    assert_eq!(sent.unwrap().end().await, Ok(answered()));
    host.shutdown().await;
}

/// What waits for the end of work that the journal fails is told so at once, also where the journal stays away.
#[tokio::test(start_paused = true)]
async fn what_waits_for_work_that_the_journal_fails_is_told_so() {
    let faulty = Faulty::new(MemoryJournal::new());
    let host = Host::over(of(faulty.clone()), Stage::default(), options("first")).await;
    let session = host.open().await;
    let waits = session.send("door").await.unwrap();
    host.stage.reached(1).await;
    let queued = session.send("later").await.unwrap();
    let Accepted::Queued { id, .. } = queued.accepted() else { panic!("{queued:?}") };
    faulty.set_away(true);
    // The first is the work; none of the others is a part of it.
    let reported = tokio::join!(biased; session.steer("and"), session.unqueue(id), session.close());
    for reported in [reported.0.map(drop), reported.1, reported.2] {
        assert!(
            matches!(&reported, Err(SessionError::Journal { reason }) if reason.contains("there is nothing")),
            "{reported:?}"
        );
    }
    faulty.set_away(false);
    host.stage.open();
    assert_eq!((waits.end().await, queued.end().await), (Ok(answered()), Ok(answered())));
    session.close().await.unwrap();
    host.shutdown().await;
}

/// However many say something meanwhile: what the journal failed is tried again after one second, two more, and so on up to two
/// minutes.
#[tokio::test(start_paused = true)]
async fn those_who_are_refused_bring_no_further_tries_about() {
    let faulty = Faulty::new(MemoryJournal::new());
    let host = Host::over(of(faulty.clone()), Stage::default(), options("first")).await;
    let session = host.open().await;
    let turn = session.send("door").await.unwrap();
    host.stage.reached(1).await;
    faulty.set_away(true);
    for _ in 0..100 {
        let refused = session.send("hello").await.unwrap_err();
        assert!(matches!(refused, SessionError::Journal { .. }), "{refused}");
    }
    let missed = faulty.missed();
    tokio::time::sleep(SECOND * 600).await;
    // At 1, 3, 7, 15, 31, 63, 127, 247, 367 and 487.
    assert_eq!(faulty.missed() - missed, 10);
    faulty.set_away(false);
    host.stage.open();
    assert_eq!(turn.end().await, Ok(answered()));
    // From then on it is as if nothing had been.
    let turn = session.send("call note").await.unwrap();
    faulty.set_away(true);
    tokio::time::sleep(SECOND / 2).await;
    faulty.set_away(false);
    assert_eq!(tokio::time::timeout(SECOND, turn.end()).await, Ok(Ok(answered())));
    host.shutdown().await;
}

/// Many who speak at once to a session that cannot start are one attempt, and each is told.
#[tokio::test(start_paused = true)]
async fn a_burst_is_one_attempt_to_start() {
    let host = Host::new().await;
    let session = host.open().await;
    host.stage.broken.lock().unwrap().0 = 1;
    *host.stage.slow.lock().unwrap() = SECOND;
    let all = join_all((0..20).map(|number| session.send(format!("{number}")))).await;
    for refused in all {
        let refused = refused.unwrap_err();
        assert!(
            matches!(&refused, SessionError::NotStarted { reason } if reason.contains("no model")),
            "{refused}"
        );
    }
    assert_eq!(session.send("fine").await.unwrap().end().await, Ok(answered()));
    host.shutdown().await;
}

/// Nobody is told that a turn was interrupted while its end is not recorded.
#[tokio::test(start_paused = true)]
async fn an_interruption_that_cannot_be_recorded_is_not_acknowledged() {
    let faulty = Faulty::new(MemoryJournal::new());
    let host = Host::over(faulty.mended_when_opened(), Stage::default(), options("first")).await;
    let session = host.open().await;
    let _turn = session.send("call door").await.unwrap();
    host.stage.reached(1).await;
    faulty.lose_after(0);
    let refused = session.interrupt().await;
    assert!(matches!(refused, Err(SessionError::Journal { .. })), "{refused:?}");
    host.stage.open();
    // Said again, it is so.
    session.interrupt().await.unwrap();
    assert_eq!(session.send("fine").await.unwrap().end().await, Ok(answered()));
    host.shutdown().await;
}

/// Who wanted it first does not wait for it any more: it comes all the same, and the next one finds it.
#[tokio::test(start_paused = true)]
async fn a_start_that_nobody_waits_for_any_more_is_found() {
    let host = Host::new().await;
    let session = host.open().await;
    *host.stage.slow.lock().unwrap() = SECOND * 2;
    let soon = SystemClock.deadline(SECOND);
    let late = session.clone().with_deadline(soon).send("hello").await.unwrap_err();
    assert!(matches!(late, SessionError::DeadlinePassed), "{late}");
    // Nor is anybody held up by one who was dropped.
    let dropped = tokio::time::timeout(SECOND / 2, session.send("hello")).await;
    assert!(dropped.is_err());
    assert_eq!(session.send("hello").await.unwrap().end().await, Ok(answered()));
    assert_eq!(host.trees(), 1);
    host.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_session_that_cannot_start_says_why_and_is_left_alone_after_some_tries() {
    let host = Host::new().await;
    let session = host.open().await;
    host.stage.broken.lock().unwrap().0 = 4;
    for _ in 0..4 {
        let error = session.send("hello").await.unwrap_err();
        assert!(
            matches!(&error, SessionError::NotStarted { reason } if reason.contains("no model")),
            "{error}"
        );
    }
    let error = session.send("hello").await.unwrap_err();
    let SessionError::Quarantined { failures: 4, last } = &error else { panic!("{error}") };
    assert!(last.contains("there is no model"), "{last}");
    session.clear_quarantine();
    assert_eq!(session.send("hello").await.unwrap().end().await, Ok(answered()));
    host.shutdown().await;
}

/// An actor that is killed again and again: its tree gives up, whoever follows is told, others hear nothing of it.
#[tokio::test(start_paused = true)]
async fn a_crash_loop_ends_in_quarantine_and_disturbs_no_other_session() {
    let host = Host::new().await;
    let (session, other) = (host.open().await, host.open().await);
    let calm = other.send("door").await.unwrap();
    host.stage.reached(1).await;
    let mut turn = session.send("door").await.unwrap();
    host.stage.reached(2).await;
    host.stage.broken.lock().unwrap().1 = 100;
    session.kill();
    let reported = loop {
        match turn.next().await.unwrap() {
            Ok(_) => {}
            Err(error) => break error,
        }
    };
    assert!(matches!(reported, SessionError::NotStarted { .. }), "{reported}");
    let error = session.send("hello").await.unwrap_err();
    assert!(matches!(error, SessionError::Quarantined { .. }), "{error}");
    assert_eq!(host.trees(), 1);
    host.stage.open();
    assert_eq!(calm.end().await, Ok(answered()));
    // Mended and lifted, the turn goes on where it was.
    host.stage.broken.lock().unwrap().1 = 0;
    session.clear_quarantine();
    let mut listening = session.subscribe(0).await.unwrap();
    let mut lines = String::new();
    while !lines.contains("end_turn") {
        if let conjure_actors::session::Update::Recorded(event) = listening.next().await.unwrap() {
            lines.push_str(&event.to_line());
        }
    }
    host.shutdown().await;
}

/// A shutdown interrupts what runs and records its end, within its deadline.
#[tokio::test]
async fn a_shutdown_records_the_end_of_every_turn() {
    let disk = Disk::new();
    let host = Host::over(disk.sqlite(), Stage::default(), options("first")).await;
    let mut keys = Vec::new();
    for _ in 0..10 {
        let session = host.open().await;
        session.send("call slow").await.unwrap();
        keys.push(key(&session));
    }
    while host.stage.started.lock().unwrap().len() < 10 {
        tokio::task::yield_now().await;
    }
    let stage = host.stage.clone();
    host.shutdown().await;
    let host = Host::over(disk.sqlite(), stage, options("second")).await;
    for key in keys {
        let session = host.session(&key);
        let snapshot = session.snapshot().await.unwrap();
        assert_eq!(snapshot.status, SessionStatus::Idle);
        assert_eq!(snapshot.last_turn.unwrap().stop, conjure_conversation::TurnStop::Interrupted);
    }
    host.root.shutdown(crate::support::soon()).await.unwrap();
}
