//! Hosts that are killed while they open or delete sessions: the next start removes what belongs to no session, and nothing
//! of living hosts. The host is this program, run again.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use conjure::config::ExecutorKind;
use conjure::journal::SessionKey;
use conjure_journal::{Journal as _, SqliteJournal, SqliteOptions};
use futures_util::FutureExt as _;
use test_support::KillOnDrop;

use crate::runtime::fixture::{Fixture, ask, soon, spec, tenant};
use crate::runtime::open_failpoints::{OpenHalt, OpenStage, leftovers, on_disk, until_nothing_is_left};

/// The environment variable with the part's host and its failpoint.
const HOST: &str = "CONJURE_TEST_HOST";
const POINT: &str = "CONJURE_TEST_POINT";

/// The part: a host that opens a session, halts half way, reports that, and runs until it is killed.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn part_a_process_that_halts() {
    #[expect(clippy::disallowed_methods, reason = "the variable has the parameters of the part")]
    let (Ok(dir), Ok(point)) = (std::env::var(HOST), std::env::var(POINT)) else { return };
    let fixture = Fixture::existing(Path::new(&dir), ExecutorKind::Jail);
    let point = if point == "start" { OpenStage::Start } else { OpenStage::Preparation };
    let halt = OpenHalt::at(point);
    let runtime = halt.start(&fixture).await;
    let saying = async {
        halt.reached(1).await;
        println!("\nREADY");
        std::future::pending::<()>().await;
    };
    futures_util::future::join(runtime.open(OpenHalt::spec()).map(drop), saying).await;
}

/// A host of its own that has come so far.
#[expect(clippy::disallowed_methods, reason = "the test needs another process")]
fn start_halted(fixture: &Fixture, point: OpenStage) -> KillOnDrop {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["runtime::sessions::killed::part_a_process_that_halts", "--exact", "--nocapture"]);
    command
        .env(HOST, fixture.dir())
        .env(POINT, if point == OpenStage::Start { "start" } else { "preparation" });
    let mut child = KillOnDrop(command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap());
    let stdout = BufReader::new(child.0.stdout.take().unwrap());
    assert!(stdout.lines().any(|line| line.unwrap() == "READY"), "the host did not come so far");
    child
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn leftovers_of_an_open_killed_half_way_are_removed_at_the_next_start() {
    if !test_support::has_user_namespaces() {
        return;
    }
    for (point, left_over) in [(OpenStage::Preparation, 0), (OpenStage::Start, 1)] {
        let fixture = Fixture::new(ExecutorKind::Jail);
        let dir = tempfile::tempdir().unwrap();
        // Existing sessions stay.
        let runtime = fixture.start().await;
        let retained = runtime.open(spec()).await.unwrap();
        ask(&retained, "$ echo kept > note").await;
        let with_own_workspace = runtime.open(spec().workspace(dir.path())).await.unwrap();
        ask(&with_own_workspace, "$ echo mine > note").await;
        runtime.shutdown(soon()).await.unwrap();
        // The skill is another one by now.
        fixture.write_skill("greeting", "Greets people otherwise.", "echo good day");
        let process = start_halted(&fixture, point);
        assert_eq!(on_disk(&fixture), [2, 2, 1]);

        // While it runs, no other process removes its files.
        let runtime = fixture.start().await;
        assert_eq!(on_disk(&fixture), [2, 2, 1]);
        runtime.shutdown(soon()).await.unwrap();
        drop(process);
        let runtime = fixture.start().await;
        let rows = 2 + left_over;
        assert_eq!(
            leftovers(&fixture, &runtime).await,
            (rows, [1 + left_over, 1 + left_over, 0]),
            "{point:?}"
        );
        let revived = runtime.session(&tenant("acme"), retained.id()).await.unwrap();
        assert!(
            ask(&revived, "$ cat note; sh /mnt/skills/greeting/scripts/run.sh").await.contains("kept\nhello")
        );
        assert_eq!(std::fs::read_to_string(dir.path().join("note")).unwrap(), "mine\n");
        for id in runtime.session_ids(&tenant("acme")).await.unwrap() {
            runtime.delete(&tenant("acme"), id).await.unwrap();
        }
        until_nothing_is_left(&fixture, &runtime).await;
        runtime.shutdown(soon()).await.unwrap();
    }
}

/// As a crash leaves it that came behind the record: the rest is completed, also of skills.
#[tokio::test]
async fn an_interrupted_deletion_is_completed_at_the_next_start() {
    if !test_support::has_user_namespaces() {
        return;
    }
    let fixture = Fixture::new(ExecutorKind::Jail);
    let runtime = fixture.start().await;
    let [deleted, stays] =
        [runtime.open(spec()).await.unwrap(), runtime.open(spec().skills(["greeting"])).await.unwrap()];
    fixture.write_skill("greeting", "Greets people otherwise.", "echo good day");
    let alone = runtime.open(spec()).await.unwrap();
    runtime.shutdown(soon()).await.unwrap();
    assert_eq!(on_disk(&fixture), [3, 2, 0]);
    let journal = SqliteJournal::open(&fixture.data().join("journal"), SqliteOptions::default()).unwrap();
    let marks = fixture.data().join("tenants/acme/pending");
    for session in [&deleted, &alone] {
        journal.delete_session(&SessionKey::new(tenant("acme"), session.id())).await.unwrap();
        std::fs::write(marks.join(session.id().stored_name()), "").unwrap();
    }
    // Another was only begun, and one was begun to be recorded.
    std::fs::write(marks.join(stays.id().stored_name()), "").unwrap();
    let empty = SessionKey::new(tenant("acme"), conjure::SessionId::from_bits(7));
    journal.create(&empty).await.unwrap();
    std::fs::write(marks.join(empty.session.stored_name()), "").unwrap();
    journal.close().await;

    let runtime = fixture.start().await;
    assert_eq!(leftovers(&fixture, &runtime).await, (1, [1, 1, 0]));
    let revived = runtime.session(&tenant("acme"), stays.id()).await.unwrap();
    assert_eq!(ask(&revived, "$ sh /mnt/skills/greeting/scripts/run.sh").await, "it says: hello\n");
    runtime.shutdown(soon()).await.unwrap();
}

/// Without an intent record, unknown files may belong to a journal that is restored later.
#[tokio::test]
async fn unrelated_directories_are_not_removed() {
    if !test_support::has_user_namespaces() {
        return;
    }
    let fixture = Fixture::new(ExecutorKind::Jail);
    let runtime = fixture.start().await;
    let session = runtime.open(spec()).await.unwrap();
    ask(&session, "$ echo kept > note").await;
    runtime.shutdown(soon()).await.unwrap();
    let (journal, aside) = (fixture.data().join("journal"), fixture.data().join("aside"));
    std::fs::rename(&journal, &aside).unwrap();
    let runtime = fixture.start().await;
    let other = runtime.open(spec().without_skills()).await.unwrap();
    runtime.delete(&tenant("acme"), other.id()).await.unwrap();
    runtime.shutdown(soon()).await.unwrap();
    std::fs::remove_dir_all(&journal).unwrap();
    std::fs::rename(&aside, &journal).unwrap();
    let runtime = fixture.start().await;
    let revived = runtime.session(&tenant("acme"), session.id()).await.unwrap();
    assert!(
        ask(&revived, "$ cat note; sh /mnt/skills/greeting/scripts/run.sh").await.ends_with("kept\nhello\n")
    );
    runtime.shutdown(soon()).await.unwrap();
}
