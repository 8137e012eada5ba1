//! What is given to a sandbox that runs.

use std::fs;
use std::sync::Arc;

use conjure_base::SystemClock;
use conjure_sandbox::{
    CallOptions, Command, CommandEnd, ContentDir, ContentItem, DataDir, ExecutionContext, Executor, Sandbox,
    SandboxErrorKind, SharedDir, View,
};
use conjure_store::FileMode;
use futures_util::{FutureExt as _, future};

use crate::fixture::{fixture, fixture_with, names, open};
use crate::support::{options, soon, text, until};

#[tokio::test]
async fn content_installed_in_a_running_sandbox_is_read_only() {
    let fixture = fixture().await;
    assert_eq!(
        fixture.bash("ls -d /mnt/skills /artifacts; ls /mnt/skills /artifacts | wc -w").await.lines().last(),
        Some("2")
    );
    // A command that waits for what is not there yet.
    let wait = "until [ -e /mnt/skills/pdf ]; do sleep 0.01; done; find /mnt/skills/pdf -type f | sort";
    let waiting = fixture.bash(wait);
    let skill =
        fixture.tree("pdf", &[("SKILL.md", "# PDF"), ("scripts/run.sh", "echo ran"), ("a/b/c", "deep")]);
    let (seen, installed) = future::join(waiting, fixture.install_content(skill)).await;
    assert_eq!(installed.unwrap(), "/mnt/skills/pdf");
    // Whole from the first moment.
    assert_eq!(
        seen,
        ["SKILL.md", "a/b/c", "scripts/run.sh"].map(|name| format!("/mnt/skills/pdf/{name}\n")).concat()
    );
    let artifact = fixture.install_content(fixture.file("sales.csv", b"a,b\n")).await.unwrap();
    assert_eq!(artifact, "/artifacts/sales.csv");
    assert_eq!(
        fixture.bash("cat /artifacts/sales.csv; bash /mnt/skills/pdf/scripts/run.sh").await,
        "a,b\nran\n"
    );
    let view = fixture.sandbox.view("/artifacts/sales.csv", None, 100, options()).await.unwrap();
    assert!(matches!(view, View::Text { .. }));
    for script in [
        "echo x > /artifacts/sales.csv",
        "rm /artifacts/sales.csv",
        "chmod 777 /artifacts/sales.csv",
        "mv /artifacts/sales.csv /artifacts/other",
        "ln /artifacts/sales.csv /workspace/linked",
        "mkdir /mnt/skills/new",
        "touch /mnt/skills/pdf/SKILL.md",
        "rm -rf /mnt/skills/pdf",
        "exec 3<> /mnt/skills/pdf/SKILL.md",
        "mount -o remount,rw,bind /artifacts",
    ] {
        assert_ne!(fixture.run(script).await.end, CommandEnd::Exited(0), "{script}");
    }
    for path in ["/artifacts/sales.csv", "/mnt/skills/pdf/SKILL.md", "/artifacts/new"] {
        let error = fixture.sandbox.create_file(path, b"x", options()).await.unwrap_err();
        assert_eq!(error.kind(), SandboxErrorKind::PathNotAllowed, "{path}: {error}");
    }
    assert_eq!(fixture.bash("cat /artifacts/* /mnt/skills/pdf/SKILL.md").await, "a,b\n# PDF");
}

#[tokio::test]
async fn rejected_content_is_reported_and_absent() {
    let fixture = fixture().await;
    let refused = async |item| fixture.install_content(item).await.unwrap_err().kind();
    fixture.install_content(fixture.file("taken", b"first")).await.unwrap();
    assert_eq!(refused(fixture.file("taken", b"second")).await, SandboxErrorKind::Exists);
    for name in ["", "..", "a/b", "nul\0", &"x".repeat(256)] {
        assert_eq!(refused(fixture.file(name, b"x")).await, SandboxErrorKind::BadRequest, "{name}");
    }
    let lost = fixture.tree("lost", &[("SKILL.md", "only here"), ("other", "stays")]);
    fixture.data.store().remove(&conjure_base::Digest::of_bytes(b"only here")).unwrap();
    assert_eq!(refused(lost).await, SandboxErrorKind::NotFound);
    let cancelled = options();
    cancelled.cancel.cancel();
    let error = fixture.sandbox.install_content(fixture.file("unwanted", b"x"), cancelled).await.unwrap_err();
    assert_eq!(error.kind(), SandboxErrorKind::Cancelled);
    let expired = CallOptions::until(soon(0));
    // It may have been faster.
    let expired = fixture.sandbox.install_content(fixture.file("late", b"x"), expired).await;
    assert!(expired.is_ok() || expired.is_err_and(|error| error.kind() == SandboxErrorKind::TimedOut));
    assert_eq!(fixture.bash("cat /artifacts/taken; ls /mnt/skills").await, "first");
    assert_eq!(fixture.bash("ls /artifacts | grep -v late").await, "taken\n");
    fixture.sandbox.cleanup().await;
    assert_eq!(refused(fixture.file("after", b"x")).await, SandboxErrorKind::Lost);
    let local = conjure_sandbox::Local::without_isolation([]);
    let context = ExecutionContext::new(fixture.workspace.path());
    let local = Sandbox::open(&local, &context, Arc::new(SystemClock), soon(30)).await.unwrap();
    let skill = fixture.tree("any", &[("SKILL.md", "# Any")]);
    let error = local.install_content(skill, options()).await.unwrap_err();
    assert_eq!(error.kind(), SandboxErrorKind::Unsupported);
    local.cleanup().await;
}

#[tokio::test]
async fn content_is_installed_once_and_removed_even_while_it_is_read() {
    let fixture = fixture().await;
    let (sales, skill) =
        (fixture.file("sales.csv", b"a,b\n"), fixture.tree("pdf", &[("SKILL.md", "# PDF"), ("a/b", "c")]));
    for _ in 0..2 {
        assert_eq!(fixture.install_content(sales.clone()).await.unwrap(), "/artifacts/sales.csv");
        assert_eq!(fixture.install_content(skill.clone()).await.unwrap(), "/mnt/skills/pdf");
    }
    let other = fixture.file("sales.csv", b"other");
    assert_eq!(fixture.install_content(other.clone()).await.unwrap_err().kind(), SandboxErrorKind::Exists);
    // A command has both files open, and reports that.
    let reading = fixture.bash(
        "exec 3< /artifacts/sales.csv 4< /mnt/skills/pdf/a/b; touch /workspace/open; \
         until [ ! -e /artifacts/sales.csv ] && [ ! -e /mnt/skills/pdf ]; do sleep 0.01; done; cat <&3; cat <&4",
    );
    let withdrawing = async {
        until("it is open", || fixture.workspace.path().join("open").exists()).await;
        for (dir, name) in
            [(ContentDir::Artifacts, "sales.csv"), (ContentDir::Skills, "pdf"), (ContentDir::Skills, "none")]
        {
            fixture.sandbox.remove_content(dir, name, options()).await.unwrap();
            fixture.sandbox.remove_content(dir, name, options()).await.unwrap();
        }
    };
    let (read, ()) = future::join(reading, withdrawing).await;
    assert_eq!(read, "a,b\nc");
    assert_eq!(fixture.bash("find /artifacts /mnt/skills -mindepth 1").await, "");
    // The name is free, and the store has what it had.
    assert_eq!(fixture.install_content(other).await.unwrap(), "/artifacts/sales.csv");
    assert_eq!(fixture.bash("cat /artifacts/sales.csv").await, "other");
    assert_eq!(fixture.install_content(skill).await.unwrap(), "/mnt/skills/pdf");
    assert_eq!(fixture.bash("cat /mnt/skills/pdf/a/b").await, "c");
    let cancelled = options();
    cancelled.cancel.cancel();
    let error =
        fixture.sandbox.remove_content(ContentDir::Artifacts, "sales.csv", cancelled).await.unwrap_err();
    assert_eq!(error.kind(), SandboxErrorKind::Cancelled);
    assert_eq!(fixture.bash("cat /artifacts/sales.csv").await, "other");
    let path = fs::read_dir(fixture.data.sandboxes().path()).unwrap().next().unwrap().unwrap().path();
    assert!(!names(&path).iter().any(|name| name.starts_with("draft")), "{:?}", names(&path));
    fixture.sandbox.cleanup().await;
    let error =
        fixture.sandbox.remove_content(ContentDir::Artifacts, "sales.csv", options()).await.unwrap_err();
    assert_eq!(error.kind(), SandboxErrorKind::Lost);
}

/// Whatever breaks off in between, what is given or withdrawn next is so.
#[tokio::test]
async fn dropped_calls_leave_no_occupied_names() {
    let fixture = fixture().await;
    let (one, two) = (fixture.file("name", b"one"), fixture.file("name", b"two"));
    for round in 0..40 {
        let mut giving = fixture.sandbox.install_content(one.clone(), options());
        let mut taking = fixture.sandbox.remove_content(ContentDir::Artifacts, "name", options());
        for _ in 0..round {
            if (&mut giving).now_or_never().is_some() {
                break;
            }
            tokio::task::yield_now().await;
        }
        drop(giving);
        for _ in 0..round {
            if (&mut taking).now_or_never().is_some() {
                break;
            }
            tokio::task::yield_now().await;
        }
        drop(taking);
        fixture.sandbox.remove_content(ContentDir::Artifacts, "name", options()).await.unwrap();
        assert_eq!(fixture.bash("ls /artifacts").await, "", "round {round}");
        fixture.sandbox.install_content(two.clone(), options()).await.unwrap();
        assert_eq!(fixture.bash("cat /artifacts/name").await, "two", "round {round}");
        fixture.sandbox.remove_content(ContentDir::Artifacts, "name", options()).await.unwrap();
    }
}

/// Dropped at any moment, it is there whole or not at all, and leaves nothing else.
#[tokio::test]
async fn a_dropped_call_leaves_no_partial_content() {
    let fixture = fixture().await;
    let files: Vec<(String, String)> = (0..200).map(|n| (format!("d{n}/f"), n.to_string())).collect();
    let files: Vec<(&str, &str)> = files.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
    let skill = fixture.tree("", &files);
    for round in 0..20 {
        let item = ContentItem { name: format!("s{round}"), ..skill.clone() };
        let mut providing = fixture.sandbox.install_content(item, options());
        // Polled so often that it is begun, and dropped in the middle of it.
        for _ in 0..round {
            if (&mut providing).now_or_never().is_some() {
                break;
            }
            tokio::task::yield_now().await;
        }
    }
    let counts =
        fixture.bash("for d in /mnt/skills/*; do [ -e \"$d\" ] && find $d -type f | wc -l; done; true").await;
    assert!(counts.lines().all(|count| count == "200"), "{counts}");
    // The drafts go with the threads that made them.
    let dir = fs::read_dir(fixture.data.sandboxes().path()).unwrap().next().unwrap().unwrap().path();
    until("the drafts are gone", || !names(&dir).iter().any(|name| name.starts_with("draft"))).await;
    fixture.sandbox.cleanup().await;
    assert_eq!(names(fixture.data.sandboxes().path()), [""; 0]);
}

/// Shared skills are links into the store, or copies where it lies on another file system, as `/dev/shm` does.
#[tokio::test]
async fn skills_are_pinned_and_use_no_extra_space() {
    let skill = tempfile::tempdir().unwrap();
    fs::write(skill.path().join("SKILL.md"), "# First").unwrap();
    let shared = SharedDir::new(skill.path(), "/mnt/skills/one");
    let first = fixture_with(|context| context.read_only.push(shared.clone())).await;
    fs::write(skill.path().join("SKILL.md"), "# Second").unwrap();
    let context =
        ExecutionContext { read_only: vec![shared.clone()], ..ExecutionContext::new(first.workspace.path()) };
    let second = open(&first.data, &context).await.unwrap();
    let cat = Command::new(["cat", "/mnt/skills/one/SKILL.md"]);
    assert_eq!(first.bash("cat /mnt/skills/one/SKILL.md").await, "# First");
    assert_eq!(text(&second.run(cat.clone(), options()).await.unwrap()), "# Second");
    let links = "stat -c %h /mnt/skills/one/SKILL.md";
    assert_eq!(first.bash(links).await, "2\n");
    let inside = first.sandbox.layout().sandbox_path(&skill.path().join("SKILL.md"));
    assert_eq!(inside, Some("/mnt/skills/one/SKILL.md".into()));
    // Collected content stays in the sandbox that has it, and is inserted again on request.
    let all = conjure_base::Timestamp::from_millis(u64::MAX);
    assert_eq!(first.data.collect(|_| false, all).unwrap().removed, 2);
    assert_eq!(first.bash("cat /mnt/skills/one/SKILL.md").await, "# First");
    let third = open(&first.data, &context).await.unwrap();
    assert_eq!(text(&third.run(cat, options()).await.unwrap()), "# Second");

    let Ok(other_dir) = tempfile::tempdir_in("/dev/shm") else {
        test_support::not_applicable("there is no `/dev/shm` for a store on another file system");
        return;
    };
    let store = conjure_store::Store::open(&other_dir.path().join("store")).unwrap();
    let digest = store.insert_bytes(b"far", FileMode::Executable).unwrap().digest;
    let far = ContentItem::file(ContentDir::Artifacts, "far", &store, digest, FileMode::Executable);
    first.install_content(far).await.unwrap();
    assert_eq!(first.bash("stat -c '%h %a' /artifacts/far; cat /artifacts/far").await, "1 555\nfar");
}

/// A user's project that contains skills.
#[tokio::test]
async fn a_workspace_may_contain_its_skills() {
    let project = tempfile::tempdir().unwrap();
    let skill = project.path().join(".agents/skills/pdf");
    fs::create_dir_all(&skill).unwrap();
    fs::write(skill.join("SKILL.md"), "# PDF").unwrap();
    let directory = tempfile::tempdir().unwrap();
    let data = DataDir::open(&directory.path().join("data")).unwrap();
    let context = ExecutionContext {
        read_only: vec![SharedDir::new(&skill, "/mnt/skills/pdf")],
        ..ExecutionContext::new(project.path())
    };
    let sandbox = open(&data, &context).await.unwrap();
    let script = "echo changed > .agents/skills/pdf/SKILL.md; cat /mnt/skills/pdf/SKILL.md";
    let outcome = sandbox.run(Command::bash(script), options()).await.unwrap();
    assert_eq!(text(&outcome), "# PDF");
}

/// However old it is by the clock: the next sandbox of a session that continues gets it from the store.
#[tokio::test]
async fn content_of_a_sandbox_is_not_garbage_collected() {
    let fixture = fixture_with(|_| {}).await;
    let store = fixture.data.store();
    let installed_digest = store.insert_bytes(b"given", FileMode::Plain).unwrap().digest;
    let unused = store.insert_bytes(b"unused", FileMode::Plain).unwrap().digest;
    fixture
        .install_content(ContentItem::file(
            ContentDir::Artifacts,
            "given",
            store,
            installed_digest,
            FileMode::Plain,
        ))
        .await
        .unwrap();
    for digest in [installed_digest, unused] {
        let hex = digest.to_hex();
        let path = store.root().join("plain").join(&hex[..2]).join(&hex[2..]);
        let long_ago = fs::FileTimes::new().set_accessed(std::time::UNIX_EPOCH);
        fs::File::open(path).unwrap().set_times(long_ago).unwrap();
    }
    // As on another day.
    fs::remove_file(fixture.data.path().join("last-gc")).unwrap();
    fixture.data.sweep();
    let remaining =
        [installed_digest, unused].map(|digest| store.contains(&digest, FileMode::Plain).unwrap());
    assert_eq!(remaining, [true, false]);
    fixture.sandbox.cleanup().await;
}
