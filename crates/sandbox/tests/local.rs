//! `local`: what every kind of sandbox must show, and what is its own.

#[expect(dead_code, reason = "a part of it is used here")]
mod support;

use std::fs;

use conjure_sandbox::{
    ArtifactDir, Boundary, Command, CommandEnd, Connector, ContentDir, ContentItem, Executor, Isolation,
    Local, SandboxErrorKind, View,
};
use conjure_store::{FileMode, Store, Verify};
use futures_util::future;
use support::{Bed, Kind, guest_above, host, kill_nine, options, text};

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
        kill_nine(LocalKind.guest(bed.sleeper_pid(), std::process::id()));
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

#[tokio::test]
async fn artifacts_are_copies_beside_the_workspace_which_the_guest_does_not_write() {
    let bed = Bed::of(&LocalKind).await;
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path()).unwrap();
    let digest = store.insert_bytes(b"a,b\n", FileMode::Plain).unwrap().digest;
    let sales = ContentItem::file(ContentDir::Artifacts, "sales.csv", &store, digest, FileMode::Plain);
    assert_eq!(bed.sandbox.layout().artifacts, ArtifactDir::PerSandbox);
    let path = bed.sandbox.install_content(sales.clone(), options()).await.unwrap();
    assert_eq!(bed.sandbox.install_content(sales.clone(), options()).await.unwrap(), path);
    assert!(path.ends_with("artifacts/sales.csv") && !path.starts_with(bed.workspace.path()), "{path:?}");
    let shown = path.to_str().unwrap();
    assert_eq!(text(&bed.bash(&format!("cat {shown}")).await.unwrap()), "a,b\n");
    assert!(matches!(
        bed.sandbox.view(shown, None, 100, options()).await.unwrap(),
        View::Text { text, .. } if text == "a,b\n"
    ));
    let refused = bed.sandbox.create_file(shown, b"x", options()).await.unwrap_err();
    assert_eq!(refused.kind(), SandboxErrorKind::PathNotAllowed);
    // Commands are the host's user, and could: but not what others have.
    bed.bash(&format!("chmod 666 {shown}; echo changed > {shown}")).await.unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"changed\n");
    assert!(store.get(&digest, Verify::Yes).is_ok());
    bed.sandbox.remove_content(ContentDir::Artifacts, "sales.csv", options()).await.unwrap();
    assert!(!fs::exists(&path).unwrap());
    assert_eq!(bed.sandbox.install_content(sales, options()).await.unwrap(), path);
    assert_eq!(fs::read(&path).unwrap(), b"a,b\n");
    bed.sandbox.cleanup().await;
    assert!(!fs::exists(path.parent().unwrap()).unwrap());
}
