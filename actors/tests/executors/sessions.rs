//! Several sessions, and the end of one.

use conjure_sandbox::{Executor, SandboxErrorKind};
use futures_util::future;

use crate::fixture::{Fixture, Kind};
use crate::for_kinds;
use crate::processes::bearing;

for_kinds! {
    a_crash_in_one_session_affects_no_other,
    a_shutdown_in_the_midst_of_calls_leaves_nothing,
    a_cleanup_ends_the_sandbox_permanently,
    nothing_is_made_before_it_is_needed,
}

async fn a_crash_in_one_session_affects_no_other(kind: Kind) {
    let (first, other) = (Fixture::of(kind).await, Fixture::of(kind).await);
    first.sh("echo mine > file").await;
    other.sh("echo other > file; mkfifo gate").await;
    first.start_background_sleeper().await;
    // A call of the other one, under way over the death and the replacement of mine.
    let under_way = other.run("read line < gate; echo $line; cat file");
    let meanwhile = async {
        first.kill_guest();
        first.source.until_calls(2).await;
        assert_eq!(first.sh("cat file").await, "mine\n");
        other.sh("echo on > gate").await;
    };
    let (outcome, ()) = future::join(under_way, meanwhile).await;
    assert_eq!(outcome.unwrap().stdout.head, b"on\nother\n");
    assert_eq!(*other.source.calls.borrow(), 1);
    assert_eq!(other.executor.take_model_notice(), None);
    assert!(first.executor.take_model_notice().is_some());
    first.end().await;
    other.end().await;
}

async fn a_shutdown_in_the_midst_of_calls_leaves_nothing(kind: Kind) {
    let fixture = Fixture::of(kind).await;
    let script = fixture.sleeper();
    let executor = fixture.executor.clone();
    let stopping = async {
        fixture.until_sleeping(1).await;
        fixture.root.shutdown(crate::fixture::soon()).await.unwrap();
        // The call is awaited, so this holds at once.
        assert_eq!(bearing(fixture.mark()), []);
    };
    let (lost, ()) = future::join(fixture.run(&script), stopping).await;
    assert_eq!(lost.unwrap_err().kind(), SandboxErrorKind::Lost);
    let refused = fixture.run("true").await.unwrap_err();
    assert_eq!(refused.kind(), SandboxErrorKind::Unavailable, "{refused}");
    drop(executor);
    fixture.end().await;
}

async fn a_cleanup_ends_the_sandbox_permanently(kind: Kind) {
    let fixture = Fixture::of(kind).await;
    fixture.start_background_sleeper().await;
    fixture.executor.cleanup().await;
    assert_eq!(bearing(fixture.mark()), []);
    assert_eq!(fixture.run("true").await.unwrap_err().kind(), SandboxErrorKind::Unavailable);
    fixture.executor.cleanup().await;
    assert_eq!(fixture.executor.wait_ended().await.kind(), SandboxErrorKind::Unavailable);
    assert_eq!(*fixture.source.calls.borrow(), 1);
    fixture.end().await;
}

async fn nothing_is_made_before_it_is_needed(kind: Kind) {
    let fixture = Fixture::of(kind).await;
    fixture.executor.init().await.unwrap();
    assert_eq!(*fixture.source.calls.borrow(), 0);
    let layout = fixture.executor.layout().clone();
    fixture.executor.warm(crate::fixture::soon()).await.unwrap();
    assert_eq!(*fixture.source.calls.borrow(), 1);
    assert_eq!(fixture.sh("pwd").await.trim_end(), layout.workspace.to_str().unwrap());
    fixture.end().await;
}
