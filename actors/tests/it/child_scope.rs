//! Children below a worker: they end with it, and the worker counts as ended only after them.

use std::sync::Arc;

use conjure_actors::supervision::{
    Address, ChildScope, ChildSpec, RequestError, Restart, Root, StartError, Status, Strategy, Supervisor,
    SupervisorSpec,
};

use crate::support::{
    Log, PATIENT, ProbeMessage, fail, finish, hang, id, now, probe, probe_stopping, probe_with, root, run,
    settle, soon,
};

/// The ground of a worker.
async fn child_scope_of(address: &Address<ProbeMessage>) -> ChildScope {
    let (teller, ground) = tokio::sync::oneshot::channel();
    let tell = run(move |context| async move {
        teller.send(context.child_scope()).map_err(|_| "nobody asked")?;
        Ok(conjure_actors::supervision::Flow::Continue)
    });
    address.send(tell).unwrap();
    ground.await.unwrap()
}

/// A root with one worker, `a`, that is started again when it failed.
async fn worker(log: &Log) -> (Root, Address<ProbeMessage>, ChildScope) {
    let worker = probe("a", log).restart(Restart::TRANSIENT);
    let (root, _, addresses) = root(Strategy::OneForOne, vec![worker]).await;
    let address = addresses.into_iter().next().unwrap();
    let ground = child_scope_of(&address).await;
    (root, address, ground)
}

/// A supervisor with one child, `c`.
fn house_supervisor(log: &Log) -> (Arc<ChildSpec>, Supervisor, Address<ProbeMessage>) {
    let (child, address) = probe("c", log).build();
    let spec = SupervisorSpec::ordered(id("house"), Strategy::OneForOne).intensity(PATIENT);
    let (spec, supervisor) = spec.child(child).unwrap().build();
    (Arc::new(spec), supervisor, address)
}

#[tokio::test(start_paused = true)]
async fn children_of_a_worker_are_listed_below_it_and_stopped_after_it() {
    let log = Log::new();
    let (root, address, ground) = worker(&log).await;
    let (spec, supervisor, _) = house_supervisor(&log);
    ground.start(spec, soon()).await.unwrap();
    let tree = root.tree();
    let house = tree.find(&["a", "house"]).unwrap();
    assert_eq!((house.actor.status, house.children.len()), (Status::Running, 1), "{tree}");
    assert_eq!(tree.find(&["a", "house", "c"]).unwrap().actor.status, Status::Running);
    log.take();

    let down = address.monitor().unwrap();
    address.send(finish()).unwrap();
    down.await;
    assert_eq!(log.all(), ["stop a#1", "drop a#1", "stop c#1", "drop c#1"]);
    assert!(supervisor.child(&id("c")).is_none());
    settle().await;
    assert!(root.tree().find(&["a", "house"]).is_none(), "{}", root.tree());
}

#[tokio::test(start_paused = true)]
async fn a_worker_restarts_after_its_children_have_ended() {
    let log = Log::new();
    let (_root, address, ground) = worker(&log).await;
    let reported = log.clone();
    let slow = probe_stopping("slow", &log, move |_| {
        let log = reported.clone();
        async move {
            tokio::time::sleep(std::time::Duration::from_secs(3)).await;
            log.push("slow is over");
            Ok(())
        }
    });
    ground.start(Arc::new(slow.build().0), soon()).await.unwrap();
    address.send(fail()).unwrap();
    log.until("start a#2").await;
    let events = log.all();
    let index = |what: &str| events.iter().position(|event| event == what).unwrap();
    assert!(index("drop a#1") < index("slow is over"), "{events:?}");
    assert!(index("slow is over") < index("start a#2"), "{events:?}");
    // It was the ground of an incarnation that is over.
    let (spec, ..) = house_supervisor(&log);
    let refused = ground.start(spec, soon()).await.unwrap_err();
    assert!(matches!(refused, StartError::Request(RequestError::NotRunning(_))), "{refused}");
}

#[tokio::test(start_paused = true)]
async fn children_of_a_killed_worker_are_killed() {
    let log = Log::new();
    let (_root, address, ground) = worker(&log).await;
    let (spec, _, child) = house_supervisor(&log);
    ground.start(spec, soon()).await.unwrap();
    child.send(hang(&log)).unwrap();
    log.until("hang c#1").await;
    let down = child.monitor().unwrap();
    address.kill();
    // Asked to stop, it would have had its time.
    let before = now();
    down.await;
    assert_eq!(now(), before);
    log.until("start a#2").await;
    assert_eq!(log.count("drop c#1"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_child_that_ends_by_itself_is_restarted_on_demand() {
    let log = Log::new();
    let (root, address, ground) = worker(&log).await;
    let (spec, supervisor, _) = house_supervisor(&log);
    ground.start(Arc::clone(&spec), soon()).await.unwrap();
    let down = supervisor.monitor().unwrap();
    supervisor.kill();
    down.await;
    settle().await;
    assert!(root.tree().find(&["a", "house"]).is_none(), "nobody starts it again");
    ground.start(spec, soon()).await.unwrap();
    assert_eq!(log.count("start c#2"), 1);
    assert!(address.call(soon(), ProbeMessage::Ping).await.is_ok_and(|incarnation| incarnation == 1));
}

#[tokio::test(start_paused = true)]
async fn a_failed_start_is_reported_and_an_unawaited_start_belongs_to_the_worker() {
    let log = Log::new();
    let (root, address, ground) = worker(&log).await;
    let bad = probe_with("bad", &log, |_| async { Err("no".into()) });
    let error = ground.start(Arc::new(bad.build().0), soon()).await.unwrap_err();
    assert_eq!(error.to_string(), "the child failed to start: no");
    settle().await;
    assert_eq!(root.tree().size(), 2, "{}", root.tree());

    let slow = probe_with("slow", &log, |_| std::future::pending());
    let starting = ground.start(Arc::new(slow.build().0), soon());
    assert!(futures_util::FutureExt::now_or_never(starting).is_none());
    settle().await;
    assert_eq!(root.tree().find(&["a", "slow"]).unwrap().actor.status, Status::Starting);
    let down = address.monitor().unwrap();
    address.send(finish()).unwrap();
    down.await;
    settle().await;
    assert!(root.tree().find(&["a", "slow"]).is_none(), "{}", root.tree());
}
