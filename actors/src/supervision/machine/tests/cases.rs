//! Single cases that are worth a name.

use std::time::Duration;

use super::simulation::Simulation;
use super::simulation::id;
use super::simulation::policy;
use crate::supervision::machine::{ChildPolicy, ChildStatus, ChildrenKind, RequestReply, SupervisorPolicy};
use crate::supervision::specs::backoff::Backoff;
use crate::supervision::specs::exit::ExitClass;
use crate::supervision::specs::policy::{
    AutoShutdown, Intensity, IntensityScope, OnLimit, Restart, Shutdown, Strategy,
};

const SECOND: Duration = Duration::from_secs(1);

fn dynamic() -> Simulation {
    let (intensity_scope, on_limit) = (IntensityScope::Shared, OnLimit::Quarantine);
    let children_kind =
        ChildrenKind::Dynamic { capacity: usize::MAX, intensity_scope, quarantine_after: None, on_limit };
    Simulation::new(SupervisorPolicy { children_kind, intensity: Intensity::new(3, SECOND * 5) }, Vec::new())
}

#[test]
fn a_hundred_thousand_short_children_leave_nothing() {
    let mut simulation = dynamic();
    let slow = ChildPolicy { shutdown: Shutdown::After(SECOND), ..policy(Restart::TRANSIENT) };
    for number in 0..100_000_usize {
        let request = simulation.start(id(number), slow);
        let key = simulation.key(&id(number)).unwrap();
        simulation.child_started(key);
        assert_eq!(simulation.answers.remove(&request), Some(RequestReply::Started { key }));
        match number % 4 {
            0 => simulation.leave(key),
            1 => simulation.end(key, ExitClass::Normal),
            2 => drop(simulation.terminate(id(number))),
            _ => {}
        }
        simulation.child_gone(key, ExitClass::Normal);
    }
    let machine = &simulation.machine;
    assert_eq!((machine.children.len(), machine.keys.len(), machine.timers.len()), (0, 0, 0));
    assert!(simulation.ids.is_empty() && simulation.actors.is_empty());
}

#[test]
fn siblings_stop_while_something_of_the_failed_one_still_lives_and_start_when_all_is_gone() {
    let children_kind =
        ChildrenKind::Ordered { strategy: Strategy::OneForAll, auto_shutdown: AutoShutdown::Never };
    let children = (0..3).map(|number| (id(number), policy(Restart::Permanent))).collect();
    let mut simulation =
        Simulation::new(SupervisorPolicy { children_kind, intensity: Intensity::default() }, children);
    simulation.settle();
    let keys: Vec<_> = simulation.actors.keys().copied().collect();
    simulation.end(keys[2], ExitClass::Failed);
    assert!(
        simulation.actors[&keys[1]].stop_requested && !simulation.actors[&keys[0]].stop_requested,
        "at once, and one after the other"
    );
    simulation.child_gone(keys[1], ExitClass::Shutdown);
    simulation.child_gone(keys[0], ExitClass::Shutdown);
    assert_eq!(simulation.actors.len(), 1, "the grandchildren of the failed one are still there");
    simulation.child_gone(keys[2], ExitClass::Failed);
    assert_eq!(simulation.actors.keys().copied().collect::<Vec<_>>(), [keys[0]], "in order");
    simulation.settle();
    assert_eq!(simulation.actors.len(), 3);
}

#[test]
fn one_that_goes_by_itself_has_its_time_and_not_more() {
    let mut simulation = dynamic();
    simulation
        .start(id(1), ChildPolicy { shutdown: Shutdown::After(SECOND * 3), ..policy(Restart::TRANSIENT) });
    let key = simulation.key(&id(1)).unwrap();
    simulation.child_started(key);
    simulation.leave(key);
    simulation.advance(SECOND * 2);
    assert!(simulation.killed.is_empty());
    simulation.advance(SECOND);
    assert_eq!(simulation.killed, [key]);
    // That is not the end it announced.
    simulation.child_gone(key, ExitClass::Killed);
    simulation.settle();
    assert_eq!(simulation.spawned[&id(1)], 2);
}

#[test]
fn a_backoff_is_the_wait_that_the_roll_says() {
    let mut simulation = dynamic();
    let backoff = Backoff::new(SECOND * 8, SECOND * 8, SECOND * 100);
    simulation.start(id(1), ChildPolicy { backoff, ..policy(Restart::Permanent) });
    let key = simulation.key(&id(1)).unwrap();
    simulation.child_started(key);
    simulation.random = 1 << 63;
    simulation.child_gone(key, ExitClass::Failed);
    assert_eq!(simulation.machine.next_timer().map(|at| at.0), Some(SECOND * 4));
    assert!(matches!(simulation.machine.children[&key].status(), ChildStatus::Pending { .. }));
    simulation.advance(SECOND * 4 - Duration::from_nanos(1));
    assert!(simulation.actors.is_empty());
    simulation.advance(Duration::from_nanos(1));
    assert_eq!(simulation.actors.len(), 1);
}
