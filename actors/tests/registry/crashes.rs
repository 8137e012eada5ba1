//! A registry that is killed repeatedly under load: lookups continue, and it restarts with its last snapshot.

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};

use conjure_actors::catalogs::RegistryError;

use crate::fixture::{Fixture, key, soon, write};

/// Reloads until the actor that is there answers.
async fn reload(fixture: &Fixture) -> conjure_skill::Reload {
    loop {
        match fixture.registry.reload(key("main"), soon()).await {
            Ok(reload) => return reload,
            Err(RegistryError::Call(_)) => tokio::task::yield_now().await,
            Err(error) => panic!("{error}"),
        }
    }
}

#[tokio::test]
async fn a_crash_keeps_the_snapshot_and_the_restart_notices_changes() {
    let fixture = Fixture::new().await;
    fixture.write("pdf", "good");
    fixture.write("csv", "good");
    fixture.register().await;
    let snapshot = fixture.registry.catalog(&key("main")).unwrap();
    fs::write(fixture.scope().join("pdf/SKILL.md"), "broken").unwrap();
    fixture.registry.kill();
    assert_eq!(fixture.descriptions(), ["good", "good"]);
    // It loads again by itself, and still has the last good version.
    let reopened = reload(&fixture).await;
    assert_eq!(reopened.broken.len(), 1);
    assert_eq!(fixture.descriptions(), ["good", "good"]);
    fixture.write("csv", "edited");
    fixture.until_described(&["edited", "good"]).await;
    assert_eq!(snapshot.get("csv").unwrap().description(), "good");
    fixture.end().await;
}

#[tokio::test]
async fn changes_during_downtime_are_noticed_without_a_request() {
    let fixture = Fixture::new().await;
    fixture.write("pdf", "first");
    fixture.register().await;
    fixture.registry.kill();
    fixture.write("pdf", "second");
    fixture.until_described(&["second"]).await;
    fixture.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lookups_continue_while_the_registry_is_killed_under_load() {
    const SKILLS: usize = 100;
    const ROUNDS: u32 = 8;
    let fixture = Fixture::new().await;
    for number in 0..SKILLS {
        write(&fixture.scope(), &format!("s{number}"), "first");
    }
    fixture.register().await;
    let is_over = AtomicBool::new(false);
    let looking = async {
        let mut lookups = 0_u64;
        while !is_over.load(Ordering::Acquire) {
            assert_eq!(fixture.registry.list(&key("main")).len(), SKILLS);
            assert!(fixture.registry.get(&key("main"), "s42").is_some());
            lookups += 1;
            tokio::task::yield_now().await;
        }
        lookups
    };
    let killing = async {
        for round in 1..=ROUNDS {
            write(&fixture.scope(), "s42", &format!("round {round}"));
            // Some die in a load, some before it.
            if round % 2 == 0 {
                reload(&fixture).await;
            }
            fixture.registry.kill();
            tokio::task::yield_now().await;
        }
        let last = reload(&fixture).await;
        is_over.store(true, Ordering::Release);
        last
    };
    let (lookups, last) = tokio::join!(looking, killing);
    assert!(lookups > 0);
    assert_eq!(last.catalog.get("s42").unwrap().description(), format!("round {ROUNDS}"));
    fixture.end().await;
}
