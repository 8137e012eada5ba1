//! What a jail has on the disk: what it is given while it runs, its quota, its folders, a full disk, a host that is killed.
//!
//! A test process that is root runs all of this a second time, as a user that owns nothing.

#![expect(clippy::unwrap_used, clippy::panic, reason = "tests fail by panic")]

#[expect(dead_code, reason = "a part of it is used here")]
mod support;

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::Arc;

use conjure_base::SystemClock;
use conjure_sandbox::{
    CallOptions, Command, CommandEnd, Connector as _, DataFolder, ExecutionContext, Executor, Jail, Limits,
    Provision, QuotaExcess, Sandbox, SandboxError, SandboxErrorKind, SharedFolder, Shelf, View,
};
use conjure_store::{TreeOptions, Variant};
use futures_util::{FutureExt as _, future};
use support::{again, bearing, host, options, soon, text, told, until};
use tempfile::TempDir;

const MIB: u64 = 1 << 20;

/// A data folder, a workspace in it, and a sandbox over both.
struct Bed {
    // The first that goes.
    sandbox: Sandbox,
    workspace: conjure_sandbox::PrivateWorkspace,
    data: DataFolder,
    _folder: TempDir,
}

async fn bed() -> Bed {
    bed_with(|_| {}).await
}

async fn bed_with(change: impl FnOnce(&mut ExecutionContext)) -> Bed {
    let folder = tempfile::tempdir().unwrap();
    let data = DataFolder::open(&folder.path().join("data")).unwrap();
    let workspace = data.workspace().unwrap();
    let mut context = ExecutionContext::new(workspace.path());
    change(&mut context);
    let sandbox = open(&data, &context).await.unwrap();
    Bed { sandbox, workspace, data, _folder: folder }
}

fn jail(data: &DataFolder) -> Jail {
    Jail::new(host()).with_data(data.clone())
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

async fn open(data: &DataFolder, context: &ExecutionContext) -> Result<Sandbox, SandboxError> {
    Sandbox::open(&jail(data), context, Arc::new(SystemClock), soon(30)).await
}

impl Bed {
    async fn run(&self, script: &str) -> conjure_sandbox::CommandOutcome {
        self.sandbox.run(Command::bash(script), options()).await.unwrap()
    }

    /// What a script writes; it must end well.
    #[track_caller]
    fn bash(&self, script: &str) -> impl Future<Output = String> {
        let place = std::panic::Location::caller();
        async move {
            let outcome = self.run(script).await;
            let said = text(&outcome);
            assert_eq!(outcome.end, CommandEnd::Exited(0), "{place}: {said}");
            said
        }
    }

    fn tree(&self, name: &str, files: &[(&str, &str)]) -> Provision {
        let source = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = source.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let store = self.data.store();
        let tree = store.insert_tree(source.path(), &TreeOptions::default()).unwrap();
        Provision::tree(Shelf::Skills, name, store, tree)
    }

    fn file(&self, name: &str, content: &[u8]) -> Provision {
        let store = self.data.store();
        let digest = store.insert_bytes(content, Variant::Plain).unwrap().digest;
        Provision::file(Shelf::Artifacts, name, store, digest, Variant::Plain)
    }

    async fn provide(&self, provision: Provision) -> Result<String, SandboxError> {
        let path = self.sandbox.provide(provision, options()).await?;
        Ok(path.to_str().unwrap().to_owned())
    }
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

// ---------------------------------------------------------------------------------------------------------------
// What is given to a sandbox that runs.

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
    let (seen, given) = future::join(waiting, bed.provide(skill)).await;
    assert_eq!(given.unwrap(), "/mnt/skills/pdf");
    // Whole from the first moment.
    assert_eq!(
        seen,
        ["SKILL.md", "a/b/c", "scripts/run.sh"].map(|name| format!("/mnt/skills/pdf/{name}\n")).concat()
    );
    let artifact = bed.provide(bed.file("sales.csv", b"a,b\n")).await.unwrap();
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
    let refused = async |provision| bed.provide(provision).await.unwrap_err().kind();
    bed.provide(bed.file("taken", b"first")).await.unwrap();
    assert_eq!(refused(bed.file("taken", b"second")).await, SandboxErrorKind::Exists);
    for name in ["", "..", "a/b", "nul\0", &"x".repeat(256)] {
        assert_eq!(refused(bed.file(name, b"x")).await, SandboxErrorKind::BadRequest, "{name}");
    }
    let lost = bed.tree("lost", &[("SKILL.md", "only here"), ("other", "stays")]);
    bed.data.store().remove(&conjure_base::Digest::of(b"only here")).unwrap();
    assert_eq!(refused(lost).await, SandboxErrorKind::NotFound);
    let cancelled = options();
    cancelled.cancel.cancel();
    let error = bed.sandbox.provide(bed.file("unwanted", b"x"), cancelled).await.unwrap_err();
    assert_eq!(error.kind(), SandboxErrorKind::Cancelled);
    let late = CallOptions::until(soon(0));
    // It may have been faster.
    let late = bed.sandbox.provide(bed.file("late", b"x"), late).await;
    assert!(late.is_ok() || late.is_err_and(|error| error.kind() == SandboxErrorKind::TimedOut));
    assert_eq!(bed.bash("cat /artifacts/taken; ls /mnt/skills").await, "first");
    assert_eq!(bed.bash("ls /artifacts | grep -v late").await, "taken\n");
    bed.sandbox.cleanup().await;
    assert_eq!(refused(bed.file("after", b"x")).await, SandboxErrorKind::Lost);
    let local = conjure_sandbox::Local::without_isolation([]);
    let context = ExecutionContext::new(bed.workspace.path());
    let local = Sandbox::open(&local, &context, Arc::new(SystemClock), soon(30)).await.unwrap();
    let error = local.provide(bed.file("any", b"x"), options()).await.unwrap_err();
    assert_eq!(error.kind(), SandboxErrorKind::Unsupported);
}

/// Dropped at any moment, it is there whole or not at all, and leaves nothing else.
#[tokio::test]
async fn a_call_that_is_dropped_leaves_nothing_half() {
    let bed = bed().await;
    let files: Vec<(String, String)> = (0..200).map(|n| (format!("d{n}/f"), n.to_string())).collect();
    let files: Vec<(&str, &str)> = files.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
    let skill = bed.tree("", &files);
    for round in 0..20 {
        let provision = Provision { name: format!("s{round}"), ..skill.clone() };
        let mut providing = bed.sandbox.provide(provision, options());
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
        eprintln!("SKIPPED: there is no `/dev/shm` for a store on another file system");
        return;
    };
    let store = conjure_store::Store::open(&elsewhere.path().join("store")).unwrap();
    let digest = store.insert_bytes(b"far", Variant::Executable).unwrap().digest;
    let far = Provision::file(Shelf::Artifacts, "far", &store, digest, Variant::Executable);
    first.provide(far).await.unwrap();
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
    let data = DataFolder::open(&folder.path().join("data")).unwrap();
    let context = ExecutionContext {
        read_only: vec![SharedFolder::new(&skill, "/mnt/skills/pdf")],
        ..ExecutionContext::new(project.path())
    };
    let sandbox = open(&data, &context).await.unwrap();
    let script = "echo changed > .agents/skills/pdf/SKILL.md; cat /mnt/skills/pdf/SKILL.md";
    let outcome = sandbox.run(Command::bash(script), options()).await.unwrap();
    assert_eq!(text(&outcome), "# PDF");
}

// ---------------------------------------------------------------------------------------------------------------
// The quota.

fn small(context: &mut ExecutionContext) {
    context.limits = Limits::default().with_disk(8 * MIB).unwrap().with_inodes(200).unwrap();
}

#[track_caller]
fn excess(outcome: &conjure_sandbox::CommandOutcome) -> QuotaExcess {
    match outcome.end {
        CommandEnd::QuotaExceeded(excess) => excess,
        end => panic!("it ended otherwise: {end:?}: {}", text(outcome)),
    }
}

/// Removes what is in the way, and waits until programs may write again.
async fn recover(bed: &Bed, script: &str) {
    bed.bash(script).await;
    for _ in 0..10_000 {
        if bed.run("trap '' XFSZ; echo x > probe && rm probe").await.end == CommandEnd::Exited(0) {
            return;
        }
    }
    panic!("nothing can be written though there is room");
}

#[tokio::test]
async fn who_takes_more_bytes_than_allowed_is_ended_told_so_and_may_recover() {
    let bed = bed_with(small).await;
    // No file may be as large as that by itself.
    let outcome = bed.run("echo begun; for ((i = 0; ; i++)); do head -c 1M /dev/zero > big$i; done").await;
    let excess = excess(&outcome);
    assert_eq!(excess.allowed.bytes, 8 * MIB);
    assert!(excess.used.bytes > 8 * MIB);
    assert_eq!(text(&outcome), "begun\n");
    let error = bed.sandbox.create_file("more", b"x", options()).await.unwrap_err();
    assert_eq!(error.kind(), SandboxErrorKind::NoSpace, "{error}");
    recover(&bed, "rm big*").await;
    assert_eq!(bed.bash("head -c 1000000 /dev/zero > fits && stat -c %s fits").await, "1000000\n");
    bed.sandbox.create_file("more", b"x", options()).await.unwrap();
}

#[tokio::test]
async fn who_makes_more_files_than_allowed_is_ended_told_so_and_may_recover() {
    let bed = bed_with(small).await;
    let outcome = bed.run("for ((i = 0; ; i++)); do mkdir -p d$i/e; done").await;
    let excess = excess(&outcome);
    assert_eq!(excess.allowed.inodes, 200);
    assert!(excess.used.inodes > 200);
    recover(&bed, "rm -r d*").await;
    assert_eq!(bed.bash("mkdir -p a/b/c && ls").await, "a\n");
}

/// In a folder of the user's own, what is there already is not the sandbox's.
#[tokio::test]
async fn in_a_folder_of_the_user_s_own_what_is_added_counts() {
    let own = tempfile::tempdir().unwrap();
    fs::write(own.path().join("large"), vec![b'x'; 10 << 20]).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let data = DataFolder::open(&folder.path().join("data")).unwrap();
    let mut context = ExecutionContext::new(own.path());
    small(&mut context);
    let sandbox = open(&data, &context).await.unwrap();
    sandbox.create_file("by-the-guest", b"x", options()).await.unwrap();
    let run = async |script| sandbox.run(Command::bash(script), options()).await.unwrap();
    assert_eq!(text(&run("head -c 4000000 /dev/zero > some && echo written").await), "written\n");
    let outcome = run("for ((i = 0; ; i++)); do head -c 1M /dev/zero > big$i; done").await;
    assert!(excess(&outcome).allowed.bytes > 18 * MIB, "{outcome:?}");
}

// ---------------------------------------------------------------------------------------------------------------
// Folders.

/// S8.
#[tokio::test]
async fn what_commands_leave_is_the_host_s_to_read_and_goes_whatever_it_is() {
    let bed = bed().await;
    let outside = tempfile::tempdir().unwrap();
    fs::write(outside.path().join("file"), "stays").unwrap();
    // A folder deeper than any path can tell, folders without permissions, links to elsewhere, odd names.
    let script = format!(
        "umask 077; mkdir -p a/b; echo deep > a/b/c; ln -s {0} a/out; ln -s {0}/file a/b/out; ln -s / root; \
         mkfifo pipe; mkdir $'new\\nline' ./-rf ' '; \
         perl -e 'for (1..3000) {{ mkdir \"d\"; chdir \"d\" or die }} open my $f, \">\", \"z\" or die'; \
         chmod 000 a/b/c a/b a d; chmod 000 .",
        outside.path().display()
    );
    bed.bash(&script).await;
    bed.sandbox.cleanup().await;
    let path = bed.workspace.path().to_owned();
    assert_eq!(fs::metadata(&path).unwrap().uid(), rustix::process::geteuid().as_raw());
    for name in ["", "a", "a/b", "a/b/c"] {
        let mode = if name == "a/b/c" { 0o600 } else { 0o700 };
        fs::set_permissions(path.join(name), fs::Permissions::from_mode(mode)).unwrap();
    }
    assert_eq!(fs::read_to_string(path.join("a/b/c")).unwrap(), "deep\n");
    for name in ["a/b/c", "a/b", "a"] {
        fs::set_permissions(path.join(name), fs::Permissions::from_mode(0o000)).unwrap();
    }
    let Bed { sandbox, workspace, data, _folder } = bed;
    drop((sandbox, workspace));
    assert_eq!(names(&data.path().join("workspaces")), [""; 0]);
    assert_eq!(names(outside.path()), ["file"]);
    assert_eq!(fs::read(outside.path().join("file")).unwrap(), b"stays");
}

#[tokio::test]
async fn two_at_once_see_nothing_of_each_other() {
    let (one, other) = future::join(bed(), bed()).await;
    for (bed, name) in [(&one, "one"), (&other, "other")] {
        bed.provide(bed.file(name, name.as_bytes())).await.unwrap();
        bed.provide(bed.tree(name, &[("SKILL.md", name)])).await.unwrap();
        bed.run(&format!("echo {name} > {name}; echo {name} > /tmp/{name}; seq 100000")).await;
    }
    // Two of one tenant, too.
    let workspace = one.data.workspace().unwrap();
    let third = open(&one.data, &ExecutionContext::new(workspace.path())).await.unwrap();
    let look =
        "ls /artifacts /mnt/skills /workspace /tmp | grep -v : | sort -u | tr -d '\\n'; ls /output | wc -l";
    assert_eq!(one.bash(look).await, "one1\n");
    assert_eq!(other.bash(look).await, "other1\n");
    assert_eq!(text(&third.run(Command::bash(look), options()).await.unwrap()), "0\n");
    let reach = format!("ls {} {}", other.data.path().display(), other.workspace.path().display());
    assert_ne!(one.run(&reach).await.end, CommandEnd::Exited(0));
}

// ---------------------------------------------------------------------------------------------------------------
// Bad days. Each runs this program again: as the host that is killed, or where it may mount.

/// Ends the child when the test fails in between.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The part: a host with a sandbox in which something runs, which tells of it and lives until it is killed.
#[tokio::test]
async fn part_a_host_that_is_killed() {
    let Some(path) = told() else { return };
    let data = DataFolder::open(Path::new(&path)).unwrap();
    let workspace = data.workspace().unwrap();
    let kept = data.workspace().unwrap();
    fs::write(kept.path().join("file"), "kept").unwrap();
    kept.keep().unwrap();
    let sandbox = open(&data, &ExecutionContext::new(workspace.path())).await.unwrap();
    let bed = Bed { sandbox, workspace, data, _folder: tempfile::tempdir().unwrap() };
    bed.provide(bed.tree("skill", &[("SKILL.md", "# Hello")])).await.unwrap();
    bed.run("mkdir -m 000 closed; seq 100000").await;
    let mark = format!("{path}-sleeper");
    let sleeper = format!("exec -a {mark} sleep 1000");
    let sleeping = bed.run(&sleeper).map(drop);
    let telling = async {
        until("it runs", || !bearing(&mark).is_empty()).await;
        println!("\nREADY");
    };
    future::join(sleeping, telling).await;
}

/// S3: nothing runs on, and what is on the disk goes when the folder is opened again.
#[tokio::test]
async fn what_a_killed_host_leaves_is_swept() {
    if told().is_some() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("data");
    let mut host = again(&[], "part_a_host_that_is_killed", path.to_str().unwrap())
        // What it has in the temporary folder, its death must not leave there.
        .env("TMPDIR", folder.path())
        .stdout(Stdio::piped())
        .spawn()
        .map(Killed)
        .unwrap();
    let said = BufReader::new(host.0.stdout.take().unwrap());
    assert!(said.lines().any(|line| line.unwrap() == "READY"), "the host did not come so far");
    let sandboxes = path.join("sandboxes");
    assert_eq!(names(&sandboxes).len(), 1);
    assert_eq!(names(&path.join("workspaces")).len(), 2);
    // While it lives, nobody takes anything from it.
    drop(DataFolder::open(&path).unwrap());
    assert_eq!(names(&sandboxes).len(), 1);
    drop(host);
    until("nothing of it runs", || bearing(path.to_str().unwrap()).is_empty()).await;
    let data = DataFolder::open(&path).unwrap();
    assert_eq!(names(&sandboxes), [""; 0]);
    let left = names(&path.join("workspaces"));
    assert_eq!(left.len(), 1, "{left:?}");
    assert_eq!(fs::read(path.join("workspaces").join(&left[0]).join("workspace/file")).unwrap(), b"kept");
    let workspace = data.workspace().unwrap();
    assert!(open(&data, &ExecutionContext::new(workspace.path())).await.is_ok());
}

/// The part, where it may mount: a disk that is full at each step of making a sandbox and giving it something.
#[tokio::test]
async fn part_a_full_disk() {
    let Some(path) = told() else { return };
    let path = Path::new(&path);
    let skill = tempfile::tempdir().unwrap();
    fs::create_dir_all(skill.path().join("a/b")).unwrap();
    fs::write(skill.path().join("a/b/SKILL.md"), "# Hello").unwrap();
    let shared = SharedFolder::new(skill.path(), "/mnt/skills/one");
    let mut steps = Vec::new();
    // One more file fits each time.
    for inodes in 1..200 {
        mount(path, &format!("size=4m,nr_inodes={inodes}"));
        let outcome = on_a_small_disk(path, &shared).await;
        unmount(path);
        match outcome {
            Ok(()) => {
                assert!(steps.len() > 10, "so few steps: {steps:?}");
                // And one without room for what is in the files.
                mount(path, "size=32k,nr_inodes=1000");
                let error = on_a_small_disk(path, &shared).await.unwrap_err();
                unmount(path);
                assert_eq!(error.kind(), SandboxErrorKind::NoSpace, "{error}");
                println!("\nWELL: {}", steps.len());
                return;
            }
            Err(error) => {
                assert_eq!(error.kind(), SandboxErrorKind::NoSpace, "{inodes} inodes: {error}");
                steps.push(error.to_string());
            }
        }
    }
    panic!("it never succeeds: {steps:?}");
}

async fn on_a_small_disk(path: &Path, shared: &SharedFolder) -> Result<(), SandboxError> {
    let data = DataFolder::open(path)?;
    let made = in_a_small_data_folder(&data, shared).await;
    for folder in ["sandboxes", "workspaces", "store/temporary"] {
        assert_eq!(names(&path.join(folder)), [""; 0], "{made:?}");
    }
    made
}

async fn in_a_small_data_folder(data: &DataFolder, shared: &SharedFolder) -> Result<(), SandboxError> {
    let workspace = data.workspace()?;
    let large = vec![b'x'; 64 * 1024];
    let read_only = vec![shared.clone()];
    let context = ExecutionContext { read_only, ..ExecutionContext::new(workspace.path()) };
    let sandbox = open(data, &context).await?;
    let store = data.store();
    let given = match store.insert_bytes(&large, Variant::Plain) {
        Ok(inserted) => {
            let file = Provision::file(Shelf::Artifacts, "file", store, inserted.digest, Variant::Plain);
            sandbox.provide(file, options()).await.map(drop)
        }
        Err(error) => {
            assert_eq!(error.kind(), conjure_store::StoreErrorKind::NoSpace, "{error}");
            Err(SandboxError::new(SandboxErrorKind::NoSpace, error.to_string()))
        }
    };
    // A full disk is no reason not to run.
    let look = Command::bash("cat /mnt/skills/one/a/b/SKILL.md; ls /artifacts");
    let seen = sandbox.run(look, options()).await?;
    assert_eq!(text(&seen), if given.is_ok() { "# Hellofile\n" } else { "# Hello" });
    sandbox.cleanup().await;
    given
}

#[expect(clippy::disallowed_methods, reason = "tests mount and unmount")]
fn mount(path: &Path, how: &str) {
    let mounted =
        std::process::Command::new("mount").args(["-t", "tmpfs", "-o", how, "none"]).arg(path).status();
    assert!(mounted.unwrap().success());
}

#[expect(clippy::disallowed_methods, reason = "tests mount and unmount")]
fn unmount(path: &Path) {
    // What a process outside of this one holds for a moment still is let go of with the namespace.
    let unmounted = std::process::Command::new("umount").arg("--lazy").arg(path).status();
    assert!(unmounted.unwrap().success());
}

#[tokio::test]
async fn a_full_disk_is_told_as_that_at_every_step_and_leaves_nothing() {
    if told().is_some() {
        return;
    }
    if !is_root() {
        eprintln!("SKIPPED: only root may mount a small disk");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("data");
    fs::create_dir(&path).unwrap();
    // The mounts go with the namespace.
    let unshare = ["unshare", "--mount", "--propagation", "private"];
    let outcome = again(&unshare, "part_a_full_disk", path.to_str().unwrap()).output().unwrap();
    let said =
        format!("{}{}", String::from_utf8_lossy(&outcome.stdout), String::from_utf8_lossy(&outcome.stderr));
    assert!(outcome.status.success() && said.contains("\nWELL: "), "{said}");
    assert_eq!(names(&path), [""; 0]);
}

// ---------------------------------------------------------------------------------------------------------------
// Opening the data folder.

#[test]
fn a_data_folder_that_cannot_be_had_is_refused_with_the_reason() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
    let error = DataFolder::open(&file.join("data")).unwrap_err();
    assert_eq!(error.kind(), SandboxErrorKind::Unavailable, "{error}");
    let shared = folder.path().join("shared");
    fs::create_dir_all(shared.join("store")).unwrap();
    fs::set_permissions(shared.join("store"), fs::Permissions::from_mode(0o777)).unwrap();
    let error = DataFolder::open(&shared).unwrap_err();
    assert_eq!(error.kind(), SandboxErrorKind::Unavailable, "{error}");
    // By a link, it is the folder that it leads to.
    let (real, link) = (folder.path().join("real"), folder.path().join("link"));
    fs::create_dir(&real).unwrap();
    symlink(&real, &link).unwrap();
    assert_eq!(DataFolder::open(&link).unwrap().path(), fs::canonicalize(&real).unwrap());
    assert!(jail(&DataFolder::open(&real).unwrap()).isolation().disk == conjure_sandbox::Boundary::Enforced);
    // A temporary one goes, with all that is in it.
    let temporary = DataFolder::temporary().unwrap();
    let path = temporary.path().to_owned();
    let workspace = temporary.workspace().unwrap();
    fs::write(workspace.path().join("file"), "").unwrap();
    drop(temporary);
    assert!(path.exists());
    drop(workspace);
    assert!(!path.exists());
}

#[test]
fn the_same_holds_for_a_host_that_is_not_root() {
    const NOBODY: u32 = 65534;
    if !is_root() || told().is_some() {
        return;
    }
    // Where that user can reach it.
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let program = folder.path().join("jail-disk");
    // By another process: what this one has open for writing, or a child forked just then, cannot be run.
    #[expect(clippy::disallowed_methods, reason = "a test runs itself")]
    let copied =
        std::process::Command::new("cp").arg(std::env::current_exe().unwrap()).arg(&program).status();
    assert!(copied.unwrap().success());
    #[expect(clippy::disallowed_methods, reason = "a test runs itself")]
    let outcome = std::process::Command::new(program)
        .uid(NOBODY)
        .gid(NOBODY)
        .current_dir("/")
        .env_remove("TMPDIR")
        .output();
    let outcome = outcome.unwrap();
    let said = String::from_utf8_lossy(&outcome.stdout);
    assert!(outcome.status.success(), "{said}{}", String::from_utf8_lossy(&outcome.stderr));
}
