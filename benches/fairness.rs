//! `cargo bench --bench fairness`: what one tenant's flood costs another.
//!
//! A quiet tenant has one session and takes one turn after another; a turn is one tool call, a real command in a real jail, between
//! two model calls, recorded in SQLite. `alone`: nobody else is there. `flooded`: another tenant has 48 workers that open sessions,
//! take turns as fast as they can and close them, as many as its quota of live sessions. Of every four, the sandboxes of one are
//! killed again and again, the turns of one end at a limit, and one sends more than may wait and opens more than may live; its
//! sandboxes and model calls pass gates with a share. `ungated`: the same flood without gates. Each kind must come to what it is
//! there for, else the benchmark fails. The first turn of the quiet session, which makes its jail, is not counted. `other` is the
//! time alone, so that the ratio is what the flood costs; the goal is 2.
//!
//! All run on the same processors, which a gate of sandboxes divides: in `flooded` a tenant's share of sandboxes is half as many as
//! there are processors, in `flooded-wide` as many, so that what the flood was admitted with can keep all of them busy.

#![expect(clippy::print_stdout, reason = "a benchmark prints")]
#![expect(clippy::disallowed_methods, reason = "it measures time")]

#[path = "support/harness.rs"]
mod harness;
#[path = "support/times.rs"]
mod times;

use std::collections::HashSet;
use std::fs;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::available_parallelism;
use std::time::{Duration, Instant};

use conjure::config::ExecutorKind;
use conjure::conversation::TurnStop;
use conjure::runtime::{AdmissionGate, Share};
use conjure::{
    Block, Clock as _, Config, Limits, Model, ProcessEnv, Request, Response, Runtime, RuntimeOptions,
    Session, SessionId, SessionSpec, Settings, StopReason, SystemClock, TenantId, TenantPolicy, model_fn,
};
use rustix::process::{Pid, Signal, kill_process};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::harness::Result;
use crate::times::Times;

/// Counted turns of the quiet tenant, in each case.
const TURNS: u32 = 400;

/// Workers of the other one, and its most live sessions.
const FLOOD: usize = 48;

fn main() -> Result<()> {
    harness::run(measure())
}

async fn measure() -> Result<()> {
    times::header();
    let alone = take(Crowd::Nobody).await?;
    alone.print("alone");
    let mut rows = Vec::new();
    let processors = u32::try_from(available_parallelism()?.get())?;
    for (case, crowd) in [
        ("flooded", Crowd::Gated { sandboxes: processors.div_ceil(2), of: 2 * processors }),
        ("flooded-wide", Crowd::Gated { sandboxes: processors, of: 2 * processors }),
        ("ungated", Crowd::Ungated),
    ] {
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
    /// A tenant's share of the sandboxes that all may have at once.
    Gated {
        sandboxes: u32,
        of: u32,
    },
    Ungated,
}

async fn take(crowd: Crowd) -> Result<Times> {
    let dir = tempfile::tempdir()?;
    let settings = Settings {
        executor: Some(ExecutorKind::Jail),
        data: Some(dir.path().join("data")),
        skill_paths: Some(Vec::new()),
        ..Settings::default()
    };
    let config = Config::from_layers(settings, &ProcessEnv::from_process(), None)?;
    let mut options = RuntimeOptions::from(config).model("echo", model());
    if let Crowd::Gated { sandboxes, of } = crowd {
        let share = |admitted| Share { admitted, weight: NonZeroU32::MIN, waiting: 1_000 };
        options = options
            .sandbox_gate(AdmissionGate::new("the sandboxes", of, share(sandboxes)))
            .model_gate(AdmissionGate::new("the model calls", 2, share(1)));
    }
    let flood_policy = TenantPolicy::new().live_sessions(FLOOD as u64).queued_messages(1);
    let runtime = Runtime::spawn(options.tenant(TenantId::new("flood")?, flood_policy)).await?;
    let (over, flood) = (CancellationToken::new(), Arc::new(Flood::default()));
    let mut tasks = JoinSet::new();
    if crowd != Crowd::Nobody {
        for kind in KINDS.into_iter().cycle().take(FLOOD) {
            tasks.spawn(Arc::clone(&flood).work(runtime.clone(), kind, over.clone()));
        }
        let sandboxes = dir.path().canonicalize()?.join("data/tenants/flood");
        tasks.spawn(Arc::clone(&flood).kill(sandboxes, over.clone()));
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
    tasks.abort_all();
    while tasks.join_next().await.is_some() {}
    if crowd != Crowd::Nobody {
        flood.print()?;
    }
    runtime.shutdown(SystemClock.deadline(Duration::from_secs(120))).await?;
    Ok(times)
}

async fn turn(session: &Session) -> Result<()> {
    let stop = session.send("true").await?.end().await?;
    if stop.to_string() == "the model is done (end_turn)" { Ok(()) } else { Err(stop.to_string().into()) }
}

/// What a worker of the flood is there for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Works,
    Crashes,
    EndsAtALimit,
    IsRefused,
}

const KINDS: [Kind; 4] = [Kind::Works, Kind::Crashes, Kind::EndsAtALimit, Kind::IsRefused];

/// The turns of a worker's session.
const TURNS_OF_A_SESSION: usize = 4;

/// What the flood came to.
#[derive(Debug, Default)]
struct Flood {
    turns: [AtomicU64; KINDS.len()],
    limited: AtomicU64,
    refused: AtomicU64,
    killed: AtomicU64,
    /// Whose sandboxes are killed.
    crashing: Mutex<HashSet<SessionId>>,
}

impl Flood {
    async fn work(self: Arc<Self>, runtime: Runtime, kind: Kind, over: CancellationToken) -> Result<()> {
        let model_calls = if kind == Kind::EndsAtALimit { 1 } else { 25 };
        let limits = Limits { model_calls, ..Limits::default() };
        let spec = SessionSpec::new(TenantId::new("flood")?).without_skills().limits(limits);
        let words = if kind == Kind::Crashes { "sleep 0.1" } else { "true" };
        while !over.is_cancelled() {
            // Another worker may have its place.
            let Ok(session) = runtime.open(spec.clone()).await else {
                count(&self.refused);
                tokio::task::yield_now().await;
                continue;
            };
            if kind == Kind::Crashes {
                self.crashing().insert(session.id());
            }
            for _ in 0..TURNS_OF_A_SESSION {
                // However it ends.
                if let Ok(turn) = session.send(words).await {
                    if kind == Kind::IsRefused {
                        self.ask_too_much(&runtime, &spec, &session).await;
                    }
                    if turn.end().await.is_ok_and(|stop| matches!(stop, TurnStop::Limit(_))) {
                        count(&self.limited);
                    }
                    count(&self.turns[kind as usize]);
                }
            }
            let _ = session.close().await;
            self.crashing().remove(&session.id());
        }
        Ok(())
    }

    /// More messages than may wait, and a session more than may live.
    async fn ask_too_much(&self, runtime: &Runtime, spec: &SessionSpec, session: &Session) {
        for _ in 0..3 {
            if session.send("true").await.is_err() {
                count(&self.refused);
            }
        }
        match runtime.open(spec.clone()).await {
            Ok(session) => drop(session.close().await),
            Err(_) => count(&self.refused),
        }
    }

    /// Kills what has the files of those that crash, four times a second.
    async fn kill(self: Arc<Self>, sandboxes: PathBuf, over: CancellationToken) -> Result<()> {
        while !over.is_cancelled() {
            tokio::time::sleep(Duration::from_millis(250)).await;
            let place = |session: &SessionId| {
                sandboxes.join(format!("workspaces/{}/workspace", session.stored_name()))
            };
            let paths: Vec<String> =
                self.crashing().iter().map(|session| place(session).display().to_string()).collect();
            let killed = tokio::task::spawn_blocking(move || kill_those_with(&paths)).await?;
            self.killed.fetch_add(killed, Ordering::Relaxed);
        }
        Ok(())
    }

    fn crashing(&self) -> MutexGuard<'_, HashSet<SessionId>> {
        self.crashing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn print(&self) -> Result<()> {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let turns = self.turns.each_ref().map(of);
        let (limited, refused, killed) = (of(&self.limited), of(&self.refused), of(&self.killed));
        println!(
            "  beside them, turns of the flood: {turns:?} of {KINDS:?}; {limited} ended at a limit, {refused} requests were \
             refused, {killed} sandboxes were killed"
        );
        if turns.iter().chain([&limited, &refused, &killed]).all(|count| *count > 0) {
            Ok(())
        } else {
            Err("a part of the flood did nothing".into())
        }
    }
}

fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

/// Kills one process of each sandbox that has one of these paths mounted, with which the others go. How many there were.
fn kill_those_with(paths: &[String]) -> u64 {
    let mut killed = HashSet::new();
    let names = fs::read_dir("/proc").into_iter().flatten().flatten();
    for process in names.filter_map(|entry| entry.file_name().to_str()?.parse().ok()) {
        let mounts = fs::read_to_string(format!("/proc/{process}/mountinfo")).unwrap_or_default();
        let path = paths.iter().find(|path| !killed.contains(path) && mounts.contains(path.as_str()));
        if let (Some(path), Some(pid)) = (path, Pid::from_raw(process))
            && kill_process(pid, Signal::KILL).is_ok()
        {
            killed.insert(path);
        }
    }
    killed.len() as u64
}

/// Has one command run, and is done.
fn model() -> impl Model {
    model_fn(|request: Request| async move {
        let (content, stop_reason) = if request.call == 1 {
            let words = request.messages.last().map(|message| message.text()).unwrap_or_default();
            let id = format!("toolu_{}", request.messages.len());
            let input = serde_json::json!({"command": words, "description": "as it was asked"});
            (Block::tool_use(id, "bash_tool", &input), StopReason::ToolUse)
        } else {
            (Block::text("It is done."), StopReason::EndTurn)
        };
        Ok(Response::new(vec![content], stop_reason))
    })
}
