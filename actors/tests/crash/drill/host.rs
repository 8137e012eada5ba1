//! The host that is killed: a runtime over SQLite and real jails in one folder, and visitors who keep its sessions busy.
//!
//! Everything that it acknowledges it tells its parent at once. It begins to work when its parent says so, and stops in
//! order when its parent says so, or is gone.

use std::fs;
use std::path::{Path, PathBuf};
use std::str::FromStr as _;
use std::sync::Arc;
use std::time::Duration;

use conjure_actors::executors::ConnectorSource;
use conjure_actors::journal::OpenJournal;
use conjure_actors::runtime::{Runtime, RuntimeOptions, SessionSpec};
use conjure_actors::session::{Fitting, Outfit, Resume, Session, SessionParts};
use conjure_actors::supervision::Failure;
use conjure_base::{Clock, Redactor, SystemClock, TenantId};
use conjure_conversation::{Composition, ToolCall};
use conjure_journal::{Journal, JournalError, Owner, SessionKey, SqliteJournal, SqliteOptions};
use conjure_sandbox::{DataFolder, ExecutionContext, Executor, Jail};
use conjure_toolbox::{Toolbox, approver_fn};
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use tokio::task::JoinSet;

use super::player::{Player, review};
use super::random::Random;
use super::visitor::{Task, Visitor, key};
use super::words::{Word, read_key, write_key};
use super::{HOST, Result};

pub(crate) const TENANTS: [&str; 2] = ["acme", "other"];

/// What a host is started with.
#[derive(Debug, Clone)]
pub(crate) struct Orders {
    pub(crate) folder: PathBuf,
    pub(crate) seed: u64,
    pub(crate) incarnation: u64,
    pub(crate) task: Task,
    /// How many sessions of each tenant are busy at a time.
    pub(crate) sessions: usize,
    /// Those that were opened before, and are gone on with.
    pub(crate) known: Vec<SessionKey>,
}

impl Orders {
    /// The arguments that say so.
    pub(crate) fn arguments(&self) -> Vec<String> {
        let task = match self.task {
            Task::Work => "work",
            Task::Settle => "settle",
        };
        let numbers = [self.seed.to_string(), self.incarnation.to_string(), self.sessions.to_string()];
        let first = [HOST.to_owned(), self.folder.to_string_lossy().into_owned(), task.to_owned()];
        first.into_iter().chain(numbers).chain(self.known.iter().map(write_key)).collect()
    }

    fn read(arguments: &[String]) -> Result<Self> {
        let [folder, task, seed, incarnation, sessions, known @ ..] = arguments else {
            return Err("the host was started without its orders".into());
        };
        Ok(Self {
            folder: folder.into(),
            seed: u64::from_str(seed)?,
            incarnation: u64::from_str(incarnation)?,
            task: if task == "settle" { Task::Settle } else { Task::Work },
            sessions: usize::from_str(sessions)?,
            known: known.iter().map(|text| read_key(text)).collect::<Result<_>>()?,
        })
    }
}

pub(crate) fn journal_folder(folder: &Path) -> PathBuf {
    folder.join("journal")
}

pub(crate) fn data_folder(folder: &Path) -> PathBuf {
    folder.join("data")
}

pub(crate) fn workspace(folder: &Path, key: &SessionKey) -> PathBuf {
    folder.join("workspaces").join(key.session.to_string())
}

/// Is the host, if these arguments of the program say so.
pub(crate) fn be_the_host(arguments: &[String]) -> Option<Result<()>> {
    let (first, orders) = arguments.split_first()?;
    (first == HOST).then(|| {
        let orders = Orders::read(orders)?;
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        let worked = runtime.block_on(async {
            let mut tasks = JoinSet::new();
            tasks.spawn(work(orders));
            tasks.join_next().await.ok_or("the task is gone")??
        });
        if let Err(error) = &worked {
            Word::Fault(error.to_string()).say();
        }
        worked
    })
}

async fn work(orders: Orders) -> Result<()> {
    let folder = orders.folder.clone();
    let random = Random::new(orders.seed);
    let (data, jails) = tokio::task::spawn_blocking(move || -> Result<_> {
        let data = DataFolder::open(&data_folder(&folder))?;
        let host = [("PATH".into(), "/usr/local/bin:/usr/bin:/bin".into())];
        Ok((data.clone(), Jail::new(host).with_data(data)))
    })
    .await??;
    let outfit = Workshop {
        folder: orders.folder.clone(),
        jail: Arc::new(jails),
        player: Player::new(random.fork(1)),
    };
    // The name of the machine's one host: a successor need not wait until its predecessor's leases end.
    let mut options = RuntimeOptions::new(sqlite(&orders.folder), Arc::new(outfit), Owner::new("host")?);
    options.sessions.resume =
        if orders.incarnation.is_multiple_of(2) { Resume::AtStart } else { Resume::WhenAttached };
    let runtime = Runtime::spawn(options).await?;
    Word::Ready.say();
    if from_parent().await? {
        let worked = host_sessions(&orders, &runtime, random.fork(orders.incarnation + 2)).await;
        if let Err(error) = worked {
            Word::Fault(error.to_string()).say();
        }
    }
    runtime.shutdown(SystemClock.deadline(Duration::from_secs(30))).await?;
    drop(data);
    Word::Stopped.say();
    Ok(())
}

/// Waits for a word of the parent; says no when it is gone.
async fn from_parent() -> Result<bool> {
    let read = || std::io::stdin().read_line(&mut String::new());
    Ok(tokio::task::spawn_blocking(read).await?? > 0)
}

/// Has the sessions visited until the parent says that it is enough.
async fn host_sessions(orders: &Orders, runtime: &Runtime, random: Random) -> Result<()> {
    let texts = Arc::default();
    let mut visits = JoinSet::new();
    let mut visit = |number: usize, session: Session| {
        let visitor = Visitor {
            runtime: runtime.clone(),
            random: random.fork(number as u64),
            task: orders.task,
            incarnation: orders.incarnation,
            texts: Arc::clone(&texts),
        };
        visits.spawn(visitor.run(session));
    };
    let mut number = 0;
    for known in &orders.known {
        visit(number, runtime.session(&known.tenant, known.session).await?);
        number += 1;
    }
    for tenant in TENANTS {
        let known = orders.known.iter().filter(|key| key.tenant.as_str() == tenant).count();
        let wanted = if orders.task == Task::Work { orders.sessions } else { 0 };
        for _ in known..wanted {
            let session = runtime.open(SessionSpec::new(TenantId::new(tenant)?)).await?;
            Word::Opened(key(&session)).say();
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
    Word::Settled.say();
    enough.await.map(drop)
}

/// Opens the journal in the folder.
fn sqlite(folder: &Path) -> Arc<OpenJournal> {
    let folder = journal_folder(folder);
    Arc::new(move || {
        let folder = folder.clone();
        async move {
            let open = move || SqliteJournal::open(&folder, SqliteOptions::default());
            let opened = tokio::task::spawn_blocking(open).await;
            opened.map_err(|_| JournalError::Closed)?.map(|journal| Arc::new(journal) as Arc<dyn Journal>)
        }
        .boxed()
    })
}

/// Fits sessions out with the model of the drill and a jail over a workspace that stays.
struct Workshop {
    folder: PathBuf,
    jail: Arc<Jail>,
    player: Player,
}

impl Outfit for Workshop {
    fn outfit<'a>(
        &'a self,
        fitting: Fitting<'a>,
    ) -> BoxFuture<'a, std::result::Result<SessionParts, Failure>> {
        async move {
            let workspace = workspace(&self.folder, fitting.key);
            fs::create_dir_all(&workspace)?;
            let source = ConnectorSource::new(Arc::clone(&self.jail) as _, ExecutionContext::new(workspace))?;
            let executor: Arc<dyn Executor> = Arc::new(fitting.executors.supervise(Arc::new(source))?);
            let approver = approver_fn(|call: ToolCall| async move { review(&call) });
            let toolbox = Toolbox::builder().executor(Arc::clone(&executor)).approver(approver).build()?;
            Ok(SessionParts {
                model: Arc::new(self.player.clone()),
                composer: Arc::new(Composition { tools: toolbox.definitions(), ..Composition::default() }),
                tools: Arc::new(toolbox),
                redactor: Redactor::default(),
                executor: Some(executor),
            })
        }
        .boxed()
    }
}
