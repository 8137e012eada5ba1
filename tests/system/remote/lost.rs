//! Lost connections: every waiting call fails, and nothing is left.

use std::fs;

use conjure_sandbox::{
    Command, ContentDir, ContentItem, ExecutionContext, Executor, SandboxErrorKind, SharedDir,
};
use conjure_store::FileMode;
use futures_util::{StreamExt as _, future, stream};

use crate::Remote;
use crate::support::{bearing, options, until, until_no_process_runs};

#[tokio::test]
async fn a_lost_connection_loses_the_sandbox_and_leaves_nothing() {
    let Some(remote) = Remote::new() else { return };
    let (sandbox, workspace) = remote.sandbox().await;
    let mark = workspace.path().to_str().unwrap();
    let script = format!("(setsid bash -c 'exec -a {mark} sleep 1000' &) ; sleep 1000");
    let running = sandbox.run(Command::bash(&script), options());
    let cutting = async {
        let name = format!("{mark} 1000");
        until("its command runs", || bearing(mark).iter().any(|it| it.arguments.trim() == name)).await;
        remote.link.cut();
        // The guest ends with its stream, also when nobody can ask the engine for it.
        until("its commands are gone", || bearing(mark).is_empty()).await;
    };
    let (outcome, ()) = future::join(running, cutting).await;
    assert_eq!(outcome.unwrap_err().kind(), SandboxErrorKind::Lost);
    assert!(sandbox.failure().is_some_and(|failure| failure.is_retryable()));
    assert_eq!(sandbox.copy_out(options()).await.unwrap_err().kind(), SandboxErrorKind::Lost);
    // Leftovers are removed when the engine is reachable again.
    remote.link.reconnect();
    drop(sandbox);
    remote.containers.until_nothing_is_left().await;
}

#[tokio::test]
async fn a_connection_lost_in_a_transfer_is_reported() {
    let Some(remote) = Remote::new() else { return };
    let store = remote.data.store();
    let large = store.insert_bytes(&vec![7; 64 << 20], FileMode::Plain).unwrap().digest;
    for what in ["shelf", "workspace in", "workspace out"] {
        let (sandbox, workspace) = remote.sandbox().await;
        let content = || stream::iter((0..64).map(|_| Ok(vec![7; 1 << 20].into()))).boxed();
        if what == "workspace out" {
            sandbox.write("large", content(), options()).await.unwrap();
        }
        let calling = async {
            match what {
                "shelf" => {
                    let large =
                        ContentItem::file(ContentDir::Artifacts, "large", store, large, FileMode::Plain);
                    sandbox.install_content(large, options()).await.map(drop)
                }
                "workspace in" => sandbox.write("large", content(), options()).await.map(drop),
                _ => sandbox.copy_out(options()).await.map(drop),
            }
        };
        let mut calling = std::pin::pin!(calling);
        // It has begun, and is far from its end.
        for _ in 0..20 {
            let polled = future::poll_immediate(&mut calling).await;
            assert!(polled.is_none(), "{what} was faster than the cut: {polled:?}");
            tokio::task::yield_now().await;
        }
        remote.link.cut();
        assert_eq!(calling.await.unwrap_err().kind(), SandboxErrorKind::Lost, "{what}");
        assert_eq!(fs::read_dir(workspace.path()).unwrap().count(), 0, "{what}");
        remote.link.reconnect();
        sandbox.cleanup().await;
        remote.containers.until_nothing_is_left().await;
    }
}

#[tokio::test]
async fn a_sandbox_creation_dropped_at_any_await_leaves_nothing() {
    let Some(remote) = Remote::new() else { return };
    let workspace = remote.data.workspace().unwrap();
    let skill = tempfile::tempdir().unwrap();
    fs::write(skill.path().join("SKILL.md"), "# One").unwrap();
    let read_only = vec![SharedDir::new(skill.path(), "/mnt/skills/one")];
    let context = ExecutionContext { read_only, ..ExecutionContext::new(workspace.path()) };
    for steps in [1, 2, 3, 5, 8, 13, 21, 34] {
        let mut opening = std::pin::pin!(remote.open(&context));
        let mut polls = 0;
        // Dropped after this many times that something happened.
        let opened = future::poll_fn(|cx| {
            polls += 1;
            match opening.as_mut().poll(cx) {
                std::task::Poll::Ready(opened) => std::task::Poll::Ready(Some(opened)),
                std::task::Poll::Pending if polls >= steps => std::task::Poll::Ready(None),
                std::task::Poll::Pending => std::task::Poll::Pending,
            }
        });
        if let Some(opened) = opened.await {
            opened.unwrap().cleanup().await;
        }
    }
    until_no_process_runs().await;
    remote.containers.until_nothing_is_left().await;
}
