//! `cargo bench --bench sessions [-- SESSIONS]`: what sessions cost that do nothing, and what it takes to open and to revive them.
//!
//! The whole runtime, over a journal in SQLite in a data directory below `target`, with a scripted model; each session has the
//! configuration's jail as its sandbox, which is not made, as no tool is called.
//!
//! - `live-kb`: resident memory of the process for each session that is live, has had a turn, and is held by nobody: the growth
//!   over 1,000 and 10,000 of them. `other` is the limit that the design sets. A hundred sessions are opened before, so that what
//!   all share is there.
//! - `opened-per-second`: openings of these, 64 at a time, each durable and started, before their turns.
//! - `passivated`: the same growth over SESSIONS (100,000) that were opened, started and put away; `passivated-disk` is what the
//!   journal has of each. What the process holds of them is counted, too, and must be nothing.
//! - `listed`: a page of 100 of them, what is recorded read; `revival`: from `send` to a session that was put away to the first event
//!   of its turn, for random ones of them.

#![expect(clippy::print_stdout, reason = "a benchmark prints")]
#![expect(clippy::disallowed_methods, reason = "it measures time")]

#[path = "support/harness.rs"]
mod harness;
#[path = "support/times.rs"]
#[expect(dead_code, reason = "the other benchmarks use more of it")]
mod times;

use std::path::Path;
use std::time::{Duration, Instant};

use conjure::config::ExecutorKind;
use conjure::model::parse_response;
use conjure::{
    Clock as _, Config, ProcessEnv, Runtime, RuntimeOptions, SessionId, SessionSpec, Settings, SystemClock,
    TenantId, model_fn,
};
use tokio::task::JoinSet;

use crate::harness::Result;
use crate::times::Times;

/// What the design asks for.
const LIVE_KB: f64 = 30.0;
const LIVE: [usize; 2] = [1_000, 10_000];
const PASSIVATED: usize = 100_000;
/// How many are opened at a time.
const AT_ONCE: usize = 64;
const TENANTS: usize = 8;
const REVIVALS: usize = 200;
const PAGES: usize = 20;

fn main() -> Result<()> {
    // `cargo bench` passes a flag of its own.
    let count = std::env::args().skip(1).find(|argument| !argument.starts_with('-'));
    let passivated = count.map_or(Ok(PASSIVATED), |count| count.parse())?;
    harness::run(measure(passivated))
}

async fn measure(passivated: usize) -> Result<()> {
    live().await?;
    put_away(passivated).await
}

async fn spawn(dir: &Path, idle_after: Duration) -> Result<Runtime> {
    let settings = Settings {
        executor: Some(ExecutorKind::Jail),
        data: Some(dir.join("data")),
        skill_paths: Some(Vec::new()),
        ..Settings::default()
    };
    let config = Config::from_layers(settings, &ProcessEnv::from_process(), None)?;
    let answer = parse_response(r#"{"content":[{"type":"text","text":"Four."}],"stop_reason":"end_turn"}"#)?;
    let model = model_fn(move |_| std::future::ready(Ok(answer.clone())));
    let options = RuntimeOptions::from(config).model("scripted", model).sessions(move |sessions| {
        sessions.idle_after = idle_after;
        sessions.deadline = Duration::from_secs(300);
    });
    Ok(Runtime::spawn(options).await?)
}

fn tenant(number: usize) -> Result<TenantId> {
    Ok(TenantId::new(format!("tenant-{}", number % TENANTS))?)
}

#[derive(Debug, Clone, Copy)]
enum Then {
    Nothing,
    ATurn,
}

/// Opens so many sessions, some at a time, and lets go of them.
async fn open(runtime: &Runtime, count: usize, then: Then) -> Result<Vec<(TenantId, SessionId)>> {
    let mut opened = Vec::with_capacity(count);
    let mut opening = JoinSet::new();
    for number in 0..count {
        if opening.len() == AT_ONCE
            && let Some(done) = opening.join_next().await
        {
            opened.push(done??);
        }
        let (runtime, tenant) = (runtime.clone(), tenant(number)?);
        opening.spawn(async move {
            let session = runtime.open(SessionSpec::new(tenant.clone())).await?;
            if let Then::ATurn = then {
                session.send("What is two and two?").await?.end().await?;
            }
            Result::Ok((tenant, session.id()))
        });
    }
    while let Some(done) = opening.join_next().await {
        opened.push(done??);
    }
    Ok(opened)
}

async fn live() -> Result<()> {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR"))?;
    let runtime = spawn(dir.path(), Duration::from_secs(100_000)).await?;
    open(&runtime, 100, Then::ATurn).await?;
    let before = resident()?;
    let mut open_so_far = 0;
    println!("{:>10} {:>12} {:>12}", "live", "KB each", "opened/s");
    for count in LIVE {
        let started = Instant::now();
        let opened = open(&runtime, count - open_so_far, Then::Nothing).await?;
        let rate = (count - open_so_far) as f64 / started.elapsed().as_secs_f64();
        for (tenant, id) in &opened {
            runtime.session(tenant, *id).await?.send("What is two and two?").await?.end().await?;
        }
        open_so_far = count;
        let kb = growth(before)? / count as f64 / 1024.0;
        println!("{:>10} {kb:12.1} {rate:12.0}", runtime.health().live_sessions);
        println!(
            "RESULT goal=sessions case=live-kb-{count} ours={kb:.1} other={LIVE_KB} unit=KB ratio={:.3}",
            kb / LIVE_KB
        );
        println!("RESULT goal=sessions case=opened-per-second-{count} ours={rate:.0} unit=sessions/s");
    }
    runtime.shutdown(SystemClock.deadline(Duration::from_secs(120))).await?;
    Ok(())
}

async fn put_away(count: usize) -> Result<()> {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR"))?;
    let runtime = spawn(dir.path(), Duration::from_millis(50)).await?;
    open(&runtime, 2_000.min(count), Then::Nothing).await?;
    until_none_lives(&runtime).await;
    let (before, started) = (resident()?, Instant::now());
    let opened = open(&runtime, count, Then::Nothing).await?;
    let rate = count as f64 / started.elapsed().as_secs_f64();
    until_none_lives(&runtime).await;
    let memory = growth(before)? / count as f64;
    let health = runtime.health();
    let disk = size(&dir.path().join("data/journal"))? as f64 / count as f64;
    println!(
        "{count} put away: {memory:.0} bytes of memory each, {disk:.0} bytes in the journal each, opened at {rate:.0} a second; \
         {} live, {} known",
        health.live_sessions, health.known_sessions
    );
    if health.known_sessions != 0 {
        return Err("sessions that were put away are held in memory".into());
    }
    println!("RESULT goal=sessions case=passivated-{count} ours={memory:.0} unit=bytes");
    println!("RESULT goal=sessions case=passivated-disk-{count} ours={disk:.0} unit=bytes");
    println!("RESULT goal=sessions case=opened-per-second-{count} ours={rate:.0} unit=sessions/s");

    let (mut listed, mut after) = (Times::default(), None);
    for _ in 0..PAGES {
        let started = Instant::now();
        let page = runtime.sessions(&tenant(0)?, after, 100).await?;
        listed.add(started.elapsed());
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    println!("RESULT goal=sessions case=listed-100 ours={:.2} unit=ms", listed.percentile(50));

    let mut revived = Times::default();
    let stride = (opened.len() / REVIVALS).max(1);
    for (tenant, id) in opened.iter().step_by(stride) {
        // A handle of a session that is put away.
        let session = runtime.session(tenant, *id).await?;
        until_none_lives(&runtime).await;
        let started = Instant::now();
        let mut turn = session.send("What is two and two?").await?;
        turn.next().await.ok_or("a turn without an event")??;
        revived.add(started.elapsed());
        turn.end().await?;
    }
    let [p50, p99] = [50, 99].map(|percent| revived.percentile(percent));
    println!("revival: p50 {p50:.2} ms, p99 {p99:.2} ms");
    println!("RESULT goal=sessions case=revival ours={p50:.2} unit=ms");
    runtime.shutdown(SystemClock.deadline(Duration::from_secs(120))).await?;
    Ok(())
}

async fn until_none_lives(runtime: &Runtime) {
    while runtime.health().live_sessions > 0 {
        SystemClock.sleep_until(SystemClock.deadline(Duration::from_millis(5))).await;
    }
}

fn growth(before: u64) -> Result<f64> {
    Ok(resident()?.saturating_sub(before) as f64)
}

/// Bytes that the process has in memory, the database's cache and shared pages among them.
fn resident() -> Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).ok_or("no VmRSS")?;
    Ok(line.trim().trim_end_matches("kB").trim().parse::<u64>()? * 1024)
}

/// Bytes of the files in a directory.
fn size(dir: &Path) -> Result<u64> {
    let mut bytes = 0;
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?.metadata()?;
        bytes += if entry.is_file() { entry.len() } else { 0 };
    }
    Ok(bytes)
}
