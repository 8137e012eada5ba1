//! Strategies, intensity, no overlap, backoff and failed restarts.

use std::future::pending;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use conjure_actors::supervision::{
    AutoShutdown, Backoff, Exit, ExitClass, Intensity, IntensityScope, OnLimit, Restart, Root, Significance,
    StartError, Status, Strategy, SupervisorSpec,
};

use crate::support::*;

async fn after_the_failure_of_b(strategy: Strategy) -> Vec<String> {
    let log = Log::new();
    let workers = ["a", "b", "c", "d"].map(|text| probe(text, &log)).into();
    let (_root, supervisor, addresses) = root(strategy, workers).await;
    log.take();
    addresses[1].send(fail()).unwrap();
    log.until("start b#2").await;
    settle().await;
    assert_eq!(supervisor.count().running, 4);
    log.take()
}

#[tokio::test(start_paused = true)]
async fn one_for_one_restarts_the_one() {
    assert_eq!(after_the_failure_of_b(Strategy::OneForOne).await, ["drop b#1", "start b#2"]);
}

#[tokio::test(start_paused = true)]
async fn one_for_all_restarts_all() {
    let events = after_the_failure_of_b(Strategy::OneForAll).await;
    let stops = ["stop d#1", "drop d#1", "stop c#1", "drop c#1", "stop a#1", "drop a#1"];
    let others: Vec<&String> = events.iter().filter(|event| *event != "drop b#1").collect();
    assert_eq!(others[..6], stops, "in reverse");
    assert_eq!(
        others[6..],
        ["start a#2", "start b#2", "start c#2", "start d#2"],
        "in order, when all are gone"
    );
    assert!(events[..events.len() - 4].contains(&"drop b#1".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn rest_for_one_restarts_it_and_those_behind() {
    let events = after_the_failure_of_b(Strategy::RestForOne).await;
    let others: Vec<&String> = events.iter().filter(|event| *event != "drop b#1").collect();
    assert_eq!(others[..4], ["stop d#1", "drop d#1", "stop c#1", "drop c#1"], "in reverse");
    assert_eq!(others[4..], ["start b#2", "start c#2", "start d#2"], "in order; `a` never stopped");
}

#[tokio::test(start_paused = true)]
async fn siblings_stop_at_the_time_of_failure_before_any_backoff() {
    let log = Log::new();
    let backoff = Backoff::new(SECOND * 1_000_000, SECOND * 1_000_000, SECOND);
    let workers = vec![probe("a", &log).backoff(backoff), probe("b", &log)];
    let (_root, supervisor, addresses) = root(Strategy::OneForAll, workers).await;
    addresses[0].send(fail()).unwrap();
    // No time passes, so `a` is not due.
    settle().await;
    assert_eq!(log.count("drop b#1"), 1);
    let statuses: Vec<Status> = supervisor.children().into_iter().map(|child| child.status).collect();
    assert!(matches!(statuses[..], [Status::Restarting { .. }, Status::Restarting { .. }]), "{statuses:?}");
    assert_eq!(supervisor.count().restarting, 2);
}

#[tokio::test(start_paused = true)]
async fn dynamic_children_restart_independently_and_finished_ones_are_removed() {
    let log = Log::new();
    let (_root, supervisor) = dynamic_root().await;
    let restarts = [Restart::Permanent, Restart::TRANSIENT, Restart::TEMPORARY];
    let mut addresses = Vec::new();
    for (text, restart) in ["permanent", "transient", "temporary"].into_iter().zip(restarts) {
        let (spec, address) = probe(text, &log).restart(restart).build();
        supervisor.start_child(spec, soon()).await.unwrap();
        addresses.push(address);
    }
    for address in &addresses {
        address.send(fail()).unwrap();
    }
    log.until("start transient#2").await;
    log.until("start permanent#2").await;
    settle().await;
    assert_eq!(supervisor.count().all, 2, "the temporary one is not restarted");
    for address in &addresses[..2] {
        address.send(finish()).unwrap();
    }
    log.until("start permanent#3").await;
    settle().await;
    assert_eq!(supervisor.count().all, 1, "the transient one ended well");
}

#[tokio::test(start_paused = true)]
async fn significant_children_end_their_supervisor() {
    for (auto, survives_first) in
        [(AutoShutdown::AnySignificant, false), (AutoShutdown::AllSignificant, true)]
    {
        let log = Log::new();
        let mut spec = SupervisorSpec::with_auto_shutdown(id("root"), Strategy::OneForOne, auto);
        let mut addresses = Vec::new();
        for (text, significance) in [
            ("a", Significance::Significant),
            ("b", Significance::Significant),
            ("c", Significance::Ordinary),
        ] {
            let (child, address) = probe(text, &log).restart(Restart::Transient(significance)).build();
            spec = spec.child(child).unwrap();
            addresses.push(address);
        }
        let (spec, supervisor) = spec.build();
        let root = Root::spawn(spec, soon()).await.unwrap();
        // Neither an ordinary one, nor a significant one that is started again.
        addresses[2].send(finish()).unwrap();
        addresses[0].send(fail()).unwrap();
        log.until("start a#2").await;
        settle().await;
        assert_eq!((supervisor.count().running, supervisor.count().finished), (2, 1));
        addresses[0].send(finish()).unwrap();
        log.until("drop a#2").await;
        settle().await;
        assert_eq!(log.count("stop b#1"), usize::from(!survives_first), "{auto:?}");
        if survives_first {
            addresses[1].send(finish()).unwrap();
        }
        assert_eq!(root.monitor().await.exit.class(), ExitClass::Shutdown, "{auto:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_intensity_slides_with_tokio_time() {
    let log = Log::new();
    let (spec, address) = probe("a", &log).build();
    let spec = SupervisorSpec::ordered(id("root"), Strategy::OneForOne).child(spec).unwrap();
    let spec = spec.child(probe("b", &log).build().0).unwrap().intensity(Intensity::new(2, SECOND * 10));
    let root = Root::spawn(spec.build().0, soon()).await.unwrap();
    let mut incarnation = 1;
    // Six seconds apart there are never three within ten: this could continue for ever.
    for _ in 0..20 {
        address.send(fail()).unwrap();
        incarnation += 1;
        log.until(&format!("start a#{incarnation}")).await;
        tokio::time::advance(SECOND * 6).await;
    }
    assert_eq!(log.count("drop b#1"), 0);
    // The restart six seconds ago is within the window; one more is too, the third is not.
    address.send(fail()).unwrap();
    incarnation += 1;
    log.until(&format!("start a#{incarnation}")).await;
    address.send(fail()).unwrap();
    assert_eq!(root.monitor().await.exit.class(), ExitClass::Shutdown);
    assert_eq!(log.count("stop b#1"), 1, "all were stopped");
    assert_eq!(log.count(&format!("start a#{}", incarnation + 1)), 0);
}

#[tokio::test(start_paused = true)]
async fn when_it_is_exceeded_the_parent_decides() {
    for (restart, comes_back) in [(Restart::Permanent, true), (Restart::TRANSIENT, false)] {
        let log = Log::new();
        let (worker, address) = probe("a", &log).build();
        let inner = SupervisorSpec::ordered(id("inner"), Strategy::OneForOne).child(worker).unwrap();
        let inner =
            inner.intensity(Intensity::new(0, SECOND)).restart(restart).backoff(Backoff::NONE).build().0;
        let spec = SupervisorSpec::ordered(id("root"), Strategy::OneForOne).child(inner).unwrap();
        let (spec, supervisor) = spec.build();
        let _root = Root::spawn(spec, soon()).await.unwrap();
        address.send(fail()).unwrap();
        log.until("drop a#1").await;
        settle().await;
        let inner = supervisor.child(&id("inner")).unwrap();
        assert_eq!(inner.last_exit.map(|exit| exit.class()), Some(ExitClass::Shutdown));
        assert_eq!((inner.restarts, inner.status == Status::Running), (u64::from(comes_back), comes_back));
        // The address is good over the supervisor's restart too, and the incarnations count on.
        assert_eq!(address.call(soon(), ProbeMessage::Ping).await.ok(), comes_back.then_some(2));
    }
}

#[tokio::test(start_paused = true)]
async fn a_restart_never_overlaps_the_old_incarnation() {
    let log = Log::new();
    let running = Arc::new(AtomicU32::new(0));
    struct Count(Arc<AtomicU32>);
    impl Drop for Count {
        fn drop(&mut self) {
            self.0.fetch_sub(1, Ordering::SeqCst);
        }
    }
    let counted = Arc::clone(&running);
    let worker = probe_with("a", &log, move |context| {
        assert_eq!(counted.fetch_add(1, Ordering::SeqCst), 0, "two incarnations at once");
        let count = Count(Arc::clone(&counted));
        async move {
            // Held by work beside the worker, which dies a little after it.
            let _ = &context;
            context
                .address()
                .send(run(move |context| async move {
                    let job = context.spawn(async move {
                        let _count = count;
                        pending::<()>().await;
                    });
                    std::mem::forget(job);
                    Ok(conjure_actors::supervision::Flow::Continue)
                }))
                .unwrap();
            Ok(())
        }
    });
    let (root, _, addresses) = root(Strategy::OneForOne, vec![worker]).await;
    for round in 2..60 {
        match round % 3 {
            0 => addresses[0].send(fail()).unwrap(),
            1 => addresses[0].send(panic()).unwrap(),
            _ => addresses[0].kill(),
        }
        log.until(&format!("start a#{round}")).await;
        assert_eq!(addresses[0].call(soon(), ProbeMessage::Ping).await, Ok(round));
    }
    root.shutdown(soon()).await.unwrap();
    assert_eq!(running.load(Ordering::SeqCst), 0);
}

#[tokio::test(start_paused = true)]
async fn a_pending_restart_is_visible_counts_against_capacity_and_is_cancelled_by_terminate() {
    let log = Log::new();
    let (spec, supervisor) = SupervisorSpec::dynamic(id("root")).capacity(1).intensity(PATIENT).build();
    let _root = Root::spawn(spec, soon()).await.unwrap();
    let backoff = Backoff::new(SECOND * 1_000_000, SECOND * 1_000_000, SECOND);
    let (spec, address) = probe("a", &log).backoff(backoff).build();
    supervisor.start_child(spec, soon()).await.unwrap();
    address.send(fail()).unwrap();
    settle().await;
    let child = supervisor.child(&id("a")).unwrap();
    assert!(matches!(child.status, Status::Restarting { .. }), "{child}");
    assert!(child.to_string().starts_with("a restarting in "), "{child}");
    assert!(address.send(fail()).is_err());
    let full = supervisor.start_child(probe("b", &log).build().0, soon()).await.unwrap_err();
    assert!(matches!(full, StartError::Full { capacity: 1 }) && full.is_retryable(), "{full}");
    supervisor.terminate_child(&id("a"), soon()).await.unwrap();
    assert_eq!(supervisor.count().all, 0);
    supervisor.start_child(probe("b", &log).build().0, soon()).await.unwrap();
    tokio::time::advance(SECOND * 2_000_000).await;
    settle().await;
    assert_eq!(log.count("start a#2"), 0, "it was cancelled");
}

#[tokio::test(start_paused = true)]
async fn waits_grow_with_failures_and_are_reset_by_a_healthy_time() {
    let log = Log::new();
    let backoff = Backoff::new(SECOND, SECOND * 64, SECOND * 100);
    let (_root, _, addresses) = root(Strategy::OneForOne, vec![probe("a", &log).backoff(backoff)]).await;
    let mut incarnation = 1;
    let mut longest = Vec::new();
    for _ in 0..40 {
        let failed = now();
        addresses[0].send(fail()).unwrap();
        incarnation += 1;
        log.until(&format!("start a#{incarnation}")).await;
        longest.push(failed.elapsed());
    }
    // Full jitter: each is anything below its ceiling; that 34 of 64 seconds are all below 2 has no chance.
    for (failures, wait) in longest.iter().enumerate() {
        assert!(*wait <= backoff.ceiling(u32::try_from(failures).unwrap()) + SECOND, "{failures}: {wait:?}");
    }
    assert!(longest.iter().any(|wait| *wait > SECOND * 2), "{longest:?}");
    for _ in 0..20 {
        tokio::time::advance(SECOND * 100).await;
        let failed = now();
        addresses[0].send(fail()).unwrap();
        incarnation += 1;
        log.until(&format!("start a#{incarnation}")).await;
        assert!(
            failed.elapsed() <= SECOND + SECOND / 100,
            "forgotten after a healthy time: {:?}",
            failed.elapsed()
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_failed_restart_is_another_attempt_and_the_supervisor_stays_responsive() {
    let log = Log::new();
    let (broken, attempts) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU32::new(0)));
    let worker = {
        let (broken, attempts) = (Arc::clone(&broken), Arc::clone(&attempts));
        probe_with("a", &log, move |_| {
            attempts.fetch_add(1, Ordering::SeqCst);
            let is_broken = broken.load(Ordering::SeqCst);
            async move {
                tokio::time::sleep(SECOND * 10).await;
                if is_broken { Err("still broken".into()) } else { Ok(()) }
            }
        })
    };
    let (_root, supervisor, addresses) = root(Strategy::OneForOne, vec![worker]).await;
    broken.store(true, Ordering::SeqCst);
    addresses[0].send(fail()).unwrap();
    settle().await;
    assert_eq!(supervisor.child(&id("a")).unwrap().status, Status::Starting);
    // While the restart is under way, others are served, in less time than it takes.
    for text in ["b", "c", "d"] {
        supervisor.start_child(probe(text, &log).build().0, within(SECOND)).await.unwrap();
    }
    while attempts.load(Ordering::SeqCst) < 5 {
        tokio::time::sleep(SECOND).await;
    }
    broken.store(false, Ordering::SeqCst);
    log.until("start a#6").await;
    let child = supervisor.child(&id("a")).unwrap();
    assert_eq!(child.restarts, 5, "each was counted");
    assert_eq!(child.last_exit.unwrap().to_string(), "failed to start: still broken");
}

#[tokio::test(start_paused = true)]
async fn failed_restarts_count_towards_the_intensity() {
    let log = Log::new();
    let (broken, attempts) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU32::new(0)));
    let worker = {
        let (broken, attempts) = (Arc::clone(&broken), Arc::clone(&attempts));
        probe_with("a", &log, move |_| {
            attempts.fetch_add(1, Ordering::SeqCst);
            let is_broken = broken.load(Ordering::SeqCst);
            async move { if is_broken { Err("broken".into()) } else { Ok(()) } }
        })
    };
    let (spec, address) = worker.build();
    let spec = SupervisorSpec::ordered(id("root"), Strategy::OneForOne).child(spec).unwrap();
    let root = Root::spawn(spec.intensity(Intensity::new(4, SECOND)).build().0, soon()).await.unwrap();
    broken.store(true, Ordering::SeqCst);
    address.send(fail()).unwrap();
    assert_eq!(root.monitor().await.exit.class(), ExitClass::Shutdown);
    assert_eq!(attempts.load(Ordering::SeqCst), 5, "the first start, and four restarts that failed");
}

#[tokio::test(start_paused = true)]
async fn a_session_that_fails_to_start_is_quarantined() {
    let log = Log::new();
    let broken = Arc::new(AtomicBool::new(false));
    let session = |text: &str| {
        let broken = Arc::clone(&broken);
        probe_with(text, &log, move |_| {
            let is_broken = broken.load(Ordering::SeqCst);
            async move { if is_broken { Err("poisoned".into()) } else { Ok(()) } }
        })
    };
    let spec = SupervisorSpec::dynamic(id("root")).intensity(PATIENT).capacity(2);
    let (spec, supervisor) = spec.quarantine_after(NonZeroU32::new(3).unwrap()).build();
    let _root = Root::spawn(spec, soon()).await.unwrap();
    let (spec, address) = session("a").build();
    supervisor.start_child(spec, soon()).await.unwrap();
    supervisor.start_child(probe("b", &log).build().0, soon()).await.unwrap();
    broken.store(true, Ordering::SeqCst);
    address.send(fail()).unwrap();
    tokio::time::sleep(SECOND * 1000).await;
    let child = supervisor.child(&id("a")).unwrap();
    assert_eq!((child.status, child.restarts), (Status::Quarantined, 3), "three failed starts, and no more");
    let refused = supervisor.start_child(session("a").build().0, soon()).await.unwrap_err();
    assert!(!refused.is_retryable());
    let StartError::Quarantined { exit: Some(Exit::StartFailed(_)), .. } = refused else {
        panic!("{refused:?}")
    };
    let full = supervisor.start_child(probe("c", &log).build().0, soon()).await;
    assert!(matches!(full, Err(StartError::Full { .. })), "it keeps its place");
    // Asked to, it is tried again, once; and stays where it is.
    let failed = supervisor.restart_child(&id("a"), soon()).await;
    assert!(matches!(failed, Err(StartError::Failed(_))), "{failed:?}");
    assert_eq!(supervisor.child(&id("a")).unwrap().status, Status::Quarantined);
    broken.store(false, Ordering::SeqCst);
    supervisor.restart_child(&id("a"), soon()).await.unwrap();
    assert!(address.call(soon(), ProbeMessage::Ping).await.is_ok());
    assert_eq!(log.count("drop b#1"), 0, "its sibling never noticed");
}

#[tokio::test(start_paused = true)]
async fn a_failed_child_is_removed_when_the_supervisor_keeps_none() {
    let log = Log::new();
    let spec = SupervisorSpec::dynamic(id("root")).intensity(Intensity::new(2, SECOND * 1000));
    let (spec, supervisor) = spec.intensity_scope(IntensityScope::PerChild).on_limit(OnLimit::Remove).build();
    let _root = Root::spawn(spec, soon()).await.unwrap();
    let transient = |text: &str| probe(text, &log).restart(Restart::TRANSIENT).build();
    let (spec, address) = transient("a");
    supervisor.start_child(spec, soon()).await.unwrap();
    supervisor.start_child(transient("b").0, soon()).await.unwrap();
    for incarnation in 1..=3 {
        log.until(&format!("start a#{incarnation}")).await;
        let down = address.monitor().unwrap();
        address.send(fail()).unwrap();
        assert_eq!(down.await.exit.class(), ExitClass::Failed);
    }
    settle().await;
    assert!(supervisor.child(&id("a")).is_none(), "{:?}", supervisor.children());
    assert_eq!(log.count("start a#4"), 0, "two restarts, and no more");
    assert_eq!(log.count("drop b#1"), 0, "its sibling never noticed");
    // The next request brings a new spec, and the child starts without failures.
    let (spec, address) = transient("a");
    supervisor.start_child(spec, soon()).await.unwrap();
    let down = address.monitor().unwrap();
    address.send(fail()).unwrap();
    down.await;
    log.until("start a#2").await;
}
