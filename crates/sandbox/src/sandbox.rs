//! A running sandbox: [`Executor`] over the guest's protocol, the same for every kind.
//!
//! It owns the calls under way and the task that supervises the guest. Nothing of it survives the host: the
//! guest ends itself, and all that it runs, when its stream ends.

use std::any::Any;
use std::collections::BTreeMap;
use std::fmt;
#[cfg(target_os = "linux")]
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use conjure_base::{Clock, Deadline};
use conjure_guest::protocol::{Reply, Request, StreamId};
use futures_util::future::BoxFuture;
use futures_util::{Stream, StreamExt, stream};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

#[cfg(target_os = "linux")]
use crate::connector::Follower;
use crate::connector::{Connection, Connector};
use crate::context::ExecutionContext;
use crate::error::{SandboxError, SandboxErrorKind};
use crate::executor::{CallOptions, ContentStream, Executor};
use crate::isolation::{Boundary, Isolation};
use crate::limits::{DiskLimit, Limits};
use crate::mux::{Call, Event, Failed, GRACE, Link, Tunnelling, shake_hands, supervise};
use crate::operation::{self, Collected, Pump};
#[cfg(target_os = "linux")]
use crate::provision::{Provider, Provision, Shelf};
#[cfg(target_os = "linux")]
use crate::shelving::Shelved;
#[cfg(all(feature = "local", target_os = "linux"))]
use crate::transfer::Traveller;
#[cfg(all(feature = "local", target_os = "linux"))]
use crate::types::{BroughtBack, Sharing};
use crate::types::{Command, CommandOutcome, Layout, LineRange, Listing, View, Written};

/// How much of a file or of a program's output may be under way to a reader that does not read.
const WINDOW: u32 = 512 * 1024;

/// The most that a view takes into memory, whatever it is asked for.
const VIEW_MAX: u32 = 64 * 1024 * 1024;

/// A sandbox whose guest has greeted.
///
/// When the last of it is dropped (the sandbox, and the streams that it gave), the guest's stream is closed;
/// the guest then ends everything it runs and itself. [`Executor::cleanup`] does the same and waits for it.
pub struct Sandbox {
    core: Arc<Core>,
    layout: Layout,
    isolation: Isolation,
    #[cfg(target_os = "linux")]
    provider: Option<Arc<dyn Provider>>,
    #[cfg(target_os = "linux")]
    shelved: Shelved,
    #[cfg(target_os = "linux")]
    #[cfg_attr(not(feature = "jail"), expect(dead_code, reason = "only spares ask for it"))]
    follower: Option<Arc<dyn Follower>>,
    /// What commands see beside what the guest was told of, of a sandbox that was made before its session was known.
    environment: BTreeMap<String, String>,
    /// Where no folders are shared.
    #[cfg(all(feature = "local", target_os = "linux"))]
    traveller: Option<Traveller>,
}

/// What a program does while it runs.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(clippy::large_enum_variant, reason = "the large one comes once, and none is kept")]
pub enum RunEvent {
    /// It wrote this to its standard output.
    Stdout(Bytes),
    /// It wrote this to its standard error.
    Stderr(Bytes),
    /// It ended; nothing follows. Head and tail of the outcome's output are empty, the totals exact.
    Ended(CommandOutcome),
}

/// What a program writes, while it writes it.
pub type RunStream = Pin<Box<dyn Stream<Item = Result<RunEvent, SandboxError>> + Send>>;

/// What the sandbox and its streams share. Dropping the last one closes the sandbox.
struct Core {
    link: Arc<Link>,
    closing: CancellationToken,
    /// Holds the supervisor's task, which ends soon after `closing` is cancelled.
    tasks: TaskTracker,
}

impl Drop for Core {
    fn drop(&mut self) {
        self.closing.cancel();
    }
}

impl Sandbox {
    /// Makes a sandbox for this context and waits until its guest is ready.
    ///
    /// # Errors
    /// `NotEnforced` when this kind, or the sandbox as it came to be, does not enforce what the context's floor
    /// demands; `BadRequest` for names of variables that cannot be, and for two folders in one place; of the connector;
    /// `TimedOut` at `deadline`; `Unavailable` when the guest does not greet as it must or cannot confine itself. Nothing is
    /// left of the sandbox then.
    pub async fn open(
        connector: &dyn Connector,
        context: &ExecutionContext,
        clock: Arc<dyn Clock>,
        deadline: Deadline,
    ) -> Result<Self, SandboxError> {
        Self::open_holding(connector, context, clock, deadline, Box::new(())).await
    }

    /// The same, and keeps `held` until nothing of the sandbox is left.
    pub(crate) async fn open_holding(
        connector: &dyn Connector,
        context: &ExecutionContext,
        clock: Arc<dyn Clock>,
        deadline: Deadline,
        held: Box<dyn Any + Send>,
    ) -> Result<Self, SandboxError> {
        context.check()?;
        connector.isolation().demand(&context.floor)?;
        let made = async {
            let mut connection = connector.connect(context).await?;
            if let Some(proxy) = &connection.proxy {
                proxy.introduce(&mut connection.hello);
            }
            let greeted =
                shake_hands(&mut *connection.reader, &mut *connection.writer, &connection.hello).await;
            let refusal = match greeted {
                Ok((welcome, decoder)) => {
                    let isolation = connection.guard.greeted(&welcome);
                    let admitted = connection.guard.admit(&welcome);
                    let limited = admitted.and_then(|()| demand_limit(&isolation, &context.limits));
                    match limited.and_then(|()| isolation.demand(&context.floor)) {
                        Ok(()) => return Ok((connection, decoder, isolation)),
                        Err(refusal) => refusal,
                    }
                }
                Err(Failed::SetUp(failure)) => connection.guard.explain(&failure),
                Err(Failed::Other(error)) => {
                    let how = end(connection, &*clock).await;
                    return Err(error.told_as(format!("{error} ({how})")));
                }
            };
            // Nothing is left of it when the error is told.
            end(connection, &*clock).await;
            Err(refusal)
        };
        let (connection, decoder, isolation) = tokio::select! {
            biased;
            made = made => made?,
            () = clock.sleep_until(deadline) => {
                return Err(SandboxError::new(SandboxErrorKind::TimedOut, "the sandbox was not ready in time"));
            }
        };
        let Connection { reader, writer, hello: _, layout, proxy, guard } = connection;
        #[cfg(all(feature = "local", target_os = "linux"))]
        let (guard, transfer) = {
            let mut guard = guard;
            let transfer = guard.transfer();
            (guard, transfer)
        };
        #[cfg(target_os = "linux")]
        let (provider, follower) = (guard.provider(), guard.follower());
        let gateway = proxy.map(|proxy| proxy.gateway);
        let tunnelling = if gateway.is_some() { Tunnelling::Taken } else { Tunnelling::Refused };
        let link = Arc::new(Link::new(clock, tunnelling));
        let closing = CancellationToken::new();
        let tasks = TaskTracker::new();
        let supervised =
            supervise(Arc::clone(&link), guard, decoder, reader, writer, gateway, closing.clone());
        tasks.spawn(async move {
            supervised.await;
            drop(held);
        });
        tasks.close();
        let core = Arc::new(Core { link, closing, tasks });
        #[cfg_attr(not(feature = "local"), expect(unused_mut, reason = "nothing travels"))]
        let mut sandbox = Self {
            core,
            layout,
            isolation,
            #[cfg(target_os = "linux")]
            provider,
            #[cfg(target_os = "linux")]
            shelved: Shelved::of(context),
            #[cfg(target_os = "linux")]
            follower,
            environment: BTreeMap::new(),
            #[cfg(all(feature = "local", target_os = "linux"))]
            traveller: None,
        };
        #[cfg(all(feature = "local", target_os = "linux"))]
        if let Some(transfer) = transfer {
            match Traveller::move_in(&sandbox, transfer, &CallOptions::until(deadline)).await {
                Ok(traveller) => sandbox.traveller = Some(traveller),
                Err(error) => {
                    // Nothing is left of it when the error is told.
                    sandbox.cleanup().await;
                    return Err(error);
                }
            }
        }
        Ok(sandbox)
    }

    /// Why it does not work any more; `None` while it does.
    #[must_use]
    pub fn failure(&self) -> Option<SandboxError> {
        self.core.link.failure()
    }

    /// Runs a program and yields what it writes while it runs, then its outcome. A stream that is not polled
    /// holds the program up, once half a megabyte waits; dropping it ends the program. `keep_head`, `keep_tail` and
    /// `spill` do not apply.
    ///
    /// # Errors
    /// When the program cannot be asked for; afterwards the stream yields at most one error, as its last item.
    pub fn run_streamed(&self, command: Command, options: CallOptions) -> Result<RunStream, SandboxError> {
        let command = self.in_its_environment(command);
        let (request, pump) = operation::streamed(command);
        let flow = Flow::new(self, request, pump, options)?;
        Ok(flow.into_stream(|call, event| match event {
            Event::Data(StreamId::Stdout, bytes) => Item::Piece(RunEvent::Stdout(bytes)),
            Event::Data(StreamId::Stderr, bytes) => Item::Piece(RunEvent::Stderr(bytes)),
            Event::Data(StreamId::Content, _) => Item::Last(Err(call.violated("a program has no content"))),
            Event::Done(Ok(Reply::Exec(reply))) => Item::Last(
                operation::streamed_outcome(reply)
                    .map(RunEvent::Ended)
                    .ok_or_else(|| call.violated("its counts of output are wrong")),
            ),
            Event::Done(Ok(_)) => Item::Last(Err(wrong_reply(call))),
            Event::Done(Err(error)) => Item::Last(Err(operation::failure(error))),
            Event::Lost(error) => Item::Last(Err(error)),
        }))
    }

    /// What a command wants for itself wins.
    fn in_its_environment(&self, mut command: Command) -> Command {
        for (name, value) in &self.environment {
            if !command.env.contains_key(name) {
                command.env.insert(name.clone(), value.clone());
            }
        }
        command
    }

    /// Makes it the sandbox of a session that was not known when it was made.
    #[cfg(all(feature = "jail", target_os = "linux"))]
    pub(crate) fn become_of(&mut self, layout: Layout, environment: BTreeMap<String, String>) {
        (self.layout, self.environment) = (layout, environment);
    }

    /// Who keeps it together when its workspace is moved.
    #[cfg(all(feature = "jail", target_os = "linux"))]
    pub(crate) fn follower(&self) -> Option<&dyn Follower> {
        self.follower.as_deref()
    }

    /// What it is known to have on its shelves.
    #[cfg(target_os = "linux")]
    pub(crate) const fn shelved(&self) -> &Shelved {
        &self.shelved
    }

    /// Who fills its shelves, where the host's folders are shared.
    #[cfg(target_os = "linux")]
    pub(crate) fn provider(&self) -> Option<&dyn Provider> {
        self.provider.as_deref()
    }

    /// Who carries content through its guest, where no folders are shared.
    #[cfg(all(feature = "local", target_os = "linux"))]
    pub(crate) const fn traveller(&self) -> Option<&Traveller> {
        self.traveller.as_ref()
    }

    /// Where its time comes from.
    #[cfg(target_os = "linux")]
    pub(crate) fn clock(&self) -> &Arc<dyn Clock> {
        self.core.link.clock()
    }

    /// Resolves when it has ended, also when this value was given away meanwhile.
    #[cfg(all(feature = "jail", target_os = "linux"))]
    pub(crate) fn when_ended(&self) -> BoxFuture<'static, SandboxError> {
        let link = Arc::clone(&self.core.link);
        Box::pin(async move { link.failed().await })
    }

    /// Runs an operation to its end.
    pub(crate) async fn finish(
        &self,
        request: Request,
        credit: u32,
        mut pump: Pump,
        options: CallOptions,
    ) -> Result<(Call, Reply, Collected), SandboxError> {
        let call = Call::open(Arc::clone(&self.core.link), request, credit, options)?;
        let mut collected = Collected::default();
        loop {
            match pump.next(&call).await {
                Event::Data(stream, bytes) => collected.push(stream, &bytes),
                Event::Done(Ok(reply)) => return Ok((call, reply, collected)),
                Event::Done(Err(error)) => {
                    return Err(pump.into_failure().unwrap_or_else(|| operation::failure(error)));
                }
                Event::Lost(error) => return Err(error),
            }
        }
    }

    async fn change(
        &self,
        request: Request,
        pump: Pump,
        options: CallOptions,
    ) -> Result<Written, SandboxError> {
        match self.finish(request, 0, pump, options).await? {
            (_, Reply::Write { size, existed, .. }, _) => Ok(Written { size, existed }),
            (call, ..) => Err(wrong_reply(&call)),
        }
    }
}

impl Executor for Sandbox {
    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn isolation(&self) -> Isolation {
        self.isolation
    }

    #[cfg(all(feature = "local", target_os = "linux"))]
    fn sharing(&self) -> Sharing {
        if self.traveller.is_some() { Sharing::Transferred } else { Sharing::Shared }
    }

    #[cfg(all(feature = "local", target_os = "linux"))]
    fn bring_back(&self, options: CallOptions) -> BoxFuture<'_, Result<BroughtBack, SandboxError>> {
        Box::pin(async move {
            match &self.traveller {
                Some(traveller) => traveller.bring_back(self, &options).await,
                None => Ok(BroughtBack::default()),
            }
        })
    }

    #[cfg(all(feature = "local", target_os = "linux"))]
    fn take_notice(&self) -> Option<String> {
        self.traveller.as_ref()?.take_notice()
    }

    fn run<'a>(
        &'a self,
        command: Command,
        options: CallOptions,
    ) -> BoxFuture<'a, Result<CommandOutcome, SandboxError>> {
        Box::pin(async move {
            let (request, credit, pump) = operation::captured(self.in_its_environment(command));
            match self.finish(request, credit, pump, options).await? {
                (call, Reply::Exec(reply), collected) => operation::outcome(reply, collected)
                    .ok_or_else(|| call.violated("its counts of output are wrong")),
                (call, ..) => Err(wrong_reply(&call)),
            }
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
            let credit = u32::try_from(max_bytes).unwrap_or(VIEW_MAX).min(VIEW_MAX);
            let request = Request::View { path: path.to_owned(), range, max_bytes: credit.into() };
            // One byte more than it may send: a sender whose credit is used up cannot see that nothing follows.
            match self.finish(request, credit + 1, Pump::none(), options).await? {
                (call, Reply::View(viewed), collected) => operation::view(viewed, collected.content)
                    .ok_or_else(|| call.violated("the content is not what it says")),
                (call, ..) => Err(wrong_reply(&call)),
            }
        })
    }

    fn create_file<'a>(
        &'a self,
        path: &'a str,
        content: &'a [u8],
        options: CallOptions,
    ) -> BoxFuture<'a, Result<Written, SandboxError>> {
        let request = Request::Write { path: path.to_owned(), mode: None };
        Box::pin(self.change(request, Pump::bytes(Bytes::copy_from_slice(content)), options))
    }

    fn str_replace<'a>(
        &'a self,
        path: &'a str,
        old: &'a str,
        new: &'a str,
        options: CallOptions,
    ) -> BoxFuture<'a, Result<Written, SandboxError>> {
        let request = Request::Replace { path: path.to_owned(), old: old.to_owned(), new: new.to_owned() };
        Box::pin(self.change(request, Pump::none(), options))
    }

    fn init(&self) -> BoxFuture<'_, Result<(), SandboxError>> {
        let failure = self.failure();
        Box::pin(async { failure.map_or(Ok(()), Err) })
    }

    fn cleanup(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            self.core.closing.cancel();
            let clock = self.core.link.clock();
            // The supervisor bounds its own waits by this much; beyond that, the kernel holds a process.
            let patience = clock.sleep_until(clock.deadline(GRACE * 3));
            tokio::select! {
                () = self.core.tasks.wait() => {}
                () = patience => {}
            }
        })
    }

    fn vacate(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            let cleaned = self.cleanup();
            tokio::select! {
                biased;
                () = self.core.link.vacated() => {}
                () = cleaned => {}
            }
        })
    }

    fn ended(&self) -> BoxFuture<'_, SandboxError> {
        Box::pin(self.core.link.failed())
    }

    /// By its guest, in all kinds of sandboxes: what it started is stopped as by a user's Ctrl-Z, and it alone goes on, so that it
    /// notices its host's end. A process that has the kernel send it SIGCONT goes on, too; its limits hold.
    fn pause(&self, options: CallOptions) -> BoxFuture<'_, Result<(), SandboxError>> {
        Box::pin(async {
            match self.finish(Request::Pause, 0, Pump::none(), options).await? {
                (_, Reply::Pause { processes }, _) => {
                    tracing::debug!(processes, "a sandbox is paused");
                    Ok(())
                }
                (call, ..) => Err(wrong_reply(&call)),
            }
        })
    }

    fn resume(&self, options: CallOptions) -> BoxFuture<'_, Result<(), SandboxError>> {
        Box::pin(async {
            match self.finish(Request::Resume, 0, Pump::none(), options).await? {
                (_, Reply::Resume { processes }, _) => {
                    tracing::debug!(processes, "a sandbox goes on");
                    Ok(())
                }
                (call, ..) => Err(wrong_reply(&call)),
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
            let request = Request::List { path: path.to_owned(), depth, max_entries, hidden: true };
            match self.finish(request, 0, Pump::none(), options).await? {
                (_, Reply::List { entries, truncated }, _) => Ok(Listing { entries, truncated }),
                (call, ..) => Err(wrong_reply(&call)),
            }
        })
    }

    fn read<'a>(
        &'a self,
        path: &'a str,
        options: CallOptions,
    ) -> BoxFuture<'a, Result<ContentStream, SandboxError>> {
        Box::pin(async move {
            let request = Request::Read { path: path.to_owned(), offset: 0, length: None };
            let mut flow = Flow::new(self, request, Pump::none(), options)?;
            // A file that cannot be read is an error of the call, not of its stream.
            match flow.next().await {
                Event::Done(Err(error)) => return Err(operation::failure(error)),
                Event::Lost(error) => return Err(error),
                event => flow.put_back(event),
            }
            Ok(flow.into_stream(|call, event| match event {
                Event::Data(StreamId::Content, bytes) => Item::Piece(bytes),
                Event::Data(..) => Item::Last(Err(call.violated("a file has no output"))),
                Event::Done(Ok(Reply::Read { .. })) => Item::End,
                Event::Done(Ok(_)) => Item::Last(Err(wrong_reply(call))),
                Event::Done(Err(error)) => Item::Last(Err(operation::failure(error))),
                Event::Lost(error) => Item::Last(Err(error)),
            }))
        })
    }

    fn write<'a>(
        &'a self,
        path: &'a str,
        content: ContentStream,
        options: CallOptions,
    ) -> BoxFuture<'a, Result<Written, SandboxError>> {
        let request = Request::Write { path: path.to_owned(), mode: None };
        Box::pin(self.change(request, Pump::of(content), options))
    }

    #[cfg(target_os = "linux")]
    fn provide<'a>(
        &'a self,
        provision: Provision,
        options: CallOptions,
    ) -> BoxFuture<'a, Result<PathBuf, SandboxError>> {
        Box::pin(self.put(provision, options))
    }

    #[cfg(target_os = "linux")]
    fn withdraw<'a>(
        &'a self,
        shelf: Shelf,
        name: &'a str,
        options: CallOptions,
    ) -> BoxFuture<'a, Result<(), SandboxError>> {
        Box::pin(self.take_off(shelf, name, options))
    }
}

/// A call whose events become a stream: what was taken is granted again when the next piece is asked for.
struct Flow {
    call: Call,
    pump: Pump,
    /// Bytes that were taken and not yet granted again.
    taken: u32,
    first: Option<Event>,
    /// The stream is a handle of the sandbox: while it lives, the sandbox does.
    _core: Arc<Core>,
}

/// What a stream makes of an event.
enum Item<T> {
    Piece(T),
    Last(Result<T, SandboxError>),
    End,
}

impl Flow {
    fn new(
        sandbox: &Sandbox,
        request: Request,
        pump: Pump,
        options: CallOptions,
    ) -> Result<Self, SandboxError> {
        let core = Arc::clone(&sandbox.core);
        let call = Call::open(Arc::clone(&core.link), request, WINDOW, options)?;
        Ok(Self { call, pump, taken: 0, first: None, _core: core })
    }

    fn put_back(&mut self, event: Event) {
        self.first = Some(event);
    }

    async fn next(&mut self) -> Event {
        if let Some(event) = self.first.take() {
            return event;
        }
        if self.taken >= WINDOW / 4 {
            self.call.grant(std::mem::take(&mut self.taken));
        }
        let event = self.pump.next(&self.call).await;
        if let Event::Data(_, bytes) = &event {
            // A frame's content is far below four gigabytes.
            self.taken = self.taken.saturating_add(u32::try_from(bytes.len()).unwrap_or(u32::MAX));
        }
        event
    }

    fn into_stream<T: Send + 'static>(
        self,
        item: impl Fn(&Call, Event) -> Item<T> + Send + 'static,
    ) -> Pin<Box<dyn Stream<Item = Result<T, SandboxError>> + Send>> {
        stream::unfold((Some(self), item), |(flow, item)| async move {
            let mut flow = flow?;
            let event = flow.next().await;
            match item(&flow.call, event) {
                Item::Piece(piece) => Some((Ok(piece), (Some(flow), item))),
                Item::Last(last) => Some((last, (None, item))),
                Item::End => None,
            }
        })
        .boxed()
    }
}

pub(crate) fn wrong_reply(call: &Call) -> SandboxError {
    call.violated("the reply is not one to this request")
}

/// Ends a sandbox that is not used, and says how it ended.
async fn end(connection: Connection, clock: &dyn Clock) -> String {
    let Connection { reader, writer, mut guard, .. } = connection;
    drop((reader, writer));
    let how = tokio::select! {
        biased;
        how = guard.ended() => how,
        () = clock.sleep_until(clock.deadline(GRACE)) => {
            guard.kill().await;
            "it had to be killed".to_owned()
        }
    };
    guard.release().await;
    guard.clear().await;
    how
}

impl fmt::Debug for Sandbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sandbox")
            .field("layout", &self.layout)
            .field("isolation", &self.isolation)
            .field("failure", &self.failure())
            .finish_non_exhaustive()
    }
}

/// Refuses a sandbox whose disk the kernel was to limit, and does not.
fn demand_limit(isolation: &Isolation, limits: &Limits) -> Result<(), SandboxError> {
    if limits.disk_limit() == DiskLimit::Watched || isolation.disk == Boundary::Enforced {
        return Ok(());
    }
    let message = "the kernel cannot limit the disk of this kind of sandbox, or of one with further folders to write; take a \
                   jail of a host that is root, or have the guest watch over the disk";
    Err(SandboxError::new(SandboxErrorKind::NotEnforced, message))
}
