//! A host with much to do is shut down: many jails and containers of two tenants, calls that ignore signals or leave their
//! session, a transfer, a silent model, a person who has not decided, words that wait for their turn.
//!
//! It ends within its deadline, or in no time at all; either way all that was acknowledged is recorded, nothing is left, and the
//! next runtime goes on with each session. The host is this program, run again, so that what is left of it is told from others'.

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
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::again::{Killed, again, told};
use crate::processes::{bearing, control_groups};
use crate::runtime::fixture::{Fixture, follow, soon, tenant, until};
use crate::runtime::programs::{Sent, asking, bash, review};

const JAILS: usize = 24;
const CONTAINERS: usize = 8;

/// How long a host has to stop that must do so in time.
const PATIENCE: Duration = Duration::from_secs(180);

/// What the host is told.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Plan {
    folder: PathBuf,
    /// A text that no other test has.
    mark: String,
    /// What containers are made of, and where; none: there are none.
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
        Fixture::existing_with(&self.folder, ExecutorKind::Jail, settings)
    }

    fn tenants(&self) -> [TenantId; 2] {
        ["acme", "other"].map(|name| tenant(&format!("{name}-{}", self.mark)))
    }

    fn effects(&self, key: &SessionKey) -> String {
        let workspace =
            format!("data/tenants/{}/workspaces/{}/workspace", key.tenant, key.session.stored_name());
        std::fs::read_to_string(self.folder.join(workspace).join("effects")).unwrap_or_default()
    }
}

/// Something that a host has acknowledged.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Acknowledged {
    tenant: TenantId,
    session: conjure::SessionId,
    seq: u64,
    words: String,
}

impl Acknowledged {
    fn key(&self) -> SessionKey {
        SessionKey::new(self.tenant.clone(), self.session)
    }
}

/// What a session is at when its host is shut down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Work {
    /// A call.
    Calls,
    /// One that ignores what asks it to end.
    Stubborn,
    /// One whose processes have left its session, and their parents.
    Scattered,
    /// A call of the model, which says nothing.
    Silent,
    /// A call that a person must allow.
    Asks,
    /// Nothing; but something runs in the background.
    Rests,
    /// A call; more words wait for their turn.
    Queues,
    /// A file that goes in, without an end.
    Transfers,
}

const WORKS: [Work; 8] = [
    Work::Calls,
    Work::Stubborn,
    Work::Scattered,
    Work::Silent,
    Work::Asks,
    Work::Rests,
    Work::Queues,
    Work::Transfers,
];

impl Work {
    /// What its turn is asked for. Each writes down once that it was done.
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

/// A model that says nothing when it is asked for silence.
struct Silent<M>(M);

impl<M: Model> Model for Silent<M> {
    fn stream(&self, request: Request) -> ModelStream {
        let is_silent = request.messages.last().is_some_and(|message| message.text() == "silence");
        if is_silent { stream::pending().boxed() } else { self.0.stream(request) }
    }
}

async fn start(fixture: &Fixture, sent: &Sent, is_silent: bool) -> Runtime {
    let approver = approver_fn(|call: ToolCall| async move { review(&call) });
    let options = RuntimeOptions::from(fixture.config()).approver(approver);
    let options = match is_silent {
        true => options.model("program", Silent(sent.model())),
        false => options.model("program", sent.model()),
    };
    Runtime::spawn(options).await.unwrap()
}

/// Says something, and passes on where it was recorded.
#[expect(clippy::print_stdout, reason = "the host's parent reads it")]
async fn acknowledged(session: &Session, words: &str) -> TurnHandle {
    let turn = session.send(words).await.unwrap();
    let acknowledged = Acknowledged {
        tenant: session.tenant().clone(),
        session: session.id(),
        seq: turn.accepted().seq(),
        words: words.to_owned(),
    };
    println!("ACK {}", serde_json::to_string(&acknowledged).unwrap());
    turn
}

/// Opens a session, and returns when it is at this work, with what waits for the end of it.
async fn at_work(
    plan: &Plan,
    runtime: &Runtime,
    spec: SessionSpec,
    work: Work,
    transfers: &mut JoinSet<()>,
) -> Vec<TurnHandle> {
    let session = runtime.open(spec).await.unwrap();
    let key = SessionKey::new(session.tenant().clone(), session.id());
    let first = json!([[bash("echo first >> effects")]]).to_string();
    let (stop, _) = follow(&mut acknowledged(&session, &first).await).await;
    assert!(matches!(stop, TurnStop::Answered(_)), "{stop}");
    let mut turns = vec![acknowledged(&session, &work.words(&plan.mark)).await];
    let begun = turns[0].accepted().seq();
    match work {
        Work::Asks => until(async || !session.snapshot().await.unwrap().approvals.is_empty()).await,
        Work::Silent => until(async || session.snapshot().await.unwrap().events > begun + 1).await,
        Work::Rests => drop(follow(&mut turns[0]).await),
        _ => until(async || plan.effects(&key).ends_with("second\n")).await,
    }
    if work == Work::Queues {
        turns.push(acknowledged(&session, "queued 0").await);
        turns.push(acknowledged(&session, "queued 1").await);
    }
    if work == Work::Transfers {
        let executor = session.executor().await.unwrap();
        let taken = Arc::new(Semaphore::new(0));
        let counted = Arc::clone(&taken);
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
        taken.acquire_many(4).await.unwrap().forget();
    }
    turns
}

/// The part: a host that gets all of this to do, stops, and lives on until its parent has looked.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn part_a_process_with_much_to_do() {
    let Some(told) = told() else { return };
    let plan: Plan = serde_json::from_str(&told).unwrap();
    let runtime = start(&plan.fixture(), &Sent::default(), true).await;
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
    // Nobody waits for ever for what was under way.
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

/// What remains on the machine of the process with this id, except folders.
async fn left(plan: &Plan, process: u32) -> Vec<String> {
    let mut left: Vec<String> =
        bearing(&plan.mark).into_iter().map(|process| format!("{process:?}")).collect();
    left.extend(control_groups(&format!("-{process}-")));
    #[cfg(engines)]
    left.extend(containers::of(plan).await);
    left
}

fn entries(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.path().display().to_string()).collect()
}

/// What is left of it in its data folder: all but what sessions keep.
fn folders(plan: &Plan) -> Vec<String> {
    let data = plan.folder.join("data");
    let mut left = entries(&data.join("sandboxes"));
    for tenant in plan.tenants() {
        let own = data.join("tenants").join(tenant.as_str());
        left.extend(["sandboxes", "pending"].iter().flat_map(|name| entries(&own.join(name))));
        left.extend(entries(&own.join("workspaces")).into_iter().filter(|path| !path.contains("/ses_")));
    }
    // That one died is remembered.
    let is_kept = |path: &String| [".lock", ".dead"].iter().any(|ending| path.ends_with(ending));
    left.extend(entries(&data.join("processes")).into_iter().filter(|path| !is_kept(path)));
    left
}

/// Whether it must have ended in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Enough {
    Yes,
    No,
}

async fn shut_down(containers: Option<(String, String)>, within: Duration, enough: Enough) {
    let fixture = Fixture::new(ExecutorKind::Jail);
    let mark = fixture.folder().file_name().unwrap().to_str().unwrap().replace(['.', '_'], "").to_lowercase();
    let within = u64::try_from(within.as_millis()).unwrap();
    let plan = Plan { folder: fixture.folder().to_owned(), mark, containers, within };
    let words = serde_json::to_string(&plan).unwrap();
    let mut part = again(&[], "runtime::shutdown::part_a_process_with_much_to_do", &words);
    let mut part = Killed(part.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap());
    let said = BufReader::new(part.0.stdout.take().unwrap());
    let (mut acknowledged, mut stopped) = (Vec::<Acknowledged>::new(), None);
    // Held until it has ended: it says more than we read.
    let mut lines = said.lines();
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
    assert_eq!(stopped.as_deref(), Some(if enough == Enough::Yes { "in time" } else { "late" }));
    if enough == Enough::Yes {
        assert_eq!(left(&plan, part.0.id()).await, [""; 0]);
    }
    // Also when it had no time: what was killed is removed behind it.
    until(async || left(&plan, part.0.id()).await.is_empty()).await;
    drop(part.0.stdin.take());
    lines.for_each(drop);
    assert!(part.0.wait().unwrap().success());
    if enough == Enough::Yes {
        assert_eq!(folders(&plan), [""; 0]);
    }

    let sent = Sent::default();
    let runtime = start(&plan.fixture(), &sent, false).await;
    check_record(&runtime, &acknowledged).await;
    let keys: BTreeMap<String, SessionKey> =
        acknowledged.iter().map(|one| (one.session.to_string(), one.key())).collect();
    assert_eq!(keys.len(), JAILS + if plan.containers.is_some() { CONTAINERS } else { 0 });
    join_all(keys.values().map(|key| goes_on(&plan, &runtime, key))).await;
    sent.check();
    runtime.shutdown(soon()).await.unwrap();
    drop(runtime);
    assert_eq!((left(&plan, part.0.id()).await, folders(&plan)), (Vec::new(), Vec::new()));
}

/// Everything stands where it was said that it does.
async fn check_record(runtime: &Runtime, acknowledged: &[Acknowledged]) {
    for one in acknowledged {
        let events = runtime.events(&one.tenant, one.session, one.seq).await.unwrap();
        let said = events.iter().filter(|event| event.seq == one.seq).find_map(|event| match &event.kind {
            SessionEventKind::UserMessage { content, .. } => Some(Message::user(content.clone()).text()),
            _ => None,
        });
        assert_eq!(said.as_ref(), Some(&one.words), "{one:?}");
    }
}

/// The session does what was left to do, nothing twice, and works.
async fn goes_on(plan: &Plan, runtime: &Runtime, key: &SessionKey) {
    let session = runtime.session(&key.tenant, key.session).await.unwrap();
    let approvals = session.snapshot().await.unwrap().approvals;
    let asks = !approvals.is_empty();
    for approval in approvals {
        session.decide(approval.call.id, Decision::Allow).await.unwrap();
    }
    until(async || session.snapshot().await.unwrap().status == SessionStatus::Idle).await;
    let (stop, said) = follow(&mut session.send("hello").await.unwrap()).await;
    assert!(matches!(stop, TurnStop::Answered(_)), "{stop}");
    assert_eq!(said, "heard: hello");
    let program: Value = json!([[bash("echo third >> effects")]]);
    let (stop, _) = follow(&mut session.send(program.to_string()).await.unwrap()).await;
    assert!(matches!(stop, TurnStop::Answered(_)), "{stop}");
    let done = plan.effects(key);
    let second = if asks || done.contains("second") { "second\n" } else { "" };
    assert_eq!(done, format!("first\n{second}third\n"));
    assert_eq!(session.snapshot().await.unwrap().queue, []);
}

/// A reader that needs the journal after the shutdown gets an error at once, also while the embedder keeps the runtime.
#[cfg(not(engines))]
#[tokio::test]
async fn a_reader_does_not_wait_for_a_journal_that_is_closed() {
    let fixture = Fixture::new(ExecutorKind::Local);
    let runtime = start(&fixture, &Sent::default(), true).await;
    let spec = SessionSpec::new(tenant("acme")).without_skills().sandbox("none");
    let session = runtime.open(spec).await.unwrap();
    let running = session.send("silence").await.unwrap();
    // What comes before it in the journal must be read for its first event.
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
    shut_down(None, PATIENCE, Enough::Yes).await;
}

#[cfg(not(engines))]
#[tokio::test]
async fn a_process_with_many_jails_that_has_no_time_to_stop_leaves_nothing() {
    if !test_support::has_user_namespaces() {
        return;
    }
    shut_down(None, Duration::from_millis(1), Enough::No).await;
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
    async fn a_process_with_much_to_do_stops_within_its_deadline_and_leaves_nothing() {
        let Some(image) = test_image() else { return };
        let containers = Some((image.name().to_owned(), docker().to_string()));
        shut_down(containers, PATIENCE, Enough::Yes).await;
    }

    #[tokio::test]
    async fn a_process_that_has_no_time_to_stop_leaves_nothing() {
        let Some(image) = test_image() else { return };
        let containers = Some((image.name().to_owned(), docker().to_string()));
        shut_down(containers, Duration::from_millis(1), Enough::No).await;
    }
}
