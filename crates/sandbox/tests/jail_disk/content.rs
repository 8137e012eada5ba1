//! What is given to a sandbox that runs.

use std::fs;
use std::sync::Arc;

use conjure_base::SystemClock;
use conjure_sandbox::{
    CallOptions, Command, CommandEnd, ContentDir, ContentItem, DataDir, ExecutionContext, Executor, Sandbox,
    SandboxErrorKind, SharedFolder, View,
};
use conjure_store::FileMode;
use futures_util::{FutureExt as _, future};

use crate::bed::{bed, bed_with, names, open};
use crate::support::{options, soon, text, until};

#[tokio::test]
async fn what_is_given_while_it_runs_is_there_for_reading_only() {
    let bed = bed().await;
    assert_eq!(
        bed.bash("ls -d /mnt/skills /artifacts; ls /mnt/skills /artifacts | wc -w").await.lines().last(),
        Some("2")
    );
    // A command that waits for what is not there yet.
    let wait = "until [ -e /mnt/skills/pdf ]; do sleep 0.01; done; find /mnt/skills/pdf -type f | sort";
    let waiting = bed.bash(wait);
    let skill = bed.tree("pdf", &[("SKILL.md", "# PDF"), ("scripts/run.sh", "echo ran"), ("a/b/c", "deep")]);
    let (seen, given) = future::join(waiting, bed.install_content(skill)).await;
    assert_eq!(given.unwrap(), "/mnt/skills/pdf");
    // Whole from the first moment.
    assert_eq!(
        seen,
        ["SKILL.md", "a/b/c", "scripts/run.sh"].map(|name| format!("/mnt/skills/pdf/{name}\n")).concat()
    );
    let artifact = bed.install_content(bed.file("sales.csv", b"a,b\n")).await.unwrap();
    assert_eq!(artifact, "/artifacts/sales.csv");
    assert_eq!(bed.bash("cat /artifacts/sales.csv; bash /mnt/skills/pdf/scripts/run.sh").await, "a,b\nran\n");
    let shown = bed.sandbox.view("/artifacts/sales.csv", None, 100, options()).await.unwrap();
    assert!(matches!(shown, View::Text { .. }));
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
        assert_ne!(bed.run(script).await.end, CommandEnd::Exited(0), "{script}");
    }
    for path in ["/artifacts/sales.csv", "/mnt/skills/pdf/SKILL.md", "/artifacts/new"] {
        let error = bed.sandbox.create_file(path, b"x", options()).await.unwrap_err();
        assert_eq!(error.kind(), SandboxErrorKind::PathNotAllowed, "{path}: {error}");
    }
    assert_eq!(bed.bash("cat /artifacts/* /mnt/skills/pdf/SKILL.md").await, "a,b\n# PDF");
}

#[tokio::test]
async fn what_cannot_be_given_says_why_and_is_not_there() {
    let bed = bed().await;
    let refused = async |item| bed.install_content(item).await.unwrap_err().kind();
    bed.install_content(bed.file("taken", b"first")).await.unwrap();
    assert_eq!(refused(bed.file("taken", b"second")).await, SandboxErrorKind::Exists);
    for name in ["", "..", "a/b", "nul\0", &"x".repeat(256)] {
        assert_eq!(refused(bed.file(name, b"x")).await, SandboxErrorKind::BadRequest, "{name}");
    }
    let lost = bed.tree("lost", &[("SKILL.md", "only here"), ("other", "stays")]);
    bed.data.store().remove(&conjure_base::Digest::of_bytes(b"only here")).unwrap();
    assert_eq!(refused(lost).await, SandboxErrorKind::NotFound);
    let cancelled = options();
    cancelled.cancel.cancel();
    let error = bed.sandbox.install_content(bed.file("unwanted", b"x"), cancelled).await.unwrap_err();
    assert_eq!(error.kind(), SandboxErrorKind::Cancelled);
    let late = CallOptions::until(soon(0));
    // It may have been faster.
    let late = bed.sandbox.install_content(bed.file("late", b"x"), late).await;
    assert!(late.is_ok() || late.is_err_and(|error| error.kind() == SandboxErrorKind::TimedOut));
    assert_eq!(bed.bash("cat /artifacts/taken; ls /mnt/skills").await, "first");
    assert_eq!(bed.bash("ls /artifacts | grep -v late").await, "taken\n");
    bed.sandbox.cleanup().await;
    assert_eq!(refused(bed.file("after", b"x")).await, SandboxErrorKind::Lost);
    let local = conjure_sandbox::Local::without_isolation([]);
    let context = ExecutionContext::new(bed.workspace.path());
    let local = Sandbox::open(&local, &context, Arc::new(SystemClock), soon(30)).await.unwrap();
    let skill = bed.tree("any", &[("SKILL.md", "# Any")]);
    let error = local.install_content(skill, options()).await.unwrap_err();
    assert_eq!(error.kind(), SandboxErrorKind::Unsupported);
    local.cleanup().await;
}

#[tokio::test]
async fn what_was_given_is_given_once_and_withdrawn_also_while_it_is_read() {
    let bed = bed().await;
    let (sales, skill) =
        (bed.file("sales.csv", b"a,b\n"), bed.tree("pdf", &[("SKILL.md", "# PDF"), ("a/b", "c")]));
    for _ in 0..2 {
        assert_eq!(bed.install_content(sales.clone()).await.unwrap(), "/artifacts/sales.csv");
        assert_eq!(bed.install_content(skill.clone()).await.unwrap(), "/mnt/skills/pdf");
    }
    let other = bed.file("sales.csv", b"other");
    assert_eq!(bed.install_content(other.clone()).await.unwrap_err().kind(), SandboxErrorKind::Exists);
    // A command has both open, and says so.
    let reading = bed.bash(
        "exec 3< /artifacts/sales.csv 4< /mnt/skills/pdf/a/b; touch /workspace/open; \
         until [ ! -e /artifacts/sales.csv ] && [ ! -e /mnt/skills/pdf ]; do sleep 0.01; done; cat <&3; cat <&4",
    );
    let withdrawing = async {
        until("it is open", || bed.workspace.path().join("open").exists()).await;
        for (shelf, name) in
            [(ContentDir::Artifacts, "sales.csv"), (ContentDir::Skills, "pdf"), (ContentDir::Skills, "none")]
        {
            bed.sandbox.remove_content(shelf, name, options()).await.unwrap();
            bed.sandbox.remove_content(shelf, name, options()).await.unwrap();
        }
    };
    let (read, ()) = future::join(reading, withdrawing).await;
    assert_eq!(read, "a,b\nc");
    assert_eq!(bed.bash("find /artifacts /mnt/skills -mindepth 1").await, "");
    // The name is free, and the store has what it had.
    assert_eq!(bed.install_content(other).await.unwrap(), "/artifacts/sales.csv");
    assert_eq!(bed.bash("cat /artifacts/sales.csv").await, "other");
    assert_eq!(bed.install_content(skill).await.unwrap(), "/mnt/skills/pdf");
    assert_eq!(bed.bash("cat /mnt/skills/pdf/a/b").await, "c");
    let cancelled = options();
    cancelled.cancel.cancel();
    let error = bed.sandbox.remove_content(ContentDir::Artifacts, "sales.csv", cancelled).await.unwrap_err();
    assert_eq!(error.kind(), SandboxErrorKind::Cancelled);
    assert_eq!(bed.bash("cat /artifacts/sales.csv").await, "other");
    let place = fs::read_dir(bed.data.sandboxes().path()).unwrap().next().unwrap().unwrap().path();
    assert!(!names(&place).iter().any(|name| name.starts_with("draft")), "{:?}", names(&place));
    bed.sandbox.cleanup().await;
    let error = bed.sandbox.remove_content(ContentDir::Artifacts, "sales.csv", options()).await.unwrap_err();
    assert_eq!(error.kind(), SandboxErrorKind::Lost);
}

/// Whatever breaks off in between, what is given or withdrawn next is so.
#[tokio::test]
async fn calls_that_are_dropped_leave_no_name_that_nobody_can_have() {
    let bed = bed().await;
    let (one, two) = (bed.file("name", b"one"), bed.file("name", b"two"));
    for round in 0..40 {
        let mut giving = bed.sandbox.install_content(one.clone(), options());
        let mut taking = bed.sandbox.remove_content(ContentDir::Artifacts, "name", options());
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
        bed.sandbox.remove_content(ContentDir::Artifacts, "name", options()).await.unwrap();
        assert_eq!(bed.bash("ls /artifacts").await, "", "round {round}");
        bed.sandbox.install_content(two.clone(), options()).await.unwrap();
        assert_eq!(bed.bash("cat /artifacts/name").await, "two", "round {round}");
        bed.sandbox.remove_content(ContentDir::Artifacts, "name", options()).await.unwrap();
    }
}

/// Dropped at any moment, it is there whole or not at all, and leaves nothing else.
#[tokio::test]
async fn a_call_that_is_dropped_leaves_nothing_half() {
    let bed = bed().await;
    let files: Vec<(String, String)> = (0..200).map(|n| (format!("d{n}/f"), n.to_string())).collect();
    let files: Vec<(&str, &str)> = files.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
    let skill = bed.tree("", &files);
    for round in 0..20 {
        let item = ContentItem { name: format!("s{round}"), ..skill.clone() };
        let mut providing = bed.sandbox.install_content(item, options());
        // Polled so often that it is begun, and dropped in the midst of it.
        for _ in 0..round {
            if (&mut providing).now_or_never().is_some() {
                break;
            }
            tokio::task::yield_now().await;
        }
    }
    let counts =
        bed.bash("for d in /mnt/skills/*; do [ -e \"$d\" ] && find $d -type f | wc -l; done; true").await;
    assert!(counts.lines().all(|count| count == "200"), "{counts}");
    // The drafts go with the threads that made them.
    let place = fs::read_dir(bed.data.sandboxes().path()).unwrap().next().unwrap().unwrap().path();
    until("the drafts are gone", || !names(&place).iter().any(|name| name.starts_with("draft"))).await;
    bed.sandbox.cleanup().await;
    assert_eq!(names(bed.data.sandboxes().path()), [""; 0]);
}

/// Shared skills are links into the store, or copies where it lies on another file system, as `/dev/shm` does.
#[tokio::test]
async fn skills_are_pinned_and_take_no_space_of_their_own() {
    let skill = tempfile::tempdir().unwrap();
    fs::write(skill.path().join("SKILL.md"), "# First").unwrap();
    let shared = SharedFolder::new(skill.path(), "/mnt/skills/one");
    let first = bed_with(|context| context.read_only.push(shared.clone())).await;
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
    // What is collected stays with who has it, and is inserted again for who wants it.
    let all = conjure_base::Timestamp::from_millis(u64::MAX);
    assert_eq!(first.data.collect(|_| false, all).unwrap().removed, 2);
    assert_eq!(first.bash("cat /mnt/skills/one/SKILL.md").await, "# First");
    let third = open(&first.data, &context).await.unwrap();
    assert_eq!(text(&third.run(cat, options()).await.unwrap()), "# Second");

    let Ok(elsewhere) = tempfile::tempdir_in("/dev/shm") else {
        test_support::not_applicable("there is no `/dev/shm` for a store on another file system");
        return;
    };
    let store = conjure_store::Store::open(&elsewhere.path().join("store")).unwrap();
    let digest = store.insert_bytes(b"far", FileMode::Executable).unwrap().digest;
    let far = ContentItem::file(ContentDir::Artifacts, "far", &store, digest, FileMode::Executable);
    first.install_content(far).await.unwrap();
    assert_eq!(first.bash("stat -c '%h %a' /artifacts/far; cat /artifacts/far").await, "1 555\nfar");
}

/// A project with skills of its own, in which somebody works.
#[tokio::test]
async fn a_workspace_may_contain_its_skills() {
    let project = tempfile::tempdir().unwrap();
    let skill = project.path().join(".agents/skills/pdf");
    fs::create_dir_all(&skill).unwrap();
    fs::write(skill.join("SKILL.md"), "# PDF").unwrap();
    let folder = tempfile::tempdir().unwrap();
    let data = DataDir::open(&folder.path().join("data")).unwrap();
    let context = ExecutionContext {
        read_only: vec![SharedFolder::new(&skill, "/mnt/skills/pdf")],
        ..ExecutionContext::new(project.path())
    };
    let sandbox = open(&data, &context).await.unwrap();
    let script = "echo changed > .agents/skills/pdf/SKILL.md; cat /mnt/skills/pdf/SKILL.md";
    let outcome = sandbox.run(Command::bash(script), options()).await.unwrap();
    assert_eq!(text(&outcome), "# PDF");
}

/// However old it is by the clock: the next sandbox of a session that goes on gets it from the store.
#[tokio::test]
async fn what_a_sandbox_has_is_not_collected_as_unused() {
    let bed = bed_with(|_| {}).await;
    let store = bed.data.store();
    let given = store.insert_bytes(b"given", FileMode::Plain).unwrap().digest;
    let unused = store.insert_bytes(b"unused", FileMode::Plain).unwrap().digest;
    bed.install_content(ContentItem::file(ContentDir::Artifacts, "given", store, given, FileMode::Plain))
        .await
        .unwrap();
    for digest in [given, unused] {
        let hex = digest.to_hex();
        let path = store.root().join("plain").join(&hex[..2]).join(&hex[2..]);
        let long_ago = fs::FileTimes::new().set_accessed(std::time::UNIX_EPOCH);
        fs::File::open(path).unwrap().set_times(long_ago).unwrap();
    }
    // As on another day.
    fs::remove_file(bed.data.path().join("last-gc")).unwrap();
    bed.data.sweep();
    let left = [given, unused].map(|digest| store.contains(&digest, FileMode::Plain).unwrap());
    assert_eq!(left, [true, false]);
    bed.sandbox.cleanup().await;
}
