//! Hosts that are killed while they delete what has files at a service: either all is there as before, or what is left to be deleted there
//! is known. The host is this program, run again.

use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::Stdio;

use conjure::config::ExecutorKind;
use conjure::{Runtime, SessionId};
use conjure_anthropic::fake::{FakeMessages, Reply};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

use crate::again::{Killed, again, told};
use crate::runtime::fixture::{Fixture, ask, soon, tenant};
use crate::runtime::remote_cleanup::deletion::{KEY, notes, options, service, worked};

/// What it deletes.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize, serde::Deserialize)]
enum Deed {
    Session(SessionId),
    Tenant,
}

/// Where it halts until it is killed.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize, serde::Deserialize)]
enum Mark {
    /// What there is at the service is noted, and nothing is deleted.
    Noted,
    /// All is deleted here, and the service is asked to.
    Asked,
}

#[derive(serde::Serialize, serde::Deserialize)]
struct Part {
    folder: PathBuf,
    service: String,
    deed: Deed,
    mark: Mark,
}

/// Halts the thread that has noted what there is.
struct Halting;

#[derive(Default)]
struct Said(String);

impl Visit for Said {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        if field.name() == "message" {
            self.0 = format!("{value:?}");
        }
    }
}

impl Subscriber for Halting {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "conjure_runtime::runtime::remote_cleanup::on_delete"
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut said = Said::default();
        event.record(&mut said);
        if said.0.ends_with("is noted") {
            say("HERE");
            loop {
                std::thread::park();
            }
        }
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// On a line of its own.
#[expect(clippy::print_stdout, reason = "whoever started this reads it")]
fn say(line: &str) {
    println!("\n{line}");
}

/// The part: a host that deletes something, and does not come to its end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn part_a_process_that_halts_over_a_deletion() {
    let Some(told) = told() else { return };
    let Part { folder, service, deed, mark } = serde_json::from_str(&told).unwrap();
    if mark == Mark::Noted {
        tracing::subscriber::set_global_default(Halting).unwrap();
    }
    let fixture = Fixture::existing(&folder, ExecutorKind::Local);
    let runtime = Runtime::spawn(options(&fixture, &service, KEY)).await.unwrap();
    match deed {
        Deed::Session(id) => runtime.delete(&tenant("acme"), id).await.map(drop),
        Deed::Tenant => runtime.delete_tenant(&tenant("acme")).await.map(drop),
    }
    .unwrap();
}

/// A host that has come so far, and was killed. The service is silent yet: what was on its way may arrive later.
async fn killed(fixture: &Fixture, fake: &FakeMessages, deed: Deed, mark: Mark) {
    let part = Part { folder: fixture.folder().to_owned(), service: fake.base_url(), deed, mark };
    let name = "runtime::remote_cleanup::killed::part_a_process_that_halts_over_a_deletion";
    let mut command = again(&[], name, &serde_json::to_string(&part).unwrap());
    let received = fake.received();
    fake.set_hosted_outage(Some(Reply::silence()));
    let mut dying = Killed(command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap());
    let mut lines = BufReader::new(dying.0.stdout.take().unwrap()).lines().map(Result::unwrap);
    match mark {
        Mark::Noted => tokio::task::block_in_place(|| assert!(lines.any(|line| line == "HERE"), "{deed:?}")),
        Mark::Asked => {
            let asked = fake.until_received(received + 1);
            tokio::time::timeout(std::time::Duration::from_secs(60), asked).await.unwrap();
        }
    }
    drop(dying);
    assert_eq!(fake.received() > received, mark == Mark::Asked);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_is_whole_or_its_files_go_wherever_its_process_is_killed() {
    for mark in [Mark::Noted, Mark::Asked] {
        let fixture = Fixture::new(ExecutorKind::Local);
        let fake = service().await;
        let runtime = Runtime::spawn(options(&fixture, &fake.base_url(), KEY)).await.unwrap();
        let [mine, other] = [worked(&runtime, "acme").await, worked(&runtime, "acme").await];
        runtime.shutdown(soon()).await.unwrap();
        killed(&fixture, &fake, Deed::Session(mine.id()), mark).await;
        assert_eq!((notes(&fixture).len(), fake.files().len()), (1, 4), "{mark:?}");
        fake.set_hosted_outage(None);

        let runtime = Runtime::spawn(options(&fixture, &fake.base_url(), KEY)).await.unwrap();
        let ids = runtime.session_ids(&tenant("acme")).await.unwrap();
        let _ = runtime.maintenance().run("service-files", soon()).await.unwrap();
        assert!(notes(&fixture).is_empty(), "{mark:?}");
        if mark == Mark::Noted {
            assert_eq!((ids.len(), fake.files().len()), (2, 4), "nothing was deleted, so nothing goes");
            let mine = runtime.session(&tenant("acme"), mine.id()).await.unwrap();
            assert_eq!(ask(&mine, "go on").await, "Made.");
            assert_eq!(mine.files().await.unwrap().len(), 2);
            assert!(runtime.delete(&tenant("acme"), mine.id()).await.unwrap().is_complete());
        }
        assert_eq!(fake.files().len(), 2, "{mark:?}");
        let other = runtime.session(&tenant("acme"), other.id()).await.unwrap();
        assert_eq!(ask(&other, "go on").await, "Made.");
        runtime.shutdown(soon()).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_files_of_a_tenant_go_wherever_its_process_is_killed() {
    for mark in [Mark::Noted, Mark::Asked] {
        let fixture = Fixture::new(ExecutorKind::Local);
        let fake = service().await;
        let runtime = Runtime::spawn(options(&fixture, &fake.base_url(), KEY)).await.unwrap();
        for who in ["acme", "globex", "acme"] {
            worked(&runtime, who).await;
        }
        runtime.shutdown(soon()).await.unwrap();
        killed(&fixture, &fake, Deed::Tenant, mark).await;
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
