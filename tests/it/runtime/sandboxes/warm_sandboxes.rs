//! Warm sandboxes that crash, and isolation between the tenants that use them. In jails, and in containers where there is an
//! engine.

use std::fs;
use std::time::Duration;

use conjure::config::{ExecutorKind, PoolSettings};
use conjure::{Clock as _, Runtime, RuntimeOptions, Session, SessionSpec, SystemClock};
use futures_util::future::join_all;

use crate::processes::{guests_in, sigkill};
use crate::runtime::fixture::{Fixture, ask, soon, spec, tenant};
use crate::runtime::open_failpoints::pause;
use crate::runtime::sandboxes::pools::{filled, leftovers, options, pool_settings, session_dir, until};

/// Those of warm sandboxes that wait.
fn waiting(fixture: &Fixture) -> Vec<i32> {
    guests_in(&fixture.data().join("pool").join("workspaces"))
}

fn kill(guests: &[i32]) {
    guests.iter().for_each(|guest| sigkill(*guest));
}

async fn open(runtime: &Runtime) -> Session {
    runtime.open(spec()).await.unwrap()
}

/// A warm sandbox that was killed in the pool is not claimed: the next session gets the other one, and both are replaced.
async fn a_warm_sandbox_that_is_killed_while_it_waits_is_replaced(fixture: &Fixture) {
    let runtime = filled(fixture, 2).await;
    let before = waiting(fixture);
    assert_eq!(before.len(), 2, "{before:?}");
    kill(&before[..1]);
    until(&runtime, |pool| pool.died == 1).await;
    let session = open(&runtime).await;
    assert_eq!(ask(&session, "$ echo well").await, "it says: well\n");
    assert_eq!((runtime.pools()[0].hits, runtime.pools()[0].misses), (1, 0));
    until(&runtime, |pool| pool.ready == 2).await;
    let after = waiting(fixture);
    assert_eq!(after.len(), 2, "{after:?}");
    assert!(!after.contains(&before[0]));
    let pool = &runtime.pools()[0];
    assert_eq!((pool.died, pool.refills, pool.failed), (1, 4, 0), "{pool:?}");
    runtime.shutdown(soon()).await.unwrap();
    assert_eq!((leftovers(fixture), guests_in(&fixture.data())), (Vec::new(), Vec::new()));
}

#[cfg(not(engines))]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_warm_sandbox_that_is_killed_while_it_waits_is_replaced_jail() {
    if !test_support::has_user_namespaces() {
        return;
    }
    a_warm_sandbox_that_is_killed_while_it_waits_is_replaced(&Fixture::new(ExecutorKind::Jail)).await;
}

/// All of them die, and just then sessions take them: each call works, or says that its sandbox was lost and what it did is not
/// known; the next one of each works; and the pool is full again soon, as all that died together counts once.
async fn warm_sandboxes_that_crash_while_claimed_harm_nobody(fixture: &Fixture, count: usize) {
    let runtime = filled(fixture, count).await;
    let sessions = join_all((0..count).map(|_| open(&runtime))).await;
    let guests = waiting(fixture);
    assert_eq!(guests.len(), count);
    let killer = std::thread::spawn(move || kill(&guests));
    let answers =
        join_all(sessions.iter().map(|session| ask(session, "$ echo well; echo kept >> note"))).await;
    killer.join().unwrap();
    // Each that the pool has lives: of those that were killed it gives none away any more.
    until(&runtime, |pool| pool.ready == count && waiting(fixture).len() == count).await;
    for (session, answers) in sessions.iter().zip(&answers) {
        assert!(answers.ends_with("well\n") || answers.contains("the sandbox was lost"), "{answers}");
        let mut second = ask(session, "$ touch note; cat note; echo better").await;
        if second.contains("the sandbox was lost") {
            // It came before the host knew.
            second = ask(session, "$ touch note; cat note; echo better").await;
        }
        assert!(second.ends_with("better\n"), "{second}");
        // The command runs.
        assert!(!answers.ends_with("well\n") || second.contains("kept\nbetter\n"), "{answers}: {second}");
    }
    until(&runtime, |pool| pool.ready == count).await;
    let pool = &runtime.pools()[0];
    assert!(pool.hits + pool.misses >= count as u64 && pool.failed == 0, "{pool:?}");
    let session = open(&runtime).await;
    assert_eq!(ask(&session, "$ echo well").await, "it says: well\n");
    runtime.shutdown(soon()).await.unwrap();
    assert_eq!((leftovers(fixture), guests_in(&fixture.data())), (Vec::new(), Vec::new()));
}

#[cfg(not(engines))]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn warm_sandboxes_that_die_as_they_are_taken_harm_nobody_jail() {
    if !test_support::has_user_namespaces() {
        return;
    }
    for _ in 0..3 {
        warm_sandboxes_that_crash_while_claimed_harm_nobody(&Fixture::new(ExecutorKind::Jail), 8).await;
    }
}

/// Leaves the variable's value wherever a command can, and with something that stays.
const LEAVE: &str = "$ for directory in /workspace /tmp /var/tmp /dev/shm ~; do \
                     echo $CANARY > $directory/$CANARY 2>/dev/null; done; \
                     (exec -a $CANARY setsid sleep 1000 > /dev/null 2>&1 &) ; ls /tmp";

/// Tells of all that is to be found there.
const LOOK: &str = "$ (env; cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline | tr '\\0' '\\n'; find / -xdev -name '*-of-acme'; \
                    cat /workspace/* /tmp/* /var/tmp/* /dev/shm/* ~/*; ls -R /mnt /artifacts) 2>/dev/null; echo looked";

/// Whatever a tenant does in a warm sandbox, the next tenant gets another sandbox, without a trace of it.
async fn traces_of_a_tenant_in_a_warm_sandbox_reach_no_other(fixture: &Fixture) {
    let runtime = filled(fixture, 1).await;
    let mark = "canary-of-acme";
    let acme = runtime.open(SessionSpec::new(tenant("acme")).environment("CANARY", mark)).await.unwrap();
    assert_eq!(ask(&acme, LEAVE).await, format!("it says: {mark}\n"));
    let own_output = ask(&acme, LOOK).await;
    assert!(
        own_output.matches(mark).count() >= 8 && own_output.contains("greeting"),
        "it looks where it left something: {own_output}"
    );
    // While that one lives, and after it.
    for round in 0..2 {
        until(&runtime, |pool| pool.ready == 1).await;
        let beta = runtime.open(SessionSpec::new(tenant("beta")).without_skills()).await.unwrap();
        let answer = ask(&beta, LOOK).await;
        assert!(answer.ends_with("looked\n") && answer.contains("PATH="), "round {round}: {answer}");
        assert!(!answer.contains(mark) && !answer.contains("greeting"), "round {round}: {answer}");
        beta.close().await.unwrap();
        acme.close().await.unwrap();
    }
    let pool = &runtime.pools()[0];
    assert_eq!((pool.hits, pool.misses), (3, 0), "{pool:?}");
    runtime.shutdown(soon()).await.unwrap();
    assert_eq!((leftovers(fixture), guests_in(&fixture.data())), (Vec::new(), Vec::new()));
}

#[cfg(not(engines))]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn traces_of_a_tenant_in_a_warm_sandbox_reach_no_other_jail() {
    if !test_support::has_user_namespaces() {
        return;
    }
    traces_of_a_tenant_in_a_warm_sandbox_reach_no_other(&Fixture::new(ExecutorKind::Jail)).await;
}

/// Where no warm sandbox can be made, sandboxes are made for their sessions; when it can be again, there are warm sandboxes.
#[cfg(not(engines))]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pool_that_cannot_be_filled_fills_up_when_it_can() {
    if !test_support::has_user_namespaces() {
        return;
    }
    let fixture = Fixture::new(ExecutorKind::Jail);
    let dir = fixture.data().join("pool");
    fs::create_dir(fixture.data()).unwrap();
    fs::write(&dir, "in the way").unwrap();
    let runtime = Runtime::spawn(options(&fixture, 3)).await.unwrap();
    until(&runtime, |pool| pool.failed > 0).await;
    let sessions = join_all((0..6).map(|_| open(&runtime))).await;
    for answer in join_all(sessions.iter().map(|session| ask(session, "$ echo well"))).await {
        assert_eq!(answer, "it says: well\n");
    }
    let pool = &runtime.pools()[0];
    assert_eq!((pool.hits, pool.misses, pool.ready), (0, 6, 0), "{pool:?}");
    assert!(pool.last_failure.as_ref().unwrap().contains("pool"), "{pool:?}");
    fs::remove_file(&dir).unwrap();
    until(&runtime, |pool| pool.ready == 3).await;
    assert_eq!(ask(&open(&runtime).await, "$ echo well").await, "it says: well\n");
    assert_eq!(runtime.pools()[0].hits, 1);
    runtime.shutdown(soon()).await.unwrap();
    assert_eq!((leftovers(&fixture), guests_in(&fixture.data())), (Vec::new(), Vec::new()));
}

/// An unused sandbox is stopped; the next call has a warm sandbox, with the same files and nothing else of it.
#[cfg(not(engines))]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_whose_idle_sandbox_was_stopped_claims_a_warm_one_again() {
    if !test_support::has_user_namespaces() {
        return;
    }
    let fixture = Fixture::new(ExecutorKind::Jail);
    let unused = |options: RuntimeOptions| {
        options.sessions(|sessions| sessions.executors.unused_after = Some(Duration::from_millis(20)))
    };
    let runtime = Runtime::spawn(unused(options(&fixture, 2))).await.unwrap();
    until(&runtime, |pool| pool.ready == 2).await;
    let session = open(&runtime).await;
    let session_dir = session_dir(&fixture, "acme", &session);
    for round in 1..4 {
        let answer = ask(&session, "$ ls /tmp; echo more | tee -a /tmp/gone >> kept; wc -l < kept").await;
        assert!(
            answer.ends_with(&format!("{round}\n")) && !answer.contains("gone\n"),
            "round {round}: {answer}"
        );
        assert_eq!(answer.contains("This ran in a new sandbox"), round > 1, "round {round}: {answer}");
        let deadline = soon();
        while !guests_in(&session_dir).is_empty() {
            assert!(
                !SystemClock.remaining(deadline).is_zero(),
                "timed out waiting for the end of the sandbox"
            );
            pause().await;
        }
        until(&runtime, |pool| pool.ready == 2).await;
    }
    let pool = &runtime.pools()[0];
    assert_eq!((pool.hits, pool.misses, pool.refills, pool.died), (3, 0, 5, 0), "{pool:?}");
    runtime.shutdown(soon()).await.unwrap();
    assert_eq!((leftovers(&fixture), guests_in(&fixture.data())), (Vec::new(), Vec::new()));
}

/// Those that wait for too long are replaced, and what a smaller pool has too many of is gone with the runtime that made it.
#[cfg(not(engines))]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn warm_sandboxes_that_are_too_old_are_replaced_and_a_smaller_pool_has_fewer() {
    if !test_support::has_user_namespaces() {
        return;
    }
    let fixture = Fixture::new(ExecutorKind::Jail);
    let aging = PoolSettings { max_age: Some(Duration::from_millis(300)), ..pool_settings(fixture.kind, 3) };
    let runtime = Runtime::spawn(fixture.options().pool(aging)).await.unwrap();
    until(&runtime, |pool| pool.retired >= 3 && pool.refills >= 6).await;
    assert_eq!(ask(&open(&runtime).await, "$ echo well").await, "it says: well\n");
    let pool = &runtime.pools()[0];
    assert_eq!((pool.died, pool.failed), (0, 0), "{pool:?}");
    runtime.shutdown(soon()).await.unwrap();
    assert_eq!((leftovers(&fixture), guests_in(&fixture.data())), (Vec::new(), Vec::new()));
    let runtime = filled(&fixture, 1).await;
    assert_eq!(waiting(&fixture).len(), 1);
    runtime.shutdown(soon()).await.unwrap();
    assert_eq!((leftovers(&fixture), guests_in(&fixture.data())), (Vec::new(), Vec::new()));
}

#[cfg(engines)]
mod containers {
    use super::*;
    use crate::image::test_image;

    fn in_containers(test: impl AsyncFnOnce(&Fixture)) {
        let Some(image) = test_image() else { return };
        let fixture = Fixture::in_containers(&image);
        let threads =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        threads.block_on(test(&fixture));
    }

    #[test]
    fn a_warm_sandbox_that_is_killed_while_it_waits_is_replaced_container() {
        in_containers(async |fixture| {
            a_warm_sandbox_that_is_killed_while_it_waits_is_replaced(fixture).await
        });
    }

    #[test]
    fn warm_sandboxes_that_die_as_they_are_taken_harm_nobody_container() {
        in_containers(async |fixture| warm_sandboxes_that_crash_while_claimed_harm_nobody(fixture, 3).await);
    }

    #[test]
    fn traces_of_a_tenant_in_a_warm_sandbox_reach_no_other_container() {
        in_containers(async |fixture| traces_of_a_tenant_in_a_warm_sandbox_reach_no_other(fixture).await);
    }
}
