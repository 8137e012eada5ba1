//! The requests of all sessions of a host to an engine: limited, in order, and undone where possible.

use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use conjure_base::SystemClock;
use conjure_sandbox::{ContainerEngine, Docker, ExecutionContext, Sandbox, SandboxErrorKind};
use tokio::task::JoinSet;

use crate::container_fixture::open;
use crate::engine_api::fake_engine::{FakeEngine, json, with_status};
use crate::support::{soon, until, until_no_process_runs};

/// Containers that are being made, and how many more will be.
#[derive(Default)]
struct PendingCreations {
    state: Mutex<(usize, usize)>,
    changed: Condvar,
}

impl PendingCreations {
    /// Has one made, as soon as that is let; it fails then.
    fn make(&self) -> String {
        let mut state = self.state.lock().unwrap();
        state.0 += 1;
        while state.1 == 0 {
            state = self.changed.wait(state).unwrap();
        }
        state.0 -= 1;
        state.1 -= 1;
        with_status("500 Internal Server Error", r#"{"message":"enough"}"#)
    }

    fn running(&self) -> usize {
        self.state.lock().unwrap().0
    }

    /// Lets this many more be made.
    fn release(&self, count: usize) {
        self.state.lock().unwrap().1 += count;
        self.changed.notify_all();
    }
}

/// Connectors of many sessions share the gate. Who gives up waiting takes no place, and who is late is told.
#[tokio::test]
async fn concurrent_container_creations_are_limited_to_the_processors() {
    let making = Arc::new(PendingCreations::default());
    let maker = Arc::clone(&making);
    let fake = FakeEngine::new(move |method, _| match method {
        "POST" => maker.make(),
        _ => with_status("404 Not Found", r#"{"message":"No such container"}"#),
    });
    let max = std::thread::available_parallelism().unwrap().get();
    let engine = ContainerEngine::new(fake.options().engine);
    let connectors: Vec<Docker> = (0..4).map(|_| fake.connector().with_engine(engine.clone())).collect();
    // A directory is lent to one at a time.
    let dir = tempfile::tempdir().unwrap();
    let context = |name: &str| {
        let workspace = dir.path().join(name);
        std::fs::create_dir(&workspace).unwrap();
        ExecutionContext::new(workspace)
    };
    let mut opening = JoinSet::new();
    for number in 0..4 * max {
        let (connector, context) = (connectors[number % 4].clone(), context(&number.to_string()));
        opening.spawn(async move { open(&connector, &context).await });
    }
    until("as many as may are being made", || making.running() == max).await;
    // All the others wait. One more does, too, until its time is up, or nobody wants it.
    let error =
        Sandbox::open(&connectors[0], &context("late"), Arc::new(SystemClock), soon(1)).await.unwrap_err();
    assert_eq!(error.kind(), SandboxErrorKind::TimedOut, "{error}");
    let context = context("unwanted");
    let unwanted = tokio::time::timeout(Duration::from_millis(50), open(&connectors[1], &context)).await;
    assert!(unwanted.is_err());
    for count in 1..=4 * max {
        assert!(making.running() <= max);
        making.release(1);
        let refused = opening.join_next().await.unwrap().unwrap().unwrap_err();
        assert_eq!(refused.kind(), SandboxErrorKind::Unavailable, "{refused}");
        let rest = max.min(4 * max - count);
        // Neither the one that was late nor the one that nobody wants is among them.
        until("the next is being made", || making.running() == rest).await;
    }
    assert!(opening.is_empty());
}

/// An engine that does not answer may make it all the same, later: it is removed when it has appeared.
#[tokio::test]
async fn a_container_created_after_a_lost_connection_is_removed() {
    let requests = Arc::new(Mutex::new(Vec::new()));
    let recorded = Arc::clone(&requests);
    let fake = FakeEngine::new(move |method, path| {
        if method == "POST" {
            // It dies over it, or the time is up.
            return String::new();
        }
        let mut recorded = recorded.lock().unwrap();
        recorded.push(format!("{method} {path}"));
        // It was slow.
        if recorded.len() < 4 {
            with_status("404 Not Found", r#"{"message":"No such container"}"#)
        } else {
            json("{}")
        }
    });
    let workspace = tempfile::tempdir().unwrap();
    let lost = open(&fake.connector(), &ExecutionContext::new(workspace.path())).await.unwrap_err();
    assert_eq!(lost.kind(), SandboxErrorKind::EngineUnavailable, "{lost}");
    until("it is removed", || requests.lock().unwrap().len() == 5).await;
    let requests = requests.lock().unwrap();
    let name = requests[0].strip_prefix("GET ").and_then(|path| path.strip_suffix("/json")).unwrap();
    assert!(name.starts_with("/containers/conjure-"), "{requests:?}");
    // Containers that are not listed are not touched.
    let requests: Vec<_> = requests.iter().map(|it| it.split('?').next().unwrap()).collect();
    let (look, removal) = (&*format!("GET {name}/json"), &*format!("DELETE {name}"));
    assert_eq!(requests, [look, look, look, look, removal]);
}

/// Where the engine says no, there is none, and it is not asked again.
#[tokio::test]
async fn a_rejected_container_is_not_waited_for() {
    let requests = Arc::new(Mutex::new(0));
    let recorded = Arc::clone(&requests);
    let fake = FakeEngine::new(move |method, _| {
        if method == "POST" {
            return with_status(
                "500 Internal Server Error",
                r#"{"message":"write /x: no space left on device"}"#,
            );
        }
        *recorded.lock().unwrap() += 1;
        with_status("404 Not Found", r#"{"message":"No such container"}"#)
    });
    let workspace = tempfile::tempdir().unwrap();
    let refused = open(&fake.connector(), &ExecutionContext::new(workspace.path())).await.unwrap_err();
    assert_eq!(refused.kind(), SandboxErrorKind::NoSpace, "{refused}");
    until_no_process_runs().await;
    assert_eq!(*requests.lock().unwrap(), 1);
}
