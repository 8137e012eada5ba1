//! Hosts that are killed while they open or delete sessions: the next start removes what belongs to no session, and nothing
//! of anybody who lives. The host is this program, run again.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use conjure::config::ExecutorKind;
use conjure::journal::SessionKey;
use conjure_journal::{Journal as _, SqliteJournal, SqliteOptions};
use futures_util::FutureExt as _;

use crate::again::Killed;
use crate::runtime::fixture::{Fixture, ask, soon, spec, tenant};
use crate::runtime::open_failpoints::{Halt, Point, left, on_disk, until_nothing_is_left};

/// What tells the part which host it is, and how far it comes.
const HOST: &str = "CONJURE_TEST_HOST";
const POINT: &str = "CONJURE_TEST_POINT";

/// The part: a host that opens a session, halts half way, says so, and lives until it is killed.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn part_a_process_that_halts() {
    #[expect(clippy::disallowed_methods, reason = "the part is told so what it is")]
    let (Ok(folder), Ok(point)) = (std::env::var(HOST), std::env::var(POINT)) else { return };
    let fixture = Fixture::existing(Path::new(&folder), ExecutorKind::Jail);
    let point = if point == "start" { Point::Start } else { Point::Preparation };
    let halt = Halt::at(point);
    let runtime = halt.start(&fixture).await;
    let saying = async {
        halt.reached(1).await;
        println!("\nREADY");
        std::future::pending::<()>().await;
    };
    futures_util::future::join(runtime.open(Halt::spec()).map(drop), saying).await;
}

/// A host of its own that has come so far.
#[expect(clippy::disallowed_methods, reason = "the test needs another process")]
fn halted(fixture: &Fixture, point: Point) -> Killed {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["runtime::sessions::killed::part_a_process_that_halts", "--exact", "--nocapture"]);
    command
        .env(HOST, fixture.folder())
        .env(POINT, if point == Point::Start { "start" } else { "preparation" });
    let mut child = Killed(command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap());
    let said = BufReader::new(child.0.stdout.take().unwrap());
    assert!(said.lines().any(|line| line.unwrap() == "READY"), "the host did not come so far");
    child
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn what_one_leaves_that_dies_over_an_opening_is_removed_by_the_next_start() {
    if !test_support::has_user_namespaces() {
        return;
    }
    for (point, left_over) in [(Point::Preparation, 0), (Point::Start, 1)] {
        let fixture = Fixture::new(ExecutorKind::Jail);
        let folder = tempfile::tempdir().unwrap();
        // What is there already stays, whatever it is.
        let runtime = fixture.start().await;
        let kept = runtime.open(spec()).await.unwrap();
        ask(&kept, "$ echo kept > note").await;
        let mine = runtime.open(spec().workspace(folder.path())).await.unwrap();
        ask(&mine, "$ echo mine > note").await;
        runtime.shutdown(soon()).await.unwrap();
        // The skill is another one by now.
        fixture.write_skill("greeting", "Greets people otherwise.", "echo good day");
        let dying = halted(&fixture, point);
        assert_eq!(on_disk(&fixture), [2, 2, 1]);

        // While it lives, nobody takes anything from it.
        let runtime = fixture.start().await;
        assert_eq!(on_disk(&fixture), [2, 2, 1]);
        runtime.shutdown(soon()).await.unwrap();
        drop(dying);
        let runtime = fixture.start().await;
        let rows = 2 + left_over;
        assert_eq!(left(&fixture, &runtime).await, (rows, [1 + left_over, 1 + left_over, 0]), "{point:?}");
        let again = runtime.session(&tenant("acme"), kept.id()).await.unwrap();
        assert!(
            ask(&again, "$ cat note; sh /mnt/skills/greeting/scripts/run.sh").await.contains("kept\nhello")
        );
        assert_eq!(std::fs::read_to_string(folder.path().join("note")).unwrap(), "mine\n");
        for id in runtime.session_ids(&tenant("acme")).await.unwrap() {
            runtime.delete(&tenant("acme"), id).await.unwrap();
        }
        until_nothing_is_left(&fixture, &runtime).await;
        runtime.shutdown(soon()).await.unwrap();
    }
}

/// As a crash leaves it that came behind the record: the rest is completed, also of skills.
#[tokio::test]
async fn a_deletion_that_broke_off_is_completed_by_the_next_start() {
    if !test_support::has_user_namespaces() {
        return;
    }
    let fixture = Fixture::new(ExecutorKind::Jail);
    let runtime = fixture.start().await;
    let [gone, stays] =
        [runtime.open(spec()).await.unwrap(), runtime.open(spec().skills(["greeting"])).await.unwrap()];
    fixture.write_skill("greeting", "Greets people otherwise.", "echo good day");
    let alone = runtime.open(spec()).await.unwrap();
    runtime.shutdown(soon()).await.unwrap();
    assert_eq!(on_disk(&fixture), [3, 2, 0]);
    let journal = SqliteJournal::open(&fixture.data().join("journal"), SqliteOptions::default()).unwrap();
    let marks = fixture.data().join("tenants/acme/pending");
    for session in [&gone, &alone] {
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
    assert_eq!(left(&fixture, &runtime).await, (1, [1, 1, 0]));
    let again = runtime.session(&tenant("acme"), stays.id()).await.unwrap();
    assert_eq!(ask(&again, "$ sh /mnt/skills/greeting/scripts/run.sh").await, "it says: hello\n");
    runtime.shutdown(soon()).await.unwrap();
}

/// Without a mark, what seems to belong to nobody may belong to a journal that comes back.
#[tokio::test]
async fn what_was_not_begun_by_a_process_is_not_removed() {
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
    let again = runtime.session(&tenant("acme"), session.id()).await.unwrap();
    assert!(
        ask(&again, "$ cat note; sh /mnt/skills/greeting/scripts/run.sh").await.ends_with("kept\nhello\n")
    );
    runtime.shutdown(soon()).await.unwrap();
}
