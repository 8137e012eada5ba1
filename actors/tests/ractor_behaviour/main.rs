//! The behaviour of `ractor` that supervision relies on. If one of these tests fails after an update, that behaviour has changed:
//! check the code that was built for it.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panic")]

use std::future::pending;
use std::sync::Arc;

use ractor::{Actor, ActorProcessingErr, ActorRef, SupervisionEvent};
use tokio::sync::Semaphore;

#[path = "../it/support.rs"]
#[expect(dead_code, reason = "the other tests use more of it")]
#[cfg(test)]
mod support;

use support::{Log, SECOND, settle};

/// Records the events of its children, and continues.
struct Parent(Log);

impl Actor for Parent {
    type Msg = ();
    type State = ();
    type Arguments = ();

    async fn pre_start(&self, _: ActorRef<()>, (): ()) -> Result<(), ActorProcessingErr> {
        Ok(())
    }

    async fn handle_supervisor_evt(
        &self,
        _: ActorRef<()>,
        event: SupervisionEvent,
        (): &mut (),
    ) -> Result<(), ActorProcessingErr> {
        self.0.push(match &event {
            SupervisionEvent::ActorStarted(_) => "started".to_owned(),
            SupervisionEvent::ActorTerminated(_, state, reason) => {
                format!("terminated, state {}, reason {reason:?}", state.is_some())
            }
            SupervisionEvent::ActorFailed(_, error) => format!("failed: {error}"),
            _ => "another event".to_owned(),
        });
        Ok(())
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Way {
    Well,
    FailsToStart,
}

#[derive(Clone, Copy)]
enum Order {
    Fail,
    Panic,
    Hang,
}

/// Its last words wait for a permit.
struct Child {
    way: Way,
    log: Log,
    gate: Arc<Semaphore>,
}

struct State(Log);

impl Drop for State {
    fn drop(&mut self) {
        self.0.push("state dropped");
    }
}

impl Actor for Child {
    type Msg = Order;
    type State = State;
    type Arguments = ();

    async fn pre_start(&self, _: ActorRef<Order>, (): ()) -> Result<State, ActorProcessingErr> {
        if self.way == Way::FailsToStart { Err("no".into()) } else { Ok(State(self.log.clone())) }
    }

    async fn handle(
        &self,
        _: ActorRef<Order>,
        order: Order,
        _: &mut State,
    ) -> Result<(), ActorProcessingErr> {
        match order {
            Order::Fail => Err("the same text".into()),
            Order::Panic => panic!("the same text"),
            Order::Hang => pending().await,
        }
    }

    async fn post_stop(&self, _: ActorRef<Order>, _: &mut State) -> Result<(), ActorProcessingErr> {
        self.log.push("last words");
        self.gate.acquire().await?.forget();
        Ok(())
    }
}

struct Family {
    log: Log,
    gate: Arc<Semaphore>,
    parent: ActorRef<()>,
}

impl Family {
    async fn new() -> Self {
        let log = Log::new();
        let (parent, _) = Actor::spawn(None, Parent(log.clone()), ()).await.unwrap();
        Self { log, gate: Arc::new(Semaphore::new(0)), parent }
    }

    async fn child(&self, name: Option<&str>, way: Way) -> Result<ActorRef<Order>, ractor::SpawnErr> {
        let child = Child { way, log: self.log.clone(), gate: Arc::clone(&self.gate) };
        let spawned = Actor::spawn_linked(name.map(str::to_owned), child, (), self.parent.get_cell()).await;
        settle().await;
        spawned.map(|(child, _)| child)
    }
}

#[tokio::test(start_paused = true)]
async fn fact_a_kill_is_reported_as_terminated_and_the_state_goes_to_the_supervisor() {
    let family = Family::new().await;
    let child = family.child(None, Way::Well).await.unwrap();
    child.send_message(Order::Hang).unwrap();
    settle().await;
    child.kill();
    settle().await;
    // The state is dropped where the event is handled: on the supervisor's task.
    assert_eq!(
        family.log.all(),
        ["started", "terminated, state true, reason Some(\"killed\")", "state dropped"]
    );
}

#[tokio::test(start_paused = true)]
async fn fact_a_failure_and_a_panic_look_alike_and_are_reported_before_the_state_is_dropped() {
    for order in [Order::Fail, Order::Panic] {
        let family = Family::new().await;
        let child = family.child(None, Way::Well).await.unwrap();
        child.send_message(order).unwrap();
        settle().await;
        let mut events = family.log.all();
        events.sort();
        assert_eq!(events, ["failed: the same text", "started", "state dropped"]);
    }
}

#[tokio::test(start_paused = true)]
async fn fact_a_failed_pre_start_raises_no_event() {
    let family = Family::new().await;
    assert!(family.child(None, Way::FailsToStart).await.is_err());
    settle().await;
    assert!(family.log.all().is_empty());
}

#[tokio::test(start_paused = true)]
async fn fact_a_second_stop_does_not_wait_and_a_name_is_free_before_post_stop_ends() {
    let family = Family::new().await;
    let child = family.child(Some("facts-name"), Way::Well).await.unwrap();
    child.stop(None);
    settle().await;
    assert!(child.stop_and_wait(None, Some(SECOND)).await.is_err());
    assert_eq!(family.log.take(), ["started", "last words"]);
    family.child(Some("facts-name"), Way::Well).await.unwrap();
    family.gate.add_permits(2);
}

#[tokio::test(start_paused = true)]
async fn fact_a_parents_end_kills_children_without_post_stop_except_those_already_stopping() {
    let family = Family::new().await;
    let stopping = family.child(None, Way::Well).await.unwrap();
    let running = family.child(None, Way::Well).await.unwrap();
    stopping.stop(None);
    settle().await;
    family.parent.stop_and_wait(None, Some(SECOND)).await.unwrap();
    running.wait(Some(SECOND)).await.unwrap();
    assert_eq!(family.log.count("last words"), 1, "of the one that was stopped before");
    assert!(stopping.wait(Some(SECOND)).await.is_err(), "no owner ends it any more");
    family.gate.add_permits(1);
    stopping.wait(Some(SECOND)).await.unwrap();
}
