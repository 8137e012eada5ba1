//! `local`: what every kind of sandbox must show, and what is its own.

#[expect(dead_code, reason = "a part of it is used here")]
mod support;

use std::fs;

use conjure_sandbox::{
    Boundary, Command, CommandEnd, Connector, Executor, Isolation, Local, SandboxErrorKind,
};
use futures_util::future;
use support::{Bed, Kind, bearing, guest_above, host, kill_nine, options, text};

struct LocalKind;

impl Kind for LocalKind {
    fn connector(&self) -> Box<dyn Connector> {
        Box::new(Local::without_isolation(host()))
    }

    fn guest(&self, pid: i32, host: u32) -> i32 {
        guest_above(pid, host)
    }

    fn left_by(&self, _: u32) -> Vec<String> {
        Vec::new()
    }
}

conformance! { every: LocalKind }
conformance! { shared: LocalKind }

#[tokio::test]
async fn a_local_sandbox_says_that_it_isolates_nothing() {
    let bed = Bed::of(&LocalKind).await;
    assert_eq!(bed.sandbox.isolation(), Isolation::NONE);
    assert_eq!(bed.sandbox.isolation().network, Boundary::Open);
}

#[tokio::test]
async fn the_host_s_paths_and_its_path_variable_are_the_sandbox_s() {
    let bed = Bed::of(&LocalKind).await;
    let workspace = fs::canonicalize(bed.workspace.path()).unwrap();
    assert_eq!(bed.sandbox.layout().workspace, workspace);
    let seen = text(&bed.bash("echo $PATH $TERM; pwd").await.unwrap());
    assert_eq!(seen, format!("/usr/local/bin:/usr/bin:/bin dumb\n{}\n", workspace.display()));
}

#[tokio::test]
async fn how_a_guest_ended_is_told_with_the_call_that_is_lost() {
    let bed = Bed::of(&LocalKind).await;
    let script = bed.sleeper();
    let calling = bed.sandbox.run(Command::bash(&script), options());
    let killing = async {
        bed.until_sleeping(1).await;
        kill_nine(LocalKind.guest(bearing(bed.mark())[0].pid, std::process::id()));
    };
    let (outcome, ()) = future::join(calling, killing).await;
    let error = outcome.unwrap_err();
    assert_eq!(error.kind(), SandboxErrorKind::Lost);
    assert!(error.to_string().contains("signal 9"), "{error}");
    bed.until_nothing_bears_the_mark().await;
}

#[tokio::test]
async fn cleanup_removes_what_was_spilled() {
    let bed = Bed::of(&LocalKind).await;
    let outcome = bed.bash("seq 100000").await.unwrap();
    assert_eq!(outcome.end, CommandEnd::Exited(0));
    let spill = outcome.stdout.spill_path.unwrap();
    assert!(fs::exists(&spill).unwrap());
    bed.sandbox.cleanup().await;
    assert!(!fs::exists(&spill).unwrap());
}
