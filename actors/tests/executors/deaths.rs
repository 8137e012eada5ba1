//! Sandboxes that die: in a call, in a transfer, between calls, with their actor and with its supervisor.

use bytes::Bytes;
use conjure_sandbox::{Executor, SandboxErrorKind};
use futures_util::{StreamExt, future, stream};
use tokio::sync::Notify;

use crate::bed::{Bed, Kind, options, until};
use crate::for_kinds;
use crate::processes::bearing;

for_kinds! {
    a_death_in_a_call_loses_it_and_the_next_finds_a_new_sandbox,
    a_death_while_a_file_is_read_ends_the_stream,
    a_death_while_a_file_is_written_leaves_the_file_before,
    a_death_between_calls_is_found_out_without_one,
    a_killed_actor_takes_its_sandbox_along_and_both_are_replaced,
    a_killed_supervisor_takes_all_along_and_is_replaced,
    a_call_right_after_a_death_is_lost_or_good_and_the_one_after_it_is_good,
}

async fn a_death_in_a_call_loses_it_and_the_next_finds_a_new_sandbox(kind: Kind) {
    let bed = Bed::of(kind).await;
    bed.sh("echo kept > file").await;
    let script = format!("setsid bash -c '{}' & wait", bed.sleeper());
    let calls = future::join(bed.run(&script), bed.run("sleep 1000"));
    let killing = async {
        bed.until_sleeping(1).await;
        bed.kill_guest();
    };
    let ((first, second), ()) = future::join(calls, killing).await;
    for lost in [first.unwrap_err(), second.unwrap_err()] {
        assert_eq!(lost.kind(), SandboxErrorKind::Lost);
        assert!(lost.to_string().contains("signal 9"), "{lost}");
    }
    assert_eq!(bed.sh("cat file").await, "kept\n");
    assert_eq!(*bed.source.calls.borrow(), 2);
    let notice = bed.executor.take_model_notice().unwrap();
    assert!(notice.contains("signal 9") && notice.contains("Still there"), "{notice}");
    assert_eq!(bed.executor.take_model_notice(), None, "it is told once");
    bed.end().await;
}

async fn a_death_while_a_file_is_read_ends_the_stream(kind: Kind) {
    let bed = Bed::of(kind).await;
    // More than may be under way to a reader that does not read.
    bed.sh("head -c 16777216 /dev/zero > large").await;
    bed.leave_a_sleeper().await;
    let mut content = bed.executor.read("large", options()).await.unwrap();
    assert!(content.next().await.unwrap().is_ok());
    bed.kill_guest();
    let pieces: Vec<_> = content.collect().await;
    let (last, before) = pieces.split_last().unwrap();
    assert_eq!(last.as_ref().unwrap_err().kind(), SandboxErrorKind::Lost);
    assert!(before.iter().all(Result::is_ok));
    assert_eq!(bed.sh("stat -c %s large").await, "16777216\n");
    bed.end().await;
}

async fn a_death_while_a_file_is_written_leaves_the_file_before(kind: Kind) {
    let bed = Bed::of(kind).await;
    bed.sh("echo before > file").await;
    bed.leave_a_sleeper().await;
    let (begun, never) = (Notify::new(), future::pending());
    let begun = std::sync::Arc::new(begun);
    let tell = std::sync::Arc::clone(&begun);
    // The second piece is asked for when the first is on its way.
    let content = stream::iter([Ok(Bytes::from_static(b"half"))])
        .chain(stream::once(async move {
            tell.notify_one();
            never.await
        }))
        .boxed();
    let writing = bed.executor.write("file", content, options());
    let killing = async {
        begun.notified().await;
        bed.kill_guest();
    };
    let (written, ()) = future::join(writing, killing).await;
    assert_eq!(written.unwrap_err().kind(), SandboxErrorKind::Lost);
    assert_eq!(bed.sh("cat file").await, "before\n");
    bed.end().await;
}

async fn a_death_between_calls_is_found_out_without_one(kind: Kind) {
    let bed = Bed::of(kind).await;
    bed.sh("echo kept > file; echo gone > /tmp/$(basename $PWD)-gone").await;
    bed.leave_a_sleeper().await;
    bed.kill_guest();
    bed.source.until_asked(2).await;
    // This call was never in a sandbox that died.
    assert_eq!(bed.sh("cat file").await, "kept\n");
    assert!(bed.executor.take_model_notice().is_some());
    assert_eq!(*bed.source.calls.borrow(), 2);
    let _ = std::fs::remove_file(
        std::env::temp_dir().join(format!("{}-gone", bed.workspace.path().file_name().unwrap().display())),
    );
    bed.end().await;
}

async fn a_killed_actor_takes_its_sandbox_along_and_both_are_replaced(kind: Kind) {
    let bed = Bed::of(kind).await;
    bed.sh("echo kept > file").await;
    let actor = bed.actor().await;
    let script = bed.sleeper();
    let killing = async {
        bed.until_sleeping(1).await;
        actor.kill();
        actor.monitor().unwrap().await
    };
    let (lost, down) = future::join(bed.run(&script), killing).await;
    assert_eq!(lost.unwrap_err().kind(), SandboxErrorKind::Lost);
    assert_eq!(down.exit.to_string(), "killed");
    // The actor is gone when its sandbox is.
    assert_eq!(bearing(bed.mark()), []);
    assert_eq!(bed.sh("cat file").await, "kept\n");
    assert!(bed.executor.take_model_notice().is_some());
    bed.end().await;
}

async fn a_killed_supervisor_takes_all_along_and_is_replaced(kind: Kind) {
    let bed = Bed::of(kind).await;
    bed.sh("echo kept > file").await;
    let script = bed.sleeper();
    let down = bed.executor.supervisor().monitor().unwrap();
    let killing = async {
        bed.until_sleeping(1).await;
        bed.executor.supervisor().kill();
        down.await
    };
    let (lost, _) = future::join(bed.run(&script), killing).await;
    assert_eq!(lost.unwrap_err().kind(), SandboxErrorKind::Lost);
    assert_eq!(bearing(bed.mark()), []);
    // Until the supervisor runs again, a call is refused by a typed error.
    let said = loop {
        match bed.run("cat file").await {
            Ok(outcome) => break outcome.stdout.head,
            Err(error) => assert_eq!(error.kind(), SandboxErrorKind::Unavailable, "{error}"),
        }
        tokio::task::yield_now().await;
    };
    assert_eq!(said, b"kept\n");
    bed.end().await;
}

async fn a_call_right_after_a_death_is_lost_or_good_and_the_one_after_it_is_good(kind: Kind) {
    let bed = Bed::of(kind).await;
    for _ in 0..3 {
        bed.leave_a_sleeper().await;
        bed.kill_guest();
        match bed.run("echo well").await {
            Ok(outcome) => assert_eq!(outcome.stdout.head, b"well\n"),
            Err(error) => assert_eq!(error.kind(), SandboxErrorKind::Lost, "{error}"),
        }
        // The old sandbox may still be known as the one that is there.
        until("nothing of it is left", || bearing(bed.mark()).is_empty()).await;
        let outcome = bed.run("echo well").await;
        let outcome = match outcome {
            Err(error) if error.kind() == SandboxErrorKind::Lost => bed.run("echo well").await,
            other => other,
        };
        assert_eq!(outcome.unwrap().stdout.head, b"well\n");
    }
    bed.end().await;
}
