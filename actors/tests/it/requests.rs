//! Starting and terminating children, slow starts, state, monitors and calls.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use conjure_actors::supervision::{
    CallError, Exit, ExitClass, Flow, Kind, Reply, RequestError, Restart, Root, SendError, StartError,
    Status, Strategy, SupervisorSpec,
};
use tokio::sync::Semaphore;

use crate::support::*;

/// A probe whose start waits for a permit.
fn gated_probe(text: &str, log: &Log) -> (conjure_actors::supervision::WorkerSpec<Probe>, Arc<Semaphore>) {
    let gate = Arc::new(Semaphore::new(0));
    let child_gate = Arc::clone(&gate);
    let spec = probe_with(text, log, move |_| {
        let gate = Arc::clone(&child_gate);
        async move {
            gate.acquire().await?.forget();
            Ok(())
        }
    });
    (spec.start_timeout(SECOND * 100_000), gate)
}

#[tokio::test(start_paused = true)]
async fn start_child_is_ok_only_after_its_start() {
    let log = Log::new();
    let (_root, supervisor) = dynamic_root().await;
    let (spec, gate) = gated_probe("a", &log);
    let starting = supervisor.start_child(spec.build().0, soon());
    tokio::pin!(starting);
    tokio::select! {
        biased;
        started = &mut starting => panic!("{started:?}"),
        () = settle() => {}
    }
    assert_eq!(supervisor.child(&id("a")).unwrap().status, Status::Starting);
    gate.add_permits(1);
    let child = starting.await.unwrap();
    assert_eq!(log.all(), ["start a#1"]);
    assert_eq!(child.address::<ProbeMessage>().unwrap().call(soon(), ProbeMessage::Ping).await, Ok(1));
    assert!(child.address::<String>().is_none() && child.supervisor().is_none());
}

#[tokio::test(start_paused = true)]
async fn the_same_id_returns_the_existing_child() {
    let log = Log::new();
    let (_root, supervisor) = dynamic_root().await;
    let (spec, gate) = gated_probe("a", &log);
    // Two at once: one of them starts it, and both wait for its start.
    let (first, second) = (spec.build().0, probe("a", &log).build().0);
    let (first, second, ()) =
        tokio::join!(supervisor.start_child(first, soon()), supervisor.start_child(second, soon()), async {
            settle().await;
            gate.add_permits(1);
        });
    assert_eq!(first.unwrap().id(), &id("a"));
    let Err(StartError::AlreadyStarted(child)) = second else { panic!("{second:?}") };
    assert_eq!(child.address::<ProbeMessage>().unwrap().call(soon(), ProbeMessage::Ping).await, Ok(1));
    assert_eq!(log.all(), ["start a#1"]);
    let third = supervisor.start_child(probe("a", &log).build().0, soon()).await;
    assert!(matches!(third, Err(StartError::AlreadyStarted(_))), "{third:?}");
}

#[tokio::test(start_paused = true)]
async fn full_is_a_value() {
    let log = Log::new();
    let (spec, supervisor) = SupervisorSpec::dynamic(id("root")).capacity(2).build();
    let _root = Root::spawn(spec, soon()).await.unwrap();
    for text in ["a", "b"] {
        supervisor.start_child(probe(text, &log).build().0, soon()).await.unwrap();
    }
    let full = supervisor.start_child(probe("c", &log).build().0, soon()).await;
    assert!(matches!(full, Err(StartError::Full { capacity: 2 })), "{full:?}");
    supervisor.terminate_child(&id("a"), soon()).await.unwrap();
    supervisor.start_child(probe("c", &log).build().0, soon()).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_dropped_caller_does_no_harm() {
    let log = Log::new();
    let (_root, supervisor) = dynamic_root().await;
    let (spec, gate) = gated_probe("a", &log);
    let timed_out = supervisor.start_child(spec.build().0, within(SECOND)).await;
    let Err(StartError::Request(RequestError::DeadlinePassed(_))) = timed_out else {
        panic!("{timed_out:?}")
    };
    drop(supervisor.start_child(probe("never-polled", &log).build().0, soon()));
    gate.add_permits(1);
    log.until("start a#1").await;
    supervisor.start_child(probe("b", &log).build().0, soon()).await.unwrap();
    assert_eq!(supervisor.count().running, 2, "neither the child nor the supervisor minds");
    assert!(matches!(
        supervisor.terminate_child(&id("never-polled"), soon()).await,
        Err(RequestError::NotFound(_))
    ));
}

#[tokio::test(start_paused = true)]
async fn an_id_that_is_about_to_be_free_is_waited_for() {
    let log = Log::new();
    let (_root, supervisor) = dynamic_root().await;
    let slow = probe_stopping("a", &log, |_| async {
        tokio::time::sleep(SECOND * 4).await;
        Ok(())
    });
    supervisor.start_child(slow.build().0, soon()).await.unwrap();
    let (first, second) = (probe("a", &log).build().0, probe("a", &log).build().0);
    let a = id("a");
    let (ended, started, second) = tokio::join!(
        biased;
        supervisor.terminate_child(&a, soon()),
        supervisor.start_child(first, soon()),
        supervisor.start_child(second, soon())
    );
    ended.unwrap();
    started.unwrap();
    assert!(matches!(second, Err(StartError::AlreadyStarted(_))), "{second:?}");
    assert_eq!(log.all(), ["start a#1", "stop a#1", "drop a#1", "start a#1"]);
}

#[tokio::test(start_paused = true)]
async fn a_slow_start_runs_in_the_child_and_does_not_hold_its_supervisor() {
    let log = Log::new();
    let (root, supervisor) = dynamic_root().await;
    let (spec, _gate) = gated_probe("image", &log);
    let starting = supervisor.start_child(spec.build().0, soon());
    tokio::pin!(starting);
    tokio::select! {
        biased;
        started = &mut starting => panic!("{started:?}"),
        () = settle() => {}
    }
    // It is linked already: a supervisor that is stopped stops it too, at once and in the middle of its start.
    supervisor.start_child(probe("b", &log).build().0, soon()).await.unwrap();
    let start = now();
    root.shutdown(soon()).await.unwrap();
    assert!(start.elapsed() < SECOND);
    assert!(starting.await.is_err());
    assert_eq!(log.all(), ["start b#1", "stop b#1", "drop b#1"]);
}

#[tokio::test(start_paused = true)]
async fn a_start_that_is_too_slow_fails() {
    let log = Log::new();
    let (_root, supervisor) = dynamic_root().await;
    let (spec, _gate) = gated_probe("a", &log);
    let start = now();
    let failed = supervisor.start_child(spec.start_timeout(SECOND * 40).build().0, soon()).await;
    let Err(StartError::Failed(Exit::StartFailed(_))) = failed else { panic!("{failed:?}") };
    assert_eq!(start.elapsed().as_secs(), 40);
    assert_eq!(supervisor.count().all, 0);
}

#[tokio::test(start_paused = true)]
async fn late_and_unknown_events_change_nothing() {
    let log = Log::new();
    let (_root, supervisor) = dynamic_root().await;
    // A child that ends in every way at once: it fails, is killed and terminated, and started again under its id.
    for round in 0..50 {
        let (spec, address) = probe("a", &log).build();
        supervisor.start_child(spec, soon()).await.unwrap();
        address.send(fail()).unwrap();
        if round % 2 == 0 {
            address.kill();
        }
        supervisor.terminate_child(&id("a"), soon()).await.unwrap();
        address.kill();
        assert_eq!(supervisor.count().all, 0, "round {round}");
    }
    assert!(supervisor.terminate_child(&id("a"), soon()).await.is_err());
    assert!(matches!(supervisor.restart_child(&id("a"), soon()).await, Err(StartError::NotFound(_))));
}

#[tokio::test]
async fn a_departed_child_leaves_no_state() {
    // Counted, not timed: they come and go, and nobody knows any of them in the end. The machine is asked after many more
    // (`a_hundred_thousand_short_children_leave_nothing`); here each is an actor.
    const CHILDREN: u32 = 2_000;
    struct ShortLivedWorker;
    impl conjure_actors::supervision::Worker for ShortLivedWorker {
        type Message = ();

        async fn handle(
            &mut self,
            (): (),
            _: &conjure_actors::supervision::Context<()>,
        ) -> Result<Flow, conjure_actors::supervision::Failure> {
            Ok(Flow::Stop)
        }
    }
    let (root, supervisor) = dynamic_root().await;
    let ended = Arc::new(AtomicU32::new(0));
    for number in 0..CHILDREN {
        let spec = conjure_actors::supervision::WorkerSpec::<ShortLivedWorker>::new(
            id(&number.to_string()),
            |_| async { Ok(ShortLivedWorker) },
        );
        let (spec, address) = spec.restart(Restart::TRANSIENT).build();
        let child = supervisor.start_child(spec, soon()).await.unwrap();
        address.send(()).unwrap();
        let exit = child.monitor().unwrap().await.exit;
        ended.fetch_add(u32::from(exit.class() == ExitClass::Normal), Ordering::Relaxed);
    }
    while supervisor.count().all > 0 {
        tokio::task::yield_now().await;
    }
    assert_eq!(ended.load(Ordering::Relaxed), CHILDREN);
    assert_eq!(root.tree().size(), 1);
    // ractor's own state: no links and no registrations.
    assert!(ractor::registry::registered().is_empty());
}

#[tokio::test(start_paused = true)]
async fn children_can_be_listed_counted_and_looked_at() {
    let log = Log::new();
    let (inner, inner_handle) = SupervisorSpec::dynamic(id("inner")).build();
    let spec =
        SupervisorSpec::ordered(id("root"), Strategy::OneForOne).child(probe("a", &log).build().0).unwrap();
    let (spec, supervisor) = spec.child(inner).unwrap().build();
    let root = Root::spawn(spec, soon()).await.unwrap();
    let (spec, address) = probe("b", &log).build();
    inner_handle.start_child(spec, soon()).await.unwrap();
    let listed: Vec<(String, Kind, Status)> = supervisor
        .children()
        .into_iter()
        .map(|child| (child.id.to_string(), child.kind, child.status))
        .collect();
    let running = |text: &str, kind| (text.to_owned(), kind, Status::Running);
    assert_eq!(listed, [running("a", Kind::Worker), running("inner", Kind::Supervisor)]);
    let counts = supervisor.count();
    assert_eq!((counts.all, counts.running, counts.supervisors), (2, 2, 1));
    assert!(supervisor.child(&id("b")).is_none());

    // The tree is read without asking anybody, while everything in it hangs.
    address.send(hang(&log)).unwrap();
    log.until("hang b#1").await;
    address.send(finish()).unwrap();
    let a = supervisor.children()[0].id.clone();
    assert_eq!(a, id("a"));
    let tree = root.tree();
    assert_eq!((tree.size(), tree.find(&["inner", "b"]).unwrap().actor.queue), (4, 1));
    assert_eq!(tree.to_string(), "root running\n  a running\n  inner running\n    b running, queue 1\n");
}

#[tokio::test(start_paused = true)]
async fn the_tree_shows_what_each_child_waits_for() {
    let log = Log::new();
    let (root, supervisor) = dynamic_root().await;
    let (spec, address) = probe("a", &log).build();
    supervisor.start_child(spec, soon()).await.unwrap();
    let child_log = log.clone();
    let work = run(move |context| async move {
        let _waiting = context.waiting_for("the model");
        child_log.push("waits");
        pending().await
    });
    address.send(work).unwrap();
    log.until("waits").await;
    assert_eq!(root.tree().find(&["a"]).unwrap().actor.waiting_for.as_deref(), Some("the model"));
    let (spec, _gate) = gated_probe("b", &log);
    let starting = supervisor.start_child(spec.build().0, soon());
    tokio::pin!(starting);
    tokio::select! {
        biased;
        started = &mut starting => panic!("{started:?}"),
        () = settle() => {}
    }
    assert_eq!(root.tree().actor.waiting_for.as_deref(), Some("the start of `b`"));
    address.kill();
    log.until("drop a#1").await;
    log.until("start a#2").await;
    assert_eq!(root.tree().find(&["a"]).unwrap().actor.waiting_for, None);
}

#[tokio::test(start_paused = true)]
async fn a_monitor_gets_exactly_one_down() {
    let log = Log::new();
    let (_root, supervisor) = dynamic_root().await;
    let (spec, address) = probe("a", &log).build();
    assert!(address.monitor().is_none(), "it never ran");
    supervisor.start_child(spec, soon()).await.unwrap();
    let monitors = [address.monitor().unwrap(), address.monitor().unwrap()];
    drop(address.monitor().unwrap());
    address.send(fail()).unwrap();
    for monitor in monitors {
        let down = monitor.await;
        assert_eq!((down.id, down.incarnation, down.exit.class()), (id("a"), 1, ExitClass::Failed));
    }
    log.until("start a#2").await;
    // The monitor belongs to the current incarnation, not to the previous one.
    let next = address.monitor().unwrap();
    address.kill();
    assert_eq!(next.await.incarnation, 2);
    log.until("start a#3").await;
}

#[tokio::test(start_paused = true)]
async fn a_monitor_of_the_dead_gets_its_down_too() {
    let log = Log::new();
    let (_root, supervisor) = dynamic_root().await;
    let (spec, address) = probe("a", &log).restart(Restart::TEMPORARY).build();
    let child = supervisor.start_child(spec, soon()).await.unwrap();
    address.send(panic()).unwrap();
    assert_eq!(end_of(&address).await.class(), ExitClass::Panicked);
    settle().await;
    assert_eq!(supervisor.count().all, 0);
    assert_eq!(end_of(&address).await.class(), ExitClass::Panicked);
    assert_eq!(child.monitor().unwrap().await.exit.class(), ExitClass::Panicked);
}

/// Replies when the gate opens.
fn answer_when_open(gate: &Arc<Semaphore>, reply: Reply<&'static str>) -> ProbeMessage {
    let gate = Arc::clone(gate);
    run(move |_| async move {
        gate.acquire().await?.forget();
        reply.send("answer");
        Ok(Flow::Continue)
    })
}

#[tokio::test(start_paused = true)]
async fn a_call_ends_at_its_deadline_and_a_late_reply_is_dropped() {
    let log = Log::new();
    let (_root, _, addresses) = root(Strategy::OneForOne, vec![probe("a", &log)]).await;
    let (address, gate) = (&addresses[0], Arc::new(Semaphore::new(0)));
    let start = now();
    let late = address.call(within(SECOND * 3), |reply| answer_when_open(&gate, reply)).await;
    assert_eq!((late, start.elapsed().as_secs()), (Err(CallError::DeadlinePassed), 3));
    gate.add_permits(1);
    // The next call gets its own answer.
    assert_eq!(address.call(soon(), ProbeMessage::Ping).await, Ok(1));
    gate.add_permits(1);
    assert_eq!(address.call(soon(), |reply| answer_when_open(&gate, reply)).await, Ok("answer"));
}

#[tokio::test(start_paused = true)]
async fn a_call_to_an_actor_that_ends_is_lost_at_once() {
    let log = Log::new();
    let (_root, supervisor) = dynamic_root().await;
    let (spec, address) = probe("a", &log).restart(Restart::TEMPORARY).build();
    assert_eq!(address.call(soon(), ProbeMessage::Ping).await, Err(CallError::NotRunning));
    supervisor.start_child(spec, soon()).await.unwrap();
    let gate = Arc::new(Semaphore::new(0));
    let start = now();
    let (under_way, queued, ()) = tokio::join!(
        biased;
        address.call(soon(), |reply| answer_when_open(&gate, reply)),
        address.call(soon(), ProbeMessage::Ping),
        async {
            settle().await;
            address.kill();
        }
    );
    assert_eq!((under_way, queued), (Err(CallError::Lost), Err(CallError::Lost)));
    assert_eq!(start.elapsed(), Duration::ZERO);
    assert_eq!(address.call(soon(), ProbeMessage::Ping).await, Err(CallError::NotRunning));
    assert!(CallError::NotRunning.is_retryable() && !CallError::Lost.is_retryable());
    assert!(
        matches!(address.send(finish()), Err(SendError::NotRunning(ProbeMessage::Run(_)))),
        "the message comes back"
    );
}
