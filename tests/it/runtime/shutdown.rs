//! Shutdown of a busy host: many jails and containers of two tenants, calls that ignore signals or leave their
//! session, a transfer, a silent model, a pending approval, and queued messages.
//!
//! It ends within its deadline, or in no time at all; either way all that was acknowledged is recorded, nothing is left, and the
//! next runtime continues with each session. The host is this program, run again, so that what is left of it is told from others'.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use conjure::config::ExecutorKind;
use conjure::conversation::{Decision, TurnStop};
use conjure::journal::SessionKey;
use conjure::model::ModelStream;
use conjure::sandbox::CallOptions;
use conjure::session::SessionStatus;
use conjure::tool::ToolCall;
use conjure::{
    Clock as _, Message, Model, Request, Runtime, RuntimeOptions, Session, SessionEventKind, SessionSpec,
    Settings, SystemClock, TenantId, TurnEvent, TurnHandle, approver_fn,
};
use futures_util::{StreamExt as _, future::join_all, stream};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use test_support::KillOnDrop;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::processes::{bearing, control_groups};
use crate::rerun::{rerun, test_parameters};
use crate::runtime::fixture::{Fixture, follow, soon, tenant, until};
use crate::runtime::programs::{SentRequests, asking, bash, review};

const JAILS: usize = 24;
const CONTAINERS: usize = 8;

/// How long a host has to stop that must do so in time.
const PATIENCE: Duration = Duration::from_secs(180);

/// The parameters of the host.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Plan {
    dir: PathBuf,
    /// A text that no other test has.
    mark: String,
    /// The image of containers and the engine's address; `None` without containers.
    containers: Option<(String, String)>,
    /// How long it has to stop, in milliseconds.
    within: u64,
}

impl Plan {
    fn fixture(&self) -> Fixture {
        let (image, engine) = self.containers.clone().unzip();
        // A call is to be under way until the host is shut down, however long the others take to come so far.
        let tool_timeout = Some(Duration::from_secs(300));
        let settings = Settings { image, engine, tool_timeout, ..Settings::default() };
        Fixture::existing_with(&self.dir, ExecutorKind::Jail, settings)
    }

    fn tenants(&self) -> [TenantId; 2] {
        ["acme", "other"].map(|name| tenant(&format!("{name}-{}", self.mark)))
    }

    fn effects(&self, key: &SessionKey) -> String {
        let workspace =
            format!("data/tenants/{}/workspaces/{}/workspace", key.tenant, key.session.stored_name());
        std::fs::read_to_string(self.dir.join(workspace).join("effects")).unwrap_or_default()
    }
}

/// Something that a host has acknowledged.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct AcknowledgedMessage {
    tenant: TenantId,
    session: conjure::SessionId,
    seq: u64,
    words: String,
}

impl AcknowledgedMessage {
    fn key(&self) -> SessionKey {
        SessionKey::new(self.tenant.clone(), self.session)
    }
}

/// The work of a session when its host is shut down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SessionWork {
    /// A call.
    Calls,
    /// A command that ignores signals.
    Stubborn,
    /// A command whose processes left its session and their parents.
    Scattered,
    /// A model call without a response.
    Silent,
    /// A call that a person must allow.
    Asks,
    /// Nothing; but something runs in the background.
    Rests,
    /// A call; more words wait for their turn.
    Queues,
    /// An endless upload.
    Transfers,
}

const WORKS: [SessionWork; 8] = [
    SessionWork::Calls,
    SessionWork::Stubborn,
    SessionWork::Scattered,
    SessionWork::Silent,
    SessionWork::Asks,
    SessionWork::Rests,
    SessionWork::Queues,
    SessionWork::Transfers,
];

impl SessionWork {
    /// The message of its turn. Each command writes one line when it runs.
    fn words(self, mark: &str) -> String {
        let sleep = format!("exec -a {mark} sleep 1000");
        let alone = format!("setsid bash -c 'trap \"\" TERM HUP INT; {sleep}'");
        let call = match self {
            Self::Silent => return "silence".to_owned(),
            Self::Asks => return json!([[asking("echo second >> effects")]]).to_string(),
            Self::Calls | Self::Queues | Self::Transfers => sleep,
            Self::Stubborn => format!("trap '' TERM HUP INT QUIT; {sleep}"),
            Self::Scattered => format!("{alone} & (setsid bash -c \"({alone}) & exit\" &) ; wait"),
            Self::Rests => format!("{alone} > /dev/null 2>&1 &"),
        };
        json!([[bash(&format!("echo second >> effects; {call}"))]]).to_string()
    }
}

/// A model that does not respond to the message `silence`.
struct SilentModel<M>(M);

impl<M: Model> Model for SilentModel<M> {
    fn stream(&self, request: Request) -> ModelStream {
        let is_silent = request.messages.last().is_some_and(|message| message.text() == "silence");
        if is_silent { stream::pending().boxed() } else { self.0.stream(request) }
    }
}

async fn start(fixture: &Fixture, sent: &SentRequests, is_silent: bool) -> Runtime {
    let approver = approver_fn(|call: ToolCall| async move { review(&call) });
    let options = RuntimeOptions::from(fixture.config()).approver(approver);
    let options = match is_silent {
        true => options.model("program", SilentModel(sent.model())),
        false => options.model("program", sent.model()),
    };
    Runtime::spawn(options).await.unwrap()
}

/// Says something, and passes on where it was recorded.
#[expect(clippy::print_stdout, reason = "the host's parent reads it")]
async fn acknowledged(session: &Session, text: &str) -> TurnHandle {
    let turn = session.send(text).await.unwrap();
    let acknowledged = AcknowledgedMessage {
        tenant: session.tenant().clone(),
        session: session.id(),
        seq: turn.accepted().seq(),
        words: text.to_owned(),
    };
    println!("ACK {}", serde_json::to_string(&acknowledged).unwrap());
    turn
}

/// Opens a session, and returns when it is at this work, with what waits for the end of it.
async fn at_work(
    plan: &Plan,
    runtime: &Runtime,
    spec: SessionSpec,
    work: SessionWork,
    transfers: &mut JoinSet<()>,
) -> Vec<TurnHandle> {
    let session = runtime.open(spec).await.unwrap();
    let key = SessionKey::new(session.tenant().clone(), session.id());
    let first = json!([[bash("echo first >> effects")]]).to_string();
    let (stop, _) = follow(&mut acknowledged(&session, &first).await).await;
    assert!(matches!(stop, TurnStop::Answered(_)), "{stop}");
    let mut turns = vec![acknowledged(&session, &work.words(&plan.mark)).await];
    let before = turns[0].accepted().seq();
    match work {
        SessionWork::Asks => until(async || !session.snapshot().await.unwrap().approvals.is_empty()).await,
        SessionWork::Silent => until(async || session.snapshot().await.unwrap().events > before + 1).await,
        SessionWork::Rests => drop(follow(&mut turns[0]).await),
        _ => until(async || plan.effects(&key).ends_with("second\n")).await,
    }
    if work == SessionWork::Queues {
        turns.push(acknowledged(&session, "queued 0").await);
        turns.push(acknowledged(&session, "queued 1").await);
    }
    if work == SessionWork::Transfers {
        let executor = session.executor().await.unwrap();
        let started = Arc::new(Semaphore::new(0));
        let counted = Arc::clone(&started);
        // Little and slowly enough for the disk while all others come so far: what counts is that it does not end.
        let lengths = stream::iter([64 << 10; 4]).chain(stream::repeat(1 << 10));
        let pieces = lengths.then(move |length| {
            counted.add_permits(1);
            async move {
                SystemClock.sleep_until(SystemClock.deadline(Duration::from_millis(20))).await;
                Ok(Bytes::from(vec![b'x'; length]))
            }
        });
        transfers.spawn(async move {
            let options = CallOptions::until(soon());
            let ended = executor.write("endless", Box::pin(pieces), options).await;
            assert!(ended.is_err(), "it has no end");
        });
        started.acquire_many(4).await.unwrap().forget();
    }
    turns
}

/// The part: a host that starts all of this work, stops, and runs until its parent has checked.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn part_a_busy_process() {
    let Some(parameters) = test_parameters() else { return };
    let plan: Plan = serde_json::from_str(&parameters).unwrap();
    let runtime = start(&plan.fixture(), &SentRequests::default(), true).await;
    let tenants = plan.tenants();
    let kinds = [("jail", JAILS), ("docker", if plan.containers.is_some() { CONTAINERS } else { 0 })];
    let each = kinds.into_iter().flat_map(|(kind, count)| (0..count).map(move |number| (kind, number)));
    let opening = each.map(|(kind, number)| {
        let (plan, runtime) = (&plan, &runtime);
        // Each work for both tenants, where there are enough of them.
        let whose = tenants[number / WORKS.len() % 2].clone();
        let spec = SessionSpec::new(whose).without_skills().sandbox(kind);
        async move {
            let mut transfers = JoinSet::new();
            (at_work(plan, runtime, spec, WORKS[number % WORKS.len()], &mut transfers).await, transfers)
        }
    });
    let busy = join_all(opening).await;
    let deadline = SystemClock.deadline(Duration::from_millis(plan.within));
    let ended = runtime.shutdown(deadline).await;
    let is_in_time = !SystemClock.remaining(deadline).is_zero();
    // Interrupted requests return.
    for (turns, mut transfers) in busy {
        for mut turn in turns {
            while let Some(Ok(event)) = turn.next().await {
                if let TurnEvent::Ended { .. } = event {
                    break;
                }
            }
        }
        while let Some(transfer) = transfers.join_next().await {
            transfer.unwrap();
        }
    }
    println!("\nSTOPPED {}", if ended.is_ok() && is_in_time { "in time" } else { "late" });
    if let Err(error) = ended {
        println!("{error}");
    }
    let wait = || std::io::stdin().read_line(&mut String::new());
    tokio::task::spawn_blocking(wait).await.unwrap().unwrap();
}

/// The leftovers of the process with this id on the machine, except directories.
async fn leftovers(plan: &Plan, process: u32) -> Vec<String> {
    let mut leftovers: Vec<String> =
        bearing(&plan.mark).into_iter().map(|process| format!("{process:?}")).collect();
    leftovers.extend(control_groups(&format!("-{process}-")));
    #[cfg(engines)]
    leftovers.extend(containers::of(plan).await);
    leftovers
}

fn entries(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    entries.map(|entry| entry.path().display().to_string()).collect()
}

/// Its leftovers in the data directory, except files of sessions.
fn dirs(plan: &Plan) -> Vec<String> {
    let data = plan.dir.join("data");
    let mut leftovers = entries(&data.join("sandboxes"));
    for tenant in plan.tenants() {
        let own_dir = data.join("tenants").join(tenant.as_str());
        leftovers.extend(["sandboxes", "pending"].iter().flat_map(|name| entries(&own_dir.join(name))));
        leftovers
            .extend(entries(&own_dir.join("workspaces")).into_iter().filter(|path| !path.contains("/ses_")));
    }
    // A killed session is recorded as such.
    let is_kept = |path: &String| [".lock", ".dead"].iter().any(|ending| path.ends_with(ending));
    leftovers.extend(entries(&data.join("processes")).into_iter().filter(|path| !is_kept(path)));
    leftovers
}

/// The expected outcome of the shutdown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ExpectedExit {
    Yes,
    No,
}

async fn shut_down(containers: Option<(String, String)>, within: Duration, enough: ExpectedExit) {
    let fixture = Fixture::new(ExecutorKind::Jail);
    let mark = fixture.dir().file_name().unwrap().to_str().unwrap().replace(['.', '_'], "").to_lowercase();
    let within = u64::try_from(within.as_millis()).unwrap();
    let plan = Plan { dir: fixture.dir().to_owned(), mark, containers, within };
    let parameters = serde_json::to_string(&plan).unwrap();
    let mut part = rerun(&[], "runtime::shutdown::part_a_busy_process", &parameters);
    let mut part = KillOnDrop(part.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap());
    let stdout = BufReader::new(part.0.stdout.take().unwrap());
    let (mut acknowledged, mut stopped) = (Vec::<AcknowledgedMessage>::new(), None);
    // The pipe is held until the process has ended: it writes more than we read.
    let mut lines = stdout.lines();
    for line in lines.by_ref() {
        let line = line.unwrap();
        if let Some(one) = line.strip_prefix("ACK ") {
            acknowledged.push(serde_json::from_str(one).unwrap());
        }
        if let Some(how) = line.strip_prefix("STOPPED ") {
            stopped = Some(how.to_owned());
            break;
        }
    }
    assert_eq!(stopped.as_deref(), Some(if enough == ExpectedExit::Yes { "in time" } else { "late" }));
    if enough == ExpectedExit::Yes {
        assert_eq!(leftovers(&plan, part.0.id()).await, [""; 0]);
    }
    // Also when it had no time: what was killed is removed behind it.
    until(async || leftovers(&plan, part.0.id()).await.is_empty()).await;
    drop(part.0.stdin.take());
    lines.for_each(drop);
    assert!(part.0.wait().unwrap().success());
    if enough == ExpectedExit::Yes {
        assert_eq!(dirs(&plan), [""; 0]);
    }

    let sent = SentRequests::default();
    let runtime = start(&plan.fixture(), &sent, false).await;
    check_record(&runtime, &acknowledged).await;
    let keys: BTreeMap<String, SessionKey> =
        acknowledged.iter().map(|one| (one.session.to_string(), one.key())).collect();
    assert_eq!(keys.len(), JAILS + if plan.containers.is_some() { CONTAINERS } else { 0 });
    join_all(keys.values().map(|key| assert_continues(&plan, &runtime, key))).await;
    sent.check();
    runtime.shutdown(soon()).await.unwrap();
    drop(runtime);
    assert_eq!((leftovers(&plan, part.0.id()).await, dirs(&plan)), (Vec::new(), Vec::new()));
}

/// Asserts that every acknowledged message is recorded at its sequence number.
async fn check_record(runtime: &Runtime, acknowledged: &[AcknowledgedMessage]) {
    for one in acknowledged {
        let events = runtime.events(&one.tenant, one.session, one.seq).await.unwrap();
        let recorded =
            events.iter().filter(|event| event.seq == one.seq).find_map(|event| match &event.kind {
                SessionEventKind::UserMessage { content, .. } => Some(Message::user(content.clone()).text()),
                _ => None,
            });
        assert_eq!(recorded.as_ref(), Some(&one.words), "{one:?}");
    }
}

/// The session does what was left to do, nothing twice, and works.
async fn assert_continues(plan: &Plan, runtime: &Runtime, key: &SessionKey) {
    let session = runtime.session(&key.tenant, key.session).await.unwrap();
    let approvals = session.snapshot().await.unwrap().approvals;
    let asks = !approvals.is_empty();
    for approval in approvals {
        session.decide(approval.call.id, Decision::Allow).await.unwrap();
    }
    until(async || session.snapshot().await.unwrap().status == SessionStatus::Idle).await;
    let (stop, text) = follow(&mut session.send("hello").await.unwrap()).await;
    assert!(matches!(stop, TurnStop::Answered(_)), "{stop}");
    assert_eq!(text, "heard: hello");
    let program: Value = json!([[bash("echo third >> effects")]]);
    let (stop, _) = follow(&mut session.send(program.to_string()).await.unwrap()).await;
    assert!(matches!(stop, TurnStop::Answered(_)), "{stop}");
    let done = plan.effects(key);
    let second = if asks || done.contains("second") { "second\n" } else { "" };
    assert_eq!(done, format!("first\n{second}third\n"));
    assert_eq!(session.snapshot().await.unwrap().queue, []);
}

/// A reader that needs the journal after the shutdown gets an error at once, even while the embedder holds the runtime.
#[cfg(not(engines))]
#[tokio::test]
async fn a_reader_does_not_wait_for_a_closed_journal() {
    let fixture = Fixture::new(ExecutorKind::Local);
    let runtime = start(&fixture, &SentRequests::default(), true).await;
    let spec = SessionSpec::new(tenant("acme")).without_skills().sandbox("none");
    let session = runtime.open(spec).await.unwrap();
    let running = session.send("silence").await.unwrap();
    // Earlier events must be read from the journal for its first event.
    let mut queued = session.send("hello").await.unwrap();
    runtime.shutdown(soon()).await.unwrap();
    // It used to wait for 10 seconds and more.
    let first = tokio::time::timeout(Duration::from_secs(8), queued.next()).await.unwrap();
    assert!(matches!(first, Some(Err(conjure::session::SessionError::ShuttingDown))), "{first:?}");
    drop(running);
}

#[cfg(not(engines))]
#[tokio::test]
async fn a_process_with_many_jails_stops_within_its_deadline_and_leaves_nothing() {
    if !test_support::has_user_namespaces() {
        return;
    }
    shut_down(None, PATIENCE, ExpectedExit::Yes).await;
}

#[cfg(not(engines))]
#[tokio::test]
async fn a_process_with_many_jails_that_has_no_time_to_stop_leaves_nothing() {
    if !test_support::has_user_namespaces() {
        return;
    }
    shut_down(None, Duration::from_millis(1), ExpectedExit::No).await;
}

#[cfg(engines)]
mod containers {
    use std::collections::HashMap;

    use bollard::query_parameters::ListContainersOptionsBuilder;

    use super::*;
    use crate::engine::{client, docker};
    use crate::image::test_image;

    /// Those of the plan's tenants, in whatever state.
    pub(super) async fn of(plan: &Plan) -> Vec<String> {
        if plan.containers.is_none() {
            return Vec::new();
        }
        let engine = client(&docker()).await.unwrap();
        let mut found = Vec::new();
        for tenant in plan.tenants() {
            let label = format!("conjure.tenant={tenant}");
            let filters = HashMap::from([("label", vec![label.as_str()])]);
            let options = ListContainersOptionsBuilder::default().all(true).filters(&filters).build();
            found.extend(engine.list_containers(Some(options)).await.unwrap());
        }
        found.into_iter().map(|container| format!("{:?} {:?}", container.names, container.status)).collect()
    }

    #[tokio::test]
    async fn a_busy_process_stops_within_its_deadline_and_leaves_nothing() {
        let Some(image) = test_image() else { return };
        let containers = Some((image.name().to_owned(), docker().to_string()));
        shut_down(containers, PATIENCE, ExpectedExit::Yes).await;
    }

    #[tokio::test]
    async fn a_process_that_has_no_time_to_stop_leaves_nothing() {
        let Some(image) = test_image() else { return };
        let containers = Some((image.name().to_owned(), docker().to_string()));
        shut_down(containers, Duration::from_millis(1), ExpectedExit::No).await;
    }
}
