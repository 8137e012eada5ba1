//! `cargo bench --bench fairness`: what one tenant's flood costs another.
//!
//! A quiet tenant has one session and takes one turn after another; a turn is one tool call, a real command in a real jail, between
//! two model calls, recorded in SQLite. `alone`: nobody else is there. `flooded`: another tenant has 48 sessions that do the same as
//! fast as they can, of which every third kills its own sandbox in each turn, every third ends each turn at a limit, and whose
//! sandboxes and model calls pass gates with a share. `ungated`: the same flood without gates. The first turn of the quiet session,
//! which makes its jail, is not counted. `other` is the time alone, so that the ratio is what the flood costs; the goal is 2.
//!
//! All run on the same processors: what a gate does not bound, such as the commands that are admitted, costs the quiet tenant, too.

#![expect(clippy::print_stdout, reason = "a benchmark prints")]
#![expect(clippy::disallowed_methods, reason = "it measures time")]

#[path = "support/harness.rs"]
mod harness;
#[path = "support/times.rs"]
mod times;

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use conjure::{
    Block, Clock as _, Config, Environment, ExecutorKind, Gate, Limits, Model, Request, Response, Runtime,
    RuntimeOptions, Session, SessionSpec, Settings, Share, StopReason, SystemClock, TenantId, Usage,
    model_fn,
};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::harness::Result;
use crate::times::Times;

/// Counted turns of the quiet tenant, in each case.
const TURNS: u32 = 400;

/// Sessions of the other one.
const FLOOD: usize = 48;

fn main() -> Result<()> {
    harness::run(measure())
}

async fn measure() -> Result<()> {
    times::header();
    let alone = take(Crowd::Nobody).await?;
    alone.print("alone");
    let mut rows = Vec::new();
    for (case, crowd) in [("flooded", Crowd::Gated), ("ungated", Crowd::Ungated)] {
        let taken = take(crowd).await?;
        taken.print(case);
        rows.push((case, taken));
    }
    for (case, taken) in rows {
        for percent in [50, 99] {
            let (ours, other) = (taken.percentile(percent), alone.percentile(percent));
            println!(
                "RESULT goal=fairness case={case}-p{percent} ours={ours:.3} other={other:.3} unit=ms ratio={:.2}",
                ours / other
            );
        }
    }
    Ok(())
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Crowd {
    Nobody,
    Gated,
    Ungated,
}

async fn take(crowd: Crowd) -> Result<Times> {
    let folder = tempfile::tempdir()?;
    let settings = Settings {
        executor: Some(ExecutorKind::Jail),
        data: Some(folder.path().join("data")),
        skill_paths: Some(Vec::new()),
        ..Settings::default()
    };
    let config = Config::layered(settings, &Environment::of_process(), None)?;
    let mut options = RuntimeOptions::from(config).model("echo", model());
    if crowd != Crowd::Ungated {
        let share = |admitted| Share { admitted, weight: NonZeroU32::MIN, waiting: 1_000 };
        options = options.sandbox_gate(Gate::new("the sandboxes", 4, share(2))).model_gate(Gate::new(
            "the model calls",
            2,
            share(1),
        ));
    }
    let runtime = Runtime::spawn(options).await?;
    let (over, flooded) = (CancellationToken::new(), Arc::new(AtomicU64::new(0)));
    let mut flood = JoinSet::new();
    for number in 0..if crowd == Crowd::Nobody { 0 } else { FLOOD } {
        let limits = Limits { model_calls: if number % 3 == 1 { 1 } else { 25 }, ..Limits::default() };
        let spec = SessionSpec::new(TenantId::new("flood")?).without_skills().limits(limits);
        let session = runtime.open(spec).await?;
        let (over, flooded) = (over.clone(), Arc::clone(&flooded));
        let words = if number % 3 == 0 { "kill -9 1; kill -9 -1" } else { "true" };
        flood.spawn(async move {
            while !over.is_cancelled() {
                // However it ends.
                if let Ok(turn) = session.send(words).await {
                    let _ = turn.end().await;
                }
                flooded.fetch_add(1, Ordering::Relaxed);
            }
        });
    }
    let quiet = runtime.open(SessionSpec::new(TenantId::new("quiet")?).without_skills()).await?;
    turn(&quiet).await?;
    let mut times = Times::default();
    for _ in 0..TURNS {
        let started = Instant::now();
        turn(&quiet).await?;
        times.add(started.elapsed());
    }
    over.cancel();
    if crowd != Crowd::Nobody {
        println!("  beside them, {} turns of the flood", flooded.load(Ordering::Relaxed));
    }
    flood.abort_all();
    runtime.shutdown(SystemClock.deadline(Duration::from_secs(120))).await?;
    Ok(times)
}

async fn turn(session: &Session) -> Result<()> {
    let stop = session.send("true").await?.end().await?;
    if stop.to_string() == "the model is done (end_turn)" { Ok(()) } else { Err(stop.to_string().into()) }
}

/// Has one command run, and is done.
fn model() -> impl Model {
    model_fn(|request: Request| async move {
        let (content, stop_reason) = if request.call == 1 {
            let words = request.messages.last().map(|message| message.text()).unwrap_or_default();
            let id = format!("toolu_{}", request.messages.len());
            let input = serde_json::json!({"command": words, "description": "as it was asked"});
            let call = serde_json::json!({"type": "tool_use", "id": id, "name": "bash_tool", "input": input});
            let block = Block::from_json(call.to_string());
            (block.unwrap_or_else(|error| unreachable!("it is a block: {error}")), StopReason::ToolUse)
        } else {
            (Block::text("It is done."), StopReason::EndTurn)
        };
        Ok(Response {
            id: None,
            model: None,
            content: vec![content],
            stop_reason,
            usage: Usage::default(),
            request_id: None,
            container: None,
        })
    })
}
