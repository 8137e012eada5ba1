//! Single cases that are worth a name.

use std::time::Duration;

use super::world::World;
use super::world::id;
use super::world::policy;
use crate::supervision::machine::{ChildPolicy, ChildStatus, ChildrenKind, RequestReply, SupervisorPolicy};
use crate::supervision::specs::backoff::Backoff;
use crate::supervision::specs::exit::ExitClass;
use crate::supervision::specs::policy::{
    AutoShutdown, Intensity, IntensityScope, OnLimit, Restart, Shutdown, Strategy,
};

const SECOND: Duration = Duration::from_secs(1);

fn dynamic() -> World {
    let (intensity_scope, on_limit) = (IntensityScope::Shared, OnLimit::Quarantine);
    let children_kind =
        ChildrenKind::Dynamic { capacity: usize::MAX, intensity_scope, quarantine_after: None, on_limit };
    World::new(SupervisorPolicy { children_kind, intensity: Intensity::new(3, SECOND * 5) }, Vec::new())
}

#[test]
fn a_hundred_thousand_short_children_leave_nothing() {
    let mut world = dynamic();
    let slow = ChildPolicy { shutdown: Shutdown::After(SECOND), ..policy(Restart::TRANSIENT) };
    for number in 0..100_000_usize {
        let request = world.start(id(number), slow);
        let key = world.key(&id(number)).unwrap();
        world.child_started(key);
        assert_eq!(world.answers.remove(&request), Some(RequestReply::Started { key }));
        match number % 4 {
            0 => world.leave(key),
            1 => world.end(key, ExitClass::Normal),
            2 => drop(world.terminate(id(number))),
            _ => {}
        }
        world.child_gone(key, ExitClass::Normal);
    }
    let machine = &world.machine;
    assert_eq!((machine.children.len(), machine.keys.len(), machine.timers.len()), (0, 0, 0));
    assert!(world.ids.is_empty() && world.actors.is_empty());
}

#[test]
fn siblings_stop_while_something_of_the_failed_one_still_lives_and_start_when_all_is_gone() {
    let children_kind =
        ChildrenKind::Ordered { strategy: Strategy::OneForAll, auto_shutdown: AutoShutdown::Never };
    let children = (0..3).map(|number| (id(number), policy(Restart::Permanent))).collect();
    let mut world = World::new(SupervisorPolicy { children_kind, intensity: Intensity::default() }, children);
    world.settle();
    let keys: Vec<_> = world.actors.keys().copied().collect();
    world.end(keys[2], ExitClass::Failed);
    assert!(
        world.actors[&keys[1]].stop_requested && !world.actors[&keys[0]].stop_requested,
        "at once, and one after the other"
    );
    world.child_gone(keys[1], ExitClass::Shutdown);
    world.child_gone(keys[0], ExitClass::Shutdown);
    assert_eq!(world.actors.len(), 1, "the grandchildren of the failed one are still there");
    world.child_gone(keys[2], ExitClass::Failed);
    assert_eq!(world.actors.keys().copied().collect::<Vec<_>>(), [keys[0]], "in order");
    world.settle();
    assert_eq!(world.actors.len(), 3);
}

#[test]
fn one_that_goes_by_itself_has_its_time_and_not_more() {
    let mut world = dynamic();
    world.start(id(1), ChildPolicy { shutdown: Shutdown::After(SECOND * 3), ..policy(Restart::TRANSIENT) });
    let key = world.key(&id(1)).unwrap();
    world.child_started(key);
    world.leave(key);
    world.advance(SECOND * 2);
    assert!(world.killed.is_empty());
    world.advance(SECOND);
    assert_eq!(world.killed, [key]);
    // That is not the end it announced.
    world.child_gone(key, ExitClass::Killed);
    world.settle();
    assert_eq!(world.spawned[&id(1)], 2);
}

#[test]
fn a_backoff_is_the_wait_that_the_roll_says() {
    let mut world = dynamic();
    let backoff = Backoff::new(SECOND * 8, SECOND * 8, SECOND * 100);
    world.start(id(1), ChildPolicy { backoff, ..policy(Restart::Permanent) });
    let key = world.key(&id(1)).unwrap();
    world.child_started(key);
    world.random = 1 << 63;
    world.child_gone(key, ExitClass::Failed);
    assert_eq!(world.machine.next_timer().map(|at| at.0), Some(SECOND * 4));
    assert!(matches!(world.machine.children[&key].status(), ChildStatus::Pending { .. }));
    world.advance(SECOND * 4 - Duration::from_nanos(1));
    assert!(world.actors.is_empty());
    world.advance(Duration::from_nanos(1));
    assert_eq!(world.actors.len(), 1);
}
