//! Holding a container by its name, which is known before there is one: so that it goes whatever is dropped, and when.
//!
//! State: the names that this connector holds, and the tasks that remove what nobody waits for. What they cannot remove is
//! left to [`super::Docker::sweep`]; what is left when the process dies, to that of the next host.

use std::collections::BTreeSet;
use std::future::Future;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bollard::models::ContainerCreateBody;
use conjure_base::{Clock as _, SystemClock};
use tokio::runtime::Handle;
use tokio_util::task::TaskTracker;

use super::engine::{Engine, NotMade, Removed};
use super::failure::Effect;
use super::labels::name_of;
use super::last::{Asked, LastPatience};
use crate::error::{SandboxError, SandboxErrorKind};

/// How long one who has no runtime waits until it asks again for a container that is being made.
const LAST_PAUSE: Duration = Duration::from_millis(50);

/// What an engine answers at once that does not hang.
const PING: &str = "GET /_ping";

/// What an engine answers that has none of that name.
const ABSENT: u16 = 404;

/// What it answers while something else is done with the container.
const CONFLICT: u16 = 409;

/// Longer than anything here takes, to measure by.
const LONG: Duration = Duration::from_secs(3600);

/// How long a removal that failed is tried again, first after this time, then after twice as much, and so on.
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
const TRIES: u32 = 40;

/// How often somebody has it tried who waits for it.
const TRIES_WAITED_FOR: u32 = 5;

/// An engine, and what a connector holds of it.
#[derive(Debug)]
pub(super) struct Keeper {
    pub(super) engine: Engine,
    instance: String,
    next: AtomicU64,
    held: Mutex<BTreeSet<String>>,
    /// Whether something was left to who sweeps, since there was a sweep.
    has_left: AtomicBool,
    tasks: TaskTracker,
    /// Of those who have no runtime.
    patience: LastPatience,
}

impl Keeper {
    pub(super) fn new(engine: Engine, instance: &str) -> Arc<Self> {
        Arc::new(Self {
            engine,
            instance: instance.to_owned(),
            next: AtomicU64::new(0),
            held: Mutex::default(),
            has_left: AtomicBool::new(false),
            tasks: TaskTracker::new(),
            patience: LastPatience::default(),
        })
    }

    /// A name for a container that will be made, held from now on.
    pub(super) fn hold(self: &Arc<Self>) -> Held {
        let name = name_of(&self.instance, self.next.fetch_add(1, Ordering::Relaxed));
        self.names().insert(name.clone());
        let doomed = Doomed { keeper: Arc::clone(self), name, state: State::Settled };
        Held { keeper: Arc::clone(self), doomed: Some(doomed) }
    }

    /// Whether a container of this name is held, or being removed.
    pub(super) fn holds(&self, name: &str) -> bool {
        self.names().contains(name)
    }

    /// Whether a sweep has something to do that was left to it. From now on it is the caller's.
    pub(super) fn takes_what_was_left(&self) -> bool {
        self.has_left.swap(false, Ordering::Relaxed)
    }

    /// Something is left to who sweeps.
    pub(super) fn must_be_swept(&self) {
        self.has_left.store(true, Ordering::Relaxed);
    }

    /// Runs it to its end, even when nobody waits for it. Where there is no runtime any more, it is dropped.
    pub(super) fn run(&self, work: impl Future<Output = ()> + Send + 'static) {
        if let Ok(runtime) = Handle::try_current() {
            self.tasks.spawn_on(work, &runtime);
        }
    }

    fn names(&self) -> std::sync::MutexGuard<'_, BTreeSet<String>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A container's name. Dropping it removes the container, if there is one.
#[derive(Debug)]
pub(super) struct Held {
    keeper: Arc<Keeper>,
    /// `None` when it is being dropped.
    doomed: Option<Doomed>,
}

impl Held {
    pub(super) const fn keeper(&self) -> &Arc<Keeper> {
        &self.keeper
    }

    pub(super) fn name(&self) -> &str {
        self.doomed.as_ref().map_or("", |doomed| &doomed.name)
    }

    /// Makes the container.
    pub(super) async fn make(&mut self, body: ContainerCreateBody) -> Result<Vec<String>, SandboxError> {
        let Some(doomed) = &mut self.doomed else { return Ok(Vec::new()) };
        // Until there is an answer, also when nobody waits for it any more.
        doomed.state = State::Asked;
        let made = doomed.keeper.engine.create(&doomed.name, body).await;
        doomed.state = match &made {
            Err(NotMade { effect: Effect::Unknown, .. }) => State::Unanswered,
            Ok(_) | Err(NotMade { effect: Effect::None, .. }) => State::Settled,
        };
        made.map_err(|not_made| not_made.error)
    }

    /// As [`Held::remove`], again and again for some seconds: an engine that has much to do refuses what it does a moment later.
    pub(super) async fn remove_patiently(&mut self) -> Result<(), SandboxError> {
        let mut pause = FIRST_PAUSE;
        for _ in 1..TRIES_WAITED_FOR {
            match self.remove().await {
                Err(error) if error.kind() != SandboxErrorKind::EngineUnavailable => {
                    tracing::debug!(%error, container = self.name(), "a container could not be removed yet");
                }
                end => return end,
            }
            tokio::time::sleep(pause).await;
            pause *= 2;
        }
        self.remove().await
    }

    /// Removes the container, and waits for it. Again, it does nothing.
    pub(super) async fn remove(&mut self) -> Result<(), SandboxError> {
        match &mut self.doomed {
            Some(doomed) => doomed.remove().await,
            None => Ok(()),
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let Some(doomed) = self.doomed.take().filter(|doomed| doomed.state != State::Gone) else { return };
        // A runtime that is shutting down drops the task, and a thread that has none drops what would be one: then the
        // engine is asked without.
        self.keeper.run(doomed.remove_at_last());
    }
}

/// A container that must go.
#[derive(Debug)]
struct Doomed {
    keeper: Arc<Keeper>,
    name: String,
    state: State,
}

/// What is known of a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Where the engine has none, there is none.
    Settled,
    /// The engine was asked to make it, and will answer: where it has none, it has none yet.
    Asked,
    /// It was asked, and did not answer in time or died over it: where it has none, one may still come.
    Unanswered,
    /// It was removed, or is left to who sweeps.
    Gone,
}

impl Doomed {
    async fn remove(&mut self) -> Result<(), SandboxError> {
        if self.state == State::Gone {
            return Ok(());
        }
        let engine = &self.keeper.engine;
        let removed = match self.state {
            State::Asked | State::Unanswered => engine.remove_when_shown(&self.name).await?,
            State::Settled | State::Gone => engine.remove(&self.name).await?,
        };
        self.keeper.patience.restore();
        match (removed, self.state) {
            (Removed::NotThere, State::Asked | State::Unanswered) => {
                let message = format!("the engine has not made `{}` yet, which it was asked for", self.name);
                Err(SandboxError::new(SandboxErrorKind::Unavailable, message))
            }
            _ => {
                self.let_go();
                Ok(())
            }
        }
    }

    /// Removes it, however often that must be tried: the engine may be restarting, or slow in making it.
    async fn remove_at_last(mut self) {
        let mut pause = FIRST_PAUSE;
        for _ in 0..TRIES {
            let Err(error) = self.remove().await else { return };
            tracing::debug!(%error, container = self.name, "a container could not be removed yet");
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
        // What an engine has begun that died over it, Podman shows to nobody, and removes by its name.
        let _ = self.keeper.engine.remove(&self.name).await;
        tracing::warn!(container = self.name, "a container is left to be swept");
        self.leave();
    }

    /// Has the engine remove it, without a runtime, and yields the status.
    fn remove_blocking(&self, patience: Duration) -> io::Result<u16> {
        let address = self.keeper.engine.address();
        // As `Engine::remove_when_shown`.
        if matches!(self.state, State::Asked | State::Unanswered) {
            let shown = address.ask_blocking(&format!("GET /containers/{}/json", self.name), patience)?;
            if shown == ABSENT {
                return Ok(ABSENT);
            }
        }
        address.ask_blocking(&format!("DELETE /containers/{}?force=true&v=true", self.name), patience)
    }

    /// It is for who sweeps, which the next opening does.
    fn leave(&mut self) {
        self.let_go();
        self.keeper.must_be_swept();
    }

    /// From now on it is for who sweeps.
    fn let_go(&mut self) {
        self.state = State::Gone;
        self.keeper.names().remove(&self.name);
    }
}

impl Drop for Doomed {
    /// Where nobody can wait, because the runtime goes: asks the engine without one. What it is making just now is not there
    /// yet, so it is asked again, as it is when it fails, is busy with the container or is slow. For what it has not answered long
    /// ago it is not: that is left to be swept, as is all that is left when an engine hangs.
    fn drop(&mut self) {
        if self.state == State::Gone {
            return;
        }
        let patience = &self.keeper.patience;
        let mut asked = Asked::Never;
        while let Some(share) = patience.share(asked) {
            asked = Asked::Before;
            let begun = SystemClock.deadline(LONG);
            let waited = || LONG.saturating_sub(SystemClock.remaining(begun));
            match self.remove_blocking(share) {
                Ok(200..=299) => {
                    patience.restore();
                    return self.let_go();
                }
                Ok(ABSENT) if self.state == State::Settled => {
                    patience.restore();
                    return self.let_go();
                }
                Ok(ABSENT) if self.state == State::Unanswered => return self.leave(),
                // It is making it, or somebody else is at it, such as a removal that nobody waits for any more.
                Ok(ABSENT | CONFLICT | 500..) => {
                    std::thread::park_timeout(LAST_PAUSE);
                    patience.spend(waited());
                }
                Ok(status) => {
                    tracing::warn!(status, container = self.name, "a container is left to be swept");
                    return self.leave();
                }
                // One that is slow may have given up the removal with those who asked for it.
                Err(ref error) if is_over_time(error) => {
                    match self.keeper.engine.address().ask_blocking(PING, share) {
                        Ok(_) => patience.spend_on_silence(waited()),
                        Err(_) => patience.lose(),
                    }
                }
                Err(error) => {
                    tracing::warn!(%error, container = self.name, "a container is left to be swept");
                    return self.leave();
                }
            }
        }
        let message = "the engine takes too long, and a container is left to be swept";
        tracing::warn!(container = self.name, "{message}");
        self.leave();
    }
}

fn is_over_time(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}

#[cfg(test)]
mod tests {
    use super::super::scripted::{Reply, scripted};
    use super::*;

    #[test]
    fn all_that_a_runtime_leaves_waits_together_for_an_engine_that_hangs() {
        let asked = Arc::new(AtomicU64::new(0));
        let counter = Arc::clone(&asked);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let (engine, _folder) = runtime.block_on(scripted(move |_| {
            counter.fetch_add(1, Ordering::Relaxed);
            Reply::Silence
        }));
        let keeper = Keeper::new(engine, "hangs");
        let all: Vec<Held> = (0..20).map(|_| keeper.hold()).collect();
        drop(runtime);
        let patience = Duration::from_secs(60);
        let begun = SystemClock.deadline(patience);
        drop(all);
        let waited = patience - SystemClock.remaining(begun);
        // Each for itself, they would have waited for a minute.
        assert!(waited < Duration::from_secs(30), "{waited:?}");
        // To remove one, and whether it is there at all.
        assert_eq!(asked.load(Ordering::Relaxed), 2);
        assert!(keeper.names().is_empty());
    }

    #[test]
    fn an_engine_that_is_slow_or_refuses_is_asked_again() {
        let asked = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&asked);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let (engine, _folder) = runtime.block_on(scripted(move |request| {
            let mut seen = seen.lock().unwrap();
            seen.push(request.split(' ').next().unwrap().to_owned());
            match seen.len() {
                1 => Reply::Silence,
                3 => Reply::Refusal(409, "it is being removed"),
                _ => Reply::Answer("{}".to_owned()),
            }
        }));
        let keeper = Keeper::new(engine, "slow");
        let held = keeper.hold();
        drop(runtime);
        drop(held);
        assert_eq!(*asked.lock().unwrap(), ["DELETE", "GET", "DELETE", "DELETE"]);
        assert!(!keeper.takes_what_was_left());
    }

    /// The one that it is busy with takes all the time that there is; the others go, and are asked for once at least.
    #[test]
    fn an_engine_that_refuses_one_is_asked_for_the_others() {
        let asked = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&asked);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let (engine, _folder) = runtime.block_on(scripted(move |request| {
            let name = request.split(['/', '?']).nth(2).unwrap().to_owned();
            let mut seen = seen.lock().unwrap();
            let first = seen.first().cloned();
            seen.push(name.clone());
            match first {
                Some(first) if first != name => Reply::Answer("{}".to_owned()),
                _ => Reply::Refusal(409, "it is being removed"),
            }
        }));
        let keeper = Keeper::new(engine, "busy");
        // As if much time had passed by now.
        keeper.patience.spend(Duration::from_secs(8));
        let all: Vec<Held> = (0..5).map(|_| keeper.hold()).collect();
        let names: BTreeSet<String> = all.iter().map(|held| held.name().to_owned()).collect();
        drop(runtime);
        drop(all);
        let asked = asked.lock().unwrap().clone();
        let refused = &asked[0];
        assert!(asked.iter().filter(|name| *name == refused).count() > 1, "{asked:?}");
        assert_eq!(asked.iter().cloned().collect::<BTreeSet<_>>(), names);
        assert_eq!(asked.iter().filter(|name| *name != refused).count(), 4);
        assert!(keeper.takes_what_was_left());
    }

    /// All are refused: each is asked for once at least, and no longer than there is time for all.
    #[test]
    fn each_is_asked_for_once_when_the_time_is_over() {
        let asked = Arc::new(AtomicU64::new(0));
        let counter = Arc::clone(&asked);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let (engine, _folder) = runtime.block_on(scripted(move |_| {
            counter.fetch_add(1, Ordering::Relaxed);
            Reply::Refusal(500, "no")
        }));
        let keeper = Keeper::new(engine, "over");
        keeper.patience.spend(Duration::from_secs(60));
        let all: Vec<Held> = (0..5).map(|_| keeper.hold()).collect();
        drop(runtime);
        drop(all);
        assert_eq!(asked.load(Ordering::Relaxed), 5);
    }

    #[test]
    fn what_an_engine_refuses_for_good_is_not_asked_for_again() {
        let asked = Arc::new(AtomicU64::new(0));
        let counter = Arc::clone(&asked);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let (engine, _folder) = runtime.block_on(scripted(move |_| {
            counter.fetch_add(1, Ordering::Relaxed);
            Reply::Refusal(403, "not you")
        }));
        let keeper = Keeper::new(engine, "forbids");
        let all: Vec<Held> = (0..5).map(|_| keeper.hold()).collect();
        drop(runtime);
        drop(all);
        assert_eq!(asked.load(Ordering::Relaxed), 5);
        assert!(keeper.takes_what_was_left());
    }

    #[tokio::test]
    async fn what_an_engine_refuses_to_remove_for_a_moment_is_waited_for() {
        let asked = Arc::new(AtomicU64::new(0));
        let counter = Arc::clone(&asked);
        let (engine, _folder) = scripted(move |_| match counter.fetch_add(1, Ordering::Relaxed) {
            0 | 1 => Reply::Refusal(500, "device or resource busy"),
            _ => Reply::Answer("{}".to_owned()),
        })
        .await;
        let mut held = Keeper::new(engine, "much to do").hold();
        held.remove_patiently().await.unwrap();
        assert_eq!(asked.load(Ordering::Relaxed), 3);
    }

    #[test]
    fn an_engine_that_answers_is_asked_for_all() {
        let asked = Arc::new(AtomicU64::new(0));
        let counter = Arc::clone(&asked);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let (engine, _folder) = runtime.block_on(scripted(move |_| {
            counter.fetch_add(1, Ordering::Relaxed);
            Reply::Answer("{}".to_owned())
        }));
        let keeper = Keeper::new(engine, "answers");
        let all: Vec<Held> = (0..20).map(|_| keeper.hold()).collect();
        drop(runtime);
        drop(all);
        assert_eq!(asked.load(Ordering::Relaxed), 20);
    }

    /// The engine does not answer, and then shows the container, whole or broken, when it has been looked for often enough.
    #[test]
    fn what_is_being_made_is_left_alone_until_it_is_shown() {
        for shown in [Reply::Answer("{}".to_owned()), Reply::Refusal(500, "container not known")] {
            let asked = Arc::new(Mutex::new(Vec::new()));
            let seen = Arc::clone(&asked);
            let shown = Mutex::new(Some(shown));
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            let (engine, _folder) = runtime.block_on(scripted(move |request| {
                let method = request.split(' ').next().unwrap().to_owned();
                let looks = {
                    let mut seen = seen.lock().unwrap();
                    seen.push(method.clone());
                    seen.iter().filter(|method| *method == "GET").count()
                };
                match method.as_str() {
                    "POST" => Reply::Silence,
                    "GET" if looks < 3 => Reply::Refusal(404, "no such container"),
                    "GET" => shown.lock().unwrap().take().unwrap(),
                    _ => Reply::Answer("{}".to_owned()),
                }
            }));
            let mut held = Keeper::new(engine, "slow").hold();
            runtime.block_on(async {
                let made = tokio::select! {
                    made = held.make(ContainerCreateBody::default()) => Some(made),
                    () = async { while asked.lock().unwrap().is_empty() { tokio::task::yield_now().await } } => None,
                };
                assert!(made.is_none(), "{made:?}");
            });
            drop(runtime);
            drop(held);
            assert_eq!(*asked.lock().unwrap(), ["POST", "GET", "GET", "GET", "DELETE"]);
        }
    }
}
