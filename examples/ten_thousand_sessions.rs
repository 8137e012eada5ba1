//! Ten thousand conversations of a hundred tenants in one process: each is opened, has a turn, is put away, and can be spoken to
//! again by its id.
//!
//! `cargo run -p examples --example ten_thousand_sessions [SESSIONS]`; the model is a function here, so nothing is called.

#![expect(clippy::print_stdout, reason = "it prints what it did")]
#![expect(clippy::disallowed_methods, reason = "it tells how long it took")]

use std::error::Error;
use std::time::{Duration, Instant};

use conjure::config::ExecutorKind;
use conjure::{
    Clock as _, Config, ProcessEnv, Response, Runtime, RuntimeOptions, SessionId, SessionSpec, Settings,
    SystemClock, TenantId, model_fn,
};
use tokio::task::JoinSet;

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

const SESSIONS: usize = 10_000;
const TENANTS: usize = 100;
/// How many are opened at a time: what waits for the journal is written in one go.
const AT_ONCE: usize = 128;

#[tokio::main]
async fn main() -> Result<()> {
    let count = std::env::args().nth(1).map_or(Ok(SESSIONS), |count| count.parse())?;
    let dir = tempfile::tempdir()?;
    let settings = Settings {
        executor: Some(ExecutorKind::Jail),
        data: Some(dir.path().join("data")),
        skill_paths: Some(vec!["fixtures/skills/minimal-skill".into()]),
        ..Settings::default()
    };
    let config = Config::from_layers(settings, &ProcessEnv::from_process(), None)?;
    let model = model_fn(|_| std::future::ready(Ok(Response::text("Four."))));
    let options = RuntimeOptions::from(config)
        .model("arithmetic", model)
        // A session that is idle for this long is only a row.
        .sessions(|sessions| sessions.idle_after = Duration::from_millis(500));
    let runtime = Runtime::spawn(options).await?;

    let (started, mut most_live) = (Instant::now(), 0);
    let (mut talking, mut sessions) = (JoinSet::new(), Vec::new());
    for number in 0..count {
        if talking.len() == AT_ONCE
            && let Some(done) = talking.join_next().await
        {
            sessions.push(done??);
            most_live = most_live.max(runtime.health().live_sessions);
        }
        talking.spawn(talk(runtime.clone(), TenantId::new(format!("tenant-{}", number % TENANTS))?));
    }
    while let Some(done) = talking.join_next().await {
        sessions.push(done??);
    }
    let took = started.elapsed();
    let rate = sessions.len() as f64 / took.as_secs_f64();
    println!(
        "{} sessions had a turn within {took:.1?}, {rate:.0} a second; at most {most_live} were live.",
        sessions.len()
    );

    let pause = || SystemClock.sleep_until(SystemClock.deadline(Duration::from_millis(50)));
    while runtime.health().live_sessions > 0 {
        pause().await;
    }
    // The last of a session goes a moment behind it.
    let deadline = SystemClock.deadline(Duration::from_secs(60));
    while runtime.health().known_sessions > 0 && !SystemClock.remaining(deadline).is_zero() {
        pause().await;
    }
    let health = runtime.health();
    println!(
        "Put away, {} are live and {} known: each is rows in the journal.",
        health.live_sessions, health.known_sessions
    );
    assert_eq!(health.known_sessions, 0, "what is put away costs no memory");

    let (tenant, id) = &sessions[sessions.len() / 2];
    let session = runtime.session(tenant, *id).await?;
    session.send("And three and three?").await?.end().await?;
    println!("{id} of {tenant} was revived, and has {} events.", session.snapshot().await?.events);
    runtime.shutdown(SystemClock.deadline(Duration::from_secs(60))).await?;
    Ok(())
}

async fn talk(runtime: Runtime, tenant: TenantId) -> Result<(TenantId, SessionId)> {
    let session = runtime.open(SessionSpec::new(tenant.clone()).skills(["minimal-skill"])).await?;
    session.send("What is two and two?").await?.end().await?;
    Ok((tenant, session.id()))
}
