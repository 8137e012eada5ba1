//! Waiting for a person: over being passivated, and over a restart of the process.

use conjure_actors::session::{SessionError, SessionStatus, TurnEvent, Update};
use conjure_base::TurnId;
use conjure_conversation::{Decision, Rejection, TurnStop};

use crate::scenario::{Host, Scenario, answered, awaited_approval, follow, key, options};
use crate::support::{SECOND, TempDisk};

#[tokio::test(start_paused = true)]
async fn a_session_waiting_for_approval_is_passivated_and_revived_by_the_decision() {
    let mut idle = options("first");
    idle.idle_after = SECOND * 60;
    let host = Host::over(crate::support::memory(), Scenario::default(), idle).await;
    let session = host.open().await;
    let mut turn = session.send("call ask note ask").await.unwrap();
    while host.trees() > 0 {
        tokio::time::sleep(SECOND * 10).await;
    }
    assert_eq!(host.scenario.started.lock().unwrap().len(), 1, "the allowed call has run");
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
    assert_eq!(host.scenario.started.lock().unwrap().len(), 2);
    session.decide(calls[1].clone(), deny).await.unwrap();
    let other = session.decide(calls[1].clone(), Decision::Allow).await;
    assert!(matches!(other, Err(SessionError::Rejected(Rejection::AnsweredDifferently { .. }))), "{other:?}");
    host.shutdown().await;
}

#[tokio::test]
async fn a_pending_approval_survives_the_process() {
    let disk = TempDisk::new();
    let scenario = Scenario::default();
    let host = Host::over(disk.sqlite(), scenario.clone(), options("first")).await;
    let session = host.open().await;
    let key = key(&session);
    session.send("call ask").await.unwrap();
    let call = awaited_approval(&session).await;
    host.shutdown().await;

    let host = Host::over(disk.sqlite(), scenario.clone(), options("second")).await;
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

    // A waiting turn can be interrupted, too.
    let turn = session.send("call ask").await.unwrap();
    awaited_approval(&session).await;
    session.interrupt().await.unwrap();
    assert_eq!(turn.end().await, Ok(TurnStop::Interrupted));
    host.shutdown().await;
}

#[tokio::test]
async fn an_interrupt_concurrent_with_a_decision_is_not_lost() {
    let host = Host::over(crate::support::memory(), Scenario::default(), options("first")).await;
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

/// The host stops as soon as an approval is requested.
#[tokio::test]
async fn a_shutdown_during_an_approval_request_leaves_the_turn_waiting() {
    for _ in 0..20 {
        let disk = TempDisk::new();
        let host = Host::over(disk.sqlite(), Scenario::default(), options("first")).await;
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
        let host = Host::over(disk.sqlite(), Scenario::default(), options("second")).await;
        let status = host.session(&key).snapshot().await.unwrap().status;
        assert_eq!(status, SessionStatus::AwaitingApproval(TurnId::FIRST));
        host.shutdown().await;
    }
}
