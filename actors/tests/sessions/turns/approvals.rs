//! Waiting for a person: over being put away, and over a restart of the process.

use conjure_actors::session::{SessionError, SessionStatus, TurnEvent, Update};
use conjure_base::TurnId;
use conjure_conversation::{Decision, Rejection, TurnStop};

use crate::support::{Disk, SECOND};
use crate::world::{Host, Stage, answered, follow, key, options};

#[tokio::test(start_paused = true)]
async fn a_wait_for_a_person_holds_no_actor_and_the_decision_revives_the_session() {
    let mut idle = options("first");
    idle.idle_after = SECOND * 60;
    let host = Host::over(crate::support::memory(), Stage::default(), idle).await;
    let session = host.open().await;
    let mut turn = session.send("call ask note ask").await.unwrap();
    while host.trees() > 0 {
        tokio::time::sleep(SECOND * 10).await;
    }
    assert_eq!(host.stage.started.lock().unwrap().len(), 1, "the allowed call has run");
    let snapshot = session.snapshot().await.unwrap();
    assert_eq!(snapshot.status, SessionStatus::AwaitingApproval(TurnId::FIRST));
    assert_eq!(snapshot.approvals.len(), 2);
    let calls: Vec<_> = snapshot.approvals.into_iter().map(|approval| approval.call.id).collect();
    session.decide(calls[0].clone(), Decision::Allow).await.unwrap();
    while host.trees() > 0 {
        tokio::time::sleep(SECOND * 10).await;
    }
    let deny = Decision::Deny { reason: "not this one".to_owned() };
    session.decide(calls[1].clone(), deny.clone()).await.unwrap();
    let (lines, stop) = follow(&mut turn).await;
    assert_eq!(stop, answered());
    assert!(lines.join("\n").contains("denied: not this one"));
    assert_eq!(host.stage.started.lock().unwrap().len(), 2);
    session.decide(calls[1].clone(), deny).await.unwrap();
    let other = session.decide(calls[1].clone(), Decision::Allow).await;
    assert!(matches!(other, Err(SessionError::Rejected(Rejection::AnsweredDifferently { .. }))), "{other:?}");
    host.shutdown().await;
}

#[tokio::test]
async fn a_wait_for_a_person_survives_the_process() {
    let disk = Disk::new();
    let stage = Stage::default();
    let host = Host::over(disk.sqlite(), stage.clone(), options("first")).await;
    let session = host.open().await;
    let key = key(&session);
    session.send("call ask").await.unwrap();
    let call = loop {
        match session.snapshot().await.unwrap().approvals.first() {
            Some(approval) => break approval.call.id.clone(),
            None => tokio::task::yield_now().await,
        }
    };
    host.shutdown().await;

    let host = Host::over(disk.sqlite(), stage.clone(), options("second")).await;
    let session = host.session(&key);
    session.decide(call, Decision::Allow).await.unwrap();
    let mut listening = session.subscribe(0).await.unwrap();
    let mut lines = String::new();
    while !lines.contains("end_turn") {
        if let Update::Recorded(event) = listening.next().await.unwrap() {
            lines.push_str(&event.to_line());
        }
    }
    assert!(lines.contains("ask done"), "{lines}");

    // What waits can be interrupted, too.
    let turn = session.send("call ask").await.unwrap();
    while session.snapshot().await.unwrap().approvals.is_empty() {
        tokio::task::yield_now().await;
    }
    session.interrupt().await.unwrap();
    assert_eq!(turn.end().await, Ok(TurnStop::Interrupted));
    host.shutdown().await;
}

#[tokio::test]
async fn an_interruption_beside_a_decision_is_not_lost_while_another_waits() {
    let host = Host::over(crate::support::memory(), Stage::default(), options("first")).await;
    for _ in 0..20 {
        let session = host.open().await;
        let turn = session.send("call ask ask").await.unwrap();
        let calls = loop {
            let snapshot = session.snapshot().await.unwrap();
            match snapshot.approvals.as_slice() {
                [] => tokio::task::yield_now().await,
                waiting => break waiting.iter().map(|one| one.call.id.clone()).collect::<Vec<_>>(),
            }
        };
        let decide = session.decide(calls[0].clone(), Decision::Allow);
        let (decided, interrupted) = tokio::join!(decide, session.interrupt());
        assert_eq!((decided, interrupted), (Ok(()), Ok(())));
        assert_eq!(session.snapshot().await.unwrap().status, SessionStatus::Idle);
        assert_eq!(turn.end().await, Ok(TurnStop::Interrupted));
    }
    host.shutdown().await;
}

/// The host stops as soon as it hears that a person is asked.
#[tokio::test]
async fn a_shutdown_beside_the_question_leaves_the_turn_waiting() {
    for _ in 0..20 {
        let disk = Disk::new();
        let host = Host::over(disk.sqlite(), Stage::default(), options("first")).await;
        let session = host.open().await;
        let key = key(&session);
        let mut turn = session.send("call ask").await.unwrap();
        loop {
            let event = turn.next().await.unwrap().unwrap();
            if let TurnEvent::Update(Update::Recorded(event)) = event
                && event.to_line().contains("requires_action")
            {
                break;
            }
        }
        host.shutdown().await;
        let host = Host::over(disk.sqlite(), Stage::default(), options("second")).await;
        let status = host.session(&key).snapshot().await.unwrap().status;
        assert_eq!(status, SessionStatus::AwaitingApproval(TurnId::FIRST));
        host.shutdown().await;
    }
}
