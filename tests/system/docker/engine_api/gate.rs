//! What is asked of an engine for all sessions of a host together: so much at a time, in order, and taken back as far as it can.

use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use conjure_base::SystemClock;
use conjure_sandbox::{ContainerEngine, Docker, ExecutionContext, Sandbox, SandboxErrorKind};
use tokio::task::JoinSet;

use crate::engine_api::fake::{FakeEngine, json, with_status};
use crate::support::{soon, until, until_nobody_goes_on};
use crate::world::open;

/// Containers that are being made, and how many more will be.
#[derive(Default)]
struct Making {
    state: Mutex<(usize, usize)>,
    changed: Condvar,
}

impl Making {
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

    fn under_way(&self) -> usize {
        self.state.lock().unwrap().0
    }

    /// Lets so many more be made.
    fn release(&self, count: usize) {
        self.state.lock().unwrap().1 += count;
        self.changed.notify_all();
    }
}

/// Connectors of many sessions share the gate. Who gives up waiting takes no place, and who is late is told.
#[tokio::test]
async fn no_more_containers_are_made_at_a_time_than_there_are_processors_whoever_asks() {
    let making = Arc::new(Making::default());
    let maker = Arc::clone(&making);
    let fake = FakeEngine::new(move |method, _| match method {
        "POST" => maker.make(),
        _ => with_status("404 Not Found", r#"{"message":"No such container"}"#),
    });
    let most = std::thread::available_parallelism().unwrap().get();
    let engine = ContainerEngine::new(fake.options().engine);
    let connectors: Vec<Docker> = (0..4).map(|_| fake.connector().with_engine(engine.clone())).collect();
    // A folder is lent to one at a time.
    let folder = tempfile::tempdir().unwrap();
    let context = |name: &str| {
        let workspace = folder.path().join(name);
        std::fs::create_dir(&workspace).unwrap();
        ExecutionContext::new(workspace)
    };
    let mut opening = JoinSet::new();
    for number in 0..4 * most {
        let (connector, context) = (connectors[number % 4].clone(), context(&number.to_string()));
        opening.spawn(async move { open(&connector, &context).await });
    }
    until("as many as may are being made", || making.under_way() == most).await;
    // All the others wait. One more does, too, until its time is up, or nobody wants it.
    let late =
        Sandbox::open(&connectors[0], &context("late"), Arc::new(SystemClock), soon(1)).await.unwrap_err();
    assert_eq!(late.kind(), SandboxErrorKind::TimedOut, "{late}");
    let context = context("unwanted");
    let unwanted = tokio::time::timeout(Duration::from_millis(50), open(&connectors[1], &context)).await;
    assert!(unwanted.is_err());
    for begun in 1..=4 * most {
        assert!(making.under_way() <= most);
        making.release(1);
        let refused = opening.join_next().await.unwrap().unwrap().unwrap_err();
        assert_eq!(refused.kind(), SandboxErrorKind::Unavailable, "{refused}");
        let rest = most.min(4 * most - begun);
        // Neither the one that was late nor the one that nobody wants is among them.
        until("the next is being made", || making.under_way() == rest).await;
    }
    assert!(opening.is_empty());
}

/// An engine that does not answer may make it all the same, later: it is removed when it has appeared.
#[tokio::test]
async fn a_container_that_appears_after_the_engine_broke_off_is_removed() {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&asked);
    let fake = FakeEngine::new(move |method, path| {
        if method == "POST" {
            // It dies over it, or the time is up.
            return String::new();
        }
        let mut seen = seen.lock().unwrap();
        seen.push(format!("{method} {path}"));
        // It was slow.
        if seen.len() < 4 {
            with_status("404 Not Found", r#"{"message":"No such container"}"#)
        } else {
            json("{}")
        }
    });
    let workspace = tempfile::tempdir().unwrap();
    let lost = open(&fake.connector(), &ExecutionContext::new(workspace.path())).await.unwrap_err();
    assert_eq!(lost.kind(), SandboxErrorKind::EngineUnavailable, "{lost}");
    until("it is removed", || asked.lock().unwrap().len() == 5).await;
    let asked = asked.lock().unwrap();
    let name = asked[0].strip_prefix("GET ").and_then(|path| path.strip_suffix("/json")).unwrap();
    assert!(name.starts_with("/containers/conjure-"), "{asked:?}");
    // What is not shown is left alone.
    let asked: Vec<_> = asked.iter().map(|it| it.split('?').next().unwrap()).collect();
    let (look, removal) = (&*format!("GET {name}/json"), &*format!("DELETE {name}"));
    assert_eq!(asked, [look, look, look, look, removal]);
}

/// Where the engine says no, there is none, and it is not asked again.
#[tokio::test]
async fn a_container_that_an_engine_refuses_is_not_waited_for() {
    let asked = Arc::new(Mutex::new(0));
    let seen = Arc::clone(&asked);
    let fake = FakeEngine::new(move |method, _| {
        if method == "POST" {
            return with_status(
                "500 Internal Server Error",
                r#"{"message":"write /x: no space left on device"}"#,
            );
        }
        *seen.lock().unwrap() += 1;
        with_status("404 Not Found", r#"{"message":"No such container"}"#)
    });
    let workspace = tempfile::tempdir().unwrap();
    let refused = open(&fake.connector(), &ExecutionContext::new(workspace.path())).await.unwrap_err();
    assert_eq!(refused.kind(), SandboxErrorKind::NoSpace, "{refused}");
    until_nobody_goes_on().await;
    assert_eq!(*asked.lock().unwrap(), 1);
}
