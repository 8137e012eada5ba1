//! A long-running host: many turns in one session, then many short sessions, and the resources that they use.
//!
//! Every tenth turn and every tenth session has a command run in a real jail; all is recorded in SQLite. What is measured is this
//! process: its resident memory, its file descriptors, and what lies in its data directory, each after the same number of steps.

use std::error::Error;
use std::path::Path;
use std::time::{Duration, Instant};

use conjure::config::ExecutorKind;
use conjure::{
    Block, Clock as _, Config, Model, ProcessEnv, Request, Response, Runtime, RuntimeOptions, Session,
    SessionSpec, Settings, StopReason, SystemClock, TenantId, model_fn,
};

/// How often it is looked for what the process has, and how long in between.
const LOOKS: u32 = 10;
const PAUSE: Duration = Duration::from_millis(10);

/// How long something may take to end that was begun before.
const PATIENCE: Duration = Duration::from_secs(300);

/// How long it is waited for what should be let go of by the end.
const SETTLING: Duration = Duration::from_secs(60);

pub(crate) type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// The resources of the process at one time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ResourceUsage {
    /// Steps done before.
    pub(crate) steps: u32,
    /// Resident memory, in KiB.
    pub(crate) memory: u64,
    /// Open file descriptors.
    pub(crate) files: usize,
    /// The size of the data directory without the journal, in KiB.
    pub(crate) disk: u64,
    /// The size of the journal, in KiB.
    pub(crate) journal: u64,
    /// The median time of the last steps, in milliseconds.
    pub(crate) step: f64,
}

/// The result of a run: the resource usage at each tenth of its steps.
#[derive(Debug)]
pub(crate) struct SoakReport {
    pub(crate) marks: Vec<ResourceUsage>,
}

impl SoakReport {
    /// After the first tenths, when everything was there once, and at the end.
    pub(crate) fn start_and_end(&self) -> (ResourceUsage, ResourceUsage) {
        (self.marks[2.min(self.marks.len() - 1)], self.marks[self.marks.len() - 1])
    }
}

/// Where it all happens.
pub(crate) struct Site {
    runtime: Runtime,
    dir: tempfile::TempDir,
}

impl Site {
    pub(crate) async fn open() -> Result<Self> {
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
        let runtime = Runtime::spawn(RuntimeOptions::from(config).model("echo", model())).await?;
        Ok(Self { runtime, dir })
    }

    async fn session(&self) -> Result<Session> {
        Ok(self.runtime.open(SessionSpec::new(TenantId::new("acme")?).without_skills()).await?)
    }

    /// So many turns in one session, which is deleted afterwards.
    pub(crate) async fn turns(&self, count: u32) -> Result<SoakReport> {
        let session = self.session().await?;
        let course = self
            .run_steps(count, async |step| {
                let stop = session.send(message(step)).await?.end().await?;
                let is_done = stop.to_string() == "the model is done (end_turn)";
                if is_done { Ok(()) } else { Err(stop.to_string().into()) }
            })
            .await;
        self.runtime.delete(&TenantId::new("acme")?, session.id()).await?;
        course
    }

    /// So many sessions of one turn each, which are deleted.
    pub(crate) async fn sessions(&self, count: u32) -> Result<SoakReport> {
        let tenant = TenantId::new("acme")?;
        self.run_steps(count, async |step| {
            let session = self.session().await?;
            session.send(message(step)).await?.end().await?;
            let id = session.id();
            drop(session);
            self.runtime.delete(&tenant, id).await?;
            Ok(())
        })
        .await
    }

    /// How many sessions are known, and live.
    pub(crate) fn leftovers(&self) -> (usize, usize) {
        let health = self.runtime.health();
        (health.known_sessions, health.live_sessions)
    }

    pub(crate) async fn close(self) -> Result<()> {
        self.runtime.shutdown(SystemClock.deadline(PATIENCE)).await?;
        Ok(self.dir.close()?)
    }

    async fn run_steps(
        &self,
        count: u32,
        mut step: impl AsyncFnMut(u32) -> Result<()>,
    ) -> Result<SoakReport> {
        let tenth = (count / 10).max(1);
        let (mut marks, mut times) = (vec![self.measure(0, &mut Vec::new(), None).await?], Vec::new());
        for number in 1..=count {
            let started = Instant::now();
            step(number).await?;
            times.push(started.elapsed());
            if number % tenth == 0 {
                let baseline = if number + tenth > count { marks.get(2).copied() } else { None };
                marks.push(self.measure(number, &mut times, baseline).await?);
                times.clear();
            }
        }
        Ok(SoakReport { marks })
    }

    /// What it has after this many steps. The last one is given what it had at the beginning: what it has more for a moment is waited for.
    async fn measure(
        &self,
        steps: u32,
        times: &mut [Duration],
        baseline: Option<ResourceUsage>,
    ) -> Result<ResourceUsage> {
        let status = std::fs::read_to_string("/proc/self/status")?;
        let memory = status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.trim().strip_suffix(" kB"));
        let data = self.dir.path().join("data");
        let journal = data.join("journal");
        // Short-lived usage does not count: the minimum of several measurements is used.
        let (mut files, mut disk, mut looks) = (usize::MAX, u64::MAX, 0);
        let settling = SystemClock.deadline(SETTLING);
        let is_more =
            |files, disk| baseline.is_some_and(|baseline| files > baseline.files || disk > baseline.disk);
        while looks < LOOKS || is_more(files, disk / 1024) && !SystemClock.remaining(settling).is_zero() {
            files = files.min(std::fs::read_dir("/proc/self/fd")?.count());
            disk = disk.min(size_but(&data, &journal));
            looks += 1;
            SystemClock.sleep_until(SystemClock.deadline(PAUSE)).await;
        }
        times.sort_unstable();
        let median = times.get(times.len() / 2).copied().unwrap_or_default();
        Ok(ResourceUsage {
            steps,
            memory: memory.ok_or("the system does not say how much memory there is")?.trim().parse()?,
            files,
            disk: disk / 1024,
            journal: size_but(&journal, Path::new("")) / 1024,
            step: median.as_secs_f64() * 1000.0,
        })
    }
}

/// What the files of a directory hold together, in bytes, but for those of one directory in it. What goes in the meantime does not count.
fn size_but(dir: &Path, other: &Path) -> u64 {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    entries
        .filter(|entry| entry.path() != other)
        .map(|entry| match entry.metadata() {
            Ok(found) if found.is_dir() => size_but(&entry.path(), other),
            Ok(found) => found.len(),
            Err(_) => 0,
        })
        .sum()
}

fn message(step: u32) -> &'static str {
    if step.is_multiple_of(10) { "$ true" } else { "hello" }
}

/// Has a command run that it is asked for, and is done.
pub(crate) fn model() -> impl Model {
    model_fn(|request: Request| async move {
        let text = request.messages.last().map(|message| message.text()).unwrap_or_default();
        let (content, stop_reason) = match text.strip_prefix("$ ") {
            Some(command) if request.call == 1 => {
                let id = format!("toolu_{}", request.messages.len());
                let input = serde_json::json!({"command": command, "description": "as it was asked"});
                (Block::tool_use(id, "bash_tool", &input), StopReason::ToolUse)
            }
            _ => (Block::text("It is done."), StopReason::EndTurn),
        };
        Ok(Response::new(vec![content], stop_reason))
    })
}
