//! A host that continues for a while takes no more of the machine than at its beginning. `cargo bench --bench soak` is the
//! long form. A process of its own, as what is measured is a process.

#![expect(clippy::disallowed_methods, reason = "it measures time")]

#[expect(dead_code, reason = "the benchmark prints more of it")]
mod course;
mod tenants;

use crate::course::Site;

/// Each measures the process, and so has it for itself.
static ALONE: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

/// Resident memory that may come and go with the allocator's habits, in KiB.
const SLACK: u64 = 8 * 1024;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_turns_and_many_sessions_leave_nothing_behind() {
    let _alone = ALONE.lock().await;
    let site = Site::open().await.unwrap();
    let (first, ended) = site.turns(300).await.unwrap().start_and_end();
    assert!(ended.files <= first.files, "{first:?} {ended:?}");
    assert!(ended.memory < first.memory + SLACK, "{first:?} {ended:?}");
    assert_eq!(ended.disk, first.disk, "{first:?} {ended:?}");

    let (first, ended) = site.sessions(300).await.unwrap().start_and_end();
    assert_eq!(site.leftovers(), (0, 0));
    assert!(ended.files <= first.files, "{first:?} {ended:?}");
    assert!(ended.memory < first.memory + SLACK, "{first:?} {ended:?}");
    assert_eq!(ended.disk, first.disk, "{first:?} {ended:?}");
    site.close().await.unwrap();
}
