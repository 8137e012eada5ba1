//! Many tenants, most of them without a live session: the resources that they keep open in this process.

use std::ops::Range;
use std::time::Duration;

use conjure::config::ExecutorKind;
use conjure::runtime::Deadline;
use conjure::{
    Clock as _, Config, ProcessEnv, Runtime, RuntimeOptions, SessionId, SessionSpec, Settings, SystemClock,
    TenantId,
};
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::ALONE;
use crate::course::{Result, model};

const TENANTS: usize = 600;
const AT_ONCE: usize = 8;

/// So many files may be open at a time: fewer than there are tenants, and enough for those that are being served.
const FILES: u64 = 512;

/// How long it may take until sessions that nobody has are passivated.
const PATIENCE: Duration = Duration::from_secs(300);

/// A bound on what this process may have open, for as long as this lives.
struct FdLimit(Rlimit);

impl FdLimit {
    fn to(files: u64) -> Result<Self> {
        let before = getrlimit(Resource::Nofile);
        setrlimit(Resource::Nofile, Rlimit { current: Some(files), maximum: before.maximum })?;
        Ok(Self(before))
    }
}

impl Drop for FdLimit {
    fn drop(&mut self) {
        // It was so before, so it may be so again.
        let _ = setrlimit(Resource::Nofile, self.0);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tenants_without_live_sessions_keep_nothing_open() {
    let _alone = ALONE.lock().await;
    check().await.unwrap();
}

async fn check() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let settings = Settings {
        executor: Some(if test_support::has_user_namespaces() {
            ExecutorKind::Jail
        } else {
            ExecutorKind::Local
        }),
        data: Some(dir.path().join("data")),
        skill_paths: Some(Vec::new()),
        ..Settings::default()
    };
    let config = Config::from_layers(settings, &ProcessEnv::from_process(), None)?;
    let options = RuntimeOptions::from(config).model("echo", model());
    let options = options.sessions(|sessions| sessions.idle_after = Duration::from_millis(20));
    let runtime = Runtime::spawn(options).await?;
    let bound = FdLimit::to(FILES)?;

    visit(&runtime, 0..TENANTS / 10).await?;
    let baseline = settled(&runtime, SystemClock.deadline(PATIENCE), |_| true).await?;
    let visited = visit(&runtime, TENANTS / 10..TENANTS).await?;
    // A session's files are closed shortly after it is counted as ended.
    settled(&runtime, SystemClock.deadline(PATIENCE), |open| open <= baseline).await?;

    // They are all there, and what they need is opened again.
    for (tenant, session) in visited.iter().step_by(TENANTS / 20) {
        runtime.session(tenant, *session).await?.send("$ true").await?.end().await?;
    }
    settled(&runtime, SystemClock.deadline(PATIENCE), |open| open <= baseline).await?;
    drop(bound);
    runtime.shutdown(SystemClock.deadline(PATIENCE)).await?;
    Ok(())
}

/// A session of one turn for each of these tenants; every fiftieth has a command run.
async fn visit(runtime: &Runtime, tenants: Range<usize>) -> Result<Vec<(TenantId, SessionId)>> {
    let visits = stream::iter(tenants).map(async |number| {
        let tenant = TenantId::new(format!("tenant-{number}"))?;
        let session = runtime.open(SessionSpec::new(tenant.clone()).without_skills()).await?;
        let text = if number.is_multiple_of(50) { "$ true" } else { "hello" };
        let stop = session.send(text).await?.end().await?;
        let is_done = stop.to_string() == "the model is done (end_turn)";
        if is_done { Ok((tenant, session.id())) } else { Err(format!("tenant {number}: {stop}").into()) }
    });
    visits.buffer_unordered(AT_ONCE).try_collect().await
}

/// How many files are open once all sessions are passivated, and it is as it should be.
async fn settled(runtime: &Runtime, until: Deadline, is_good: impl Fn(usize) -> bool) -> Result<usize> {
    loop {
        let health = runtime.health();
        let open = std::fs::read_dir("/proc/self/fd")?.count();
        if health.known_sessions == 0 && health.live_sessions == 0 && is_good(open) {
            return Ok(open);
        }
        if SystemClock.remaining(until).is_zero() {
            return Err(format!("{open} files are open: {health:?}").into());
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
