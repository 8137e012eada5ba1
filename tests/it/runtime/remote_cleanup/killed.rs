//! Hosts that are killed while they delete sessions with remote files: either everything is still there, or the remaining
//! deletions are
//! recorded. The host is this program, run again.

use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::Stdio;

use conjure::config::ExecutorKind;
use conjure::{Runtime, SessionId};
use conjure_anthropic::fake::{FakeMessages, Reply};
use test_support::{EventFields, KillOnDrop, OnEvent};

use crate::rerun::{rerun, test_parameters};
use crate::runtime::fixture::{Fixture, ask, soon, tenant};
use crate::runtime::remote_cleanup::deletion::{KEY, notes, options, service, session_with_files};

/// The object of the deletion.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize, serde::Deserialize)]
enum Deletion {
    Session(SessionId),
    Tenant,
}

/// Where it halts until it is killed.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize, serde::Deserialize)]
enum HaltPoint {
    /// The remote files are noted, and nothing is deleted.
    Noted,
    /// All local data is deleted, and the remote deletions are requested.
    Asked,
}

#[derive(serde::Serialize, serde::Deserialize)]
struct Part {
    dir: PathBuf,
    service: String,
    operation: Deletion,
    mark: HaltPoint,
}

/// Halts the thread that has noted what there is.
fn halt_when_noted() {
    let on_event = |fields: EventFields| {
        if fields.iter().any(|(name, value)| *name == "message" && value.ends_with("is noted")) {
            say("HERE");
            loop {
                std::thread::park();
            }
        }
    };
    let halting =
        OnEvent::new(|target| target == "conjure_runtime::runtime::remote_cleanup::on_delete", on_event);
    tracing::subscriber::set_global_default(halting).unwrap();
}

/// On a line of its own.
#[expect(clippy::print_stdout, reason = "the parent process reads the output")]
fn say(line: &str) {
    println!("\n{line}");
}

/// The part: a host that deletes something, and does not come to its end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn part_a_process_that_halts_during_a_deletion() {
    let Some(parameters) = test_parameters() else { return };
    let Part { dir, service, operation, mark } = serde_json::from_str(&parameters).unwrap();
    if mark == HaltPoint::Noted {
        halt_when_noted();
    }
    let fixture = Fixture::existing(&dir, ExecutorKind::Local);
    let runtime = Runtime::spawn(options(&fixture, &service, KEY)).await.unwrap();
    match operation {
        Deletion::Session(id) => runtime.delete(&tenant("acme"), id).await.map(drop),
        Deletion::Tenant => runtime.delete_tenant(&tenant("acme")).await.map(drop),
    }
    .unwrap();
}

/// A host that has come so far, and was killed. The service is silent yet: what was on its way may arrive later.
async fn killed(fixture: &Fixture, fake: &FakeMessages, operation: Deletion, mark: HaltPoint) {
    let part = Part { dir: fixture.dir().to_owned(), service: fake.base_url(), operation, mark };
    let name = "runtime::remote_cleanup::killed::part_a_process_that_halts_during_a_deletion";
    let mut command = rerun(&[], name, &serde_json::to_string(&part).unwrap());
    let received = fake.received();
    fake.set_hosted_outage(Some(Reply::silence()));
    let mut process = KillOnDrop(command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap());
    let mut lines = BufReader::new(process.0.stdout.take().unwrap()).lines().map(Result::unwrap);
    match mark {
        HaltPoint::Noted => {
            tokio::task::block_in_place(|| assert!(lines.any(|line| line == "HERE"), "{operation:?}"))
        }
        HaltPoint::Asked => {
            let received_request = fake.until_received(received + 1);
            tokio::time::timeout(std::time::Duration::from_secs(60), received_request).await.unwrap();
        }
    }
    drop(process);
    assert_eq!(fake.received() > received, mark == HaltPoint::Asked);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_deletion_keeps_the_session_or_deletes_its_remote_files() {
    for mark in [HaltPoint::Noted, HaltPoint::Asked] {
        let fixture = Fixture::new(ExecutorKind::Local);
        let fake = service().await;
        let runtime = Runtime::spawn(options(&fixture, &fake.base_url(), KEY)).await.unwrap();
        let [sessions, other] =
            [session_with_files(&runtime, "acme").await, session_with_files(&runtime, "acme").await];
        runtime.shutdown(soon()).await.unwrap();
        killed(&fixture, &fake, Deletion::Session(sessions.id()), mark).await;
        assert_eq!((notes(&fixture).len(), fake.files().len()), (1, 4), "{mark:?}");
        fake.set_hosted_outage(None);

        let runtime = Runtime::spawn(options(&fixture, &fake.base_url(), KEY)).await.unwrap();
        let ids = runtime.session_ids(&tenant("acme")).await.unwrap();
        let _ = runtime.maintenance().run("service-files", soon()).await.unwrap();
        assert!(notes(&fixture).is_empty(), "{mark:?}");
        if mark == HaltPoint::Noted {
            assert_eq!(
                (ids.len(), fake.files().len()),
                (2, 4),
                "nothing was deleted, so no remote deletion follows"
            );
            let sessions = runtime.session(&tenant("acme"), sessions.id()).await.unwrap();
            assert_eq!(ask(&sessions, "go on").await, "Made.");
            assert_eq!(sessions.files().await.unwrap().len(), 2);
            assert!(runtime.delete(&tenant("acme"), sessions.id()).await.unwrap().is_complete());
        }
        assert_eq!(fake.files().len(), 2, "{mark:?}");
        let other = runtime.session(&tenant("acme"), other.id()).await.unwrap();
        assert_eq!(ask(&other, "go on").await, "Made.");
        runtime.shutdown(soon()).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_tenant_deletion_still_deletes_the_remote_files() {
    for mark in [HaltPoint::Noted, HaltPoint::Asked] {
        let fixture = Fixture::new(ExecutorKind::Local);
        let fake = service().await;
        let runtime = Runtime::spawn(options(&fixture, &fake.base_url(), KEY)).await.unwrap();
        for who in ["acme", "globex", "acme"] {
            session_with_files(&runtime, who).await;
        }
        runtime.shutdown(soon()).await.unwrap();
        killed(&fixture, &fake, Deletion::Tenant, mark).await;
        assert_eq!((notes(&fixture).len(), fake.files().len()), (1, 6), "{mark:?}");
        fake.set_hosted_outage(None);

        // The start completes it here.
        let runtime = Runtime::spawn(options(&fixture, &fake.base_url(), KEY)).await.unwrap();
        assert!(runtime.session_ids(&tenant("acme")).await.unwrap().is_empty());
        let _ = runtime.maintenance().run("service-files", soon()).await.unwrap();
        assert_eq!((notes(&fixture).len(), fake.files().len()), (0, 2), "{mark:?}");
        assert_eq!(runtime.session_ids(&tenant("globex")).await.unwrap().len(), 1);
        runtime.shutdown(soon()).await.unwrap();
    }
}
