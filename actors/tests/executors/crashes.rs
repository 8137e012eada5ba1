//! Sandboxes that die: in a call, in a transfer, between calls, with their actor and with its supervisor.

use bytes::Bytes;
use conjure_sandbox::{Executor, SandboxErrorKind};
use futures_util::{StreamExt, future, stream};
use tokio::sync::Notify;

use crate::fixture::{Fixture, Kind, options, until};
use crate::for_kinds;
use crate::processes::bearing;

for_kinds! {
    a_crash_in_a_call_loses_it_and_the_next_gets_a_new_sandbox,
    a_crash_while_a_file_is_read_ends_the_stream,
    a_crash_while_a_file_is_written_keeps_the_previous_file,
    a_crash_between_calls_is_detected_without_a_call,
    a_killed_actor_ends_its_sandbox_and_both_are_replaced,
    a_killed_supervisor_ends_its_children_and_is_replaced,
    a_call_right_after_a_crash_is_lost_or_works_and_the_next_works,
}

async fn a_crash_in_a_call_loses_it_and_the_next_gets_a_new_sandbox(kind: Kind) {
    let fixture = Fixture::of(kind).await;
    fixture.sh("echo kept > file").await;
    let script = format!("setsid bash -c '{}' & wait", fixture.sleeper());
    let calls = future::join(fixture.run(&script), fixture.run("sleep 1000"));
    let killing = async {
        fixture.until_sleeping(1).await;
        fixture.kill_guest();
    };
    let ((first, second), ()) = future::join(calls, killing).await;
    for lost in [first.unwrap_err(), second.unwrap_err()] {
        assert_eq!(lost.kind(), SandboxErrorKind::Lost);
        assert!(lost.to_string().contains("signal 9"), "{lost}");
    }
    assert_eq!(fixture.sh("cat file").await, "kept\n");
    assert_eq!(*fixture.source.calls.borrow(), 2);
    let notice = fixture.executor.take_model_notice().unwrap();
    assert!(notice.contains("signal 9") && notice.contains("Still there"), "{notice}");
    assert_eq!(fixture.executor.take_model_notice(), None, "it is reported once");
    fixture.end().await;
}

async fn a_crash_while_a_file_is_read_ends_the_stream(kind: Kind) {
    let fixture = Fixture::of(kind).await;
    // More than may be under way to a reader that does not read.
    fixture.sh("head -c 16777216 /dev/zero > large").await;
    fixture.start_background_sleeper().await;
    let mut content = fixture.executor.read("large", options()).await.unwrap();
    assert!(content.next().await.unwrap().is_ok());
    fixture.kill_guest();
    let pieces: Vec<_> = content.collect().await;
    let (last, before) = pieces.split_last().unwrap();
    assert_eq!(last.as_ref().unwrap_err().kind(), SandboxErrorKind::Lost);
    assert!(before.iter().all(Result::is_ok));
    assert_eq!(fixture.sh("stat -c %s large").await, "16777216\n");
    fixture.end().await;
}

async fn a_crash_while_a_file_is_written_keeps_the_previous_file(kind: Kind) {
    let fixture = Fixture::of(kind).await;
    fixture.sh("echo before > file").await;
    fixture.start_background_sleeper().await;
    let (started, never) = (Notify::new(), future::pending());
    let started = std::sync::Arc::new(started);
    let tell = std::sync::Arc::clone(&started);
    // The second chunk is requested while the first is in transit.
    let content = stream::iter([Ok(Bytes::from_static(b"half"))])
        .chain(stream::once(async move {
            tell.notify_one();
            never.await
        }))
        .boxed();
    let writing = fixture.executor.write("file", content, options());
    let killing = async {
        started.notified().await;
        fixture.kill_guest();
    };
    let (written, ()) = future::join(writing, killing).await;
    assert_eq!(written.unwrap_err().kind(), SandboxErrorKind::Lost);
    assert_eq!(fixture.sh("cat file").await, "before\n");
    fixture.end().await;
}

async fn a_crash_between_calls_is_detected_without_a_call(kind: Kind) {
    let fixture = Fixture::of(kind).await;
    fixture.sh("echo kept > file; echo gone > /tmp/$(basename $PWD)-gone").await;
    fixture.lose_sandbox().await;
    // This call was never in a sandbox that died.
    assert_eq!(fixture.sh("cat file").await, "kept\n");
    assert!(fixture.executor.take_model_notice().is_some());
    assert_eq!(*fixture.source.calls.borrow(), 2);
    let _ = std::fs::remove_file(
        std::env::temp_dir()
            .join(format!("{}-gone", fixture.workspace.path().file_name().unwrap().display())),
    );
    fixture.end().await;
}

async fn a_killed_actor_ends_its_sandbox_and_both_are_replaced(kind: Kind) {
    let fixture = Fixture::of(kind).await;
    fixture.sh("echo kept > file").await;
    let actor = fixture.actor().await;
    let script = fixture.sleeper();
    let killing = async {
        fixture.until_sleeping(1).await;
        actor.kill();
        actor.monitor().unwrap().await
    };
    let (lost, down) = future::join(fixture.run(&script), killing).await;
    assert_eq!(lost.unwrap_err().kind(), SandboxErrorKind::Lost);
    assert_eq!(down.exit.to_string(), "killed");
    // The actor ends after its sandbox.
    assert_eq!(bearing(fixture.mark()), []);
    assert_eq!(fixture.sh("cat file").await, "kept\n");
    assert!(fixture.executor.take_model_notice().is_some());
    fixture.end().await;
}

async fn a_killed_supervisor_ends_its_children_and_is_replaced(kind: Kind) {
    let fixture = Fixture::of(kind).await;
    fixture.sh("echo kept > file").await;
    let script = fixture.sleeper();
    let down = fixture.executor.supervisor().monitor().unwrap();
    let killing = async {
        fixture.until_sleeping(1).await;
        fixture.executor.supervisor().kill();
        down.await
    };
    let (lost, _) = future::join(fixture.run(&script), killing).await;
    assert_eq!(lost.unwrap_err().kind(), SandboxErrorKind::Lost);
    assert_eq!(bearing(fixture.mark()), []);
    // Until the supervisor runs again, a call is refused by a typed error.
    let text = loop {
        match fixture.run("cat file").await {
            Ok(outcome) => break outcome.stdout.head,
            Err(error) => assert_eq!(error.kind(), SandboxErrorKind::Unavailable, "{error}"),
        }
        tokio::task::yield_now().await;
    };
    assert_eq!(text, b"kept\n");
    fixture.end().await;
}

async fn a_call_right_after_a_crash_is_lost_or_works_and_the_next_works(kind: Kind) {
    let fixture = Fixture::of(kind).await;
    for _ in 0..3 {
        fixture.start_background_sleeper().await;
        fixture.kill_guest();
        match fixture.run("echo well").await {
            Ok(outcome) => assert_eq!(outcome.stdout.head, b"well\n"),
            Err(error) => assert_eq!(error.kind(), SandboxErrorKind::Lost, "{error}"),
        }
        // The old sandbox may still be known as the one that is there.
        until("nothing of it is left", || bearing(fixture.mark()).is_empty()).await;
        let outcome = fixture.run("echo well").await;
        let outcome = match outcome {
            Err(error) if error.kind() == SandboxErrorKind::Lost => fixture.run("echo well").await,
            other => other,
        };
        assert_eq!(outcome.unwrap().stdout.head, b"well\n");
    }
    fixture.end().await;
}
