//! Jails that are made before their session is there.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;

use conjure_base::SystemClock;
use conjure_sandbox::{DataDir, ExecutionContext, Jail, Local, SandboxErrorKind, WarmSandbox, WarmSpec};
use futures_util::future;

use crate::bad_days::Killed;
use crate::bed::{jail, names};
use crate::support::warm_sandboxes::{self, House};
use crate::support::{Process, again, bash_in, bearing, host, kill_nine, processes, soon, told, until};

fn house() -> House {
    House::of(|data| Jail::new(host()).with_data(data))
}

macro_rules! shown {
    ($($name:ident)*) => {
        $(
            #[tokio::test]
            async fn $name() {
                warm_sandboxes::$name(house()).await;
            }
        )*
    };
}

shown! {
    a_claimed_spare_is_the_sessions
    a_spare_takes_over_a_workspace_with_files
    two_tenants_of_one_pool_see_nothing_of_each_other
    what_a_spare_does_not_serve_is_refused_and_harms_nothing
    a_claim_that_is_dropped_leaves_nothing
    a_claimed_spare_keeps_its_quota
}

#[tokio::test]
async fn a_spare_that_has_died_is_lost() {
    warm_sandboxes::a_spare_that_has_died_is_lost(house(), async |house| {
        let path = house.pool.path().to_str().unwrap();
        let has_it = |process: &Process| {
            let mounts = fs::read_to_string(format!("/proc/{}/mountinfo", process.pid));
            mounts.is_ok_and(|mounts| mounts.contains(path))
        };
        // The others go with it.
        kill_nine(processes().into_iter().find(has_it).unwrap().pid);
    })
    .await;
}

#[tokio::test]
async fn what_has_no_file_system_of_its_own_cannot_be_a_spare() {
    let house = House::of(|_| Local::without_isolation(host()));
    let error = house.spare_for(&ExecutionContext::new("/")).await.unwrap_err();
    assert_eq!(error.kind(), SandboxErrorKind::Unsupported, "{error}");
    assert_eq!(house.left().len(), 0);
}

/// The part: a host with a spare that waits, and one that a session has claimed.
#[tokio::test]
async fn part_a_host_with_spares_that_is_killed() {
    let Some(path) = told() else { return };
    let path = Path::new(&path);
    let pool = DataDir::open(&path.join("pool")).unwrap();
    let tenant = DataDir::open(&path.join("tenant")).unwrap();
    let context = ExecutionContext::new(tenant.named_workspace("ses_1").unwrap());
    fs::write(context.workspace.join("before"), "kept").unwrap();
    let spare = async || {
        let spec = WarmSpec::from_context(&context);
        WarmSandbox::open(&jail(&pool), &pool, spec, Arc::new(SystemClock), soon(60)).await.unwrap()
    };
    let _waiting = spare().await;
    let claimed = spare().await.claim(&context, &tenant, soon(60)).await.unwrap();
    bash_in(&claimed, "echo made > after").await;
    println!("\nREADY");
    future::pending::<()>().await;
}

#[tokio::test]
async fn what_a_killed_host_leaves_of_spares_is_swept_and_sessions_keep_their_files() {
    if told().is_some() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let mut host =
        again(&[], "warm_sandboxes::part_a_host_with_spares_that_is_killed", path.to_str().unwrap())
            .env("TMPDIR", path)
            .stdout(Stdio::piped())
            .spawn()
            .map(Killed)
            .unwrap();
    let said = BufReader::new(host.0.stdout.take().unwrap());
    assert!(said.lines().any(|line| line.unwrap() == "READY"), "the host did not come so far");
    drop(host);
    until("nothing of it runs", || bearing(path.to_str().unwrap()).is_empty()).await;
    let pool = DataDir::open(&path.join("pool")).unwrap();
    for folder in ["sandboxes", "workspaces"] {
        assert_eq!(names(&pool.path().join(folder)), [""; 0]);
    }
    let tenant = DataDir::open(&path.join("tenant")).unwrap();
    let workspace = tenant.named_workspace("ses_1").unwrap();
    assert_eq!(names(&workspace), ["after", "before"]);
    assert_eq!(names(workspace.parent().unwrap()), ["workspace"]);
    let sandbox = crate::bed::open(&tenant, &ExecutionContext::new(&workspace)).await.unwrap();
    assert_eq!(bash_in(&sandbox, "cat after before").await, "made\nkept");
}
