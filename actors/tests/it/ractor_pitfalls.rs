//! Where `ractor` behaves otherwise: each of these tests fails if that behaviour reaches the users of this crate.

use std::future::pending;
use std::sync::{Arc, Mutex, mpsc};

use conjure_actors::supervision::{
    Backoff, CallError, ChildSpec, Context, ExitClass, Failure, Flow, Restart, Root, SendError, Shutdown,
    Status, Strategy, SupervisorSpec, Worker, WorkerSpec,
};
use tokio::sync::Semaphore;

use crate::support::*;

#[tokio::test(start_paused = true)]
async fn the_end_of_a_child_does_not_end_its_supervisor() {
    let log = Log::new();
    let temporary = probe("a", &log).restart(Restart::TEMPORARY);
    let (root, supervisor, addresses) = root(Strategy::OneForOne, vec![temporary, probe("b", &log)]).await;
    addresses[0].send(fail()).unwrap();
    log.until("drop a#1").await;
    settle().await;
    assert_eq!((root.tree().size(), supervisor.count().running), (2, 1));
}

#[tokio::test(start_paused = true)]
async fn a_kill_reaches_children_during_post_stop() {
    let log = Log::new();
    let (_root, supervisor) = dynamic_root().await;
    let (inner, handle) = SupervisorSpec::dynamic(id("inner")).restart(Restart::TEMPORARY).build();
    let child = supervisor.start_child(inner, soon()).await.unwrap();
    let non_stopping = probe_stopping("a", &log, |_| pending()).shutdown(Shutdown::Unlimited);
    handle.start_child(non_stopping.build().0, soon()).await.unwrap();
    let a = id("a");
    let (ended, ()) = tokio::join!(
        biased;
        handle.terminate_child(&a, soon()),
        async {
            log.until("stop a#1").await;
            handle.kill();
        }
    );
    assert!(ended.is_err());
    let killed = tokio::time::timeout(SECOND, child.monitor().unwrap()).await;
    assert_eq!(killed.unwrap().exit.class(), ExitClass::Killed);
    assert_eq!(log.count("drop a#1"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_restart_waits_for_grandchildren_that_still_live() {
    let log = Log::new();
    let (grandchild, address) = probe("grandchild", &log).build();
    let (inner, handle) = SupervisorSpec::ordered(id("inner"), Strategy::OneForOne)
        .backoff(Backoff::NONE)
        .child(grandchild)
        .unwrap()
        .build();
    let spec =
        SupervisorSpec::ordered(id("root"), Strategy::OneForOne).intensity(PATIENT).child(inner).unwrap();
    let (spec, supervisor) = spec.build();
    let _root = Root::spawn(spec, soon()).await.unwrap();
    // Work that no kill can end.
    let (release, released) = mpsc::channel::<()>();
    let work = run(move |context| async move {
        std::mem::forget(context.spawn_blocking(move || released.recv().unwrap()));
        Ok(Flow::Continue)
    });
    address.send(work).unwrap();
    assert_eq!(address.call(soon(), ProbeMessage::Ping).await, Ok(1));
    handle.kill();
    log.until("drop grandchild#1").await;
    settle().await;
    assert_eq!(supervisor.child(&id("inner")).unwrap().status, Status::Stopping, "its subtree is not gone");
    assert_eq!(log.count("start grandchild#2"), 0);
    release.send(()).unwrap();
    log.until("start grandchild#2").await;
}

#[tokio::test(start_paused = true)]
async fn blocking_work_survives_a_kill_and_holds_back_the_restart() {
    let log = Log::new();
    let (_root, supervisor, addresses) = root(Strategy::OneForOne, vec![probe("a", &log)]).await;
    let (release, released) = mpsc::channel::<()>();
    let child_log = log.clone();
    let work = run(move |context| async move {
        let job = context.spawn_blocking(move || {
            child_log.push("blocking work");
            released.recv().unwrap();
            child_log.push("blocking work is over");
        });
        job.wait().await;
        Ok(Flow::Continue)
    });
    addresses[0].send(work).unwrap();
    log.until("blocking work").await;
    addresses[0].kill();
    log.until("drop a#1").await;
    settle().await;
    assert_eq!(supervisor.child(&id("a")).unwrap().status, Status::Stopping);
    release.send(()).unwrap();
    log.until("start a#2").await;
    assert_eq!(log.all()[2..], ["drop a#1", "blocking work is over", "start a#2"]);
}

/// Its drop reports the task on which it runs, and then waits.
struct SlowDrop {
    started_on: Option<tokio::task::Id>,
    dropped: mpsc::Sender<bool>,
    go_on: Arc<Mutex<mpsc::Receiver<()>>>,
}

impl Worker for SlowDrop {
    type Message = ProbeMessage;

    async fn handle(
        &mut self,
        message: ProbeMessage,
        context: &Context<ProbeMessage>,
    ) -> Result<Flow, Failure> {
        match message {
            ProbeMessage::Run(work) => work(context.clone()).await,
            ProbeMessage::Ping(_) => Ok(Flow::Continue),
        }
    }
}

impl Drop for SlowDrop {
    fn drop(&mut self) {
        let is_own_task = self.started_on.is_some() && tokio::task::try_id() == self.started_on;
        self.dropped.send(is_own_task).unwrap();
        self.go_on.lock().unwrap().recv().unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_heavy_drop_is_on_the_childs_own_task_and_blocks_nobody() {
    let log = Log::new();
    let (_root, supervisor) = dynamic_root().await;
    for how in ["finish", "fail", "kill", "terminate"] {
        let (tell, dropped) = mpsc::channel();
        let (release, go_on) = mpsc::channel();
        let go_on = Arc::new(Mutex::new(go_on));
        let heavy = WorkerSpec::<SlowDrop>::new(id("heavy"), move |_| {
            let (dropped, go_on) = (tell.clone(), Arc::clone(&go_on));
            async move { Ok(SlowDrop { started_on: tokio::task::try_id(), dropped, go_on }) }
        });
        let (spec, address) = heavy.restart(Restart::TEMPORARY).shutdown(Shutdown::Unlimited).build();
        supervisor.start_child(spec, soon()).await.unwrap();
        let asking = supervisor.clone();
        let mut ending = tokio::task::JoinSet::new();
        match how {
            "finish" => address.send(finish()).unwrap(),
            "fail" => address.send(fail()).unwrap(),
            "kill" => address.kill(),
            _ => drop(ending.spawn(async move { asking.terminate_child(&id("heavy"), soon()).await })),
        }
        let is_own_task = tokio::task::spawn_blocking(move || dropped.recv().unwrap()).await.unwrap();
        assert!(is_own_task, "{how}");
        // While it blocks, its supervisor starts and stops others: no lock of the tree is held either. Not so after a
        // kill: there ractor wakes the supervisor just before the drop, and Tokio keeps what was woken last for the
        // thread that blocks.
        if how != "kill" {
            let (spec, other) = probe("other", &log).build();
            supervisor.start_child(spec, soon()).await.unwrap();
            assert_eq!(other.call(soon(), ProbeMessage::Ping).await, Ok(1), "{how}");
            supervisor.terminate_child(&id("other"), soon()).await.unwrap();
            let status = supervisor.child(&id("heavy")).map(|child| child.status);
            assert_eq!(
                status,
                (how != "fail").then_some(Status::Stopping).or(Some(Status::Running)),
                "{how}"
            );
        }
        let monitor = address.monitor().unwrap();
        release.send(()).unwrap();
        monitor.await;
        supervisor.terminate_child(&id("heavy"), soon()).await.ok();
    }
}

#[tokio::test(start_paused = true)]
async fn an_id_is_free_only_when_its_child_has_ended() {
    let log = Log::new();
    let (_root, supervisor) = dynamic_root().await;
    let slow = probe_stopping("a", &log, |_| async {
        tokio::time::sleep(SECOND * 2).await;
        Ok(())
    });
    let (spec, address) = slow.restart(Restart::TRANSIENT).build();
    supervisor.start_child(spec, soon()).await.unwrap();
    assert!(ractor::registry::registered().is_empty(), "names are global text: we register none");
    address.send(finish()).unwrap();
    log.until("stop a#1").await;
    supervisor.start_child(probe("a", &log).build().0, soon()).await.unwrap();
    assert_eq!(log.all(), ["start a#1", "stop a#1", "drop a#1", "start a#1"]);
}

#[tokio::test(start_paused = true)]
async fn a_second_stop_waits_like_the_first() {
    let log = Log::new();
    let (_root, supervisor) = dynamic_root().await;
    let slow = probe_stopping("a", &log, |_| async {
        tokio::time::sleep(SECOND * 4).await;
        Ok(())
    });
    supervisor.start_child(slow.build().0, soon()).await.unwrap();
    let start = now();
    let (a, deadline) = (id("a"), soon());
    let (first, second) =
        tokio::join!(supervisor.terminate_child(&a, deadline), supervisor.terminate_child(&a, deadline));
    assert_eq!((first, second), (Ok(()), Ok(())));
    assert_eq!(start.elapsed().as_secs(), 4);
    assert_eq!(log.all(), ["start a#1", "stop a#1", "drop a#1"]);
}

#[tokio::test(start_paused = true)]
async fn work_for_a_call_that_timed_out_can_be_ended() {
    let log = Log::new();
    let (_root, _, addresses) = root(Strategy::OneForOne, vec![probe("a", &log)]).await;
    let child_log = log.clone();
    let call = addresses[0].call::<()>(within(SECOND), |mut reply| {
        run(move |_| async move {
            reply.abandoned().await;
            child_log.push("abandoned");
            Ok(Flow::Continue)
        })
    });
    assert_eq!(call.await, Err(CallError::DeadlinePassed));
    log.until("abandoned").await;
}

#[tokio::test(start_paused = true)]
async fn a_failed_start_is_reported_though_ractor_raises_no_event() {
    let log = Log::new();
    let starts = Arc::new(Semaphore::new(1));
    let start_count = Arc::clone(&starts);
    let flaky = probe_with("a", &log, move |_| {
        let starts = Arc::clone(&start_count);
        async move { starts.try_acquire().map(tokio::sync::SemaphorePermit::forget).map_err(Failure::from) }
    });
    let (_root, _, addresses) =
        root(Strategy::OneForOne, vec![flaky.backoff(Backoff::new(SECOND, SECOND, SECOND))]).await;
    addresses[0].send(fail()).unwrap();
    while addresses[0].incarnation() == Some(1) {
        tokio::time::sleep(SECOND / 100).await;
    }
    assert_eq!(end_of(&addresses[0]).await.class(), ExitClass::StartFailed);
    starts.add_permits(1);
    while addresses[0].call(soon(), ProbeMessage::Ping).await.is_err() {
        tokio::time::sleep(SECOND / 100).await;
    }
}

#[tokio::test(start_paused = true)]
async fn mailboxes_are_bounded_before_them() {
    let log = Log::new();
    let (_root, _, addresses) = root(Strategy::OneForOne, vec![probe("a", &log).queue(2)]).await;
    let address = &addresses[0];
    let gate = Arc::new(Semaphore::new(0));
    let child_gate = Arc::clone(&gate);
    let wait = run(move |_| async move {
        child_gate.acquire().await?.forget();
        Ok(Flow::Continue)
    });
    address.send(wait).unwrap();
    settle().await;
    assert_eq!(address.queue(), 0, "a handled message is not waiting any more");
    let push = |text: &'static str| {
        let log = log.clone();
        run(move |_| async move {
            log.push(text);
            Ok(Flow::Continue)
        })
    };
    address.send(push("1")).unwrap();
    address.send(push("2")).unwrap();
    assert_eq!(address.queue(), 2);
    assert!(matches!(address.send(push("3")), Err(SendError::Full(_))));
    assert_eq!(address.call(soon(), ProbeMessage::Ping).await, Err(CallError::Full));
    let late = address.send_with_deadline(push("never"), within(SECOND)).await;
    assert!(matches!(late, Err(SendError::DeadlinePassed(_))), "{late:?}");
    // Those that wait for room are served in order.
    let (third, fourth, ()) = tokio::join!(
        biased;
        address.send_with_deadline(push("3"), soon()),
        address.send_with_deadline(push("4"), soon()),
        async { gate.add_permits(1) }
    );
    third.unwrap();
    fourth.unwrap();
    log.until("4").await;
    assert_eq!(log.all(), ["start a#1", "1", "2", "3", "4"]);
    // Messages that are lost with their receiver give their room back.
    address.send(hang(&log)).unwrap();
    log.until("hang a#1").await;
    address.send(push("lost")).unwrap();
    address.send(push("lost")).unwrap();
    address.kill();
    log.until("start a#2").await;
    assert_eq!((address.queue(), log.count("lost")), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn an_awaiting_handler_is_stopped_by_its_token_or_killed() {
    let log = Log::new();
    let (_root, supervisor) = dynamic_root().await;
    let (spec, address) = probe("polite", &log).build();
    supervisor.start_child(spec, soon()).await.unwrap();
    let child_log = log.clone();
    let work = run(move |context| async move {
        child_log.push("waits");
        context.stopping().cancelled().await;
        Ok(Flow::Continue)
    });
    address.send(work).unwrap();
    log.until("waits").await;
    let start = now();
    supervisor.terminate_child(&id("polite"), soon()).await.unwrap();
    assert_eq!((start.elapsed().as_secs(), end_of(&address).await.class()), (0, ExitClass::Shutdown));

    let (spec, address) = probe("deaf", &log).build();
    supervisor.start_child(spec, soon()).await.unwrap();
    address.send(hang(&log)).unwrap();
    log.until("hang deaf#1").await;
    supervisor.terminate_child(&id("deaf"), soon()).await.unwrap();
    assert_eq!((start.elapsed().as_secs(), end_of(&address).await.class()), (5, ExitClass::Killed));
}

#[tokio::test(start_paused = true)]
async fn a_stop_overtakes_queued_messages() {
    let log = Log::new();
    let (_root, supervisor) = dynamic_root().await;
    let (spec, address) = probe("a", &log).build();
    supervisor.start_child(spec, soon()).await.unwrap();
    let wait = run(|context| async move {
        context.stopping().cancelled().await;
        Ok(Flow::Continue)
    });
    address.send(wait).unwrap();
    let a = id("a");
    let (call, ended) = tokio::join!(
        biased;
        address.call(soon(), ProbeMessage::Ping),
        supervisor.terminate_child(&a, soon())
    );
    assert_eq!((call, ended), (Err(CallError::Lost), Ok(())), "its caller hears that at once");
}

#[tokio::test(start_paused = true)]
async fn a_killed_supervisor_restarts_after_all_its_descendants_ended() {
    let log = Log::new();
    let leaf = |text: &str| -> ChildSpec { probe(text, &log).build().0 };
    let inner = SupervisorSpec::ordered(id("inner"), Strategy::OneForOne).backoff(Backoff::NONE);
    let (inner, handle) = inner.child(leaf("a")).unwrap().child(leaf("b")).unwrap().build();
    let spec =
        SupervisorSpec::ordered(id("root"), Strategy::OneForOne).intensity(PATIENT).child(inner).unwrap();
    let (spec, supervisor) = spec.build();
    let root = Root::spawn(spec, soon()).await.unwrap();
    let monitor = handle.monitor().unwrap();
    handle.kill();
    assert_eq!(monitor.await.exit.class(), ExitClass::Killed);
    log.until("start b#2").await;
    let events = log.all();
    let last_drop = events.iter().rposition(|event| event.starts_with("drop")).unwrap();
    let restart = events.iter().position(|event| event == "start a#2").unwrap();
    assert!(last_drop < restart, "{events:?}");
    settle().await;
    assert_eq!((supervisor.count().running, handle.count().running, root.tree().size()), (1, 2, 4));
    // Its own table is new: the children of the last incarnation are not in it.
    handle.start_child(leaf("c"), soon()).await.unwrap();
    assert_eq!(handle.count().all, 3);
}

#[tokio::test(start_paused = true)]
async fn an_actor_that_hangs_at_its_start_is_ended_with_its_supervisor() {
    let log = Log::new();
    let (_root, supervisor) = dynamic_root().await;
    let never_starting = probe_with("never", &log, |_| pending());
    let (inner, handle) = SupervisorSpec::dynamic(id("inner")).restart(Restart::TEMPORARY).build();
    supervisor.start_child(inner, soon()).await.unwrap();
    let (spec, address) = never_starting.build();
    let (started, ()) = tokio::join!(
        biased;
        handle.start_child(spec, soon()),
        async {
            settle().await;
            handle.kill();
        }
    );
    assert!(started.is_err());
    assert_eq!(end_of(&address).await.class(), ExitClass::Killed);
    settle().await;
    assert_eq!(supervisor.count().all, 0);
}
