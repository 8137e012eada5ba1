//! The executor that a session's tools hold: whichever sandbox serves at the moment.

use std::fmt;
use std::num::NonZeroU32;
#[cfg(target_os = "linux")]
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use conjure_base::{Clock, Deadline, SystemClock};
use conjure_sandbox::{
    BroughtBack, CallOptions, Command, CommandOutcome, ContentStream, Executor, Isolation, Layout, LineRange,
    Listing, SandboxError, SandboxErrorKind, Sharing, View, Written,
};
#[cfg(target_os = "linux")]
use conjure_sandbox::{Provision, Shelf};
use futures_util::future::BoxFuture;
use futures_util::{StreamExt, stream};

use super::actor::{ExecutorActor, Makings};
use super::berth::Berth;
use super::source::ExecutorSource;
use super::spec::ExecutorOptions;
use super::stay::{Idling, Visit};
use crate::supervision::{
    ChildId, ChildSpec, Domain, Exit, Ground, Intensity, RequestError, Restart, StartError, StartFailure,
    Supervisor, SupervisorSpec, WorkerSpec,
};

/// How long a session waits for the end of its sandbox.
const CLEANUP: Duration = Duration::from_secs(30);

/// The sandbox of one session, over all its replacements; see the [module](super). Clones are the same.
#[derive(Clone)]
pub struct SupervisedExecutor {
    inner: Arc<Inner>,
}

struct Inner {
    id: ChildId,
    source: Arc<dyn ExecutorSource>,
    place: Place,
    berth: Arc<Berth>,
    options: ExecutorOptions,
}

/// Where the sandbox's actor is started.
pub(crate) enum Place {
    /// In a tree that others start.
    Tree(Supervisor),
    /// Below a session, by the first call.
    Stand(Stand),
}

/// The place of a supervisor that is made and started when it is first needed.
pub(crate) struct Stand {
    id: ChildId,
    intensity: Intensity,
    attempts: NonZeroU32,
    ground: Ground,
    made: OnceLock<(Arc<ChildSpec>, Supervisor)>,
    /// One caller at a time has it started.
    opening: tokio::sync::Mutex<()>,
}

/// The supervisor of a session's sandbox.
pub(crate) fn supervisor(id: ChildId, intensity: Intensity, attempts: NonZeroU32) -> (ChildSpec, Supervisor) {
    SupervisorSpec::dynamic(id)
        .capacity(1)
        .domain(Domain::EachChild)
        .intensity(intensity)
        .quarantine_after(attempts)
        .build()
}

impl Stand {
    pub(crate) fn new(id: ChildId, options: &ExecutorOptions, ground: Ground) -> Self {
        let (intensity, attempts) = (options.intensity, options.attempts);
        Self {
            id,
            intensity,
            attempts,
            ground,
            made: OnceLock::new(),
            opening: tokio::sync::Mutex::default(),
        }
    }

    fn made(&self) -> &(Arc<ChildSpec>, Supervisor) {
        self.made.get_or_init(|| {
            let (spec, supervisor) = supervisor(self.id.clone(), self.intensity, self.attempts);
            (Arc::new(spec), supervisor)
        })
    }
}

impl Place {
    fn supervisor(&self) -> &Supervisor {
        match self {
            Self::Tree(supervisor) => supervisor,
            Self::Stand(stand) => &stand.made().1,
        }
    }

    /// Returns when the supervisor runs, where it is for calls to have it started.
    async fn open(&self, deadline: Deadline) -> Result<(), StartError> {
        let Self::Stand(stand) = self else { return Ok(()) };
        let (spec, supervisor) = stand.made();
        let _one = stand.opening.lock().await;
        if supervisor.is_running() {
            return Ok(());
        }
        // Nothing is left of one that was ended.
        if let Some(last) = supervisor.monitor() {
            last.await;
        }
        stand.ground.start(Arc::clone(spec), deadline).await
    }
}

impl SupervisedExecutor {
    pub(crate) fn new(
        id: ChildId,
        source: Arc<dyn ExecutorSource>,
        place: Place,
        berth: Arc<Berth>,
        options: ExecutorOptions,
    ) -> Self {
        Self { inner: Arc::new(Inner { id, source, place, berth, options }) }
    }

    /// The supervisor of its actor.
    #[must_use]
    pub fn supervisor(&self) -> &Supervisor {
        self.inner.place.supervisor()
    }

    /// Has a sandbox made before a call needs it; returns when there is one.
    ///
    /// # Errors
    /// As a call that needs one.
    pub async fn warm(&self, deadline: Deadline) -> Result<(), SandboxError> {
        self.occupant(&CallOptions::until(deadline)).await.map(drop)
    }

    /// The sandbox, waited for within the bounds of the call that needs it. Nothing stands still in it.
    async fn occupant(&self, options: &CallOptions) -> Result<Visit, SandboxError> {
        let inner = &*self.inner;
        if let Some(occupant) = inner.berth.visit().filter(|occupant| occupant.stay.is_awake()) {
            return Ok(occupant);
        }
        let late = || {
            let message = format!("the sandbox was not ready in time{}; try again", inner.last_words());
            SandboxError::new(SandboxErrorKind::TimedOut, message)
        };
        tokio::select! {
            biased;
            () = options.cancel.cancelled() => {
                let message = "it was cancelled while it waited for the sandbox; nothing was done";
                Err(SandboxError::new(SandboxErrorKind::Cancelled, message))
            }
            closed = inner.closed() => Err(closed),
            found = inner.find_awake(options) => found.map_err(|error| error.unwrap_or_else(late)),
            () = SystemClock.sleep_until(options.deadline) => Err(late()),
        }
    }
}

impl Inner {
    /// As [`Inner::find`], and has all go on in it.
    async fn find_awake(&self, options: &CallOptions) -> Result<Visit, Option<SandboxError>> {
        loop {
            let occupant = self.find(options.deadline).await?;
            match occupant.wake(options).await {
                Ok(()) => return Ok(occupant),
                // Nothing of the call was done: it has the one that takes its place.
                Err(error) if error.kind() == SandboxErrorKind::Lost => {}
                Err(error) => return Err(Some(not_resumed(&error))),
            }
        }
    }

    /// Has the sandbox made when nobody is at it, or waits for it. The error is `None` when the time is up.
    async fn find(&self, deadline: Deadline) -> Result<Visit, Option<SandboxError>> {
        let mut is_tried_again = false;
        loop {
            if let Some(occupant) = self.berth.visit() {
                return Ok(occupant);
            }
            let opened = self.place.open(deadline).await;
            let supervisor = self.place.supervisor();
            let started = match opened {
                Ok(()) => supervisor.start_child(self.child(), deadline).await,
                Err(error) => Err(error),
            };
            let started = match started {
                // It failed too often, and is tried once more for this call.
                Err(StartError::Quarantined { .. }) if !is_tried_again => {
                    is_tried_again = true;
                    supervisor.restart_child(&self.id, deadline).await
                }
                started => started,
            };
            match started {
                // It is there, or has ended again.
                Ok(_) => {}
                Err(StartError::AlreadyStarted(_)) => self.await_replacement(deadline).await,
                Err(StartError::Request(RequestError::DeadlinePassed(_))) => return Err(None),
                Err(error) => return Err(Some(not_started(&error))),
            }
        }
    }

    /// Waits until there is a sandbox, or nobody is at making one.
    async fn await_replacement(&self, deadline: Deadline) {
        tokio::select! {
            biased;
            () = self.berth.occupied() => {}
            // Whoever asks next is told why.
            _ = self.place.supervisor().left_alone(&self.id, deadline) => {}
        }
    }

    fn child(&self) -> ChildSpec {
        let makings = Makings {
            source: Arc::clone(&self.source),
            berth: Arc::clone(&self.berth),
            start_within: self.options.start_within,
            clear_within: self.options.clear_within,
            idling: Idling { pause_after: self.options.pause_after, unused_after: self.options.unused_after },
        };
        let start = move |context| ExecutorActor::start(makings.clone(), context);
        WorkerSpec::new(self.id.clone(), start)
            .restart(Restart::TRANSIENT)
            .backoff(self.options.backoff)
            .start_within(self.options.start_within)
            .queue(8)
            .build()
            .0
    }

    /// How its last end is told to a call that waited in vain.
    fn last_words(&self) -> String {
        let exit = self.place.supervisor().child(&self.id).and_then(|child| child.last_exit);
        exit.map(|exit| format!(" (the last time it {exit})")).unwrap_or_default()
    }

    async fn closed(&self) -> SandboxError {
        self.berth.mooring.closed.cancelled().await;
        SandboxError::new(SandboxErrorKind::Unavailable, "the session's sandbox was closed")
    }
}

/// Why a call was not begun.
fn not_resumed(error: &SandboxError) -> SandboxError {
    let kind = match error.kind() {
        kind @ (SandboxErrorKind::TimedOut | SandboxErrorKind::Cancelled) => kind,
        // Other kinds would be taken for those of the call's own file or command.
        _ => SandboxErrorKind::Unavailable,
    };
    SandboxError::new(
        kind,
        format!("the sandbox was paused, and could not be resumed: {error}; nothing was done"),
    )
}

/// Why there is no sandbox, with the words of whoever failed at making it.
fn not_started(error: &StartError) -> SandboxError {
    let exit = match error {
        StartError::Failed(exit) => Some(exit),
        StartError::Quarantined { exit, .. } => exit.as_ref(),
        _ => None,
    };
    let unavailable = |why| SandboxError::new(SandboxErrorKind::Unavailable, why);
    let error = match exit {
        Some(Exit::StartFailed(StartFailure::Failed(cause))) => {
            let cause = cause.error();
            cause.downcast_ref::<SandboxError>().cloned().unwrap_or_else(|| unavailable(cause.to_string()))
        }
        Some(Exit::StartFailed(failure)) => unavailable(failure.to_string()),
        Some(exit) => unavailable(format!("it ends each time; the last time it {exit}")),
        None => unavailable(error.to_string()),
    };
    let told = format!("the sandbox could not be started: {error}");
    match error.kind() {
        SandboxErrorKind::EngineUnavailable
        | SandboxErrorKind::ImageNotFound
        | SandboxErrorKind::NotEnforced
        | SandboxErrorKind::NoSpace
        | SandboxErrorKind::Exhausted
        | SandboxErrorKind::Overloaded => error.told_as(told),
        // What is about the sandbox as a whole; other kinds would be taken for those of the call's own file or command.
        _ => unavailable(told),
    }
}

impl Executor for SupervisedExecutor {
    fn layout(&self) -> &Layout {
        self.inner.source.layout()
    }

    fn isolation(&self) -> Isolation {
        let occupant = self.inner.berth.live();
        occupant.map_or_else(|| self.inner.source.isolation(), |occupant| occupant.executor.isolation())
    }

    fn sharing(&self) -> Sharing {
        let occupant = self.inner.berth.live();
        occupant.map_or(Sharing::Shared, |occupant| occupant.executor.sharing())
    }

    fn run<'a>(
        &'a self,
        command: Command,
        options: CallOptions,
    ) -> BoxFuture<'a, Result<CommandOutcome, SandboxError>> {
        Box::pin(async move {
            let occupant = self.occupant(&options).await?;
            occupant.follow(occupant.executor.run(command, options)).await
        })
    }

    fn view<'a>(
        &'a self,
        path: &'a str,
        range: Option<LineRange>,
        max_bytes: u64,
        options: CallOptions,
    ) -> BoxFuture<'a, Result<View, SandboxError>> {
        Box::pin(async move {
            let occupant = self.occupant(&options).await?;
            occupant.follow(occupant.executor.view(path, range, max_bytes, options)).await
        })
    }

    fn create_file<'a>(
        &'a self,
        path: &'a str,
        content: &'a [u8],
        options: CallOptions,
    ) -> BoxFuture<'a, Result<Written, SandboxError>> {
        Box::pin(async move {
            let occupant = self.occupant(&options).await?;
            occupant.follow(occupant.executor.create_file(path, content, options)).await
        })
    }

    fn str_replace<'a>(
        &'a self,
        path: &'a str,
        old: &'a str,
        new: &'a str,
        options: CallOptions,
    ) -> BoxFuture<'a, Result<Written, SandboxError>> {
        Box::pin(async move {
            let occupant = self.occupant(&options).await?;
            occupant.follow(occupant.executor.str_replace(path, old, new, options)).await
        })
    }

    /// Ends the sandbox and its actor, and waits for that. No other is made afterwards.
    fn cleanup(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            let inner = &self.inner;
            inner.berth.mooring.closed.cancel();
            let deadline = SystemClock.deadline(CLEANUP);
            match inner.place.supervisor().terminate_child(&inner.id, deadline).await {
                // No call has needed one, or nothing of it is left.
                Ok(()) | Err(RequestError::NotFound(_)) => {}
                // What stops the supervisor stops all below it.
                Err(error) => tracing::debug!(%error, "the end of a sandbox was not waited for"),
            }
            tokio::select! {
                biased;
                () = inner.berth.mooring.left() => {}
                () = SystemClock.sleep_until(deadline) => {
                    tracing::debug!("what is left of a sandbox was not waited for");
                }
            }
        })
    }

    fn ended(&self) -> BoxFuture<'_, SandboxError> {
        Box::pin(self.inner.closed())
    }

    fn take_notice(&self) -> Option<String> {
        let notice = self.inner.berth.take_notice();
        let notice = notice.map(|notice| notice.text(&self.layout().workspace, self.sharing()));
        // What the sandbox itself has to tell comes after what it is.
        let own = self.inner.berth.live().and_then(|occupant| occupant.executor.take_notice());
        notice.into_iter().chain(own).reduce(|notice, own| format!("{notice}\n{own}"))
    }

    /// Of the sandbox that there is; none is made for it. What stands still in it goes on doing so.
    fn bring_back(&self, options: CallOptions) -> BoxFuture<'_, Result<BroughtBack, SandboxError>> {
        Box::pin(async move {
            match self.inner.berth.visit() {
                Some(occupant) => occupant.follow(occupant.executor.bring_back(options)).await,
                None => Ok(BroughtBack::default()),
            }
        })
    }

    fn list<'a>(
        &'a self,
        path: &'a str,
        depth: u32,
        max_entries: u32,
        options: CallOptions,
    ) -> BoxFuture<'a, Result<Listing, SandboxError>> {
        Box::pin(async move {
            let occupant = self.occupant(&options).await?;
            occupant.follow(occupant.executor.list(path, depth, max_entries, options)).await
        })
    }

    fn read<'a>(
        &'a self,
        path: &'a str,
        options: CallOptions,
    ) -> BoxFuture<'a, Result<ContentStream, SandboxError>> {
        Box::pin(async move {
            let occupant = self.occupant(&options).await?;
            let content = occupant.follow(occupant.executor.read(path, options)).await?;
            Ok(followed(content, occupant))
        })
    }

    fn write<'a>(
        &'a self,
        path: &'a str,
        content: ContentStream,
        options: CallOptions,
    ) -> BoxFuture<'a, Result<Written, SandboxError>> {
        Box::pin(async move {
            let occupant = self.occupant(&options).await?;
            occupant.follow(occupant.executor.write(path, content, options)).await
        })
    }

    /// Also on the shelves of every sandbox that takes the place of this one.
    #[cfg(target_os = "linux")]
    fn provide<'a>(
        &'a self,
        provision: Provision,
        options: CallOptions,
    ) -> BoxFuture<'a, Result<PathBuf, SandboxError>> {
        Box::pin(async move {
            loop {
                let occupant = self.occupant(&options).await?;
                let providing = occupant.executor.provide(provision.clone(), options.clone());
                let path = occupant.follow(providing).await?;
                if self.inner.berth.remember(&provision, occupant.occupant()) {
                    return Ok(path);
                }
                // It was replaced just now, by one that does not have this.
            }
        })
    }

    /// Also none that takes the place of this one has it, and none is made for it.
    #[cfg(target_os = "linux")]
    fn withdraw<'a>(
        &'a self,
        shelf: Shelf,
        name: &'a str,
        options: CallOptions,
    ) -> BoxFuture<'a, Result<(), SandboxError>> {
        Box::pin(async move {
            self.inner.berth.forget(shelf, name);
            let Some(occupant) = self.inner.berth.visit() else { return Ok(()) };
            match occupant.follow(occupant.executor.withdraw(shelf, name, options)).await {
                // Whatever takes its place does not get it.
                Err(error) if error.kind() == SandboxErrorKind::Lost => Ok(()),
                done => done,
            }
        })
    }
}

/// A content that ends with its sandbox.
fn followed(content: ContentStream, occupant: Visit) -> ContentStream {
    stream::unfold(Some((content, occupant)), |following| async move {
        let (mut content, occupant) = following?;
        let piece = tokio::select! {
            biased;
            piece = content.next() => piece?,
            lost = occupant.lost() => Err(lost),
        };
        match piece {
            Ok(piece) => Some((Ok(piece), Some((content, occupant)))),
            Err(error) => {
                occupant.look_at(&error);
                Some((Err(error), None))
            }
        }
    })
    .boxed()
}

impl fmt::Debug for SupervisedExecutor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SupervisedExecutor")
            .field("source", &self.inner.source)
            .field("berth", &self.inner.berth)
            .finish_non_exhaustive()
    }
}
