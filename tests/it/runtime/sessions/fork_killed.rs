//! Hosts that are killed while they fork a session: the fork is complete or absent at the next start. The host is this program,
//! run again.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use conjure::SessionId;
use conjure::config::ExecutorKind;
use conjure::session::ForkPoint;
use futures_util::FutureExt as _;
use test_support::KillOnDrop;

use crate::runtime::fixture::{Fixture, ask, soon, tenant};
use crate::runtime::open_failpoints::{OpenHalt, OpenStage, leftovers, on_disk};

/// The environment variable with the part's host, the session to fork, and the failpoint.
const HOST: &str = "CONJURE_TEST_FORK_HOST";
const SESSION: &str = "CONJURE_TEST_FORK_SESSION";
const POINT: &str = "CONJURE_TEST_FORK_POINT";

/// The part: a host that forks a session, halts half way, reports that, and runs until it is killed.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn part_a_process_that_halts() {
    #[expect(clippy::disallowed_methods, reason = "the variable has the parameters of the part")]
    let [Ok(dir), Ok(session), Ok(point)] = [HOST, SESSION, POINT].map(std::env::var) else { return };
    let fixture = Fixture::existing(Path::new(&dir), ExecutorKind::Local);
    let halt = OpenHalt::at(if point == "start" { OpenStage::Start } else { OpenStage::Preparation });
    let runtime = halt.start(&fixture).await;
    let saying = async {
        halt.reached(1).await;
        println!("\nREADY");
        std::future::pending::<()>().await;
    };
    let (acme, id) = (tenant("acme"), session.parse().unwrap());
    let forking = runtime.fork(&acme, id, ForkPoint::End).map(drop);
    futures_util::future::join(forking, saying).await;
}

/// A host of its own that has come so far.
#[expect(clippy::disallowed_methods, reason = "the test needs another process")]
fn start_halted(fixture: &Fixture, session: SessionId, point: OpenStage) -> KillOnDrop {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["runtime::sessions::fork_killed::part_a_process_that_halts", "--exact", "--nocapture"]);
    command
        .env(HOST, fixture.dir())
        .env(SESSION, session.to_string())
        .env(POINT, if point == OpenStage::Start { "start" } else { "preparation" });
    let mut child = KillOnDrop(command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap());
    let stdout = BufReader::new(child.0.stdout.take().unwrap());
    assert!(stdout.lines().any(|line| line.unwrap() == "READY"), "the host did not come so far");
    child
}

/// Before the record, the copy of the workspace is removed; behind it, the fork is whole.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_fork_killed_half_way_is_complete_or_absent() {
    for (point, forks) in [(OpenStage::Preparation, 0), (OpenStage::Start, 1)] {
        let fixture = Fixture::new(ExecutorKind::Local);
        let open = OpenHalt::at(OpenStage::Preparation);
        open.release();
        let runtime = open.start(&fixture).await;
        let session = runtime.open(OpenHalt::spec()).await.unwrap();
        ask(&session, "hello").await;
        runtime.shutdown(soon()).await.unwrap();
        let note = |id: SessionId| {
            let dir = fixture.data().join("tenants/acme/workspaces").join(id.stored_name());
            dir.join("workspace/note")
        };
        std::fs::write(note(session.id()), "kept").unwrap();
        let process = start_halted(&fixture, session.id(), point);
        assert_eq!(on_disk(&fixture), [2, 1, 1], "{point:?}");

        drop(process);
        let runtime = open.start(&fixture).await;
        assert_eq!(leftovers(&fixture, &runtime).await, (1 + forks, [1 + forks, 1, 0]), "{point:?}");
        for id in runtime.session_ids(&tenant("acme")).await.unwrap() {
            let revived = runtime.session(&tenant("acme"), id).await.unwrap();
            assert_eq!(std::fs::read_to_string(note(id)).unwrap(), "kept");
            assert_eq!(ask(&revived, "and now").await, "heard: and now");
        }
        runtime.shutdown(soon()).await.unwrap();
    }
}
