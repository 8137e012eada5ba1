//! For every sequence of events.

use std::num::NonZeroU32;
use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::RngSeed;

use super::model::{Being, Model};
use super::simulation::id;
use super::simulation::policy;
use super::simulation::{Run, Simulation};
use crate::supervision::machine::{ChildKey, ChildPolicy, ChildrenKind, Input, SupervisorPolicy};
use crate::supervision::specs::backoff::Backoff;
use crate::supervision::specs::exit::ExitClass;
use crate::supervision::specs::policy::{
    AutoShutdown, Intensity, IntensityScope, OnLimit, Restart, Shutdown, Significance, Strategy as Order,
};

fn restarts() -> impl Strategy<Value = Restart> {
    select(vec![
        Restart::Permanent,
        Restart::TRANSIENT,
        Restart::TEMPORARY,
        Restart::Transient(Significance::Significant),
        Restart::Temporary(Significance::Significant),
    ])
}

fn exits() -> impl Strategy<Value = ExitClass> {
    select(vec![
        ExitClass::Normal,
        ExitClass::Shutdown,
        ExitClass::Killed,
        ExitClass::Failed,
        ExitClass::Panicked,
    ])
}

fn shapes() -> impl Strategy<Value = ChildrenKind> {
    let strategy = select(vec![Order::OneForOne, Order::OneForAll, Order::RestForOne]);
    let auto = select(vec![AutoShutdown::Never, AutoShutdown::AnySignificant, AutoShutdown::AllSignificant]);
    let ordered = (strategy, auto)
        .prop_map(|(strategy, auto_shutdown)| ChildrenKind::Ordered { strategy, auto_shutdown });
    let intensity_scope = select(vec![IntensityScope::Shared, IntensityScope::PerChild]);
    let on_limit = select(vec![OnLimit::Quarantine, OnLimit::Remove]);
    let dynamic = (1..6_usize, intensity_scope, 0..4_u32, on_limit).prop_map(
        |(capacity, intensity_scope, limit, on_limit)| ChildrenKind::Dynamic {
            capacity,
            intensity_scope,
            quarantine_after: NonZeroU32::new(limit),
            on_limit,
        },
    );
    prop_oneof![3 => ordered, 2 => dynamic]
}

fn plans() -> impl Strategy<Value = SupervisorPolicy> {
    let intensity = (0..6_u32, 1..20_u64);
    (shapes(), intensity).prop_map(|(children_kind, (restarts, seconds))| SupervisorPolicy {
        children_kind,
        intensity: Intensity::new(restarts, Duration::from_secs(seconds)),
    })
}

/// What happens in a simulation where things happen one after another.
#[derive(Debug, Clone)]
enum Quiet {
    Start(usize, Restart),
    Terminate(usize),
    Fail(usize, ExitClass, u32),
    Wait(u64),
}

fn quiet() -> impl Strategy<Value = Quiet> {
    prop_oneof![
        1 => (0..8_usize, restarts()).prop_map(|(id, restart)| Quiet::Start(id, restart)),
        1 => (0..8_usize).prop_map(Quiet::Terminate),
        5 => (0..8_usize, exits(), select(vec![0, 0, 0, 1, 2, 4])).prop_map(|(id, exit, bad)| Quiet::Fail(id, exit, bad)),
        2 => (0..12_u64).prop_map(Quiet::Wait),
    ]
}

/// What happens in a simulation where anything does, to the child of this number.
#[derive(Debug, Clone)]
enum Wild {
    Start(usize, Restart, Shutdown),
    Restart(usize),
    Terminate(usize),
    Started(usize),
    Leave(usize),
    End(usize, ExitClass),
    Gone(usize, ExitClass),
    Late(usize, u64),
    Wait(u64),
    Stop,
}

fn wild() -> impl Strategy<Value = Wild> {
    let shutdown = select(vec![Shutdown::Kill, Shutdown::Unlimited, Shutdown::After(Duration::from_secs(2))]);
    prop_oneof![
        20 => (0..8_usize, restarts(), shutdown).prop_map(|(id, restart, shutdown)| Wild::Start(id, restart, shutdown)),
        10 => (0..8_usize).prop_map(Wild::Restart),
        15 => (0..8_usize).prop_map(Wild::Terminate),
        60 => (0..8_usize).prop_map(Wild::Started),
        10 => (0..8_usize).prop_map(Wild::Leave),
        60 => (0..8_usize, exits()).prop_map(|(place, exit)| Wild::End(place, exit)),
        60 => (0..8_usize, exits()).prop_map(|(place, exit)| Wild::Gone(place, exit)),
        5 => (0..20_usize, 0..3_u64).prop_map(|(key, generation)| Wild::Late(key, generation)),
        30 => (0..4000_u64).prop_map(Wild::Wait),
        1 => Just(Wild::Stop),
    ]
}

fn first_children(
    supervisor_policy: &SupervisorPolicy,
    first: &[Restart],
    policy: impl Fn(Restart) -> ChildPolicy,
) -> Vec<(crate::supervision::ChildId, ChildPolicy)> {
    match supervisor_policy.children_kind {
        ChildrenKind::Ordered { .. } => {
            first.iter().enumerate().map(|(number, restart)| (id(number), policy(*restart))).collect()
        }
        ChildrenKind::Dynamic { .. } => Vec::new(),
    }
}

/// The same cases every time. After a change to the machine, run more of them with another seed.
fn campaign() -> ProptestConfig {
    ProptestConfig { rng_seed: RngSeed::Fixed(1), ..ProptestConfig::with_cases(400) }
}

proptest! {
    #![proptest_config(campaign())]

    /// Where one thing happens at a time, the machine comes to what the simple model comes to.
    #[test]
    fn the_machine_comes_to_what_the_model_comes_to(
        supervisor_policy in plans(),
        first in vec(restarts(), 0..5),
        events in vec(quiet(), 0..40),
    ) {
        let children = first_children(&supervisor_policy, &first, policy);
        let mut model = Model::new(supervisor_policy.children_kind, supervisor_policy.intensity);
        for (number, restart) in first.iter().enumerate().take(children.len()) {
            model.start(number, *restart);
        }
        let mut simulation = Simulation::new(supervisor_policy, children);
        simulation.settle();
        prop_assert!(simulation.is_ready);
        for event in events {
            match event {
                Quiet::Start(number, restart) => {
                    let is_new = simulation.key(&id(number)).is_none();
                    if is_new {
                        simulation.spawned.remove(&id(number));
                    }
                    simulation.start(id(number), policy(restart));
                    model.start(number, restart);
                }
                Quiet::Terminate(number) => {
                    simulation.terminate(id(number));
                    model.terminate(number);
                }
                Quiet::Fail(number, exit, bad) => {
                    fail(&mut simulation, number, exit, bad);
                    model.fail(simulation.now.0, number, exit, bad);
                }
                Quiet::Wait(seconds) => simulation.advance(Duration::from_secs(seconds)),
            }
            simulation.settle();
            prop_assert_eq!(simulation.child_ended.is_some(), model.is_down, "after {:?}", &model.children);
            if model.is_down {
                break;
            }
            let known: Vec<_> = simulation.ids.values().cloned().collect();
            let expected: Vec<_> = model.children.iter().map(|child| id(child.id)).collect();
            prop_assert_eq!(known, expected);
            for child in &model.children {
                let child_id = id(child.id);
                prop_assert_eq!(simulation.is_up(&child_id), child.status == Being::Up, "{:?}", child);
                prop_assert_eq!(simulation.spawned[&child_id], child.spawned, "{:?}", child);
            }
        }
        prop_assert_eq!(simulation.unanswered(), 0);
    }

    /// Whatever happens at whatever time, the simulation's own assertions hold (no overlap, order, one answer), everything comes
    /// to rest, and a stop leaves nothing.
    #[test]
    fn nothing_overlaps_and_everything_comes_to_an_end(
        supervisor_policy in plans(),
        first in vec(restarts(), 0..5),
        events in vec(wild(), 0..120),
        rolls in vec(any::<u64>(), 1..5),
    ) {
        let backoff = Backoff::new(Duration::from_millis(300), Duration::from_secs(3), Duration::from_secs(5));
        let policy =
            |restart| ChildPolicy { restart, shutdown: Shutdown::After(Duration::from_secs(1)), backoff };
        let mut simulation = Simulation::new(supervisor_policy, first_children(&supervisor_policy, &first, policy));
        for (step, event) in events.into_iter().enumerate() {
            simulation.random = rolls[step % rolls.len()];
            let pick = |simulation: &Simulation, place: usize| {
                let actors = simulation.actors.len();
                simulation.actors.keys().nth(place % actors.max(1)).copied().unwrap_or(ChildKey(0))
            };
            match event {
                Wild::Start(number, restart, shutdown) => {
                    simulation.start(id(number), ChildPolicy { restart, shutdown, backoff });
                }
                Wild::Restart(number) => drop(simulation.restart(id(number))),
                Wild::Terminate(number) => drop(simulation.terminate(id(number))),
                Wild::Started(place) => simulation.child_started(pick(&simulation, place)),
                Wild::Leave(place) => simulation.leave(pick(&simulation, place)),
                Wild::End(place, exit) => simulation.end(pick(&simulation, place), exit),
                Wild::Gone(place, exit) => simulation.child_gone(pick(&simulation, place), exit),
                Wild::Late(key, generation) => {
                    // Of an incarnation that is gone: it changes nothing.
                    let key = ChildKey(u64::try_from(key).unwrap());
                    let current = simulation.actors.get(&key).map(|actor| actor.generation);
                    let generation = crate::supervision::machine::Generation(generation);
                    if current.is_some_and(|current| generation < current) {
                        simulation.tell(Input::Gone { key, generation, exit: ExitClass::Failed, random: 0 });
                        prop_assert_eq!(simulation.actors.get(&key).map(|actor| actor.generation), current);
                    }
                }
                Wild::Wait(millis) => simulation.advance(Duration::from_millis(millis)),
                Wild::Stop => simulation.tell(Input::Stop),
            }
        }
        simulation.settle();
        prop_assert_eq!(simulation.unanswered(), 0, "everybody has an answer");
        if simulation.child_ended.is_none() {
            prop_assert!(simulation.is_ready);
            prop_assert!(simulation.actors.values().all(|actor| actor.run == Run::Up && !actor.stop_requested));
            simulation.tell(Input::Stop);
            simulation.settle();
        }
        prop_assert!(simulation.child_ended.is_some() && simulation.actors.is_empty() && simulation.ids.is_empty());
        prop_assert_eq!(simulation.machine.children.len() + simulation.machine.keys.len() + simulation.machine.timers.len(), 0);
    }
}

/// A child ends, its next `bad` restarts fail at their start, and the one after them is good.
fn fail(simulation: &mut Simulation, number: usize, exit: ExitClass, bad: u32) {
    let Some(key) = simulation.key(&id(number)).filter(|_| simulation.is_up(&id(number))) else { return };
    simulation.end(key, exit);
    simulation.child_gone(key, exit);
    for _ in 0..bad {
        // Those before it in its group come first.
        while !simulation.actors.get(&key).is_some_and(|actor| actor.run == Run::Starting) {
            let other =
                simulation.actors.iter().find(|(_, actor)| actor.stop_requested || actor.run != Run::Up);
            match other.map(|(key, actor)| (*key, *actor)) {
                Some((other, actor)) if actor.stop_requested => {
                    simulation.child_gone(other, ExitClass::Shutdown)
                }
                Some((other, _)) => simulation.child_started(other),
                None => return,
            }
        }
        simulation.child_gone(key, ExitClass::StartFailed);
    }
}
