//! `cargo bench --bench turns`: whole turns of ten tool calls, of one session and of 64 at once.
//!
//! A turn is eleven model calls: ten times the scripted model calls `bash_tool` with `true N`, in a real jail, then it is done.
//! Everything on the way is there: the session's actor, the driver, the composed tools, approval, the toolbox, the guest's
//! protocol, and the journal in SQLite, which is synced for each step. A session's turns follow each other; its first one, which
//! makes the jail, is not counted. The time of a turn is from `send` to its end. `cpu` is the CPU time of the host's process,
//! user and system, over the model calls of these turns: it holds all of the above, ten tool calls for eleven model calls, and
//! nothing of the service's client, whose cost `model_call` has. Excluded: the guests and the commands, which are other processes.

#![expect(clippy::print_stdout, reason = "a benchmark prints")]
#![expect(clippy::disallowed_methods, reason = "it measures time")]

#[path = "support/harness.rs"]
mod harness;
#[path = "support/times.rs"]
#[expect(dead_code, reason = "the other benchmarks use more of it")]
mod times;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use conjure_actors::executors::ConnectorSource;
use conjure_actors::journal::OpenJournal;
use conjure_actors::runtime::{NewSession, SessionRuntime, TreeOptions};
use conjure_actors::session::{Session, SessionComponents, SessionFactory, SessionSetup};
use conjure_actors::supervision::Failure;
use conjure_base::{Clock, Redactor, SystemClock, TenantId};
use conjure_conversation::scripted::{Script, ScriptFormat, ScriptedModel};
use conjure_conversation::{PromptPrefix, StopReason, TurnStop};
use conjure_journal::{Journal, JournalError, LeaseOwner, SqliteJournal, SqliteOptions};
use conjure_sandbox::{DataDir, ExecutionContext, Executor, Jail};
use conjure_toolbox::{AllowAll, Toolbox};
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use rustix::time::{ClockId, clock_gettime};
use tokio::task::JoinSet;

use crate::harness::Result;
use crate::times::Times;

/// Tool calls of a turn, one after another.
const TOOL_CALLS: u32 = 10;

/// The cases: how many sessions at once, and how many turns of each are counted.
const CASES: [(&str, u32, u32); 2] = [("one", 1, 60), ("many", 64, 6)];

fn main() -> Result<()> {
    harness::run(measure())
}

async fn measure() -> Result<()> {
    println!(
        "{:8} {:>9} {:>10} {:>10} {:>10} {:>16}",
        "", "turns/s", "p50 ms", "p90 ms", "p99 ms", "cpu ms/call"
    );
    for (case, sessions, turns) in CASES {
        let taken = take(sessions, turns).await?;
        let [p50, p90, p99] = [50, 90, 99].map(|percent| taken.times.percentile(percent));
        let count = f64::from(sessions * turns);
        let rate = count / taken.wall.as_secs_f64();
        let cpu = taken.cpu.as_secs_f64() * 1000.0 / count / f64::from(TOOL_CALLS + 1);
        println!("{case:8} {rate:9.1} {p50:10.2} {p90:10.2} {p99:10.2} {cpu:16.3}");
        println!("RESULT goal=turns case={case} ours={rate:.1} unit=turns/s");
        println!("RESULT goal=turns case={case}-p50 ours={p50:.2} unit=ms");
        println!("RESULT goal=turns case={case}-cpu-per-model-call ours={cpu:.3} unit=ms");
    }
    Ok(())
}

/// What turns took.
struct Taken {
    /// Each of them.
    times: Times,
    wall: Duration,
    cpu: Duration,
}

async fn take(sessions: u32, turns: u32) -> Result<Taken> {
    let dir = tempfile::tempdir()?;
    let outfit = Workshop {
        dir: dir.path().to_owned(),
        jail: Arc::new(Jail::new([]).with_data(DataDir::open(&dir.path().join("data"))?)),
        script: script(turns + 1)?,
    };
    let journal = sqlite(dir.path().join("journal"));
    let mut options = TreeOptions::new(journal, Arc::new(outfit), LeaseOwner::new("benchmark")?);
    // Many begin at once; nobody is late for that.
    options.sessions.deadline = Duration::from_secs(300);
    let runtime = SessionRuntime::spawn(options).await?;
    let mut opened = Vec::new();
    for number in 0..sessions {
        let tenant = TenantId::new(format!("tenant-{}", number % 4))?;
        let session = runtime.open(NewSession::new(tenant)).await?;
        turn(&session).await?;
        opened.push(session);
    }
    let (cpu, started) = (cpu_time(), Instant::now());
    let mut working = JoinSet::new();
    for session in opened {
        working.spawn(async move {
            let mut times = Vec::new();
            for _ in 0..turns {
                let started = Instant::now();
                turn(&session).await?;
                times.push(started.elapsed());
            }
            Result::Ok(times)
        });
    }
    let mut times = Times::default();
    while let Some(worked) = working.join_next().await {
        worked??.into_iter().for_each(|took| times.add(took));
    }
    let (wall, cpu) = (started.elapsed(), cpu_time().saturating_sub(cpu));
    runtime.shutdown(SystemClock.deadline(Duration::from_secs(60))).await?;
    Ok(Taken { times, wall, cpu })
}

async fn turn(session: &Session) -> Result<()> {
    match session.send("Go on.").await?.end().await? {
        TurnStop::Answered(StopReason::EndTurn) => Ok(()),
        other => Err(format!("a turn ended otherwise: {other}").into()),
    }
}

/// What the model says in so many turns.
fn script(turns: u32) -> Result<Arc<Script>> {
    let call = |number: u32| {
        format!(
            "  - content:\n      - {{tool_use: {{name: bash_tool, input: {{command: \"true {number}\", description: nothing}}}}}}\n"
        )
    };
    let calls: String = (0..TOOL_CALLS).map(call).collect();
    let turn = format!("{calls}  - content: \"It is done.\"\n");
    let text = format!("version: 1\nturns:\n{}", turn.repeat(usize::try_from(turns)?));
    Ok(Arc::new(Script::from_text(&text, ScriptFormat::Yaml, "this benchmark")?))
}

fn sqlite(dir: PathBuf) -> Arc<OpenJournal> {
    Arc::new(move || {
        let dir = dir.clone();
        async move {
            let open = move || SqliteJournal::open(&dir, SqliteOptions::default());
            let opened = tokio::task::spawn_blocking(open).await;
            opened.map_err(|_| JournalError::Closed)?.map(|journal| Arc::new(journal) as Arc<dyn Journal>)
        }
        .boxed()
    })
}

/// Each session has the script from its beginning, and a workspace of its own.
struct Workshop {
    dir: PathBuf,
    jail: Arc<Jail>,
    script: Arc<Script>,
}

impl SessionFactory for Workshop {
    fn build<'a>(
        &'a self,
        setup: SessionSetup<'a>,
    ) -> BoxFuture<'a, std::result::Result<SessionComponents, Failure>> {
        async move {
            let workspace = self.dir.join(setup.key.session.to_string());
            std::fs::create_dir_all(&workspace)?;
            let source = ConnectorSource::new(Arc::clone(&self.jail) as _, ExecutionContext::new(workspace))?;
            let executor: Arc<dyn Executor> = Arc::new(setup.executors.supervise(Arc::new(source))?);
            let toolbox =
                Toolbox::builder().with_executor(Arc::clone(&executor)).with_approver(AllowAll).build()?;
            Ok(SessionComponents {
                model: Arc::new(ScriptedModel::new(Arc::clone(&self.script))),
                summarizer: None,
                composer: Arc::new(PromptPrefix { tools: toolbox.definitions(), ..PromptPrefix::default() }),
                tools: Arc::new(toolbox),
                redactor: Redactor::default(),
                executor: Some(executor),
                outputs: Vec::new(),
                artifacts: None,
                uploads: None,
                pre_call_hook: None,
            })
        }
        .boxed()
    }
}

/// The CPU time of this process, user and system, as `getrusage` has it, but finer.
fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}
