//! Sessions that a killed host left in the middle of a turn resume automatically in the next host. The host is this program,
//! run
//! again.

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use conjure::config::ExecutorKind;
use conjure::journal::{RowStatus, SessionQuery};
use conjure::session::{SessionBody, SessionContents, SessionStatus};
use conjure::tool::{Authorization, ToolCall};
use conjure::{
    Clock as _, Runtime, RuntimeError, RuntimeOptions, SessionId, SessionSpec, SystemClock, TenantPolicy,
    approver_fn, model_fn,
};
use futures_util::{StreamExt as _, stream};
use test_support::KillOnDrop;

use crate::runtime::fixture::{Fixture, answer, ask, soon, tenant, until};

/// The environment variable with the part's host and the number of sessions per tenant.
const HOST: &str = "CONJURE_TEST_HOST";
const SESSIONS: &str = "CONJURE_TEST_SESSIONS";

const TENANTS: [&str; 4] = ["acme", "globex", "initech", "umbrella"];

/// How many are opened at the same time.
const AT_ONCE: usize = 32;

/// A model that responds, and calls that need approval.
fn options(fixture: &Fixture) -> RuntimeOptions {
    let approver = approver_fn(|call: ToolCall| async move {
        Authorization::Ask { reason: format!("may it run `{}`?", call.name) }
    });
    fixture.options().approver(approver)
}

/// The part: a host with all kinds of sessions, whose turns never end. It reports that, and runs until it is killed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn part_a_host_with_running_turns() {
    #[expect(clippy::disallowed_methods, reason = "the variable has the parameters of the part")]
    let (Ok(dir), Ok(count)) = (std::env::var(HOST), std::env::var(SESSIONS)) else { return };
    let fixture = Fixture::existing(Path::new(&dir), ExecutorKind::Jail);
    let silent = model_fn(|request: conjure::Request| async move {
        let text = request.messages.last().unwrap().text();
        if text.starts_with("$ ") || text == "hello" {
            return Ok(answer(&request));
        }
        std::future::pending().await
    });
    let runtime = Runtime::spawn(options(&fixture).model("echo", silent)).await.unwrap();
    let opening = stream::iter(0..count.parse::<usize>().unwrap()).map(|number| {
        let runtime = runtime.clone();
        async move {
            for name in TENANTS {
                let session = open(&runtime, name, number).await;
                // It is recorded; the host does not wait for its end.
                session.send(format!("number {number}")).await.unwrap();
            }
        }
    });
    opening.buffer_unordered(AT_ONCE).collect::<()>().await;
    // One is idle, one waits for an approval, one has an input in its queue, and one needs a secret.
    let idle = open(&runtime, "acme", usize::MAX).await;
    assert_eq!(ask(&idle, "hello").await, "heard: hello");
    let waiting = open(&runtime, "acme", usize::MAX).await;
    waiting.send("$ echo done").await.unwrap();
    until(async || !waiting.snapshot().await.unwrap().approvals.is_empty()).await;
    let queued = open(&runtime, "acme", usize::MAX).await;
    queued.send("first").await.unwrap();
    queued.send("second").await.unwrap();
    let spec = SessionSpec::new(tenant("acme")).secret("password", "pa55word-of-ada");
    let secretive = runtime.open(spec).await.unwrap();
    secretive.send("psst").await.unwrap();
    println!("\nREADY {} {} {} {}", idle.id(), waiting.id(), queued.id(), secretive.id());
    std::future::pending::<()>().await;
}

async fn open(runtime: &Runtime, name: &str, number: usize) -> conjure::Session {
    let spec = SessionSpec::new(tenant(name)).without_skills().metadata("number", number.to_string());
    runtime.open(spec).await.unwrap()
}

/// A host that has come so far, and the ids of the four sessions of their own kind.
#[expect(clippy::disallowed_methods, reason = "the test needs another process")]
fn host(fixture: &Fixture, sessions: usize) -> (KillOnDrop, [SessionId; 4]) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["runtime::sessions::resume::part_a_host_with_running_turns", "--exact", "--nocapture"]);
    command.env(HOST, fixture.dir()).env(SESSIONS, sessions.to_string());
    let mut child = KillOnDrop(command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap());
    let mut stdout = BufReader::new(child.0.stdout.take().unwrap()).lines().map(Result::unwrap);
    let ready = stdout.find_map(|line| Some(line.strip_prefix("READY ")?.to_owned()));
    let ready = ready.expect("the host did not come so far");
    let ids: Vec<SessionId> = ready.split(' ').map(|id| id.parse().unwrap()).collect();
    (child, ids.try_into().unwrap())
}

/// All sessions of a tenant with one of these statuses.
async fn listed(runtime: &Runtime, name: &str, statuses: &[RowStatus]) -> Vec<(SessionId, SessionContents)> {
    let mut query = SessionQuery { statuses: statuses.to_vec(), limit: 150, ..SessionQuery::default() };
    let mut found = Vec::new();
    loop {
        let page = runtime.query_sessions(&tenant(name), query.clone()).await.unwrap();
        for summary in page.sessions {
            let SessionBody::Ok(contents) = summary.body else { panic!("{summary:?}") };
            found.push((summary.id, *contents));
        }
        query.after = page.next;
        if query.after.is_none() {
            return found;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_sessions_of_a_killed_host_resume_automatically() {
    const EACH: usize = 249;
    let fixture = Fixture::new(ExecutorKind::Jail);
    let (host, [idle, waiting, queued, secretive]) = host(&fixture, EACH);
    drop(host);
    let runtime = Runtime::spawn(options(&fixture).resume_unfinished()).await.unwrap();
    for name in TENANTS {
        // One cannot continue without its secret.
        let running_count = usize::from(name == "acme");
        until(async || listed(&runtime, name, &[RowStatus::Running]).await.len() == running_count).await;
        let ended = listed(&runtime, name, &[RowStatus::Idle]).await;
        let numbers: BTreeSet<usize> =
            ended.iter().map(|(_, contents)| contents.metadata["number"].parse().unwrap()).collect();
        assert!((0..EACH).all(|number| numbers.contains(&number)), "{name}: {numbers:?}");
        for (id, contents) in ended.iter().filter(|(id, _)| *id != idle && *id != queued) {
            let number = &contents.metadata["number"];
            assert_eq!((contents.status, contents.turns), (SessionStatus::Idle, 1), "{id}");
            assert_eq!(contents.last_text, format!("heard: number {number}"), "{id}");
        }
    }
    let of_acme = listed(&runtime, "acme", &[]).await;
    let contents = |id: SessionId| of_acme.iter().find(|(other, _)| *other == id).unwrap().1.clone();
    assert_eq!((contents(idle).turns, contents(idle).last_text.as_str()), (1, "heard: hello"));
    assert_eq!((contents(queued).turns, contents(queued).last_text.as_str()), (2, "heard: second"));
    assert!(matches!(contents(secretive).status, SessionStatus::Interrupted(_)));
    // Sessions that wait for approval, or have ended their turn, were not started.
    assert!(matches!(contents(waiting).status, SessionStatus::AwaitingApproval(_)));
    let tree = runtime.tree().to_string();
    for id in [idle, waiting] {
        assert!(!tree.contains(&id.to_string()), "{id}");
    }
    runtime.shutdown(soon()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_report_lists_resumed_and_other_sessions() {
    let fixture = Fixture::new(ExecutorKind::Jail);
    let (host, [_, _, queued, secretive]) = host(&fixture, 3);
    // A tenant may have two live sessions, so the others wait for their room.
    let limited = || {
        let policy = TenantPolicy::default().live_sessions(2);
        let options = options(&fixture).tenants(policy);
        options.sessions(|sessions| sessions.idle_after = Duration::from_millis(50))
    };
    let runtime = Runtime::spawn(limited()).await.unwrap();
    // The host lives, and nothing is taken from it.
    let report = runtime.resume_unfinished(soon()).await.unwrap();
    assert_eq!((report.resumed.len(), report.held.len(), report.failed.len()), (0, 14, 0), "{report:?}");
    runtime.shutdown(soon()).await.unwrap();
    drop(host);

    let runtime = Runtime::spawn(limited()).await.unwrap();
    let report = runtime.resume_unfinished(soon()).await.unwrap();
    assert_eq!((report.resumed.len(), report.held.len()), (13, 0), "{report:?}");
    assert!(report.resumed.iter().any(|key| key.session == queued));
    let [(key, RuntimeError::MissingSecrets { .. })] = &report.failed[..] else { panic!("{report:?}") };
    assert_eq!(key.session, secretive);
    for name in TENANTS {
        let waiting = usize::from(name == "acme");
        until(async || listed(&runtime, name, &[RowStatus::Running]).await.len() == waiting).await;
    }
    // Finished turns are not resumed.
    let second = runtime.resume_unfinished(SystemClock.deadline(Duration::ZERO)).await.unwrap();
    assert_eq!((second.resumed.len(), second.held.len(), second.failed.len()), (0, 0, 1), "{second:?}");
    runtime.shutdown(soon()).await.unwrap();
}
