//! Several sessions, and the end of one.

use conjure_sandbox::{Executor, SandboxErrorKind};
use futures_util::future;

use crate::bed::{Bed, Kind};
use crate::for_kinds;
use crate::processes::bearing;

for_kinds! {
    a_death_in_one_session_disturbs_no_other_and_nothing_crosses,
    a_shutdown_in_the_midst_of_calls_leaves_nothing,
    a_cleanup_ends_it_for_good,
    nothing_is_made_before_it_is_needed,
}

async fn a_death_in_one_session_disturbs_no_other_and_nothing_crosses(kind: Kind) {
    let (mine, other) = (Bed::of(kind).await, Bed::of(kind).await);
    mine.sh("echo mine > file").await;
    other.sh("echo other > file; mkfifo gate").await;
    mine.leave_a_sleeper().await;
    // A call of the other one, under way over the death and the replacement of mine.
    let under_way = other.run("read line < gate; echo $line; cat file");
    let meanwhile = async {
        mine.kill_guest();
        mine.source.until_asked(2).await;
        assert_eq!(mine.sh("cat file").await, "mine\n");
        other.sh("echo on > gate").await;
    };
    let (outcome, ()) = future::join(under_way, meanwhile).await;
    assert_eq!(outcome.unwrap().stdout.head, b"on\nother\n");
    assert_eq!(*other.source.calls.borrow(), 1);
    assert_eq!(other.executor.take_model_notice(), None);
    assert!(mine.executor.take_model_notice().is_some());
    mine.end().await;
    other.end().await;
}

async fn a_shutdown_in_the_midst_of_calls_leaves_nothing(kind: Kind) {
    let bed = Bed::of(kind).await;
    let script = bed.sleeper();
    let executor = bed.executor.clone();
    let stopping = async {
        bed.until_sleeping(1).await;
        bed.root.shutdown(crate::bed::soon()).await.unwrap();
        // Awaited, so it is true at once.
        assert_eq!(bearing(bed.mark()), []);
    };
    let (lost, ()) = future::join(bed.run(&script), stopping).await;
    assert_eq!(lost.unwrap_err().kind(), SandboxErrorKind::Lost);
    let refused = bed.run("true").await.unwrap_err();
    assert_eq!(refused.kind(), SandboxErrorKind::Unavailable, "{refused}");
    drop(executor);
    bed.end().await;
}

async fn a_cleanup_ends_it_for_good(kind: Kind) {
    let bed = Bed::of(kind).await;
    bed.leave_a_sleeper().await;
    bed.executor.cleanup().await;
    assert_eq!(bearing(bed.mark()), []);
    assert_eq!(bed.run("true").await.unwrap_err().kind(), SandboxErrorKind::Unavailable);
    bed.executor.cleanup().await;
    assert_eq!(bed.executor.wait_ended().await.kind(), SandboxErrorKind::Unavailable);
    assert_eq!(*bed.source.calls.borrow(), 1);
    bed.end().await;
}

async fn nothing_is_made_before_it_is_needed(kind: Kind) {
    let bed = Bed::of(kind).await;
    bed.executor.init().await.unwrap();
    assert_eq!(*bed.source.calls.borrow(), 0);
    let layout = bed.executor.layout().clone();
    bed.executor.warm(crate::bed::soon()).await.unwrap();
    assert_eq!(*bed.source.calls.borrow(), 1);
    assert_eq!(bed.sh("pwd").await.trim_end(), layout.workspace.to_str().unwrap());
    bed.end().await;
}
