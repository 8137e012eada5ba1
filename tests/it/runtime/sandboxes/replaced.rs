//! Sandboxes that are lost under a session, through the runtime: they are replaced, the workspace stays, the model is told, and
//! nothing is left of them (A9, S3, S5, S11). In jails, and in containers where there is an engine.

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

/// A source that says it keeps everything apart, whatever it opens.
#[derive(Debug)]
struct Boasting(ConnectorSource);

impl ExecutorSource for Boasting {
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
async fn what_the_configuration_demands_is_demanded_of_an_embedders_own_executors() {
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
            .executor("boasting", move |_: &SessionKey, context| Ok(Arc::new(Boasting(bare(context)?)) as _))
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
    let boasting = runtime.open(spec().sandbox("boasting")).await.unwrap();
    let said = ask(&boasting, "$ echo ran | tr a-z A-Z").await;
    assert!(said.contains("cannot enforce what is demanded of it: filesystem"), "{said}");
    assert!(!said.contains("RAN"), "{said}");
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
        let said =
            ask(&session, &format!("$ echo {round} >> note; echo gone > /tmp/note; cat /tmp/note")).await;
        assert!(said.ends_with("gone\n"), "{said}");
        // In a call.
        let mut turn = session.send(format!("$ exec -a {mark} sleep 1000")).await.unwrap();
        kill_process(guest_of(&mark).await, Signal::KILL).unwrap();
        let (_, said) = follow(&mut turn).await;
        assert!(said.contains("the sandbox was lost"), "{said}");
        // The next one says what is gone, and has what was kept.
        let said = ask(&session, "$ tail -n 1 note; ls /tmp").await;
        assert!(said.contains("This ran in a new sandbox"), "{said}");
        assert!(said.contains("Still there: `/workspace`") && said.contains(&format!("{round}\n")), "{said}");
        assert!(!said.ends_with("note\n"), "{said}");
        // Once.
        let said = ask(&session, "$ wc -l < note").await;
        assert_eq!(said, format!("it says: {}\n", round + 1));
        // Between two calls, with something in the background.
        let sleeper = format!("setsid bash -c 'exec -a {mark} sleep 1000' > /dev/null 2>&1 &");
        ask(&session, &format!("$ {sleeper} echo begun")).await;
        kill_process(guest_of(&mark).await, Signal::KILL).unwrap();
        let deadline = soon();
        while !bearing(&mark).is_empty() {
            assert!(!SystemClock.remaining(deadline).is_zero(), "it outlives its sandbox");
            pause().await;
        }
        let mut said = ask(&session, "$ wc -l < note").await;
        if said.contains("the sandbox was lost") {
            // It came before the host knew.
            said = ask(&session, "$ wc -l < note").await;
        }
        assert!(said.ends_with(&format!("{}\n", round + 1)), "{said}");
    }
    // Nobody else noticed.
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
        let said = ask(&session, "$ python3 -c 'print(len(bytearray(400_000_000)))'").await;
        assert!(said.contains("memory") && !said.contains("400000000"), "{said}");
        let said = ask(&session, "$ cat note").await;
        assert!(said.ends_with("kept\n"), "{said}");
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
    async fn one_that_is_killed_is_replaced() {
        let Some(image) = test_image() else { return };
        a_sandbox_that_is_killed_is_replaced(ExecutorKind::Docker, of(&image)).await;
    }

    #[tokio::test]
    async fn memory_that_runs_out_is_reported() {
        let Some(image) = test_image() else { return };
        memory_that_runs_out_is_reported_and_the_next_call_works(ExecutorKind::Docker, of(&image)).await;
    }

    /// By its label, and then it is gone.
    #[tokio::test]
    async fn one_says_whose_it_is_and_goes_with_its_session() {
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
