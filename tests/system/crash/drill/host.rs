//! The host that is killed: a runtime over a data directory with real sandboxes, and visitors that keep its sessions busy.
//!
//! Everything that it acknowledges it tells its parent at once. It begins to work when its parent says so, and stops in
//! order when its parent says so, or is gone.

use std::path::PathBuf;
use std::str::FromStr as _;
use std::sync::Arc;
use std::time::Duration;

use conjure::journal::SessionKey;
use conjure::tool::ToolCall;
use conjure::{
    Clock as _, Resume, Runtime, RuntimeError, RuntimeOptions, Session, SessionSpec, SystemClock, TenantId,
    approver_fn,
};
use tokio::task::JoinSet;

use super::fixture::{SKILL, Sandboxes, TENANTS, TOKEN, canary, config, secrets_of, token};
use super::log_lines::{LogLine, read_key, write_key};
use super::player::{Player, review};
use super::random::Random;
use super::visitor::{Task, Visitor, delete, key};
use super::{HOST, Result};

/// The options of a host.
#[derive(Debug, Clone)]
pub(crate) struct HostOptions {
    pub(crate) dir: PathBuf,
    pub(crate) sandboxes: Sandboxes,
    pub(crate) seed: u64,
    pub(crate) incarnation: u64,
    pub(crate) task: Task,
    /// How many sessions of each tenant are busy at a time.
    pub(crate) sessions: usize,
    /// Those that were opened before, and are gone on with.
    pub(crate) known: Vec<SessionKey>,
    /// Those whose deletion a former host had begun.
    pub(crate) doomed: Vec<SessionKey>,
}

impl HostOptions {
    /// The arguments that say so.
    pub(crate) fn arguments(&self) -> Vec<String> {
        let task = match self.task {
            Task::Work => "work",
            Task::Settle => "settle",
        };
        let numbers = [self.seed.to_string(), self.incarnation.to_string(), self.sessions.to_string()];
        let dir = self.dir.to_string_lossy().into_owned();
        let first = [HOST.to_owned(), dir, self.sandboxes.argument(), task.to_owned()];
        let known = self.known.iter().map(write_key);
        let doomed = self.doomed.iter().map(|key| format!("{DELETION_PREFIX}{}", write_key(key)));
        first.into_iter().chain(numbers).chain(known).chain(doomed).collect()
    }

    fn read(arguments: &[String]) -> Result<Self> {
        let [dir, sandboxes, task, seed, incarnation, sessions, keys @ ..] = arguments else {
            return Err("the host was started without its orders".into());
        };
        let (mut known, mut doomed) = (Vec::new(), Vec::new());
        for text in keys {
            match text.strip_prefix(DELETION_PREFIX) {
                Some(text) => doomed.push(read_key(text)?),
                None => known.push(read_key(text)?),
            }
        }
        Ok(Self {
            dir: dir.into(),
            sandboxes: sandboxes.parse()?,
            seed: u64::from_str(seed)?,
            incarnation: u64::from_str(incarnation)?,
            task: if task == "settle" { Task::Settle } else { Task::Work },
            sessions: usize::from_str(sessions)?,
            known,
            doomed,
        })
    }
}

/// The prefix of a session that is to be deleted.
const DELETION_PREFIX: char = '-';

/// A session that is to be opened.
pub(crate) fn spec(tenant: &TenantId) -> SessionSpec {
    SessionSpec::new(tenant.clone())
        .skills([SKILL])
        .environment(TOKEN, token(tenant))
        .secret("canary", canary(tenant))
        .metadata("drill", "crash")
}

/// Is the host, if these arguments of the program say so.
pub(crate) fn be_the_host(arguments: &[String]) -> Option<Result<()>> {
    let (first, orders) = arguments.split_first()?;
    (first == HOST).then(|| {
        let orders = HostOptions::read(orders)?;
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        let worked = runtime.block_on(async {
            let mut tasks = JoinSet::new();
            tasks.spawn(work(orders));
            tasks.join_next().await.ok_or("the task is gone")??
        });
        if let Err(error) = &worked {
            LogLine::Fault(error.to_string()).say();
        }
        worked
    })
}

async fn work(orders: HostOptions) -> Result<()> {
    let random = Random::new(orders.seed);
    let resume = if orders.incarnation.is_multiple_of(2) { Resume::AtStart } else { Resume::WhenAttached };
    let options = RuntimeOptions::from(config(&orders.dir, &orders.sandboxes)?)
        .model("player", Player::new(random.fork(1)))
        .approver(approver_fn(|call: ToolCall| async move { review(&call) }))
        .sessions(move |sessions| sessions.resume = resume);
    let runtime = Runtime::spawn(options).await?;
    LogLine::Ready.say();
    if from_parent().await? {
        let worked = host_sessions(&orders, &runtime, random.fork(orders.incarnation + 2)).await;
        if let Err(error) = worked {
            LogLine::Fault(error.to_string()).say();
        }
    }
    runtime.shutdown(SystemClock.deadline(Duration::from_secs(300))).await?;
    drop(runtime);
    LogLine::Stopped.say();
    Ok(())
}

/// Waits for a word of the parent; says no when it is gone.
async fn from_parent() -> Result<bool> {
    let read = || std::io::stdin().read_line(&mut String::new());
    Ok(tokio::task::spawn_blocking(read).await?? > 0)
}

/// Has the sessions visited until the parent says that it is enough.
async fn host_sessions(orders: &HostOptions, runtime: &Runtime, mut random: Random) -> Result<()> {
    for key in &orders.doomed {
        delete(runtime, &key.tenant, key.session).await?;
    }
    let texts = Arc::default();
    let mut visits = JoinSet::new();
    let visits_random = random.clone();
    let mut visit = |number: usize, session: Session| {
        let visitor = Visitor {
            runtime: runtime.clone(),
            random: visits_random.fork(number as u64),
            task: orders.task,
            incarnation: orders.incarnation,
            texts: Arc::clone(&texts),
        };
        visits.spawn(visitor.run(session));
    };
    let mut number = 0;
    for known in &orders.known {
        if random.below(6) == 0 {
            check_what_is_missing(runtime, known).await?;
        }
        let secrets = secrets_of(&known.tenant);
        visit(number, runtime.session_with(&known.tenant, known.session, secrets).await?);
        number += 1;
    }
    for tenant in TENANTS {
        let known = orders.known.iter().filter(|key| key.tenant.as_str() == tenant).count();
        let wanted = if orders.task == Task::Work { orders.sessions } else { 0 };
        for _ in known..wanted {
            let session = runtime.open(spec(&TenantId::new(tenant)?)).await?;
            LogLine::Opened(key(&session)).say();
            visit(number, session);
            number += 1;
        }
    }
    let visited = async {
        while let Some(visited) = visits.join_next().await {
            visited??;
        }
        Result::Ok(())
    };
    let enough = from_parent();
    tokio::pin!(enough);
    tokio::select! {
        biased;
        _ = &mut enough => return Ok(()),
        visited = visited => visited?,
    }
    LogLine::Settled.say();
    enough.await.map(drop)
}

/// Without its secrets the session does not start.
async fn check_what_is_missing(runtime: &Runtime, key: &SessionKey) -> Result<()> {
    match runtime.session(&key.tenant, key.session).await {
        Err(RuntimeError::MissingSecrets { .. }) => Ok(()),
        Err(error) => Err(error.into()),
        Ok(_) => Err(format!("{key} starts without its secrets").into()),
    }
}
