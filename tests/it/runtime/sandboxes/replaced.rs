//! Sandboxes that are lost during a session: they are replaced, the workspace stays, the model is told, and
//! nothing is left of them. In jails, and in containers where there is an engine.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::sync::Arc;
use std::time::Duration;

use conjure::config::ExecutorKind;
use conjure::journal::SessionKey;
use conjure::runtime::{ConnectorSource, Deadline, ExecutorSource};
use conjure::sandbox::{Boundary, ExecutionContext, Executor, Isolation, Jail, Layout, Local, SandboxError};
use conjure::{Clock as _, Config, ProcessEnv, Runtime, RuntimeError, RuntimeOptions, Settings, SystemClock};
use futures_util::future::BoxFuture;
use rustix::process::{Pid, Signal, kill_process};

use crate::processes::{bearing, first_in_namespace};
use crate::runtime::fixture::{Fixture, ask, follow, model, soon, spec};

async fn start(fixture: &Fixture, settings: Settings) -> Runtime {
    let settings = Settings { executor: Some(fixture.kind), data: Some(fixture.data()), ..settings };
    let config = Config::from_layers(settings, &ProcessEnv::from_process(), None).unwrap();
    Runtime::spawn(RuntimeOptions::from(config).model("echo", model())).await.unwrap()
}

async fn pause() {
    SystemClock.sleep_until(SystemClock.deadline(Duration::from_millis(5))).await;
}

/// The first process of the sandbox in which something with this mark runs.
async fn guest_of(mark: &str) -> Pid {
    let deadline = soon();
    loop {
        if let Some(process) = bearing(mark).first() {
            return Pid::from_raw(first_in_namespace(process.pid)).unwrap();
        }
        assert!(!SystemClock.remaining(deadline).is_zero(), "nothing ran with `{mark}`");
        pause().await;
    }
}

/// All that a sandbox's own processes are handed of the host's environment.
fn host_path() -> BTreeMap<OsString, OsString> {
    [("PATH".into(), "/usr/bin:/bin".into())].into()
}

/// A source that declares full isolation for every sandbox.
#[derive(Debug)]
struct OverclaimingSource(ConnectorSource);

impl ExecutorSource for OverclaimingSource {
    fn layout(&self) -> &Layout {
        self.0.layout()
    }

    fn isolation(&self) -> Isolation {
        Isolation::FULL
    }

    fn create(&self, deadline: Deadline) -> BoxFuture<'_, Result<Box<dyn Executor>, SandboxError>> {
        self.0.create(deadline)
    }
}

#[cfg(not(engines))]
#[tokio::test]
async fn required_isolation_applies_to_embedder_executors() {
    if !test_support::has_user_namespaces() {
        return;
    }
    let fixture = Fixture::new(ExecutorKind::Jail);
    let floor = Isolation { filesystem: Boundary::Enforced, ..Isolation::NONE };
    let config = fixture.config().with(Settings { floor: Some(floor), ..Settings::default() }).unwrap();
    // None of them looks at the floor itself.
    let open = |context| ExecutionContext { floor: Isolation::NONE, ..context };
    let bare = move |context| {
        let local = Local::without_isolation(host_path());
        ConnectorSource::new(Arc::new(local), open(context))
    };
    let runtime = Runtime::spawn(
        RuntimeOptions::from(config)
            .model("echo", model())
            .executor("weak", move |_: &SessionKey, context| Ok(Arc::new(bare(context)?) as _))
            .executor("boasting", move |_: &SessionKey, context| {
                Ok(Arc::new(OverclaimingSource(bare(context)?)) as _)
            })
            .executor("strong", move |_: &SessionKey, context| {
                let jail = Jail::new(host_path());
                Ok(Arc::new(ConnectorSource::new(Arc::new(jail), open(context))?) as _)
            }),
    )
    .await
    .unwrap();
    let refused = runtime.open(spec().sandbox("weak")).await.unwrap_err();
    assert!(matches!(refused, RuntimeError::Sandbox(_)), "{refused}");
    assert!(refused.to_string().contains("cannot enforce what is demanded of it: filesystem"), "{refused}");
    let session = runtime.open(spec().sandbox("boasting")).await.unwrap();
    let answer = ask(&session, "$ echo ran | tr a-z A-Z").await;
    assert!(answer.contains("cannot enforce what is demanded of it: filesystem"), "{answer}");
    assert!(!answer.contains("RAN"), "{answer}");
    let strong = runtime.open(spec().sandbox("strong")).await.unwrap();
    assert_eq!(ask(&strong, "$ echo ran | tr a-z A-Z").await, "it says: RAN\n");
    runtime.shutdown(soon()).await.unwrap();
}

async fn a_sandbox_that_is_killed_is_replaced(kind: ExecutorKind, settings: Settings) {
    let fixture = Fixture::new(kind);
    let runtime = start(&fixture, settings).await;
    let session = runtime.open(spec()).await.unwrap();
    let other = runtime.open(spec()).await.unwrap();
    let mark = format!("mark-of-{}", session.id());
    assert_eq!(ask(&other, "$ echo other > /tmp/note; cat /tmp/note").await, "it says: other\n");
    for round in 0..2 {
        let answer =
            ask(&session, &format!("$ echo {round} >> note; echo gone > /tmp/note; cat /tmp/note")).await;
        assert!(answer.ends_with("gone\n"), "{answer}");
        // In a call.
        let mut turn = session.send(format!("$ exec -a {mark} sleep 1000")).await.unwrap();
        kill_process(guest_of(&mark).await, Signal::KILL).unwrap();
        let (_, answer) = follow(&mut turn).await;
        assert!(answer.contains("the sandbox was lost"), "{answer}");
        // The next sandbox reports the loss, and has the retained files.
        let answer = ask(&session, "$ tail -n 1 note; ls /tmp").await;
        assert!(answer.contains("This ran in a new sandbox"), "{answer}");
        assert!(
            answer.contains("Still there: `/workspace`") && answer.contains(&format!("{round}\n")),
            "{answer}"
        );
        assert!(!answer.ends_with("note\n"), "{answer}");
        // Once.
        let answer = ask(&session, "$ wc -l < note").await;
        assert_eq!(answer, format!("it says: {}\n", round + 1));
        // Between two calls, with something in the background.
        let sleeper = format!("setsid bash -c 'exec -a {mark} sleep 1000' > /dev/null 2>&1 &");
        ask(&session, &format!("$ {sleeper} echo begun")).await;
        kill_process(guest_of(&mark).await, Signal::KILL).unwrap();
        let deadline = soon();
        while !bearing(&mark).is_empty() {
            assert!(!SystemClock.remaining(deadline).is_zero(), "it outlives its sandbox");
            pause().await;
        }
        let mut answer = ask(&session, "$ wc -l < note").await;
        if answer.contains("the sandbox was lost") {
            // It came before the host knew.
            answer = ask(&session, "$ wc -l < note").await;
        }
        assert!(answer.ends_with(&format!("{}\n", round + 1)), "{answer}");
    }
    // No other session was affected.
    assert_eq!(ask(&other, "$ cat /tmp/note").await, "it says: other\n");
    runtime.shutdown(soon()).await.unwrap();
    assert_eq!(bearing(&mark), []);
}

async fn memory_that_runs_out_is_reported_and_the_next_call_works(kind: ExecutorKind, settings: Settings) {
    let fixture = Fixture::new(kind);
    let runtime = start(&fixture, Settings { memory: Some(96 << 20), ..settings }).await;
    let session = runtime.open(spec()).await.unwrap();
    ask(&session, "$ echo kept > note").await;
    for _ in 0..2 {
        let answer = ask(&session, "$ python3 -c 'print(len(bytearray(400_000_000)))'").await;
        assert!(answer.contains("memory") && !answer.contains("400000000"), "{answer}");
        let answer = ask(&session, "$ cat note").await;
        assert!(answer.ends_with("kept\n"), "{answer}");
    }
    runtime.shutdown(soon()).await.unwrap();
}

#[cfg(not(engines))]
#[tokio::test]
async fn a_jail_that_is_killed_is_replaced() {
    if !test_support::has_user_namespaces() {
        return;
    }
    a_sandbox_that_is_killed_is_replaced(ExecutorKind::Jail, Settings::default()).await;
}

#[cfg(not(engines))]
#[tokio::test]
async fn memory_that_runs_out_in_a_jail_is_reported() {
    if !rustix::process::geteuid().is_root() {
        test_support::skip(
            "only root can have control groups for a jail on every machine",
            "run the tests as root",
        );
        return;
    }
    memory_that_runs_out_is_reported_and_the_next_call_works(ExecutorKind::Jail, Settings::default()).await;
}

#[cfg(engines)]
mod containers {
    use super::*;
    use crate::engine::{client, docker};
    use crate::image::{TestImage, test_image};

    fn of(image: &TestImage) -> Settings {
        Settings {
            image: Some(image.name().to_owned()),
            engine: Some(docker().to_string()),
            ..Settings::default()
        }
    }

    #[tokio::test]
    async fn a_killed_container_is_replaced() {
        let Some(image) = test_image() else { return };
        a_sandbox_that_is_killed_is_replaced(ExecutorKind::Docker, of(&image)).await;
    }

    #[tokio::test]
    async fn memory_that_runs_out_is_reported() {
        let Some(image) = test_image() else { return };
        memory_that_runs_out_is_reported_and_the_next_call_works(ExecutorKind::Docker, of(&image)).await;
    }

    /// Finds it by its label, and waits until it is removed.
    #[tokio::test]
    async fn a_container_names_its_session_and_is_removed_with_it() {
        let Some(image) = test_image() else { return };
        let fixture = Fixture::new(ExecutorKind::Docker);
        let runtime = start(&fixture, of(&image)).await;
        let session = runtime.open(spec()).await.unwrap();
        let engine = client(&docker()).await.unwrap();
        let filter = format!("conjure.session={}", session.id());
        let count = async || {
            let options = bollard::query_parameters::ListContainersOptionsBuilder::default()
                .all(true)
                .filters(&std::collections::HashMap::from([("label", vec![filter.as_str()])]))
                .build();
            engine.list_containers(Some(options)).await.unwrap().len()
        };
        assert_eq!(count().await, 0, "none is made before a call needs it");
        ask(&session, "$ true").await;
        assert_eq!(count().await, 1);
        session.close().await.unwrap();
        let deadline = soon();
        while count().await > 0 {
            assert!(!SystemClock.remaining(deadline).is_zero(), "it outlives its session");
            pause().await;
        }
        runtime.shutdown(soon()).await.unwrap();
    }
}
