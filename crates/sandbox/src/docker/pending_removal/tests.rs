//! Removals of containers by a scripted engine.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use super::*;
use crate::docker::container::container_handle::ContainerHandle;
use crate::docker::engine::fake_engine::{FakeReply, scripted};

#[test]
fn all_that_a_runtime_leaves_waits_together_for_an_engine_that_hangs() {
    let asked = Arc::new(AtomicU64::new(0));
    let counter = Arc::clone(&asked);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (engine, _dir) = runtime.block_on(scripted(move |_| {
        counter.fetch_add(1, Ordering::Relaxed);
        FakeReply::Silence
    }));
    let tracker = ContainerTracker::new(engine, "hangs");
    let all: Vec<ContainerHandle> = (0..20).map(|_| ContainerHandle::reserve(&tracker)).collect();
    drop(runtime);
    let budget = Duration::from_secs(60);
    let begun = SystemClock.deadline(budget);
    drop(all);
    let waited = budget - SystemClock.remaining(begun);
    // Each for itself, they would have waited for a minute.
    assert!(waited < Duration::from_secs(30), "{waited:?}");
    // To remove one, and whether it is there at all.
    assert_eq!(asked.load(Ordering::Relaxed), 2);
    assert!(tracker.names().is_empty());
}

#[test]
fn an_engine_that_is_slow_or_refuses_is_asked_again() {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&asked);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (engine, _dir) = runtime.block_on(scripted(move |request| {
        let mut seen = seen.lock().unwrap();
        seen.push(request.split(' ').next().unwrap().to_owned());
        match seen.len() {
            1 => FakeReply::Silence,
            3 => FakeReply::Refusal(409, "it is being removed"),
            _ => FakeReply::Answer("{}".to_owned()),
        }
    }));
    let tracker = ContainerTracker::new(engine, "slow");
    let handle = ContainerHandle::reserve(&tracker);
    drop(runtime);
    drop(handle);
    assert_eq!(*asked.lock().unwrap(), ["DELETE", "GET", "DELETE", "DELETE"]);
    assert!(!tracker.take_sweep_flag());
}

/// The one that it is busy with takes all the time that there is; the others go, and are asked for once at least.
#[test]
fn an_engine_that_refuses_one_is_asked_for_the_others() {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&asked);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (engine, _dir) = runtime.block_on(scripted(move |request| {
        let name = request.split(['/', '?']).nth(2).unwrap().to_owned();
        let mut seen = seen.lock().unwrap();
        let first = seen.first().cloned();
        seen.push(name.clone());
        match first {
            Some(first) if first != name => FakeReply::Answer("{}".to_owned()),
            _ => FakeReply::Refusal(409, "it is being removed"),
        }
    }));
    let tracker = ContainerTracker::new(engine, "busy");
    // As if much time had passed by now.
    tracker.budget.spend(Duration::from_secs(8));
    let all: Vec<ContainerHandle> = (0..5).map(|_| ContainerHandle::reserve(&tracker)).collect();
    let names: BTreeSet<String> = all.iter().map(|handle| handle.name().to_owned()).collect();
    drop(runtime);
    drop(all);
    let asked = asked.lock().unwrap().clone();
    let refused = &asked[0];
    assert!(asked.iter().filter(|name| *name == refused).count() > 1, "{asked:?}");
    assert_eq!(asked.iter().cloned().collect::<BTreeSet<_>>(), names);
    assert_eq!(asked.iter().filter(|name| *name != refused).count(), 4);
    assert!(tracker.take_sweep_flag());
}

/// All are refused: each is asked for once at least, and no longer than there is time for all.
#[test]
fn each_is_asked_for_once_when_the_time_is_over() {
    let asked = Arc::new(AtomicU64::new(0));
    let counter = Arc::clone(&asked);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (engine, _dir) = runtime.block_on(scripted(move |_| {
        counter.fetch_add(1, Ordering::Relaxed);
        FakeReply::Refusal(500, "no")
    }));
    let tracker = ContainerTracker::new(engine, "over");
    tracker.budget.spend(Duration::from_secs(60));
    let all: Vec<ContainerHandle> = (0..5).map(|_| ContainerHandle::reserve(&tracker)).collect();
    drop(runtime);
    drop(all);
    assert_eq!(asked.load(Ordering::Relaxed), 5);
}

#[test]
fn what_an_engine_refuses_for_good_is_not_asked_for_again() {
    let asked = Arc::new(AtomicU64::new(0));
    let counter = Arc::clone(&asked);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (engine, _dir) = runtime.block_on(scripted(move |_| {
        counter.fetch_add(1, Ordering::Relaxed);
        FakeReply::Refusal(403, "not you")
    }));
    let tracker = ContainerTracker::new(engine, "forbids");
    let all: Vec<ContainerHandle> = (0..5).map(|_| ContainerHandle::reserve(&tracker)).collect();
    drop(runtime);
    drop(all);
    assert_eq!(asked.load(Ordering::Relaxed), 5);
    assert!(tracker.take_sweep_flag());
}

#[tokio::test]
async fn what_an_engine_refuses_to_remove_for_a_moment_is_waited_for() {
    let asked = Arc::new(AtomicU64::new(0));
    let counter = Arc::clone(&asked);
    let (engine, _dir) = scripted(move |_| match counter.fetch_add(1, Ordering::Relaxed) {
        0 | 1 => FakeReply::Refusal(500, "device or resource busy"),
        _ => FakeReply::Answer("{}".to_owned()),
    })
    .await;
    let mut handle = ContainerHandle::reserve(&ContainerTracker::new(engine, "much to do"));
    handle.remove_retrying().await.unwrap();
    assert_eq!(asked.load(Ordering::Relaxed), 3);
}

#[test]
fn an_engine_that_answers_is_asked_for_all() {
    let asked = Arc::new(AtomicU64::new(0));
    let counter = Arc::clone(&asked);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (engine, _dir) = runtime.block_on(scripted(move |_| {
        counter.fetch_add(1, Ordering::Relaxed);
        FakeReply::Answer("{}".to_owned())
    }));
    let tracker = ContainerTracker::new(engine, "answers");
    let all: Vec<ContainerHandle> = (0..20).map(|_| ContainerHandle::reserve(&tracker)).collect();
    drop(runtime);
    drop(all);
    assert_eq!(asked.load(Ordering::Relaxed), 20);
}

/// The engine does not answer, and then shows the container, whole or broken, when it has been looked for often enough.
#[test]
fn what_is_being_made_is_left_alone_until_it_is_shown() {
    for shown in [FakeReply::Answer("{}".to_owned()), FakeReply::Refusal(500, "container not known")] {
        let asked = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&asked);
        let shown = Mutex::new(Some(shown));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let (engine, _dir) = runtime.block_on(scripted(move |request| {
            let method = request.split(' ').next().unwrap().to_owned();
            let looks = {
                let mut seen = seen.lock().unwrap();
                seen.push(method.clone());
                seen.iter().filter(|method| *method == "GET").count()
            };
            match method.as_str() {
                "POST" => FakeReply::Silence,
                "GET" if looks < 3 => FakeReply::Refusal(404, "no such container"),
                "GET" => shown.lock().unwrap().take().unwrap(),
                _ => FakeReply::Answer("{}".to_owned()),
            }
        }));
        let mut handle = ContainerHandle::reserve(&ContainerTracker::new(engine, "slow"));
        runtime.block_on(async {
            let created = tokio::select! {
                created = handle.create(ContainerCreateBody::default()) => Some(created),
                () = async { while asked.lock().unwrap().is_empty() { tokio::task::yield_now().await } } => None,
            };
            assert!(created.is_none(), "{created:?}");
        });
        drop(runtime);
        drop(handle);
        assert_eq!(*asked.lock().unwrap(), ["POST", "GET", "GET", "GET", "DELETE"]);
    }
}
