//! A worker that does what it is told, and records what happens to it.

use std::future::{Future, pending};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use conjure_actors::supervision::{
    Address, Backoff, ChildId, Context, Exit, Failure, Flow, Intensity, Reply, Root, Strategy, Supervisor,
    SupervisorSpec, Worker, WorkerSpec,
};
use conjure_base::{Clock, Deadline, SystemClock};
use tokio::sync::watch;

pub(crate) type Outcome = Pin<Box<dyn Future<Output = Result<Flow, Failure>> + Send>>;
pub(crate) type Ended = Pin<Box<dyn Future<Output = Result<(), Failure>> + Send>>;

pub(crate) const SECOND: Duration = Duration::from_secs(1);

pub(crate) fn id(text: &str) -> ChildId {
    ChildId::new(text).unwrap()
}

/// Longer than any test takes, on a paused clock too.
pub(crate) fn soon() -> Deadline {
    within(SECOND * 36_000)
}

pub(crate) fn within(time: Duration) -> Deadline {
    SystemClock.deadline(time)
}

/// On the paused clock, time that passes is time that was waited.
pub(crate) fn now() -> tokio::time::Instant {
    within(Duration::ZERO).instant().unwrap()
}

/// The events, in order.
#[derive(Clone)]
pub(crate) struct Log(Arc<watch::Sender<Vec<String>>>);

impl Log {
    pub(crate) fn new() -> Self {
        Self(Arc::new(watch::Sender::new(Vec::new())))
    }

    pub(crate) fn push(&self, what: impl Into<String>) {
        self.0.send_modify(|events| events.push(what.into()));
    }

    pub(crate) fn all(&self) -> Vec<String> {
        self.0.borrow().clone()
    }

    pub(crate) fn count(&self, what: &str) -> usize {
        self.0.borrow().iter().filter(|event| *event == what).count()
    }

    /// The events since the last call.
    pub(crate) fn take(&self) -> Vec<String> {
        let mut taken = Vec::new();
        self.0.send_modify(|events| taken = std::mem::take(events));
        taken
    }

    /// Waits until this has happened.
    pub(crate) async fn until(&self, what: &str) {
        let mut events = self.0.subscribe();
        let seen = events.wait_for(|events| events.iter().any(|event| event == what));
        let seen = tokio::time::timeout(SECOND * 36_000, seen).await.is_ok();
        assert!(seen, "`{what}` never happened, but {:?}", self.all());
    }
}

pub(crate) enum ProbeMessage {
    /// Answers with the incarnation.
    Ping(Reply<u64>),
    Run(Box<dyn FnOnce(Context<ProbeMessage>) -> Outcome + Send>),
}

pub(crate) fn run<F, Fut>(work: F) -> ProbeMessage
where
    F: FnOnce(Context<ProbeMessage>) -> Fut + Send + 'static,
    Fut: Future<Output = Result<Flow, Failure>> + Send + 'static,
{
    ProbeMessage::Run(Box::new(|context| Box::pin(work(context))))
}

pub(crate) fn fail() -> ProbeMessage {
    run(|_| async { Err("told to fail".into()) })
}

pub(crate) fn panic() -> ProbeMessage {
    run(|_| async { panic!("told to panic") })
}

pub(crate) fn finish() -> ProbeMessage {
    run(|_| async { Ok(Flow::Stop) })
}

/// Hangs until it is killed; says when it does.
pub(crate) fn hang(log: &Log) -> ProbeMessage {
    let log = log.clone();
    run(|context| async move {
        log.push(format!("hang {}", name(&context)));
        pending().await
    })
}

/// `ID#INCARNATION`.
pub(crate) fn name(context: &Context<ProbeMessage>) -> String {
    format!("{}#{}", context.id(), context.incarnation())
}

type StopFn = Arc<dyn Fn(Context<ProbeMessage>) -> Ended + Send + Sync>;

/// Logs `start`, `stop` and `drop`, each with its name.
pub(crate) struct Probe {
    name: String,
    log: Log,
    stop: Option<StopFn>,
}

impl Worker for Probe {
    type Message = ProbeMessage;

    async fn handle(
        &mut self,
        message: ProbeMessage,
        context: &Context<ProbeMessage>,
    ) -> Result<Flow, Failure> {
        match message {
            ProbeMessage::Ping(reply) => {
                reply.send(context.incarnation());
                Ok(Flow::Continue)
            }
            ProbeMessage::Run(work) => work(context.clone()).await,
        }
    }

    async fn stop(&mut self, context: &Context<ProbeMessage>) -> Result<(), Failure> {
        self.log.push(format!("stop {}", self.name));
        match &self.stop {
            Some(stop) => stop(context.clone()).await,
            None => Ok(()),
        }
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        self.log.push(format!("drop {}", self.name));
    }
}

/// A probe that starts at once.
pub(crate) fn probe(text: &str, log: &Log) -> WorkerSpec<Probe> {
    probe_with(text, log, |_| async { Ok(()) })
}

/// A probe that runs `start` at its start.
pub(crate) fn probe_with<F, Fut>(text: &str, log: &Log, start: F) -> WorkerSpec<Probe>
where
    F: Fn(Context<ProbeMessage>) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<(), Failure>> + Send + 'static,
{
    build(text, log, start, None)
}

/// A probe that does this when it stops.
pub(crate) fn probe_stopping<F, Fut>(text: &str, log: &Log, stop: F) -> WorkerSpec<Probe>
where
    F: Fn(Context<ProbeMessage>) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<(), Failure>> + Send + 'static,
{
    let stop: StopFn = Arc::new(move |context| Box::pin(stop(context)));
    build(text, log, |_| async { Ok(()) }, Some(stop))
}

fn build<F, Fut>(text: &str, log: &Log, start: F, stop: Option<StopFn>) -> WorkerSpec<Probe>
where
    F: Fn(Context<ProbeMessage>) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<(), Failure>> + Send + 'static,
{
    let log = log.clone();
    let start = move |context: Context<ProbeMessage>| {
        let (started, log, stop) = (start(context.clone()), log.clone(), stop.clone());
        async move {
            started.await?;
            log.push(format!("start {}", name(&context)));
            Ok(Probe { name: name(&context), log, stop })
        }
    };
    WorkerSpec::new(id(text), start).backoff(Backoff::NONE)
}

/// Any number of restarts.
pub(crate) const PATIENT: Intensity = Intensity::new(1_000_000, SECOND);

/// A root with these children, in order.
pub(crate) async fn root(
    strategy: Strategy,
    workers: Vec<WorkerSpec<Probe>>,
) -> (Root, Supervisor, Vec<Address<ProbeMessage>>) {
    let mut spec = SupervisorSpec::ordered(id("root"), strategy).intensity(PATIENT);
    let mut addresses = Vec::new();
    for worker in workers {
        let (child, address) = worker.build();
        spec = spec.child(child).unwrap();
        addresses.push(address);
    }
    let (spec, supervisor) = spec.build();
    (Root::spawn(spec, soon()).await.unwrap(), supervisor, addresses)
}

/// A root without children, that may have any number.
pub(crate) async fn dynamic_root() -> (Root, Supervisor) {
    let (spec, supervisor) = SupervisorSpec::dynamic(id("root")).intensity(PATIENT).build();
    (Root::spawn(spec, soon()).await.unwrap(), supervisor)
}

/// Lets everything happen that can happen without time passing.
pub(crate) async fn settle() {
    for _ in 0..500 {
        tokio::task::yield_now().await;
    }
}

/// The text of how an incarnation ended.
pub(crate) async fn end_of(address: &Address<ProbeMessage>) -> Exit {
    address.monitor().unwrap().await.exit
}
