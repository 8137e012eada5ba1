//! A registry that is killed, under load and again and again: lookups go on, and it goes on with what it knew.

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};

use conjure_actors::catalogs::RegistryError;

use crate::bed::{Bed, key, soon, write};

/// Reloads until the actor that is there answers.
async fn reload(bed: &Bed) -> conjure_skill::Reload {
    loop {
        match bed.registry.reload(key("main"), soon()).await {
            Ok(reload) => return reload,
            Err(RegistryError::Call(_)) => tokio::task::yield_now().await,
            Err(error) => panic!("{error}"),
        }
    }
}

#[tokio::test]
async fn a_crash_takes_no_snapshot_away_and_its_successor_notices_changes() {
    let bed = Bed::new().await;
    bed.write("pdf", "good");
    bed.write("csv", "good");
    bed.register().await;
    let snapshot = bed.registry.catalog(&key("main")).unwrap();
    fs::write(bed.scope().join("pdf/SKILL.md"), "broken").unwrap();
    bed.registry.kill();
    assert_eq!(bed.descriptions(), ["good", "good"]);
    // It loads again by itself, and still has the last good version.
    let again = reload(&bed).await;
    assert_eq!(again.broken.len(), 1);
    assert_eq!(bed.descriptions(), ["good", "good"]);
    bed.write("csv", "edited");
    bed.until_described(&["edited", "good"]).await;
    assert_eq!(snapshot.get("csv").unwrap().description(), "good");
    bed.end().await;
}

#[tokio::test]
async fn what_changed_while_it_was_down_is_noticed_without_anybody_asking() {
    let bed = Bed::new().await;
    bed.write("pdf", "first");
    bed.register().await;
    bed.registry.kill();
    bed.write("pdf", "second");
    bed.until_described(&["second"]).await;
    bed.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lookups_go_on_while_it_is_killed_under_load() {
    const SKILLS: usize = 100;
    const ROUNDS: u32 = 8;
    let bed = Bed::new().await;
    for number in 0..SKILLS {
        write(&bed.scope(), &format!("s{number}"), "first");
    }
    bed.register().await;
    let is_over = AtomicBool::new(false);
    let looking = async {
        let mut lookups = 0_u64;
        while !is_over.load(Ordering::Acquire) {
            assert_eq!(bed.registry.list(&key("main")).len(), SKILLS);
            assert!(bed.registry.get(&key("main"), "s42").is_some());
            lookups += 1;
            tokio::task::yield_now().await;
        }
        lookups
    };
    let killing = async {
        for round in 1..=ROUNDS {
            write(&bed.scope(), "s42", &format!("round {round}"));
            // Some die in a load, some before it.
            if round % 2 == 0 {
                reload(&bed).await;
            }
            bed.registry.kill();
            tokio::task::yield_now().await;
        }
        let last = reload(&bed).await;
        is_over.store(true, Ordering::Release);
        last
    };
    let (lookups, last) = tokio::join!(looking, killing);
    assert!(lookups > 0);
    assert_eq!(last.catalog.get("s42").unwrap().description(), format!("round {ROUNDS}"));
    bed.end().await;
}
