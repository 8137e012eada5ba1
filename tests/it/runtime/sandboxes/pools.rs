//! Sessions that claim warm sandboxes: their content, what is left, and hosts that are killed with warm sandboxes.
//!
//! Where no engine answers the tests of containers say so and pass, unless `CONJURE_TEST_REQUIRE=all` is set.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use conjure::config::{ExecutorKind, PoolSettings};
use conjure::runtime::PoolStats;
use conjure::session::SessionSecrets;
use conjure::{Clock as _, Request, Runtime, RuntimeOptions, SessionSpec, Settings, SystemClock, model_fn};
use futures_util::future::join_all;
use test_support::KillOnDrop;

use crate::processes::{Process, bearing, guests_in, processes, sigkill};
use crate::runtime::fixture::{Fixture, answer, ask, soon, spec, tenant};
use crate::runtime::open_failpoints::pause;

/// The environment variable with the parameters of the part.
const HOST: &str = "CONJURE_TEST_POOL_HOST";

pub(crate) fn pool_settings(kind: ExecutorKind, count: usize) -> PoolSettings {
    match kind {
        ExecutorKind::Docker => PoolSettings { docker: Some(count), ..PoolSettings::default() },
        _ => PoolSettings { jail: Some(count), ..PoolSettings::default() },
    }
}

pub(crate) fn options(fixture: &Fixture, count: usize) -> RuntimeOptions {
    fixture.options().pool(pool_settings(fixture.kind, count))
}

/// A runtime whose warm sandboxes are ready.
pub(crate) async fn filled(fixture: &Fixture, count: usize) -> Runtime {
    let runtime = Runtime::spawn(options(fixture, count)).await.unwrap();
    until(&runtime, |pool| pool.ready == count).await;
    runtime
}

pub(crate) async fn until(runtime: &Runtime, is_so: impl Fn(&PoolStats) -> bool) {
    let deadline = soon();
    while !is_so(&runtime.pools()[0]) {
        assert!(!SystemClock.remaining(deadline).is_zero(), "{:?}", runtime.pools());
        pause().await;
    }
}

/// The files of warm sandboxes on the disk.
pub(crate) fn leftovers(fixture: &Fixture) -> Vec<String> {
    let dirs = ["sandboxes", "workspaces"].map(|name| fixture.data().join("pool").join(name));
    let entries = dirs.iter().filter_map(|dir| fs::read_dir(dir).ok()).flatten();
    entries.map(|entry| entry.unwrap().path().display().to_string()).collect()
}

pub(crate) fn session_dir(fixture: &Fixture, tenant: &str, session: &conjure::Session) -> PathBuf {
    fixture.data().join("tenants").join(tenant).join("workspaces").join(session.id().stored_name())
}

/// A first call has what it has in a sandbox that was made for it; what was taken is replaced; nothing is left.
async fn a_session_takes_a_warm_sandbox(fixture: &Fixture) {
    let runtime = filled(fixture, 2).await;
    let tree = runtime.tree().to_string();
    assert!(tree.contains("pools") && tree.contains(fixture.kind.as_str()), "{tree}");
    let session = runtime.open(spec().environment("GREETING", "good day")).await.unwrap();
    let run = "$ sh /mnt/skills/greeting/scripts/run.sh; echo $GREETING; pwd; ls -A; echo kept > note";
    assert_eq!(ask(&session, run).await, "it says: hello\ngood day\n/workspace\n");
    assert_eq!((runtime.pools()[0].hits, runtime.pools()[0].misses), (1, 0));
    let session_dir = session_dir(fixture, "acme", &session);
    assert_eq!(fs::read_to_string(session_dir.join("workspace/note")).unwrap(), "kept\n");
    until(&runtime, |pool| pool.ready == 2).await;
    // In a directory of the host's, in a sandbox that is made for it.
    let own_dir = tempfile::tempdir().unwrap();
    let with_own_workspace = runtime.open(spec().workspace(own_dir.path())).await.unwrap();
    assert_eq!(ask(&with_own_workspace, "$ echo mine > note; cat note").await, "it says: mine\n");
    assert_eq!(fs::read_to_string(own_dir.path().join("note")).unwrap(), "mine\n");
    let pool = &runtime.pools()[0];
    assert_eq!((pool.hits, pool.misses, pool.ready, pool.failed, pool.died), (1, 1, 2, 0, 0));
    runtime.shutdown(soon()).await.unwrap();
    assert_eq!(leftovers(fixture), [""; 0]);
    // After a restart it continues, in a warm sandbox that takes over its files.
    let runtime = filled(fixture, 1).await;
    let secrets = SessionSecrets::new().environment("GREETING", "good day");
    let revived = runtime.session_with(&tenant("acme"), session.id(), secrets).await.unwrap();
    let answer = ask(&revived, "$ cat note; echo $GREETING").await;
    assert!(answer.ends_with("kept\ngood day\n"), "{answer}");
    assert_eq!(runtime.pools()[0].hits, 1);
    assert_eq!(fs::read_dir(&session_dir).unwrap().count(), 1, "nothing lies beside its workspace");
    runtime.delete(&tenant("acme"), session.id()).await.unwrap();
    assert!(!session_dir.exists());
    runtime.shutdown(soon()).await.unwrap();
    assert_eq!(leftovers(fixture), [""; 0]);
}

#[cfg(not(engines))]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_takes_a_warm_sandbox_jail() {
    if !test_support::has_user_namespaces() {
        return;
    }
    a_session_takes_a_warm_sandbox(&Fixture::new(ExecutorKind::Jail)).await;
}

#[cfg(engines)]
#[test]
fn a_session_takes_a_warm_sandbox_container() {
    let Some(image) = crate::image::test_image() else { return };
    let fixture = Fixture::in_containers(&image);
    let threads = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    threads.block_on(a_session_takes_a_warm_sandbox(&fixture));
}

/// Nobody finds what another tenant left in a warm sandbox of the common pool.
#[cfg(not(engines))]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tenants_of_one_pool_are_isolated() {
    if !test_support::has_user_namespaces() {
        return;
    }
    let fixture = Fixture::new(ExecutorKind::Jail);
    let runtime = filled(&fixture, 2).await;
    let open = async |whose: &str| {
        let spec = SessionSpec::new(tenant(whose)).environment("CANARY", format!("canary-of-{whose}"));
        runtime.open(spec).await.unwrap()
    };
    let look = "$ env | grep canary; cat /workspace/* /tmp/* ~/* 2>/dev/null; \
                echo canary-of-$WHOSE-$CANARY | tee /workspace/file /tmp/file ~/file > /dev/null";
    for round in 0..3 {
        for whose in ["acme", "beta"] {
            let session = open(whose).await;
            let answer = ask(&session, look).await;
            assert_eq!(answer, format!("it says: CANARY=canary-of-{whose}\n"), "round {round}");
            session.close().await.unwrap();
            until(&runtime, |pool| pool.ready == 2).await;
        }
    }
    assert_eq!(runtime.pools()[0].hits, 6);
    runtime.shutdown(soon()).await.unwrap();
}

/// The replacement comes from the pool. It has the same workspace, and the model is told what is gone.
#[cfg(not(engines))]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_sandbox_is_replaced_by_a_warm_sandbox_with_the_same_files() {
    if !test_support::has_user_namespaces() {
        return;
    }
    let fixture = Fixture::new(ExecutorKind::Jail);
    let runtime = filled(&fixture, 1).await;
    let session = runtime.open(spec()).await.unwrap();
    ask(&session, "$ mkdir -p a/b; echo kept | tee a/b/note .hidden /tmp/note").await;
    until(&runtime, |pool| pool.ready == 1).await;
    let path = session_dir(&fixture, "acme", &session).join("workspace");
    let has_it = |process: &Process| {
        let mounts = fs::read_to_string(format!("/proc/{}/mountinfo", process.pid));
        mounts.is_ok_and(|mounts| mounts.contains(path.to_str().unwrap()))
    };
    // The others go with it.
    sigkill(processes().into_iter().find(has_it).unwrap().pid);
    until(&runtime, |pool| pool.hits == 2).await;
    let answer =
        ask(&session, "$ cat a/b/note .hidden; ls /tmp; sh /mnt/skills/greeting/scripts/run.sh").await;
    assert!(answer.ends_with("kept\nkept\nhello\n") && answer.contains("sandbox"), "{answer}");
    runtime.shutdown(soon()).await.unwrap();
    assert_eq!(fs::read_to_string(path.join("a/b/note")).unwrap(), "kept\n");
    assert_eq!(leftovers(&fixture), [""; 0]);
}

/// The pool is smaller than the number of sessions. Still, each session works in its own sandbox, and never do more sandboxes start at once
/// than the limit allows.
async fn many_sessions_at_once_have_a_warm_sandbox_or_wait_for_their_sandbox(
    fixture: &Fixture,
    count: usize,
) {
    let settings = PoolSettings { starts_at_once: Some(2), ..pool_settings(fixture.kind, 4) };
    let (runtimes, max_starts) = (Arc::new(OnceLock::<Runtime>::new()), Arc::new(AtomicU32::new(0)));
    // At every call of the model, before and after every tool call: how many are being started.
    let model = {
        let (runtimes, max_starts) = (Arc::clone(&runtimes), Arc::clone(&max_starts));
        model_fn(move |request: Request| {
            if let Some(runtime) = runtimes.get() {
                max_starts.fetch_max(runtime.pools()[0].running_starts, Ordering::Relaxed);
            }
            async move { Ok(answer(&request)) }
        })
    };
    // Each waits for all that are before it.
    let patient = Settings { tool_timeout: Some(Duration::from_secs(300)), ..Settings::default() };
    let config = fixture.config().with(patient).unwrap();
    let options = RuntimeOptions::from(config).model("counting", model).pool(settings);
    let runtime = Runtime::spawn(options).await.unwrap();
    until(&runtime, |pool| pool.ready == 4).await;
    runtimes.set(runtime.clone()).unwrap();
    let open = (0..count).map(|number| {
        let whose = format!("t{}", number % 7);
        runtime.open(SessionSpec::new(tenant(&whose)).environment("WHOSE", whose).without_skills())
    });
    let sessions: Vec<_> = join_all(open).await.into_iter().map(Result::unwrap).collect();
    // Existing files come first, if there are any; then the identity of the sandbox.
    let look = |number: usize| {
        format!(
            "$ cat /workspace/* /tmp/* ~/* 2>/dev/null; echo left by {number} | tee /workspace/file /tmp/file ~/file > /dev/null; \
             echo $WHOSE {number}; readlink /proc/self/ns/mnt"
        )
    };
    let all = sessions.iter().enumerate().map(async |(number, session)| ask(session, &look(number)).await);
    let mut sandboxes = BTreeSet::new();
    for (number, answer) in join_all(all).await.into_iter().enumerate() {
        let answer_rest = answer.strip_prefix(&format!("it says: t{} {number}\nmnt:", number % 7));
        assert!(sandboxes.insert(answer_rest.expect(&answer).to_owned()), "{answer} is another's, too");
    }
    let pool = &runtime.pools()[0];
    assert_eq!(pool.hits + pool.misses, count as u64, "{pool:?}");
    assert!(pool.hits >= 4, "{pool:?}");
    assert_eq!((pool.starts_at_once, pool.failed, pool.died, pool.retired), (2, 0, 0, 0), "{pool:?}");
    // It is full again, and no fuller, while all of them live.
    until(&runtime, |pool| pool.ready == 4 && pool.running_starts == 0).await;
    let pool = &runtime.pools()[0];
    assert_eq!((pool.refills, pool.starting, pool.waiting), (pool.hits + 4, 0, 0), "{pool:?}");
    assert_eq!(max_starts.load(Ordering::Relaxed), 2, "all that may be, and no more");
    runtime.shutdown(soon()).await.unwrap();
    assert_eq!(leftovers(fixture), [""; 0]);
    assert_eq!(guests_in(&fixture.data()), [0; 0]);
}

#[cfg(not(engines))]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sixty_four_sessions_at_once_have_a_warm_sandbox_or_wait_for_their_sandbox() {
    if !test_support::has_user_namespaces() {
        return;
    }
    many_sessions_at_once_have_a_warm_sandbox_or_wait_for_their_sandbox(
        &Fixture::new(ExecutorKind::Jail),
        64,
    )
    .await;
}

#[cfg(engines)]
#[test]
fn twelve_sessions_at_once_have_a_warm_sandbox_or_wait_for_their_container() {
    let Some(image) = crate::image::test_image() else { return };
    let fixture = Fixture::in_containers(&image);
    let threads = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    threads.block_on(many_sessions_at_once_have_a_warm_sandbox_or_wait_for_their_sandbox(&fixture, 12));
}

/// A pool that cannot be filled harms nothing: sessions that need its sandboxes fail with the reason, all others work.
#[cfg(all(feature = "docker", not(engines)))]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pool_without_an_engine_is_reported_and_blocks_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let engine = format!("unix://{}", dir.path().join("none.sock").display());
    let settings = Settings { engine: Some(engine), ..Settings::default() };
    let fixture = Fixture::with(ExecutorKind::Jail, settings);
    let runtime =
        Runtime::spawn(fixture.options().pool(pool_settings(ExecutorKind::Docker, 3))).await.unwrap();
    until(&runtime, |pool| pool.failed > 0).await;
    let pool = &runtime.pools()[0];
    assert!(pool.last_failure.as_ref().unwrap().contains("none.sock") && pool.ready == 0, "{pool:?}");
    let session = runtime.open(spec()).await.unwrap();
    assert_eq!(ask(&session, "$ echo well").await, "it says: well\n");
    let other = runtime.open(spec().sandbox("docker")).await.unwrap();
    let answer = ask(&other, "$ echo well").await;
    assert!(answer.contains("none.sock"), "{answer}");
    runtime.shutdown(soon()).await.unwrap();
}

/// The part: a host with idle warm sandboxes and a session with a claimed one. It runs until it is killed.
#[cfg(not(engines))]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn part_a_process_with_warm_sandboxes() {
    #[expect(clippy::disallowed_methods, reason = "the variable has the parameters of the part")]
    let Ok(dir) = std::env::var(HOST) else { return };
    let fixture = Fixture::existing(Path::new(&dir), ExecutorKind::Jail);
    let runtime = filled(&fixture, 2).await;
    let session = runtime.open(spec()).await.unwrap();
    ask(&session, "$ echo kept > note").await;
    until(&runtime, |pool| pool.ready == 2).await;
    println!("\nREADY {}", session.id());
    std::future::pending::<()>().await;
}

/// The next host has no pool itself.
#[cfg(not(engines))]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn warm_sandboxes_of_a_killed_process_are_removed_at_the_next_start() {
    if !test_support::has_user_namespaces() {
        return;
    }
    let fixture = Fixture::new(ExecutorKind::Jail);
    #[expect(clippy::disallowed_methods, reason = "the test needs another process")]
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["runtime::sandboxes::pools::part_a_process_with_warm_sandboxes", "--exact", "--nocapture"]);
    command.env(HOST, fixture.dir());
    let mut process = KillOnDrop(command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap());
    let stdout = BufReader::new(process.0.stdout.take().unwrap());
    let ready = stdout.lines().find_map(|line| line.unwrap().strip_prefix("READY ").map(str::to_owned));
    let id: conjure::SessionId = ready.expect("the host came so far").parse().unwrap();
    assert_eq!(leftovers(&fixture).len(), 6);
    drop(process);
    let deadline = soon();
    while !bearing(fixture.data().to_str().unwrap()).is_empty() {
        assert!(!SystemClock.remaining(deadline).is_zero());
        pause().await;
    }
    let runtime = fixture.start().await;
    assert_eq!(leftovers(&fixture), [""; 0]);
    assert_eq!(runtime.pools(), []);
    let revived = runtime.session(&tenant("acme"), id).await.unwrap();
    assert!(ask(&revived, "$ cat note").await.ends_with("kept\n"));
    runtime.shutdown(soon()).await.unwrap();
}
