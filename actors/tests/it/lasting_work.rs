//! Joined work, which keeps an actor alive until it is done, and waiting for a child that was abandoned.

use std::num::NonZeroU32;
use std::sync::Arc;

use conjure_actors::supervision::{Backoff, RequestError, Restart, Root, Status, SupervisorSpec};
use tokio::sync::Semaphore;

use crate::support::{Log, PATIENT, SECOND, fail, id, name, probe, probe_with, root, settle, soon, within};

#[tokio::test(start_paused = true)]
async fn lasting_work_is_not_aborted_and_the_next_incarnation_waits_for_its_end() {
    let (log, gate) = (Log::new(), Arc::new(Semaphore::new(0)));
    let (work_log, work_gate) = (log.clone(), Arc::clone(&gate));
    let worker = probe_with("w", &log, move |context| {
        let (log, gate, text) = (work_log.clone(), Arc::clone(&work_gate), name(&context));
        context.spawn_joined(move |over| async move {
            over.cancelled().await;
            log.push(format!("put away {text}"));
            gate.acquire().await.unwrap().forget();
            log.push(format!("away {text}"));
        });
        async { Ok(()) }
    });
    let (root, supervisor, addresses) =
        root(conjure_actors::supervision::Strategy::OneForOne, vec![worker]).await;
    log.until("start w#1").await;
    // However it ends: killed, failed, and at last stopped in order.
    let down = addresses[0].monitor().unwrap();
    addresses[0].kill();
    log.until("put away w#1").await;
    settle().await;
    assert_eq!(log.count("start w#2"), 0, "a part of it exists");
    assert_ne!(supervisor.child(&id("w")).unwrap().status, Status::Running);
    gate.add_permits(1);
    assert_eq!(down.await.exit.to_string(), "killed");
    log.until("start w#2").await;
    addresses[0].send(fail()).unwrap();
    log.until("put away w#2").await;
    gate.add_permits(2);
    log.until("start w#3").await;
    root.shutdown(soon()).await.unwrap();
    assert_eq!(log.count("away w#3"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_panic_in_lasting_work_is_contained() {
    let log = Log::new();
    let worker = probe_with("w", &log, |context| {
        context.spawn_joined(|_| async { panic!("told to panic") });
        async { Ok(()) }
    });
    let (root, ..) = root(conjure_actors::supervision::Strategy::OneForOne, vec![worker]).await;
    settle().await;
    assert_eq!(log.all(), ["start w#1"]);
    root.shutdown(soon()).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_quarantined_or_unknown_child_is_not_touched() {
    let log = Log::new();
    let (spec, supervisor) =
        SupervisorSpec::dynamic(id("root")).intensity(PATIENT).quarantine_after(NonZeroU32::MIN).build();
    let timeout_error = supervisor.wait_settled(&id("w"), soon()).await.unwrap_err();
    assert_eq!(timeout_error, RequestError::NotRunning(id("root")));
    let root = Root::spawn(spec, soon()).await.unwrap();
    assert!(supervisor.wait_settled(&id("w"), soon()).await.unwrap().is_none());
    let worker = probe_with("w", &log, |context| async move {
        if context.incarnation() > 1 { Err("only once".into()) } else { Ok(()) }
    });
    let backoff = Backoff::new(SECOND, SECOND, SECOND);
    let (child, address) = worker.restart(Restart::TRANSIENT).backoff(backoff).build();
    let handle = supervisor.start_child(child, soon()).await.unwrap();
    let error = supervisor.wait_settled(&id("w"), within(SECOND * 60)).await.unwrap_err();
    assert_eq!(error, RequestError::DeadlinePassed(id("root")), "it runs");
    handle.kill();
    let failure = supervisor.wait_settled(&id("w"), soon()).await.unwrap().unwrap();
    assert_eq!((failure.status, address.incarnation()), (Status::Quarantined, Some(2)));
    // One that is forgotten while somebody waits.
    let (child, _) = probe("other", &log).build();
    supervisor.start_child(child, soon()).await.unwrap();
    let other = id("other");
    let (failure, ended) =
        tokio::join!(supervisor.wait_settled(&other, soon()), supervisor.terminate_child(&other, soon()));
    ended.unwrap();
    assert!(failure.unwrap().is_none());
    root.shutdown(soon()).await.unwrap();
}
