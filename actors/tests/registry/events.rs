//! Changes of files are noticed without a request.

use std::fs;
use std::os::unix::fs::symlink;
use std::time::Duration;

use crate::fixture::{Fixture, content, key, soon, write};

#[tokio::test]
async fn every_kind_of_edit_is_noticed() {
    let fixture = Fixture::new().await;
    fixture.write("pdf", "first");
    fixture.register().await;
    let file = fixture.scope().join("pdf/SKILL.md");
    // In place.
    fs::write(&file, content("pdf", "second")).unwrap();
    fixture.until_described(&["second"]).await;
    // Beside it, and renamed over it.
    let beside = fixture.scope().join("pdf/.SKILL.md.swp");
    fs::write(&beside, content("pdf", "third")).unwrap();
    fs::rename(&beside, &file).unwrap();
    fixture.until_described(&["third"]).await;
    // The old one renamed away, and a new one made.
    fs::rename(&file, fixture.scope().join("pdf/SKILL.md~")).unwrap();
    fs::write(&file, content("pdf", "fourth")).unwrap();
    fixture.until_described(&["fourth"]).await;
    fixture.end().await;
}

#[tokio::test]
async fn skills_that_come_and_go_are_noticed() {
    let fixture = Fixture::new().await;
    fixture.write("a", "a");
    fixture.register().await;
    // In a directory that was not there, with all that is in it at once.
    write(&fixture.scope().join("group/deep"), "b", "b");
    fixture.until_described(&["a", "b"]).await;
    // And in that one, which is watched by now.
    write(&fixture.scope().join("group/deep"), "c", "c");
    fixture.until_described(&["a", "b", "c"]).await;
    fs::rename(fixture.scope().join("group"), fixture.around.path().join("elsewhere")).unwrap();
    fixture.until_described(&["a"]).await;
    symlink(fixture.around.path().join("elsewhere/deep/c"), fixture.scope().join("c")).unwrap();
    fixture.until_described(&["a", "c"]).await;
    // Where a link leads.
    write(&fixture.around.path().join("elsewhere/deep"), "c", "c changed");
    fixture.until_described(&["a", "c changed"]).await;
    fs::remove_dir_all(fixture.scope().join("a")).unwrap();
    fixture.until_described(&["c changed"]).await;
    fixture.end().await;
}

#[tokio::test]
async fn a_broken_edit_keeps_the_last_good_version() {
    let fixture = Fixture::new().await;
    fixture.write("pdf", "good");
    fixture.register().await;
    fs::write(fixture.scope().join("pdf/SKILL.md"), "broken").unwrap();
    // Noticed after the broken one.
    fixture.write("other", "other");
    fixture.until_described(&["other", "good"]).await;
    let reload = fixture.registry.reload(key("main"), soon()).await.unwrap();
    assert_eq!(reload.broken.len(), 1);
    assert_eq!(fixture.descriptions(), ["other", "good"]);
    fixture.write("pdf", "mended");
    fixture.until_described(&["other", "mended"]).await;
    fixture.end().await;
}

#[tokio::test]
async fn a_scope_that_appears_goes_and_comes_again_is_noticed() {
    let fixture = Fixture::new().await;
    let scope = fixture.around.path().join("a/b/skills");
    fixture.register_as(&key("main"), &scope).await;
    assert_eq!(fixture.descriptions(), [""; 0]);
    write(&scope, "pdf", "appeared");
    fixture.until_described(&["appeared"]).await;
    // With a directory above it.
    fs::rename(fixture.around.path().join("a"), fixture.around.path().join("z")).unwrap();
    fixture.until_described(&[]).await;
    fs::rename(fixture.around.path().join("z"), fixture.around.path().join("a")).unwrap();
    fixture.until_described(&["appeared"]).await;
    fs::remove_dir_all(&scope).unwrap();
    fixture.until_described(&[]).await;
    write(&scope, "csv", "anew");
    fixture.until_described(&["anew"]).await;
    fixture.end().await;
}

/// The runtime has one thread, which reads no events while the test creates more than the system's queue holds.
#[tokio::test]
async fn lost_events_trigger_a_full_scan() {
    let fixture = Fixture::new().await;
    fixture.write("pdf", "first");
    fixture.write("csv", "first");
    fixture.register().await;
    let queue_limit = fs::read_to_string("/proc/sys/fs/inotify/max_queued_events").unwrap();
    let queue_limit: usize = queue_limit.trim().parse().unwrap();
    let noise = [fixture.scope().join("pdf/x"), fixture.scope().join("pdf/y")];
    // Two that differ from those before are two events each.
    for round in 0..=queue_limit / 2 {
        fs::write(&noise[round % 2], "").unwrap();
    }
    fixture.write("csv", "after the last event that was kept");
    fixture.until_described(&["after the last event that was kept", "first"]).await;
    fixture.end().await;
}

#[tokio::test]
async fn unwatchable_directories_are_polled() {
    let fixture = Fixture::with(|options| {
        options.max_watches = 1;
        options.rescan_interval = Duration::from_millis(20);
    })
    .await;
    fixture.write("pdf", "first");
    fixture.register().await;
    fixture.write("pdf", "second");
    fixture.until_described(&["second"]).await;
    fixture.write("csv", "third");
    fixture.until_described(&["third", "second"]).await;
    fixture.end().await;
}

#[tokio::test]
async fn a_change_of_one_catalog_publishes_no_other() {
    let fixture = Fixture::new().await;
    fixture.write("pdf", "first");
    fixture.register().await;
    let other = fixture.around.path().join("other");
    write(&other, "csv", "first");
    fixture.register_as(&key("other"), &other).await;
    let published = fixture.registry.subscribe(&key("other")).unwrap();
    fixture.write("pdf", "second");
    fixture.until_described(&["second"]).await;
    assert!(!published.has_changed().unwrap());
    fixture.end().await;
}
