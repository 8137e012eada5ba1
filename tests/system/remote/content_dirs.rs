//! Skills and artifacts that travel through the guest: the places are those that shared directories have, and so is what may
//! be done there.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use conjure_sandbox::{
    Boundary, CallOptions, Command, CommandEnd, ContentDir, ContentItem, ExecutionContext, Executor,
    HostAccess, Isolation, Limits, Sandbox, SandboxErrorKind, SharedDir, View,
};
use conjure_store::{FileMode, TreeOptions};

use crate::Remote;
use crate::support::{options, output_of, soon};

async fn sh(sandbox: &Sandbox, script: &str) -> String {
    output_of(&sandbox.run(Command::new(["sh", "-c", script]), options()).await.unwrap())
}

/// The layout of a sandbox.
const LOOK: &str = "whoami; pwd; echo ~ $USER $TMPDIR; ls -A /mnt/skills /mnt/skills/one /artifacts /output; \
    stat -c '%A %U %n' /workspace; stat -c '%A %n' /mnt/skills/one/SKILL.md /mnt/skills/one/run.sh; cat /proc/1/comm; \
    grep -E 'Cap|NoNewPrivs|Seccomp:' /proc/self/status; findmnt -no OPTIONS /mnt/skills | cut -d, -f1; \
    echo x 2>&1 > /mnt/skills/one/x; echo x 2>&1 > /artifacts/x; echo x 2>&1 > /etc/x; rm -f /mnt/skills/one/SKILL.md 2>&1; \
    chmod 777 /mnt/skills/one/SKILL.md 2>&1; touch /workspace/made && echo made";

#[tokio::test]
async fn the_layout_equals_that_of_shared_directories() {
    let Some(remote) = Remote::new() else { return };
    let skill = tempfile::tempdir().unwrap();
    fs::write(skill.path().join("SKILL.md"), "# One").unwrap();
    fs::write(skill.path().join("run.sh"), "#!/bin/sh\necho ran\n").unwrap();
    fs::set_permissions(skill.path().join("run.sh"), fs::Permissions::from_mode(0o700)).unwrap();
    let look = async |connector: &conjure_sandbox::Docker| {
        let workspace = remote.data.workspace().unwrap();
        let read_only = vec![SharedDir::new(skill.path(), "/mnt/skills/one")];
        let context = ExecutionContext { read_only, ..ExecutionContext::new(workspace.path()) };
        let sandbox = crate::container_fixture::open(connector, &context).await.unwrap();
        let output = sh(&sandbox, LOOK).await;
        assert_eq!(sh(&sandbox, "/mnt/skills/one/run.sh").await, "ran\n");
        let (layout, sharing) = (sandbox.layout().clone(), sandbox.host_access());
        let isolation = Isolation { identity: Boundary::Open, ..sandbox.isolation() };
        sandbox.cleanup().await;
        (output, layout, isolation, sharing)
    };
    let shared = conjure_sandbox::Docker::new(remote.containers.options(), crate::host())
        .with_data(remote.data.clone());
    let (shared_layout, remote_layout) = (look(&shared).await, look(&remote.docker()).await);
    assert_eq!((shared_layout.3, remote_layout.3), (HostAccess::Mounted, HostAccess::Copied));
    assert_eq!(shared_layout.0, remote_layout.0);
    assert_eq!((shared_layout.1, shared_layout.2), (remote_layout.1, remote_layout.2));
    let environment = remote.docker().check_environment().await.unwrap();
    assert_eq!(environment.host_access, HostAccess::Copied);
    remote.containers.until_nothing_is_left().await;
}

#[tokio::test]
async fn skills_and_artifacts_appear_while_commands_run() {
    let Some(remote) = Remote::new() else { return };
    let (sandbox, _workspace) = remote.sandbox().await;
    let store = remote.data.store();
    let waiting =
        "until [ -e /mnt/skills/late ]; do :; done; ls /mnt/skills/late; cat /mnt/skills/late/SKILL.md";
    let waiting = sandbox.run(Command::new(["sh", "-c", waiting]), options());
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir_all(dir.path().join("a/deep")).unwrap();
    fs::write(dir.path().join("SKILL.md"), "# Late\n").unwrap();
    fs::write(dir.path().join("a/deep/file"), "deep").unwrap();
    let tree = store.insert_tree(dir.path(), &TreeOptions::default()).unwrap();
    let providing = sandbox
        .install_content(ContentItem::tree(ContentDir::Skills, "late", store, tree.clone()), options());
    let (outcome, provided) = futures_util::future::join(waiting, providing).await;
    assert_eq!(provided.unwrap(), Path::new("/mnt/skills/late"));
    assert_eq!(output_of(&outcome.unwrap()), "SKILL.md\na\n# Late\n");
    let text = store.insert_bytes(b"1,2\n", FileMode::Plain).unwrap().digest;
    let file = |name: &str| ContentItem::file(ContentDir::Artifacts, name, store, text, FileMode::Plain);
    sandbox.install_content(file("sales.csv"), options()).await.unwrap();
    assert_eq!(sh(&sandbox, "cat /artifacts/sales.csv /mnt/skills/late/a/deep/file").await, "1,2\ndeep");
    let view = sandbox.view("/artifacts/sales.csv", None, 100, options()).await.unwrap();
    assert!(matches!(view, View::Text { text, .. } if text == "1,2\n"));
    // Existing content stays, and invalid requests are rejected, as with shared content directories.
    let second =
        sandbox.install_content(ContentItem::tree(ContentDir::Skills, "late", store, tree), options()).await;
    assert_eq!(second.unwrap(), Path::new("/mnt/skills/late"));
    let other = store.insert_bytes(b"3,4\n", FileMode::Plain).unwrap().digest;
    let other = ContentItem::file(ContentDir::Artifacts, "sales.csv", store, other, FileMode::Plain);
    assert_eq!(
        sandbox.install_content(other.clone(), options()).await.unwrap_err().kind(),
        SandboxErrorKind::Exists
    );
    for name in ["", "..", "a/b"] {
        let refused = sandbox.install_content(file(name), options()).await.unwrap_err();
        assert_eq!(refused.kind(), SandboxErrorKind::BadRequest, "{name}");
    }
    let unknown = ContentItem::file(
        ContentDir::Artifacts,
        "unknown",
        store,
        conjure_base::Digest::of_bytes(b"not there"),
        FileMode::Plain,
    );
    assert_eq!(
        sandbox.install_content(unknown, options()).await.unwrap_err().kind(),
        SandboxErrorKind::NotFound
    );
    let cancelled = options();
    cancelled.cancel.cancel();
    assert_eq!(
        sandbox.install_content(file("cancelled"), cancelled).await.unwrap_err().kind(),
        SandboxErrorKind::Cancelled
    );
    assert_eq!(
        sh(&sandbox, "ls /mnt/skills /artifacts").await,
        "/artifacts:\nsales.csv\n\n/mnt/skills:\nlate\n"
    );
    // Withdrawn while it is read, and given again.
    let reading = "exec 3< /artifacts/sales.csv; until [ ! -e /artifacts/sales.csv ] && [ ! -e /mnt/skills/late ]; do \
                   echo waits > /workspace/waits; done; cat <&3";
    let reading = sandbox.run(Command::new(["sh", "-c", reading]), options());
    let withdrawing = async {
        while sandbox.read("/workspace/waits", options()).await.is_err() {}
        for (shelf, name) in
            [(ContentDir::Artifacts, "sales.csv"), (ContentDir::Skills, "late"), (ContentDir::Skills, "none")]
        {
            sandbox.remove_content(shelf, name, options()).await.unwrap();
        }
    };
    let (read, ()) = futures_util::future::join(reading, withdrawing).await;
    assert_eq!(output_of(&read.unwrap()), "1,2\n");
    sandbox.install_content(other, options()).await.unwrap();
    assert_eq!(sh(&sandbox, "cat /artifacts/sales.csv; ls /mnt/skills").await, "3,4\n");
    sandbox.cleanup().await;
}

#[tokio::test]
async fn commands_cannot_write_installed_content() {
    let Some(remote) = Remote::new() else { return };
    let (sandbox, _workspace) = remote.sandbox().await;
    let store = remote.data.store();
    let text = store.insert_bytes(b"text", FileMode::Plain).unwrap().digest;
    sandbox
        .install_content(
            ContentItem::file(ContentDir::Artifacts, "file", store, text, FileMode::Plain),
            options(),
        )
        .await
        .unwrap();
    assert_eq!(sandbox.isolation().files, Boundary::Enforced);
    // The place beside the guest's program, where it writes itself.
    for place in
        ["/artifacts", "/mnt/skills", "/.conjure/shelves/artifacts", "/.conjure/shelves", "/.conjure"]
    {
        for change in [
            "echo x > new",
            "mkdir new",
            "ln -s /etc/passwd new",
            "mv file other",
            "rm -f file",
            "echo x >> file",
        ] {
            let script = format!("cd {place} && {{ {change}; }}");
            let outcome = sandbox.run(Command::new(["sh", "-c", &script]), options()).await.unwrap();
            let is_absent = change.contains("rm -f") && !place.ends_with("artifacts");
            assert!(outcome.end != CommandEnd::Exited(0) || is_absent, "{script}");
        }
        for path in [format!("{place}/new"), format!("{place}/file")] {
            let refused = sandbox.create_file(&path, b"x", options()).await.unwrap_err();
            assert_eq!(refused.kind(), SandboxErrorKind::PathNotAllowed, "{path}");
        }
    }
    assert_eq!(
        sh(&sandbox, "cat /artifacts/file; ls -A /artifacts /.conjure/shelves").await,
        "text/.conjure/shelves:\nartifacts\nskills\n\n/artifacts:\nfile\n"
    );
    sandbox.cleanup().await;
}

#[tokio::test]
async fn a_thousand_files_are_installed_within_the_space_limit() {
    let Some(remote) = Remote::new() else { return };
    let workspace = remote.data.workspace().unwrap();
    let limits = Limits::default().with_disk(24 << 20).unwrap();
    let context = ExecutionContext { limits, ..ExecutionContext::new(workspace.path()) };
    let sandbox = remote.open(&context).await.unwrap();
    let store = remote.data.store();
    let dir = tempfile::tempdir().unwrap();
    for number in 0..1000 {
        let within = dir.path().join(format!("{}", number % 10));
        fs::create_dir_all(&within).unwrap();
        fs::write(within.join(number.to_string()), format!("{number}\n").repeat(number)).unwrap();
    }
    let tree = store.insert_tree(dir.path(), &TreeOptions::default()).unwrap();
    let bytes = tree.bytes();
    sandbox
        .install_content(ContentItem::tree(ContentDir::Skills, "many", store, tree), options())
        .await
        .unwrap();
    let count = "cd /mnt/skills/many && find . -type f | wc -l && find . -type f -exec cat {} + | wc -c";
    assert_eq!(sh(&sandbox, count).await, format!("1000\n{bytes}\n"));
    let large = store.insert_bytes(&vec![7; 20 << 20], FileMode::Plain).unwrap().digest;
    let large = |name: &str| ContentItem::file(ContentDir::Artifacts, name, store, large, FileMode::Plain);
    let much = sandbox.install_content(large("large"), options()).await.unwrap_err();
    assert_eq!(much.kind(), SandboxErrorKind::NoSpace, "{much}");
    assert_eq!(sh(&sandbox, "ls /artifacts").await, "");
    let expired = CallOptions::until(soon(0));
    let small = store.insert_bytes(b"small", FileMode::Executable).unwrap().digest;
    let small = ContentItem::file(ContentDir::Artifacts, "small", store, small, FileMode::Executable);
    assert_eq!(
        sandbox.install_content(small.clone(), expired).await.unwrap_err().kind(),
        SandboxErrorKind::TimedOut
    );
    sandbox.install_content(small, options()).await.unwrap();
    // Removed content frees space.
    sandbox.install_content(large("a"), options()).await.unwrap_err();
    sandbox.remove_content(ContentDir::Skills, "many", options()).await.unwrap();
    sandbox.install_content(large("a"), options()).await.unwrap();
    sandbox.remove_content(ContentDir::Artifacts, "a", options()).await.unwrap();
    assert_eq!(sh(&sandbox, "stat -c %a /artifacts/small").await, "555\n");
    sandbox.cleanup().await;
}
