//! A data directory on a disk that is temporarily full or read-only: failures have their type, no acknowledged event
//! is lost, and the same runtime continues afterwards. The part runs in its own mount namespace.

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use conjure::config::ExecutorKind;
use conjure::journal::JournalErrorKind;
use conjure::runtime::{CatalogKey, CatalogName};
use conjure::sandbox::SandboxErrorKind;
use conjure::tenant::Quota;
use conjure::{Clock as _, Runtime, RuntimeError, SessionError, SystemClock, TenantPolicy};

use crate::runtime::fixture::{Fixture, ask, ask_again, soon, spec, tenant};
use crate::runtime::open_failpoints::{leftovers, pause};

/// The environment variable with the part's directory.
const DIR: &str = "CONJURE_TEST_DISK";

#[expect(clippy::disallowed_methods, reason = "the test mounts")]
fn run(program: &str, args: &[&str], path: &Path) {
    assert!(Command::new(program).args(args).arg(path).status().unwrap().success(), "{program} {args:?}");
}

/// True if an open failed because of a full or read-only disk.
fn is_disk_error(error: &RuntimeError) -> bool {
    match error {
        RuntimeError::Data { .. } => true,
        RuntimeError::SkillPin { source, .. } => source.kind() == SandboxErrorKind::NoSpace,
        RuntimeError::Journal(error) => error.kind() == JournalErrorKind::DiskFull,
        RuntimeError::Sandbox(error) => error.to_string().contains("No space left"),
        RuntimeError::Session(SessionError::NotStarted { reason } | SessionError::Journal { reason }) => {
            reason.contains("no room")
        }
        _ => false,
    }
}

/// The part.
#[tokio::test]
async fn part_a_runtime_on_a_small_disk() {
    #[expect(clippy::disallowed_methods, reason = "the variable has the parameters of the part")]
    let Ok(dir) = std::env::var(DIR) else { return };
    let fixture = Fixture::existing(Path::new(&dir), ExecutorKind::Jail);
    fixture.write_skill("greeting", "Greets people.", "echo hello");
    let (data, acme) = (fixture.data(), tenant("acme"));
    fs::create_dir(&data).unwrap();
    run("mount", &["-t", "tmpfs", "-o", "size=8m,mode=700", "none"], &data);
    let runtime = fixture.start().await;
    let session = runtime.open(spec()).await.unwrap();
    assert_eq!(ask(&session, "$ echo kept > note; cat note").await, "it says: kept\n");

    // Full, to the last byte.
    let filler = data.join("filler");
    let mut file = fs::File::create(&filler).unwrap();
    while file.write_all(&[0; 4096]).is_ok() {}
    drop(file);
    // Another skill, so that there is something to be kept.
    fixture.write_skill("parting", "Says good bye.", &format!("echo bye # {}", "x".repeat(9000)));
    let default = CatalogKey::for_embedder(CatalogName::new("default").unwrap());
    let deadline = soon();
    while runtime.registry().get(&default, "parting").is_none() {
        assert!(!SystemClock.remaining(deadline).is_zero(), "the skill is not seen");
        pause().await;
    }
    let error = runtime.open(spec()).await.unwrap_err();
    assert!(is_disk_error(&error), "{error:?}");
    let (mut acknowledged, long) = (0, "y".repeat(200_000));
    let refused = loop {
        match session.send(format!("{acknowledged} {long}")).await {
            Ok(turn) => {
                acknowledged += 1;
                // Its end may find no room, and is recorded later.
                let _ = turn.end().await;
            }
            Err(error) => break error,
        }
        assert!(acknowledged < 100, "there is room for all of it");
    };
    assert!(refused.to_string().contains("there is no space for `"), "{refused}");
    // Recorded events are readable.
    assert_eq!(runtime.session_ids(&acme).await.unwrap(), [session.id()]);
    fs::remove_file(&filler).unwrap();
    assert_continues(&fixture, &runtime, &session, acknowledged).await;

    // Not to be written by its path; what is open already stays open.
    run("mount", &["--bind", dir_of(&data)], &data);
    run("mount", &["-o", "remount,bind,ro"], &data);
    let error = runtime.open(spec()).await.unwrap_err();
    assert!(is_disk_error(&error), "{error:?}");
    assert!(error.to_string().contains("Read-only file system"), "{error}");
    run("umount", &["--lazy"], &data);
    assert_continues(&fixture, &runtime, &session, acknowledged).await;
    runtime.shutdown(soon()).await.unwrap();
    drop(runtime);

    let runtime = fixture.start().await;
    let revived = runtime.session(&acme, session.id()).await.unwrap();
    assert_continues(&fixture, &runtime, &revived, acknowledged).await;
    runtime.shutdown(soon()).await.unwrap();
    drop(runtime);
    run("umount", &["--lazy"], &data);
    println!("\nWELL");
}

fn dir_of(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// There is room again: the session and new ones work, all that was acknowledged is there, and nothing else is.
async fn assert_continues(
    fixture: &Fixture,
    runtime: &Runtime,
    session: &conjure::Session,
    acknowledged: usize,
) {
    let answer = ask_again(session, "$ cat note").await;
    assert!(answer.ends_with("kept\n"), "{answer}");
    let events = runtime.events(&tenant("acme"), session.id(), 0).await.unwrap();
    let events: Vec<String> = events.iter().map(|event| serde_json::to_string(event).unwrap()).collect();
    for number in 0..acknowledged {
        assert!(events.iter().any(|text| text.contains(&format!("\"{number} yyy"))), "{number}");
    }
    let other = runtime.open(spec()).await.unwrap();
    assert_eq!(ask(&other, "hello").await, "heard: hello");
    runtime.delete(&tenant("acme"), other.id()).await.unwrap();
    assert_eq!(leftovers(fixture, runtime).await, (1, [1, 1, 0]));
}

#[test]
fn a_runtime_continues_when_its_disk_has_space_again() {
    if !rustix::process::geteuid().is_root() {
        test_support::skip("only root may mount a small disk", "run the tests as root");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    // The mounts go with the namespace.
    #[expect(clippy::disallowed_methods, reason = "the test needs another process")]
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private"]).arg(std::env::current_exe().unwrap());
    command.args(["runtime::storage::disk_quotas::part_a_runtime_on_a_small_disk", "--exact", "--nocapture"]);
    let output = command.env(DIR, dir.path()).stderr(Stdio::piped()).output().unwrap();
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert!(
        stdout.lines().any(|line| line == "WELL"),
        "{stdout}\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

#[tokio::test]
async fn a_tenant_above_its_quota_uploads_and_copies_nothing() {
    let fixture = Fixture::new(ExecutorKind::Local);
    let policy = TenantPolicy::new().disk_bytes(8 << 20);
    let runtime = Runtime::spawn(fixture.options().tenant(tenant("acme"), policy)).await.unwrap();
    let (session, acme) = (runtime.open(spec()).await.unwrap(), tenant("acme"));
    let upload = runtime.upload_file(&acme, "first", 20 << 20).await.unwrap();
    upload.push(b"x").await.unwrap().finish().await.unwrap();
    let copy =
        |place: &'static str| runtime.copy_to_workspace(&acme, session.id(), "first", Path::new(place));
    copy("copies/first").await.unwrap();
    let error = copy("copies/first").await.unwrap_err();
    assert!(matches!(error, RuntimeError::WorkspaceFile { .. }), "the path is taken: {error}");

    let upload = runtime.upload_file(&acme, "large", 20 << 20).await.unwrap();
    upload.push(&vec![b'x'; 9 << 20]).await.unwrap().finish().await.unwrap();
    // A recent measurement may be used for some seconds.
    let error = loop {
        match runtime.upload_file(&acme, "second", 1).await {
            Ok(_) => pause().await,
            Err(error) => break error,
        }
    };
    let copy_error = copy("copies/second").await.unwrap_err();
    for error in [error, copy_error] {
        assert!(
            matches!(&error, RuntimeError::Quota(exceeded) if exceeded.quota == Quota::DiskBytes),
            "{error}"
        );
    }
    runtime.shutdown(soon()).await.unwrap();
}
