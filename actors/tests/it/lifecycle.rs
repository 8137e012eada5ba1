//! Panics, partitions, domains, the end of a tree, and passivation.

use std::future::pending;
use std::num::NonZeroUsize;
use std::time::Duration;

use conjure_actors::supervision::{
    Backoff, CallError, ExitClass, Flow, Intensity, IntensityScope, Partitions, RequestError, Restart, Root,
    ShutdownError, StartError, Status, Strategy, SupervisorSpec,
};

use crate::support::*;

#[tokio::test(start_paused = true)]
async fn panics_are_contained() {
    let log = Log::new();
    let (_root, supervisor, addresses) =
        root(Strategy::OneForOne, vec![probe("a", &log), probe("b", &log)]).await;
    addresses[0].send(panic()).unwrap();
    log.until("start a#2").await;
    // In work beside it, too; that is not the actor's end.
    let child_log = log.clone();
    let work = run(move |context| async move {
        context.spawn(async { panic!("in the work") }).wait().await;
        context.spawn_blocking(|| panic!("in blocking work")).wait().await;
        child_log.push("goes on");
        Ok(Flow::Continue)
    });
    addresses[0].send(work).unwrap();
    log.until("goes on").await;
    // And in the last words.
    let stops_badly = probe_stopping("c", &log, |_| async { panic!("while stopping") });
    let (spec, address) = stops_badly.build();
    supervisor.start_child(spec, soon()).await.unwrap();
    supervisor.terminate_child(&id("c"), soon()).await.unwrap();
    assert_eq!(end_of(&address).await.class(), ExitClass::Panicked);
    assert_eq!(addresses[1].call(soon(), ProbeMessage::Ping).await, Ok(1));
}

#[test]
fn a_build_that_aborts_on_panic_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let compile = |panic: &str| {
        #[expect(clippy::disallowed_methods, reason = "asks the compiler whether it refuses")]
        std::process::Command::new("rustc")
            .args(["--edition=2024", "--crate-type=lib", "--emit=metadata", "-C", panic, "--out-dir"])
            .arg(dir.path())
            .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/src/supervision/running/unwind.rs"))
            .output()
            .unwrap()
    };
    let refused = compile("panic=abort");
    let output = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(
        !refused.status.success() && output.contains("conjure-actors contains panics by unwinding"),
        "{output}"
    );
    let compiled = compile("panic=unwind");
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
}

#[tokio::test(start_paused = true)]
async fn dynamic_supervisors_are_partitioned() {
    let log = Log::new();
    let count = NonZeroUsize::new(4).unwrap();
    let (spec, partitions) = Partitions::spec(id("parts"), count, |id| {
        SupervisorSpec::dynamic(id).intensity(Intensity::new(0, SECOND))
    })
    .unwrap();
    let (spec, supervisor) = spec.intensity(PATIENT).build();
    let root = Root::spawn(spec, soon()).await.unwrap();
    let ids: Vec<String> = (0..64).map(|number| format!("child-{number}")).collect();
    for text in &ids {
        partitions.start_child(probe(text, &log).build().0, soon()).await.unwrap();
        let second = partitions.start_child(probe(text, &log).build().0, soon()).await;
        assert!(matches!(second, Err(StartError::AlreadyStarted(_))), "one id is in one partition");
    }
    assert_eq!((partitions.count(), supervisor.count().all), (64, 4));
    let sizes: Vec<usize> = root.tree().children.iter().map(|partition| partition.children.len()).collect();
    assert!(sizes.iter().all(|size| *size > 0), "{sizes:?}");
    // One partition melts down; the other three never notice.
    let (spec, address) = probe("bad", &log).build();
    let child = partitions.start_child(spec, soon()).await.unwrap();
    let melted = partitions.partition_for(child.id());
    let others = 65 - melted.count().all;
    let down = melted.monitor().unwrap();
    address.send(fail()).unwrap();
    assert_eq!(down.await.exit.class(), ExitClass::Shutdown);
    settle().await;
    assert_eq!(partitions.count(), others);
    let stopped = log.all().iter().filter(|event| event.starts_with("stop")).count();
    assert_eq!(
        stopped + 1,
        65 - others,
        "those that stopped, and the one that failed, are of that partition"
    );
    assert!(partitions.partition_for(&id("bad")).child(&id("bad")).is_none());
    assert!(partitions.terminate_child(&id("bad"), soon()).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn each_tenant_is_a_meltdown_domain_of_its_own() {
    let log = Log::new();
    let spec = SupervisorSpec::dynamic(id("tenants"))
        .intensity_scope(IntensityScope::PerChild)
        .intensity(Intensity::new(1, SECOND * 60));
    let (spec, tenants) = spec.build();
    let _root = Root::spawn(spec, soon()).await.unwrap();
    let mut sessions = Vec::new();
    for tenant in ["acme", "globex"] {
        let spec =
            SupervisorSpec::dynamic(id(tenant)).intensity(Intensity::new(0, SECOND)).backoff(Backoff::NONE);
        let (spec, supervisor) = spec.build();
        tenants.start_child(spec, soon()).await.unwrap();
        let (spec, address) = probe(&format!("{tenant}-session"), &log).build();
        supervisor.start_child(spec, soon()).await.unwrap();
        sessions.push((supervisor, address));
    }
    // Acme's session crashes: acme's supervisor melts down, is started again, melts down again, and is given up.
    let (acme, address) = &sessions[0];
    address.send(fail()).unwrap();
    log.until("drop acme-session#1").await;
    settle().await;
    assert_eq!((tenants.child(acme.id()).unwrap().status, acme.count().all), (Status::Running, 0));
    let (spec, address) = probe("acme-session", &log).build();
    acme.start_child(spec, soon()).await.unwrap();
    address.send(fail()).unwrap();
    while tenants.child(acme.id()).unwrap().status != Status::Quarantined {
        tokio::task::yield_now().await;
    }
    let refused = acme.start_child(probe("acme-session", &log).build().0, soon()).await;
    assert!(matches!(refused, Err(StartError::Request(RequestError::NotRunning(_)))), "{refused:?}");
    let globex = tenants.child(&id("globex")).unwrap();
    assert_eq!((globex.status, globex.restarts), (Status::Running, 0));
    assert_eq!(sessions[1].1.call(soon(), ProbeMessage::Ping).await, Ok(1));
    tenants.restart_child(acme.id(), soon()).await.unwrap();
    acme.start_child(probe("acme-session", &log).build().0, soon()).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn shutdown_is_idempotent() {
    let log = Log::new();
    let slow = probe_stopping("a", &log, |_| async {
        tokio::time::sleep(SECOND * 4).await;
        Ok(())
    });
    let (root, supervisor, addresses) = root(Strategy::OneForOne, vec![slow]).await;
    // At the same time: all of them wait for the one end.
    let (first, second) = tokio::join!(root.shutdown(soon()), async {
        settle().await;
        let start = now();
        let ended = root.shutdown(soon()).await;
        assert_eq!(start.elapsed().as_secs(), 4);
        ended
    });
    first.unwrap();
    second.unwrap();
    root.shutdown(within(Duration::ZERO)).await.unwrap();
    assert_eq!(log.all(), ["start a#1", "stop a#1", "drop a#1"]);
    assert_eq!(addresses[0].call(soon(), ProbeMessage::Ping).await, Err(CallError::NotRunning));
    let refused = supervisor.start_child(probe("b", &log).build().0, soon()).await;
    assert!(matches!(refused, Err(StartError::Request(RequestError::NotRunning(_)))), "{refused:?}");
}

#[tokio::test(start_paused = true)]
async fn a_child_running_at_the_deadline_is_killed() {
    let log = Log::new();
    let non_stopping =
        probe_stopping("b", &log, |_| pending()).shutdown(conjure_actors::supervision::Shutdown::Unlimited);
    let (root, _, _) = root(Strategy::OneForOne, vec![probe("a", &log), non_stopping]).await;
    let start = now();
    let error = root.shutdown(within(SECOND * 7)).await.unwrap_err();
    assert_eq!(start.elapsed().as_secs(), 7);
    let ShutdownError::Killed { still } = &error else { panic!("{error}") };
    assert_eq!(still.find(&["b"]).unwrap().actor.status, Status::Stopping);
    assert_eq!(still.actor.waiting_for.as_deref(), Some("the end of `b`"));
    assert!(error.to_string().contains("b stopping"), "{error}");
    assert_eq!(root.monitor().await.exit.class(), ExitClass::Killed);
    assert_eq!((log.count("drop a#1"), log.count("drop b#1"), log.count("stop a#1")), (1, 1, 0));
    root.shutdown(soon()).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn dropping_the_root_is_a_graceful_stop_in_the_background() {
    let log = Log::new();
    let (root, _, _) = root(Strategy::OneForOne, vec![probe("a", &log), probe("b", &log)]).await;
    let down = root.monitor();
    drop(root);
    assert_eq!(down.await.exit.class(), ExitClass::Shutdown);
    assert_eq!(log.all()[2..], ["stop b#1", "drop b#1", "stop a#1", "drop a#1"]);
}

#[tokio::test(start_paused = true)]
async fn an_abandoned_spawn_leaves_nothing() {
    let log = Log::new();
    let never_starting = probe_with("b", &log, |_| pending()).start_timeout(SECOND * 1_000_000);
    let spec =
        SupervisorSpec::ordered(id("root"), Strategy::OneForOne).child(probe("a", &log).build().0).unwrap();
    let (spec, _) = spec.child(never_starting.build().0).unwrap().build();
    let error = Root::spawn(spec, within(SECOND * 30)).await.unwrap_err();
    assert!(matches!(error, StartError::Request(RequestError::DeadlinePassed(_))), "{error}");
    log.until("drop a#1").await;
    assert_eq!(log.all(), ["start a#1", "stop a#1", "drop a#1"]);
}

#[tokio::test(start_paused = true)]
async fn an_idle_child_is_passivated_and_the_next_message_revives_it() {
    let log = Log::new();
    let (_root, supervisor) = dynamic_root().await;
    let session = || {
        let flushing = probe_stopping("a", &log, |_| async {
            tokio::time::sleep(SECOND).await;
            Ok(())
        });
        flushing.restart(Restart::TRANSIENT).passivate_after(SECOND * 60)
    };
    let (spec, address) = session().build();
    supervisor.start_child(spec, soon()).await.unwrap();
    // Messages keep it.
    for _ in 0..5 {
        tokio::time::sleep(SECOND * 59).await;
        assert_eq!(address.call(soon(), ProbeMessage::Ping).await, Ok(1));
    }
    // So does work beside it.
    let work = run(|context| async move {
        std::mem::forget(context.spawn(tokio::time::sleep(SECOND * 500)));
        Ok(Flow::Continue)
    });
    address.send(work).unwrap();
    tokio::time::sleep(SECOND * 499).await;
    assert_eq!(supervisor.count().running, 1);
    let idle = now();
    assert_eq!(end_of(&address).await.class(), ExitClass::Normal, "not a failure");
    assert!(idle.elapsed() >= SECOND * 60, "{:?}", idle.elapsed());
    settle().await;
    assert_eq!(supervisor.count().all, 0, "only flushed data is left");
    assert_eq!(log.all(), ["start a#1", "stop a#1", "drop a#1"]);
    // The next message starts the ended actor again.
    assert_eq!(address.call(soon(), ProbeMessage::Ping).await, Err(CallError::NotRunning));
    let (spec, address) = session().build();
    supervisor.start_child(spec, soon()).await.unwrap();
    assert_eq!(address.call(soon(), ProbeMessage::Ping).await, Ok(1));
}

#[tokio::test(start_paused = true)]
async fn a_message_in_the_moment_of_passivation_is_either_handled_or_refused() {
    let log = Log::new();
    let (_root, supervisor) = dynamic_root().await;
    for nanos in [0, 1, 1_000_000, 60_000_000_000_u64] {
        let slow = probe_stopping("a", &log, |_| async {
            tokio::time::sleep(SECOND).await;
            Ok(())
        });
        let spec = |worker: conjure_actors::supervision::WorkerSpec<Probe>| {
            worker.restart(Restart::TEMPORARY).passivate_after(SECOND * 60).build()
        };
        let (child, address) = spec(slow);
        supervisor.start_child(child, soon()).await.unwrap();
        tokio::time::sleep(SECOND * 60 - Duration::from_millis(1) + Duration::from_nanos(nanos)).await;
        match address.call(soon(), ProbeMessage::Ping).await {
            Ok(incarnation) => assert_eq!(incarnation, 1),
            Err(error) => {
                assert_eq!(error, CallError::NotRunning, "it is never lost");
                // Revived while the last one still flushes: it waits for that.
                let (child, address) = spec(probe("a", &log));
                supervisor.start_child(child, soon()).await.unwrap();
                assert_eq!(address.call(soon(), ProbeMessage::Ping).await, Ok(1));
            }
        }
        supervisor.terminate_child(&id("a"), soon()).await.unwrap();
    }
}
