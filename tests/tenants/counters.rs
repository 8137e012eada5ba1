//! What tenants spent long ago is forgotten, and nothing else.

use conjure_journal::{CounterIncrement, Journal as _, SqliteJournal, SqliteOptions};

use crate::fixture::{Host, ask, soon, spec, tenant};

/// A hundred days of long ago.
fn days() -> Vec<String> {
    let days = (1..=4).flat_map(|month| (1..=25).map(move |day| format!("tokens 2001-{month:02}-{day:02}")));
    days.collect()
}

#[tokio::test]
async fn counters_of_days_that_are_long_over_are_forgotten_and_what_was_spent_in_all_is_not() {
    let host = Host::new();
    let runtime = host.start(host.options()).await;
    for whose in ["acme", "globex"] {
        let session = runtime.open(spec(whose)).await.unwrap();
        assert_eq!(ask(&session, "hello").await, "heard: hello");
    }
    runtime.shutdown(soon()).await.unwrap();
    let path = host.data().join("journal");
    let journal = SqliteJournal::open(&path, SqliteOptions::default()).unwrap();
    let before = journal.list_counters(&tenant("acme")).await.unwrap();
    let others = journal.list_counters(&tenant("globex")).await.unwrap();
    let charges = days().into_iter().map(|day| CounterIncrement::new(day, 7)).collect();
    journal.increment_counters(&tenant("acme"), charges).await.unwrap();
    let total = journal.counters(&tenant("acme"), vec!["tokens".to_owned()]).await.unwrap();
    journal.close().await;
    drop(journal);

    let runtime = host.start(host.options()).await;
    let janitor = runtime.maintenance();
    assert_eq!(janitor.run("counters", soon()).await, Ok(0), "whether the clock is right is not known yet");
    let spent_since = before.iter().filter(|name| name.starts_with("tokens 2") && name.len() == 17).count();
    let forgotten = (100 - (62 - spent_since)) as u64;
    assert_eq!(janitor.run("counters", soon()).await, Ok(forgotten));
    assert_eq!(janitor.run("counters", soon()).await, Ok(0));
    runtime.shutdown(soon()).await.unwrap();
    let journal = SqliteJournal::open(&path, SqliteOptions::default()).unwrap();
    let left = journal.list_counters(&tenant("acme")).await.unwrap();
    assert!(before.iter().all(|name| left.contains(name)), "{left:?}");
    let newest = &days()[usize::try_from(forgotten).unwrap()..];
    assert_eq!(left.len(), before.len() + newest.len());
    assert!(newest.iter().all(|name| left.contains(name)), "{left:?}");
    assert_eq!(journal.counters(&tenant("acme"), vec!["tokens".to_owned()]).await.unwrap(), total);
    assert_eq!(journal.list_counters(&tenant("globex")).await.unwrap(), others);
    journal.close().await;
}
