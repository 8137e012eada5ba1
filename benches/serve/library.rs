//! The same sessions through the library, in this process.

use std::path::Path;
use std::time::{Duration, Instant};

use conjure::config::ExecutorKind;
use conjure::model::ScriptedModel;
use conjure::{
    Clock as _, Config, ProcessEnv, Runtime, RuntimeOptions, SessionEventKind, SessionSpec, Settings,
    SystemClock, TenantId, Update,
};
use rustix::time::{ClockId, clock_gettime};
use tokio::task::JoinSet;

use crate::harness::Result;
use crate::requests::{CLIENTS, SESSION_TURNS, SESSIONS, SessionTimes};
use crate::setup::Setup;

/// The configuration that the server has.
pub(crate) fn settings(data: &Path) -> Result<Config> {
    let settings = Settings {
        executor: Some(ExecutorKind::Local),
        data: Some(data.to_owned()),
        skill_paths: Some(Vec::new()),
        ..Settings::default()
    };
    Ok(Config::from_layers(settings, &ProcessEnv::from_process(), None)?)
}

/// The tenant of the command.
pub(crate) fn tenant() -> Result<TenantId> {
    Ok(TenantId::new("local")?)
}

pub(crate) async fn sessions(setup: &Setup) -> Result<SessionTimes> {
    let model = ScriptedModel::from_file(setup.script())?.by_history();
    let options = RuntimeOptions::from(settings(&setup.data())?).model("script", model);
    let runtime = Runtime::spawn(options).await?;
    let (cpu, started) = (cpu_time(), Instant::now());
    let mut working = JoinSet::new();
    for _ in 0..CLIENTS {
        let runtime = runtime.clone();
        working.spawn(async move {
            let mut times = SessionTimes::default();
            for _ in 0..SESSIONS / CLIENTS {
                times.merge(session(&runtime).await?);
            }
            Result::Ok(times)
        });
    }
    let mut all = SessionTimes::default();
    while let Some(worked) = working.join_next().await {
        all.merge(worked??);
    }
    (all.wall, all.cpu) = (started.elapsed(), cpu_time().saturating_sub(cpu));
    runtime.shutdown(SystemClock.deadline(Duration::from_secs(60))).await?;
    Ok(all)
}

async fn session(runtime: &Runtime) -> Result<SessionTimes> {
    let mut times = SessionTimes::default();
    let started = Instant::now();
    let session = runtime.open(SessionSpec::new(tenant()?).without_skills()).await?;
    times.created.push(started.elapsed());
    let recorded = session.snapshot().await?.events;
    let mut updates = session.subscribe(recorded).await?;
    for _ in 0..SESSION_TURNS {
        let started = Instant::now();
        session.send("What is two and two?").await?;
        times.sent.push(started.elapsed());
        loop {
            let Update::Recorded(event) = updates.next().await? else { continue };
            times.events += 1;
            if matches!(event.kind, SessionEventKind::SessionStatusIdle { .. }) {
                break;
            }
        }
        times.turns.push(started.elapsed());
    }
    Ok(times)
}

/// The CPU time of this process, user and system.
fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}
