//! The specs of children, the order of start and stop, and the classes of exits.

use std::future::pending;

use conjure_actors::supervision::{
    AutoShutdown, ChildId, Exit, ExitClass, Kind, Restart, Root, Shutdown, Significance, SpecError,
    StartError, StartFailure, Strategy, SupervisorSpec,
};

use crate::support::*;

#[test]
fn illegal_specs_cannot_be_built() {
    let log = Log::new();
    let significant = || probe("a", &log).restart(Restart::Transient(Significance::Significant)).build().0;
    // Permanent and significant: there is no such value. A killed supervisor: its spec has no shutdown time.
    let never_starting = SupervisorSpec::ordered(id("s"), Strategy::OneForOne);
    assert_eq!(
        never_starting.child(significant()).unwrap_err(),
        SpecError::NeedsAutoShutdown { id: id("a") }
    );
    let any = SupervisorSpec::with_auto_shutdown(id("s"), Strategy::OneForOne, AutoShutdown::AnySignificant);
    let any = any.child(significant()).unwrap();
    assert_eq!(any.child(probe("a", &log).build().0).unwrap_err(), SpecError::DuplicateId { id: id("a") });
    for text in ["", "a/b", "a\nb", &"a".repeat(129)] {
        assert!(matches!(ChildId::new(text), Err(SpecError::BadId { .. })), "{text:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_significant_child_does_not_fit_where_none_can_end_the_supervisor() {
    let log = Log::new();
    let (_root, supervisor) = dynamic_root().await;
    let (spec, _) = probe("a", &log).restart(Restart::Temporary(Significance::Significant)).build();
    assert_eq!(spec.kind(), Kind::Worker);
    let refused = supervisor.start_child(spec, soon()).await;
    assert!(matches!(refused, Err(StartError::Spec(SpecError::NeedsAutoShutdown { .. }))), "{refused:?}");
    assert!(log.all().is_empty());
}

#[tokio::test(start_paused = true)]
async fn children_start_in_order_each_after_the_start_of_the_one_before() {
    let log = Log::new();
    let slow = |text: &str, seconds| {
        probe_with(text, &log, move |_| async move {
            tokio::time::sleep(SECOND * seconds).await;
            Ok(())
        })
    };
    let (_root, ..) = root(Strategy::OneForOne, vec![slow("a", 3), slow("b", 1), slow("c", 2)]).await;
    assert_eq!(log.all(), ["start a#1", "start b#1", "start c#1"]);
}

#[tokio::test(start_paused = true)]
async fn when_a_first_start_fails_the_others_stop_in_reverse_and_start_returns_the_error() {
    let log = Log::new();
    let mut spec = SupervisorSpec::ordered(id("root"), Strategy::OneForOne);
    let bad = probe_with("c", &log, {
        let log = log.clone();
        move |_| {
            log.push("try c");
            async { Err("no such image".into()) }
        }
    });
    for worker in [probe("a", &log), probe("b", &log), bad, probe("d", &log)] {
        spec = spec.child(worker.build().0).unwrap();
    }
    let (spec, supervisor) = spec.build();
    let error = Root::spawn(spec, soon()).await.unwrap_err();
    assert!(
        error.to_string().ends_with("its child `c` did not start (failed to start: no such image)"),
        "{error}"
    );
    let StartError::Failed(Exit::StartFailed(StartFailure::Child(child, exit))) = error else { panic!() };
    assert_eq!((child, exit.class()), (id("c"), ExitClass::StartFailed));
    // Everything is gone when start returns, `c` was tried once, and `d` never.
    let expected = ["start a#1", "start b#1", "try c", "stop b#1", "drop b#1", "stop a#1", "drop a#1"];
    assert_eq!(log.all(), expected);
    assert_eq!(supervisor.count().all, 0);
}

#[tokio::test(start_paused = true)]
async fn children_stop_in_reverse_each_with_its_whole_subtree() {
    let log = Log::new();
    // Each would lose its last words if its parent's end killed it, as in `ractor`.
    let slow = |text: &str| {
        probe_stopping(text, &log, {
            let (log, text) = (log.clone(), text.to_owned());
            move |_| {
                let (log, text) = (log.clone(), text.clone());
                async move {
                    tokio::time::sleep(SECOND).await;
                    log.push(format!("flushed {text}"));
                    Ok(())
                }
            }
        })
    };
    let (inner, _) = SupervisorSpec::ordered(id("inner"), Strategy::OneForOne)
        .child(slow("b1").build().0)
        .unwrap()
        .child(slow("b2").build().0)
        .unwrap()
        .build();
    let spec = SupervisorSpec::ordered(id("root"), Strategy::OneForOne);
    let spec =
        spec.child(slow("a").build().0).unwrap().child(inner).unwrap().child(slow("c").build().0).unwrap();
    let root = Root::spawn(spec.build().0, soon()).await.unwrap();
    log.take();
    root.shutdown(soon()).await.unwrap();
    let events = ["c", "b2", "b1", "a"]
        .map(|text| [format!("stop {text}#1"), format!("flushed {text}"), format!("drop {text}#1")]);
    assert_eq!(log.all(), events.concat());
}

#[tokio::test(start_paused = true)]
async fn a_child_that_does_not_stop_in_time_is_killed_and_waited_for() {
    let log = Log::new();
    let non_stopping = |text: &str| probe_stopping(text, &log, |_| pending());
    let patient = probe_stopping("c", &log, |_| async {
        tokio::time::sleep(SECOND * 1000).await;
        Ok(())
    });
    let workers = vec![
        non_stopping("a").shutdown(Shutdown::After(SECOND * 7)),
        non_stopping("b").shutdown(Shutdown::Kill),
        patient.shutdown(Shutdown::Unlimited),
    ];
    let (root, _, addresses) = root(Strategy::OneForOne, workers).await;
    log.take();
    let start = now();
    root.shutdown(soon()).await.unwrap();
    // `b` is not asked.
    assert_eq!(log.all(), ["stop c#1", "drop c#1", "drop b#1", "stop a#1", "drop a#1"]);
    assert_eq!(start.elapsed().as_secs(), 1007);
    for (address, class) in addresses.iter().zip([ExitClass::Killed, ExitClass::Killed, ExitClass::Shutdown])
    {
        assert_eq!(end_of(address).await.class(), class, "{address:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn dynamic_supervisors_stop_their_children_in_parallel() {
    let log = Log::new();
    let (root, supervisor) = dynamic_root().await;
    for text in ["a", "b", "c"] {
        let slow = probe_stopping(text, &log, |_| async {
            tokio::time::sleep(SECOND * 4).await;
            Ok(())
        });
        supervisor.start_child(slow.build().0, soon()).await.unwrap();
    }
    let start = now();
    root.shutdown(soon()).await.unwrap();
    assert_eq!(start.elapsed().as_secs(), 4);
    assert_eq!(log.all().len(), 9);
}

#[tokio::test(start_paused = true)]
async fn every_way_to_end_has_its_class() {
    let log = Log::new();
    let (_root, supervisor) = dynamic_root().await;
    let cases: [(&str, Option<ProbeMessage>, ExitClass, &str); 6] = [
        ("finish", Some(finish()), ExitClass::Normal, "normal"),
        ("fail", Some(fail()), ExitClass::Failed, "failed: told to fail"),
        ("panic", Some(panic()), ExitClass::Panicked, "panicked: told to panic"),
        ("kill", None, ExitClass::Killed, "killed"),
        ("shutdown", None, ExitClass::Shutdown, "shutdown"),
        ("stop-fails", None, ExitClass::Failed, "failed: cannot flush"),
    ];
    for (text, say, class, reported) in cases {
        let worker = match text {
            "stop-fails" => probe_stopping(text, &log, |_| async { Err("cannot flush".into()) }),
            _ => probe(text, &log),
        };
        let (spec, address) = worker.restart(Restart::TEMPORARY).build();
        supervisor.start_child(spec, soon()).await.unwrap();
        match (text, say) {
            (_, Some(say)) => address.send(say).unwrap(),
            ("kill", None) => address.kill(),
            _ => supervisor.terminate_child(&id(text), soon()).await.unwrap(),
        }
        let exit = end_of(&address).await;
        assert_eq!((exit.class(), exit.to_string().as_str()), (class, reported), "{text}");
        assert_eq!(log.count(&format!("drop {text}#1")), 1, "{text}");
    }
    for (how, reported) in [
        ("err", "failed to start: no"),
        ("panic", "failed to start: it panicked: boom"),
        ("slow", "failed to start: it took longer than 9s"),
    ] {
        let start = move |_| async move {
            match how {
                "err" => Err("no".into()),
                "panic" => panic!("boom"),
                _ => pending().await,
            }
        };
        let (spec, _) = probe_with(how, &log, start).start_timeout(SECOND * 9).build();
        let Err(StartError::Failed(exit)) = supervisor.start_child(spec, soon()).await else {
            panic!("{how}")
        };
        assert_eq!((exit.class(), exit.to_string().as_str()), (ExitClass::StartFailed, reported));
    }
    assert_eq!(supervisor.count().all, 0);
}

#[tokio::test(start_paused = true)]
async fn a_kill_is_abnormal_unless_requested() {
    let log = Log::new();
    let non_stopping = probe_stopping("a", &log, |_| pending()).restart(Restart::TRANSIENT);
    let (_root, supervisor, addresses) = root(Strategy::OneForOne, vec![non_stopping]).await;
    addresses[0].send(hang(&log)).unwrap();
    log.until("hang a#1").await;
    let monitor = addresses[0].monitor().unwrap();
    addresses[0].kill();
    assert_eq!(monitor.await.exit.class(), ExitClass::Killed);
    log.until("start a#2").await;
    // Asked, it is killed after five seconds, and that is no reason to start it again.
    supervisor.terminate_child(&id("a"), soon()).await.unwrap();
    settle().await;
    assert_eq!(log.all(), ["start a#1", "hang a#1", "drop a#1", "start a#2", "stop a#2", "drop a#2"]);
    assert_eq!(supervisor.count().all, 0);
}
