//! `local`: what every kind of sandbox must show, and what is its own.

#[expect(dead_code, reason = "only a part of the module is used here")]
mod support;

use std::fs;

use conjure_sandbox::{
    ArtifactDir, Boundary, Command, CommandEnd, Connector, ContentDir, ContentItem, Executor, Isolation,
    Local, SandboxErrorKind, View,
};
use conjure_store::{FileMode, Store, Verify};
use futures_util::future;
use support::{Fixture, Kind, guest_of_process, host, options, sigkill, text};

struct LocalKind;

impl Kind for LocalKind {
    fn connector(&self) -> Box<dyn Connector> {
        Box::new(Local::without_isolation(host()))
    }

    fn guest(&self, pid: i32, host: u32) -> i32 {
        guest_of_process(pid, host)
    }

    fn leftovers_of(&self, _: u32) -> Vec<String> {
        Vec::new()
    }
}

conformance! { every: LocalKind }
conformance! { shared: LocalKind }

#[tokio::test]
async fn a_local_sandbox_reports_no_isolation() {
    let fixture = Fixture::of(&LocalKind).await;
    assert_eq!(fixture.sandbox.isolation(), Isolation::NONE);
    assert_eq!(fixture.sandbox.isolation().network, Boundary::Open);
}

#[tokio::test]
async fn a_local_sandbox_uses_the_hosts_paths_and_path_variable() {
    let fixture = Fixture::of(&LocalKind).await;
    let workspace = fs::canonicalize(fixture.workspace.path()).unwrap();
    assert_eq!(fixture.sandbox.layout().workspace, workspace);
    let output = text(&fixture.bash("echo $PATH $TERM; pwd").await.unwrap());
    assert_eq!(output, format!("/usr/local/bin:/usr/bin:/bin dumb\n{}\n", workspace.display()));
}

#[tokio::test]
async fn a_lost_call_reports_how_its_guest_ended() {
    let fixture = Fixture::of(&LocalKind).await;
    let script = fixture.sleeper();
    let calling = fixture.sandbox.run(Command::bash(&script), options());
    let killing = async {
        fixture.until_sleeping(1).await;
        sigkill(LocalKind.guest(fixture.sleeper_pid(), std::process::id()));
    };
    let (outcome, ()) = future::join(calling, killing).await;
    let error = outcome.unwrap_err();
    assert_eq!(error.kind(), SandboxErrorKind::Lost);
    assert!(error.to_string().contains("signal 9"), "{error}");
    fixture.until_no_marked_process().await;
}

#[tokio::test]
async fn cleanup_removes_spilled_output() {
    let fixture = Fixture::of(&LocalKind).await;
    let outcome = fixture.bash("seq 100000").await.unwrap();
    assert_eq!(outcome.end, CommandEnd::Exited(0));
    let spill = outcome.stdout.spill_path.unwrap();
    assert!(fs::exists(&spill).unwrap());
    fixture.sandbox.cleanup().await;
    assert!(!fs::exists(&spill).unwrap());
}

#[tokio::test]
async fn artifacts_are_copies_that_the_guest_does_not_write() {
    let fixture = Fixture::of(&LocalKind).await;
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).unwrap();
    let digest = store.insert_bytes(b"a,b\n", FileMode::Plain).unwrap().digest;
    let sales = ContentItem::file(ContentDir::Artifacts, "sales.csv", &store, digest, FileMode::Plain);
    assert_eq!(fixture.sandbox.layout().artifacts, ArtifactDir::PerSandbox);
    let path = fixture.sandbox.install_content(sales.clone(), options()).await.unwrap();
    assert_eq!(fixture.sandbox.install_content(sales.clone(), options()).await.unwrap(), path);
    assert!(path.ends_with("artifacts/sales.csv") && !path.starts_with(fixture.workspace.path()), "{path:?}");
    let path_text = path.to_str().unwrap();
    assert_eq!(text(&fixture.bash(&format!("cat {path_text}")).await.unwrap()), "a,b\n");
    assert!(matches!(
        fixture.sandbox.view(path_text, None, 100, options()).await.unwrap(),
        View::Text { text, .. } if text == "a,b\n"
    ));
    let refused = fixture.sandbox.create_file(path_text, b"x", options()).await.unwrap_err();
    assert_eq!(refused.kind(), SandboxErrorKind::PathNotAllowed);
    // Commands are the host's user, and could: but not what others have.
    fixture.bash(&format!("chmod 666 {path_text}; echo changed > {path_text}")).await.unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"changed\n");
    assert!(store.get(&digest, Verify::Yes).is_ok());
    fixture.sandbox.remove_content(ContentDir::Artifacts, "sales.csv", options()).await.unwrap();
    assert!(!fs::exists(&path).unwrap());
    assert_eq!(fixture.sandbox.install_content(sales, options()).await.unwrap(), path);
    assert_eq!(fs::read(&path).unwrap(), b"a,b\n");
    fixture.sandbox.cleanup().await;
    assert!(!fs::exists(path.parent().unwrap()).unwrap());
}
