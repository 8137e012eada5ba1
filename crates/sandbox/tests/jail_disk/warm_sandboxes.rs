//! Jails that are made before their session is there.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;

use conjure_base::SystemClock;
use conjure_sandbox::{DataDir, ExecutionContext, Jail, Local, SandboxErrorKind, WarmSandbox, WarmSpec};
use futures_util::future;
use test_support::KillOnDrop;

use crate::fixture::{jail, names};
use crate::support::warm_sandboxes::{self, WarmSandboxFixture};
use crate::support::{
    Process, bash_in, bearing, host, processes, rerun, sigkill, soon, test_parameters, until,
};

fn fixture() -> WarmSandboxFixture {
    WarmSandboxFixture::of(|data| Jail::new(host()).with_data(data))
}

macro_rules! shown {
    ($($name:ident)*) => {
        $(
            #[tokio::test]
            async fn $name() {
                warm_sandboxes::$name(fixture()).await;
            }
        )*
    };
}

shown! {
    a_claimed_warm_sandbox_belongs_to_the_session
    a_spare_takes_over_a_workspace_with_files
    two_tenants_of_one_pool_are_isolated
    unsupported_uses_of_a_warm_sandbox_are_rejected_harmlessly
    a_dropped_claim_leaves_nothing
    a_claimed_warm_sandbox_keeps_its_quota
}

#[tokio::test]
async fn a_dead_warm_sandbox_is_lost() {
    warm_sandboxes::a_dead_warm_sandbox_is_lost(fixture(), async |fixture| {
        let path = fixture.pool.path().to_str().unwrap();
        let has_it = |process: &Process| {
            let mounts = fs::read_to_string(format!("/proc/{}/mountinfo", process.pid));
            mounts.is_ok_and(|mounts| mounts.contains(path))
        };
        // The others go with it.
        sigkill(processes().into_iter().find(has_it).unwrap().pid);
    })
    .await;
}

#[tokio::test]
async fn a_warm_sandbox_needs_its_own_file_system() {
    let fixture = WarmSandboxFixture::of(|_| Local::without_isolation(host()));
    let error = fixture.warm_sandbox_for(&ExecutionContext::new("/")).await.unwrap_err();
    assert_eq!(error.kind(), SandboxErrorKind::Unsupported, "{error}");
    assert_eq!(fixture.leftovers().len(), 0);
}

/// The part: a host with an idle warm sandbox and a claimed one.
#[tokio::test]
async fn part_a_killed_host_with_warm_sandboxes() {
    let Some(path) = test_parameters() else { return };
    let path = Path::new(&path);
    let pool = DataDir::open(&path.join("pool")).unwrap();
    let tenant = DataDir::open(&path.join("tenant")).unwrap();
    let context = ExecutionContext::new(tenant.named_workspace("ses_1").unwrap());
    fs::write(context.workspace.join("before"), "kept").unwrap();
    let warm_sandbox = async || {
        let spec = WarmSpec::from_context(&context);
        WarmSandbox::open(&jail(&pool), &pool, spec, Arc::new(SystemClock), soon(60)).await.unwrap()
    };
    let _waiting = warm_sandbox().await;
    let claimed = warm_sandbox().await.claim(&context, &tenant, soon(60)).await.unwrap();
    bash_in(&claimed, "echo made > after").await;
    println!("\nREADY");
    future::pending::<()>().await;
}

#[tokio::test]
async fn warm_sandboxes_of_a_killed_host_are_swept_and_sessions_keep_their_files() {
    if test_parameters().is_some() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path();
    let mut host =
        rerun(&[], "warm_sandboxes::part_a_killed_host_with_warm_sandboxes", path.to_str().unwrap())
            .env("TMPDIR", path)
            .stdout(Stdio::piped())
            .spawn()
            .map(KillOnDrop)
            .unwrap();
    let stdout = BufReader::new(host.0.stdout.take().unwrap());
    assert!(stdout.lines().any(|line| line.unwrap() == "READY"), "the host did not come so far");
    drop(host);
    until("nothing of it runs", || bearing(path.to_str().unwrap()).is_empty()).await;
    let pool = DataDir::open(&path.join("pool")).unwrap();
    for dir in ["sandboxes", "workspaces"] {
        assert_eq!(names(&pool.path().join(dir)), [""; 0]);
    }
    let tenant = DataDir::open(&path.join("tenant")).unwrap();
    let workspace = tenant.named_workspace("ses_1").unwrap();
    assert_eq!(names(&workspace), ["after", "before"]);
    assert_eq!(names(workspace.parent().unwrap()), ["workspace"]);
    let sandbox = crate::fixture::open(&tenant, &ExecutionContext::new(&workspace)).await.unwrap();
    assert_eq!(bash_in(&sandbox, "cat after before").await, "made\nkept");
}
