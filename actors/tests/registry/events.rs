//! Changes of files that are noticed without anybody asking.

use std::fs;
use std::os::unix::fs::symlink;
use std::time::Duration;

use crate::bed::{Bed, content, key, soon, write};

#[tokio::test]
async fn edits_in_every_way_of_editors_are_noticed() {
    let bed = Bed::new().await;
    bed.write("pdf", "first");
    bed.register().await;
    let file = bed.scope().join("pdf/SKILL.md");
    // In place.
    fs::write(&file, content("pdf", "second")).unwrap();
    bed.until_described(&["second"]).await;
    // Beside it, and renamed over it.
    let beside = bed.scope().join("pdf/.SKILL.md.swp");
    fs::write(&beside, content("pdf", "third")).unwrap();
    fs::rename(&beside, &file).unwrap();
    bed.until_described(&["third"]).await;
    // The old one renamed away, and a new one made.
    fs::rename(&file, bed.scope().join("pdf/SKILL.md~")).unwrap();
    fs::write(&file, content("pdf", "fourth")).unwrap();
    bed.until_described(&["fourth"]).await;
    bed.end().await;
}

#[tokio::test]
async fn skills_that_come_and_go_are_noticed() {
    let bed = Bed::new().await;
    bed.write("a", "a");
    bed.register().await;
    // In a folder that was not there, with all that is in it at once.
    write(&bed.scope().join("group/deep"), "b", "b");
    bed.until_described(&["a", "b"]).await;
    // And in that one, which is watched by now.
    write(&bed.scope().join("group/deep"), "c", "c");
    bed.until_described(&["a", "b", "c"]).await;
    fs::rename(bed.scope().join("group"), bed.around.path().join("elsewhere")).unwrap();
    bed.until_described(&["a"]).await;
    symlink(bed.around.path().join("elsewhere/deep/c"), bed.scope().join("c")).unwrap();
    bed.until_described(&["a", "c"]).await;
    // Where a link leads.
    write(&bed.around.path().join("elsewhere/deep"), "c", "c changed");
    bed.until_described(&["a", "c changed"]).await;
    fs::remove_dir_all(bed.scope().join("a")).unwrap();
    bed.until_described(&["c changed"]).await;
    bed.end().await;
}

#[tokio::test]
async fn a_broken_edit_keeps_the_last_good_version() {
    let bed = Bed::new().await;
    bed.write("pdf", "good");
    bed.register().await;
    fs::write(bed.scope().join("pdf/SKILL.md"), "broken").unwrap();
    // Noticed after the broken one.
    bed.write("other", "other");
    bed.until_described(&["other", "good"]).await;
    let reload = bed.registry.reload(key("main"), soon()).await.unwrap();
    assert_eq!(reload.broken.len(), 1);
    assert_eq!(bed.descriptions(), ["other", "good"]);
    bed.write("pdf", "mended");
    bed.until_described(&["other", "mended"]).await;
    bed.end().await;
}

#[tokio::test]
async fn a_scope_that_appears_goes_and_comes_again_is_noticed() {
    let bed = Bed::new().await;
    let scope = bed.around.path().join("a/b/skills");
    bed.register_as(&key("main"), &scope).await;
    assert_eq!(bed.descriptions(), [""; 0]);
    write(&scope, "pdf", "appeared");
    bed.until_described(&["appeared"]).await;
    // With a folder above it.
    fs::rename(bed.around.path().join("a"), bed.around.path().join("z")).unwrap();
    bed.until_described(&[]).await;
    fs::rename(bed.around.path().join("z"), bed.around.path().join("a")).unwrap();
    bed.until_described(&["appeared"]).await;
    fs::remove_dir_all(&scope).unwrap();
    bed.until_described(&[]).await;
    write(&scope, "csv", "anew");
    bed.until_described(&["anew"]).await;
    bed.end().await;
}

/// The runtime has one thread, which reads no events while the test makes more than the system keeps.
#[tokio::test]
async fn events_that_are_lost_make_it_look_at_everything() {
    let bed = Bed::new().await;
    bed.write("pdf", "first");
    bed.write("csv", "first");
    bed.register().await;
    let kept = fs::read_to_string("/proc/sys/fs/inotify/max_queued_events").unwrap();
    let kept: usize = kept.trim().parse().unwrap();
    let noise = [bed.scope().join("pdf/x"), bed.scope().join("pdf/y")];
    // Two that differ from those before are two events each.
    for round in 0..=kept / 2 {
        fs::write(&noise[round % 2], "").unwrap();
    }
    bed.write("csv", "after the last event that was kept");
    bed.until_described(&["after the last event that was kept", "first"]).await;
    bed.end().await;
}

#[tokio::test]
async fn where_not_all_can_be_watched_it_is_looked_at_again_and_again() {
    let bed = Bed::with(|options| {
        options.max_watches = 1;
        options.rescan_interval = Duration::from_millis(20);
    })
    .await;
    bed.write("pdf", "first");
    bed.register().await;
    bed.write("pdf", "second");
    bed.until_described(&["second"]).await;
    bed.write("csv", "third");
    bed.until_described(&["third", "second"]).await;
    bed.end().await;
}

#[tokio::test]
async fn a_change_of_one_catalog_publishes_no_other() {
    let bed = Bed::new().await;
    bed.write("pdf", "first");
    bed.register().await;
    let other = bed.around.path().join("other");
    write(&other, "csv", "first");
    bed.register_as(&key("other"), &other).await;
    let published = bed.registry.subscribe(&key("other")).unwrap();
    bed.write("pdf", "second");
    bed.until_described(&["second"]).await;
    assert!(!published.has_changed().unwrap());
    bed.end().await;
}
