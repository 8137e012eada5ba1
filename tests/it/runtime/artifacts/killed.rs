//! Hosts that are killed while artifacts are registered or unregistered: the maintenance of another host keeps the session's
//! artifacts and
//! removes everything else. The host is this program, run again.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, FileTimes};
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, UNIX_EPOCH};

use conjure::artifact::{Digest, RegistrationSource};
use conjure::config::ExecutorKind;
use conjure::{Clock as _, Runtime, Session, SessionEventKind, SessionId, SystemClock, Update};
use futures_util::StreamExt as _;
use test_support::{EventFields, KillOnDrop, OnEvent};

use crate::rerun::{rerun, test_parameters};
use crate::runtime::fixture::{Fixture, soon, spec, tenant};

/// The operation of a host whose session has the artifacts `stays` and `goes`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
enum Operation {
    /// It registers `new`.
    Register,
    /// It unregisters `goes`.
    Unregister,
    Clear,
    /// It only revives the session.
    Revive(SessionId),
}

/// How far it comes. At all points but one it halts until it is killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
enum HaltPoint {
    /// The content is in the store, and nobody has a link to it.
    Linking,
    /// It is linked; it is not recorded that the session has it.
    Linked,
    /// It is recorded what has changed. The one point where it does not halt, and may come further.
    Recorded,
    /// The links of this many contents are about to be updated.
    PuttingInOrder(u64),
    /// All of this many contents are linked. Links of earlier incarnations are still there.
    InOrder(u64),
}

#[derive(Debug, serde::Serialize, serde::Deserialize)]
struct Part {
    dir: PathBuf,
    operation: Operation,
    mark: HaltPoint,
}

/// Halts the thread that comes to the mark, once that is set.
fn halt_at(mark: HaltPoint, is_set: Arc<AtomicBool>) {
    let on_event = move |fields: EventFields| {
        let fields: BTreeMap<_, _> = fields.into_iter().collect();
        let has_contents = |contents: u64| fields.get("contents") == Some(&contents.to_string());
        let is_here = match (mark, fields.get("message").map_or("", String::as_str)) {
            (HaltPoint::Linking, "the content of an artifact is being linked")
            | (HaltPoint::Linked, "the content of an artifact is linked") => true,
            (HaltPoint::PuttingInOrder(contents), "the contents of artifacts are being put in order")
            | (HaltPoint::InOrder(contents), "the contents of artifacts are linked") => {
                has_contents(contents)
            }
            _ => false,
        };
        if is_here && is_set.load(Ordering::SeqCst) {
            say("HERE");
            loop {
                std::thread::park();
            }
        }
    };
    let halting = OnEvent::new(|target| target == "conjure_runtime::runtime::data::artifact_pins", on_event);
    tracing::subscriber::set_global_default(halting).unwrap();
}

/// On a line of its own.
#[expect(clippy::print_stdout, reason = "the parent process reads the output")]
fn say(line: &str) {
    println!("\n{line}");
}

fn bytes_of(name: &str) -> Vec<u8> {
    format!("what {name} says\n").repeat(1_000).into_bytes()
}

fn source_of(name: &str) -> RegistrationSource {
    RegistrationSource::content(bytes_of(name), "text/plain")
}

/// The part: a host that does one thing, says how far it comes, and lives until it is killed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn part_a_process_that_halts_during_artifact_changes() {
    let Some(parameters) = test_parameters() else { return };
    let Part { dir, operation, mark } = serde_json::from_str(&parameters).unwrap();
    let is_set = Arc::new(AtomicBool::new(false));
    halt_at(mark, Arc::clone(&is_set));
    let runtime = Fixture::existing(&dir, ExecutorKind::Local).start().await;
    let doing = async {
        let session = match operation {
            Operation::Revive(session) => {
                is_set.store(true, Ordering::SeqCst);
                runtime.session(&tenant("acme"), session).await.unwrap()
            }
            // Whatever is put in order from now on counts both: what counted less was over before the second was linked.
            _ => {
                let spec = spec().artifact("stays", source_of("stays")).artifact("goes", source_of("goes"));
                let session = runtime.open(spec).await.unwrap();
                is_set.store(true, Ordering::SeqCst);
                session
            }
        };
        let artifacts = session.artifacts();
        let acting = async {
            match operation {
                Operation::Register => artifacts.register("new", source_of("new")).await.map(drop),
                Operation::Unregister => artifacts.unregister("goes").await,
                Operation::Clear => artifacts.cleanup().await,
                Operation::Revive(_) => artifacts.list().await.map(drop),
            }
            .unwrap();
            say("DONE");
            std::future::pending::<()>().await;
        };
        let watching = async {
            if mark == HaltPoint::Recorded {
                until_changed(&session).await;
                say("HERE");
            }
            std::future::pending::<()>().await;
        };
        tokio::join!(acting, watching);
    };
    // The reader of its output sees the end.
    tokio::time::timeout(Duration::from_secs(60), doing).await.unwrap();
}

/// Until it is recorded that `new` has come or `stays` or `goes` is gone.
async fn until_changed(session: &Session) {
    let mut listener = session.subscribe(0).await.unwrap();
    loop {
        if let Update::Recorded(event) = listener.next().await.unwrap() {
            match event.kind {
                SessionEventKind::SessionArtifactUnregistered { .. } => return,
                SessionEventKind::SessionArtifactRegistered { name, .. } if name.as_str() == "new" => return,
                _ => {}
            }
        }
    }
}

/// A host that has come so far, and was killed; whether what it did was acknowledged.
async fn killed(fixture: &Fixture, operation: Operation, mark: HaltPoint) -> bool {
    let part = Part { dir: fixture.dir().to_owned(), operation, mark };
    let name = "runtime::artifacts::killed::part_a_process_that_halts_during_artifact_changes";
    let mut command = rerun(&[], name, &serde_json::to_string(&part).unwrap());
    let mut process = KillOnDrop(command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap());
    let mut lines = BufReader::new(process.0.stdout.take().unwrap()).lines().map(Result::unwrap);
    let mut awaited = match mark {
        HaltPoint::Linking | HaltPoint::Linked | HaltPoint::Recorded => BTreeSet::from(["HERE"]),
        HaltPoint::PuttingInOrder(_) | HaltPoint::InOrder(_) => BTreeSet::from(["HERE", "DONE"]),
    };
    let mut is_acknowledged = false;
    tokio::task::block_in_place(|| {
        while !awaited.is_empty() {
            let line = lines.next().unwrap_or_else(|| panic!("{operation:?} did not come to {mark:?}"));
            is_acknowledged |= line == "DONE";
            awaited.remove(line.as_str());
        }
    });
    is_acknowledged
}

/// The files beneath a directory.
fn files(dir: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(dir) else { return Vec::new() };
    let paths = entries.map(|entry| entry.unwrap().path());
    paths.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}

/// All content of the tenant's store is old, and no collection has run.
fn age(fixture: &Fixture) {
    let dir = fixture.data().join("tenants/acme");
    for path in files(&dir.join("store/plain")) {
        let long_ago = FileTimes::new().set_accessed(UNIX_EPOCH);
        File::open(path).unwrap().set_times(long_ago).unwrap();
    }
    let _ = std::fs::remove_file(dir.join("last-gc"));
}

/// Whose bytes the tenant's store has.
fn stored(fixture: &Fixture) -> BTreeSet<&'static str> {
    let store = fixture.data().join("tenants/acme/store/plain");
    let is_there = |name: &&str| {
        let digest = Digest::of_bytes(&bytes_of(name)).to_hex();
        let (shard, remainder) = digest.split_at(2);
        store.join(shard).join(remainder).exists()
    };
    ["stays", "goes", "new"].into_iter().filter(is_there).collect()
}

/// The links of the session: one for each content, of one incarnation.
async fn until_linked(fixture: &Fixture, session: &Session, names: &BTreeSet<&str>) {
    let dir = fixture.data().join("tenants/acme/artifacts").join(session.id().stored_name());
    let mut wanted: Vec<_> = names.iter().map(|name| Digest::of_bytes(&bytes_of(name)).to_hex()).collect();
    wanted.sort();
    let deadline = soon();
    loop {
        let links = files(&dir);
        let mut found: Vec<_> =
            links.iter().map(|path| path.file_name().unwrap().to_str().unwrap().to_owned()).collect();
        found.sort();
        if found == wanted {
            return;
        }
        assert!(!SystemClock.remaining(deadline).is_zero(), "there are {links:?} for {names:?}");
        tokio::task::yield_now().await;
    }
}

async fn run_maintenance(fixture: &Fixture, runtime: &Runtime) -> BTreeSet<&'static str> {
    age(fixture);
    runtime.maintenance().run("directories", soon()).await.unwrap();
    stored(fixture)
}

async fn read(session: &Session, name: &str) -> Vec<u8> {
    let mut content = session.artifacts().open(&format!("file://{name}")).await.unwrap();
    let mut bytes = Vec::new();
    while let Some(piece) = content.stream.next().await {
        bytes.extend_from_slice(&piece.unwrap());
    }
    bytes
}

/// After the death of its host: the session has these artifacts, and what has a link beside them stays until somebody revives it.
async fn has(fixture: &Fixture, expected: &[&'static str], besides: &[&'static str]) {
    let expected: BTreeSet<_> = expected.iter().copied().collect();
    age(fixture);
    let runtime = fixture.start().await;
    let id = runtime.session_ids(&tenant("acme")).await.unwrap()[0];
    let (recorded, _) = runtime.artifacts_and_files(&tenant("acme"), id).await.unwrap();
    let recorded: BTreeSet<_> = recorded.iter().map(|artifact| artifact.name.as_str()).collect();
    assert_eq!(recorded, expected);
    let linked = expected.iter().chain(besides).copied().collect();
    assert_eq!(run_maintenance(fixture, &runtime).await, linked, "before the session is revived");

    let session = runtime.session(&tenant("acme"), id).await.unwrap();
    for name in &expected {
        assert!(read(&session, name).await == bytes_of(name), "`{name}` says something else");
    }
    session.artifacts().list().await.unwrap();
    until_linked(fixture, &session, &expected).await;
    assert_eq!(run_maintenance(fixture, &runtime).await, expected, "behind the revival");
    session.artifacts().cleanup().await.unwrap();
    until_linked(fixture, &session, &BTreeSet::new()).await;
    assert_eq!(run_maintenance(fixture, &runtime).await, BTreeSet::new(), "when it has none any more");
    runtime.shutdown(soon()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_acknowledged_registration_survives_a_kill_at_any_point() {
    let all = ["stays", "goes", "new"];
    for (mark, expected, besides) in [
        (HaltPoint::PuttingInOrder(3), &all[..], &[][..]),
        (HaltPoint::InOrder(3), &all, &[]),
        (HaltPoint::Recorded, &all, &[]),
        (HaltPoint::Linked, &all[..2], &["new"]),
        (HaltPoint::Linking, &all[..2], &[]),
    ] {
        let fixture = Fixture::new(ExecutorKind::Local);
        let is_acknowledged = killed(&fixture, Operation::Register, mark).await;
        assert!(!is_acknowledged || expected == all, "{mark:?}");
        has(&fixture, expected, besides).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unregistered_artifact_is_removed_after_a_kill_at_any_point() {
    for (mark, besides) in [(HaltPoint::PuttingInOrder(1), &["goes"][..]), (HaltPoint::InOrder(1), &[])] {
        let fixture = Fixture::new(ExecutorKind::Local);
        assert!(killed(&fixture, Operation::Unregister, mark).await);
        has(&fixture, &["stays"], besides).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cleared_artifacts_are_removed_after_a_kill_at_any_point() {
    for (mark, besides) in
        [(HaltPoint::PuttingInOrder(0), &["stays", "goes"][..]), (HaltPoint::InOrder(0), &[])]
    {
        let fixture = Fixture::new(ExecutorKind::Local);
        assert!(killed(&fixture, Operation::Clear, mark).await);
        has(&fixture, &[], besides).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leftovers_are_repaired_even_if_the_repairing_process_is_killed() {
    for mark in [HaltPoint::PuttingInOrder(2), HaltPoint::InOrder(2)] {
        let fixture = Fixture::new(ExecutorKind::Local);
        killed(&fixture, Operation::Register, HaltPoint::Linked).await;
        let runtime = fixture.start().await;
        let id = runtime.session_ids(&tenant("acme")).await.unwrap()[0];
        runtime.shutdown(soon()).await.unwrap();
        killed(&fixture, Operation::Revive(id), mark).await;
        has(&fixture, &["stays", "goes"], &["new"]).await;
    }
}
