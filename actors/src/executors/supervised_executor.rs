//! The executor that a session's tools hold. It forwards calls to the current sandbox.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use conjure_base::{Clock, Deadline, SystemClock, with_deadline};
use conjure_sandbox::{
    CallOptions, Command, CommandOutcome, ContentDir, ContentItem, ContentStream, CopyOutReport, Executor,
    HostAccess, Isolation, Layout, LineRange, Listing, Process, SandboxError, SandboxErrorKind, View,
    WriteResult,
};
use futures_util::future::BoxFuture;
use futures_util::{StreamExt, stream};

use super::call_error::{resume_error, start_error};
use super::idle_tracking::IdlePolicy;
use super::lazy_supervisor::SupervisorRef;
use super::live_sandbox::UseGuard;
use super::options::ExecutorOptions;
use super::sandbox_actor::{SandboxActor, SandboxDeps};
use super::sandbox_slot::SandboxSlot;
use super::source::ExecutorSource;
use super::supervised_process::SupervisedProcess;
use crate::supervision::{ChildId, ChildSpec, RequestError, Restart, StartError, Supervisor, WorkerSpec};

/// How long a session waits for the end of its sandbox.
const CLEANUP: Duration = Duration::from_secs(30);

/// The sandbox of one session, over all replacements; see the [module](super). Clones share it.
#[derive(Clone)]
pub struct SupervisedExecutor {
    inner: Arc<Inner>,
}

struct Inner {
    id: ChildId,
    source: Arc<dyn ExecutorSource>,
    supervisor_ref: SupervisorRef,
    slot: Arc<SandboxSlot>,
    options: ExecutorOptions,
}

impl SupervisedExecutor {
    pub(crate) fn new(
        id: ChildId,
        source: Arc<dyn ExecutorSource>,
        supervisor_ref: SupervisorRef,
        slot: Arc<SandboxSlot>,
        options: ExecutorOptions,
    ) -> Self {
        Self { inner: Arc::new(Inner { id, source, supervisor_ref, slot, options }) }
    }

    /// The supervisor of the sandbox's actor.
    #[must_use]
    pub fn supervisor(&self) -> &Supervisor {
        self.inner.supervisor_ref.supervisor()
    }

    /// Creates a sandbox before a call needs it, and returns when it exists.
    ///
    /// # Errors
    /// As for a call that needs one.
    pub async fn warm(&self, deadline: Deadline) -> Result<(), SandboxError> {
        self.acquire(&CallOptions::until(deadline)).await.map(drop)
    }

    /// Waits for the sandbox within the limits of the call, and resumes it.
    async fn acquire(&self, options: &CallOptions) -> Result<UseGuard, SandboxError> {
        let inner = &*self.inner;
        if let Some(sandbox) = inner.slot.acquire().filter(|sandbox| sandbox.usage.is_running()) {
            return Ok(sandbox);
        }
        let late = || {
            let message = format!("the sandbox was not ready in time{}; try again", inner.end_reason());
            SandboxError::new(SandboxErrorKind::TimedOut, message)
        };
        tokio::select! {
            biased;
            () = options.cancel.cancelled() => {
                let message = "it was cancelled while it waited for the sandbox; nothing was done";
                Err(SandboxError::new(SandboxErrorKind::Cancelled, message))
            }
            closed = inner.closed() => Err(closed),
            found = inner.find_running(options) => found.map_err(|error| error.unwrap_or_else(late)),
            () = SystemClock.sleep_until(options.deadline) => Err(late()),
        }
    }
}

impl Inner {
    /// Finds the sandbox and resumes it.
    async fn find_running(&self, options: &CallOptions) -> Result<UseGuard, Option<SandboxError>> {
        loop {
            let sandbox = self.find(options.deadline).await?;
            match sandbox.resume(options).await {
                Ok(()) => return Ok(sandbox),
                // Nothing of the call was done, so it uses the replacement.
                Err(error) if error.kind() == SandboxErrorKind::Lost => {}
                Err(error) => return Err(Some(resume_error(&error))),
            }
        }
    }

    /// Returns the sandbox. Starts one if none is being started, or else waits for it. The error is `None` at the deadline.
    async fn find(&self, deadline: Deadline) -> Result<UseGuard, Option<SandboxError>> {
        let mut is_tried_again = false;
        loop {
            if let Some(sandbox) = self.slot.acquire() {
                return Ok(sandbox);
            }
            let opened = self.supervisor_ref.ensure_running(deadline).await;
            let supervisor = self.supervisor_ref.supervisor();
            let started = match opened {
                Ok(()) => supervisor.start_child(self.child(), deadline).await,
                Err(error) => Err(error),
            };
            let started = match started {
                // The start failed too often. This call tries once more.
                Err(StartError::Quarantined { .. }) if !is_tried_again => {
                    is_tried_again = true;
                    supervisor.restart_child(&self.id, deadline).await
                }
                started => started,
            };
            match started {
                // The sandbox runs, or has ended again.
                Ok(_) => {}
                Err(StartError::AlreadyStarted(_)) => self.await_replacement(deadline).await,
                Err(StartError::Request(RequestError::DeadlinePassed(_))) => return Err(None),
                Err(error) => return Err(Some(start_error(&error))),
            }
        }
    }

    /// Waits until there is a sandbox, or until no start is in progress.
    async fn await_replacement(&self, deadline: Deadline) {
        tokio::select! {
            biased;
            () = self.slot.wait_ready() => {}
            // The next attempt returns the reason.
            _ = self.supervisor_ref.supervisor().wait_settled(&self.id, deadline) => {}
        }
    }

    fn child(&self) -> ChildSpec {
        let deps = SandboxDeps {
            source: Arc::clone(&self.source),
            slot: Arc::clone(&self.slot),
            start_timeout: self.options.start_timeout,
            cleanup_timeout: self.options.cleanup_timeout,
            idle_policy: IdlePolicy {
                pause_after: self.options.pause_after,
                unused_after: self.options.unused_after,
            },
        };
        let start = move |context| SandboxActor::start(deps.clone(), context);
        WorkerSpec::new(self.id.clone(), start)
            .restart(Restart::TRANSIENT)
            .backoff(self.options.backoff)
            .start_timeout(self.options.start_timeout)
            .queue(8)
            .build()
            .0
    }

    /// The reason of the last end, for a call that waited in vain.
    fn end_reason(&self) -> String {
        let exit = self.supervisor_ref.supervisor().child(&self.id).and_then(|child| child.last_exit);
        exit.map(|exit| format!(" (the last time it {exit})")).unwrap_or_default()
    }

    async fn closed(&self) -> SandboxError {
        self.slot.lifecycle.closed.cancelled().await;
        SandboxError::new(SandboxErrorKind::Unavailable, "the session's sandbox was closed")
    }
}

impl Executor for SupervisedExecutor {
    fn layout(&self) -> &Layout {
        self.inner.source.layout()
    }

    fn isolation(&self) -> Isolation {
        let sandbox = self.inner.slot.current();
        sandbox.map_or_else(|| self.inner.source.isolation(), |sandbox| sandbox.executor.isolation())
    }

    fn host_access(&self) -> HostAccess {
        let sandbox = self.inner.slot.current();
        sandbox.map_or(HostAccess::Mounted, |sandbox| sandbox.executor.host_access())
    }

    fn run<'a>(
        &'a self,
        command: Command,
        options: CallOptions,
    ) -> BoxFuture<'a, Result<CommandOutcome, SandboxError>> {
        Box::pin(async move {
            let sandbox = self.acquire(&options).await?;
            sandbox.run_call(sandbox.executor.run(command, options)).await
        })
    }

    /// The process ends with the sandbox in which it was started; the next sandbox does not have it.
    fn start(
        &self,
        command: Command,
        options: CallOptions,
    ) -> BoxFuture<'_, Result<Box<dyn Process>, SandboxError>> {
        Box::pin(async move {
            let sandbox = self.acquire(&options).await?;
            let process = sandbox.run_call(sandbox.executor.start(command, options)).await?;
            Ok(Box::new(SupervisedProcess::new(process, sandbox.sandbox())) as Box<dyn Process>)
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
            let sandbox = self.acquire(&options).await?;
            sandbox.run_call(sandbox.executor.view(path, range, max_bytes, options)).await
        })
    }

    fn create_file<'a>(
        &'a self,
        path: &'a str,
        content: &'a [u8],
        options: CallOptions,
    ) -> BoxFuture<'a, Result<WriteResult, SandboxError>> {
        Box::pin(async move {
            let sandbox = self.acquire(&options).await?;
            sandbox.run_call(sandbox.executor.create_file(path, content, options)).await
        })
    }

    fn str_replace<'a>(
        &'a self,
        path: &'a str,
        old: &'a str,
        new: &'a str,
        options: CallOptions,
    ) -> BoxFuture<'a, Result<WriteResult, SandboxError>> {
        Box::pin(async move {
            let sandbox = self.acquire(&options).await?;
            sandbox.run_call(sandbox.executor.str_replace(path, old, new, options)).await
        })
    }

    /// Ends the sandbox and its actor, and waits for that. No sandbox is created afterwards.
    fn cleanup(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            let inner = &self.inner;
            inner.slot.lifecycle.closed.cancel();
            let deadline = SystemClock.deadline(CLEANUP);
            match inner.supervisor_ref.supervisor().terminate_child(&inner.id, deadline).await {
                // No call has needed a sandbox, or nothing of it is left.
                Ok(()) | Err(RequestError::NotFound(_)) => {}
                // If the supervisor is stopping, it stops everything below it.
                Err(error) => tracing::debug!(%error, "the end of a sandbox was not waited for"),
            }
            if with_deadline(&SystemClock, deadline, inner.slot.lifecycle.wait_cleanups()).await.is_err() {
                tracing::debug!("the removal of a sandbox's leftovers was not waited for");
            }
        })
    }

    fn wait_ended(&self) -> BoxFuture<'_, SandboxError> {
        Box::pin(self.inner.closed())
    }

    fn take_model_notice(&self) -> Option<String> {
        let notice = self.inner.slot.take_notice();
        let notice = notice.map(|notice| notice.text(&self.layout().workspace, self.host_access()));
        // The sandbox's own notice comes after the notice about its replacement.
        let own = self.inner.slot.current().and_then(|sandbox| sandbox.executor.take_model_notice());
        notice.into_iter().chain(own).reduce(|notice, own| format!("{notice}\n{own}"))
    }

    /// Copies from the current sandbox, and creates none. A paused sandbox stays paused.
    fn copy_out(&self, options: CallOptions) -> BoxFuture<'_, Result<CopyOutReport, SandboxError>> {
        Box::pin(async move {
            match self.inner.slot.acquire() {
                Some(sandbox) => sandbox.run_call(sandbox.executor.copy_out(options)).await,
                None => Ok(CopyOutReport::default()),
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
            let sandbox = self.acquire(&options).await?;
            sandbox.run_call(sandbox.executor.list(path, depth, max_entries, options)).await
        })
    }

    fn read<'a>(
        &'a self,
        path: &'a str,
        options: CallOptions,
    ) -> BoxFuture<'a, Result<ContentStream, SandboxError>> {
        Box::pin(async move {
            let sandbox = self.acquire(&options).await?;
            let content = sandbox.run_call(sandbox.executor.read(path, options)).await?;
            Ok(forward(content, sandbox))
        })
    }

    fn write<'a>(
        &'a self,
        path: &'a str,
        content: ContentStream,
        options: CallOptions,
    ) -> BoxFuture<'a, Result<WriteResult, SandboxError>> {
        Box::pin(async move {
            let sandbox = self.acquire(&options).await?;
            sandbox.run_call(sandbox.executor.write(path, content, options)).await
        })
    }

    /// Installs the content in each later sandbox as well.
    fn install_content<'a>(
        &'a self,
        item: ContentItem,
        options: CallOptions,
    ) -> BoxFuture<'a, Result<PathBuf, SandboxError>> {
        Box::pin(async move {
            loop {
                let sandbox = self.acquire(&options).await?;
                let providing = sandbox.executor.install_content(item.clone(), options.clone());
                let path = sandbox.run_call(providing).await?;
                if self.inner.slot.add_item(&item, sandbox.sandbox()) {
                    return Ok(path);
                }
                // The sandbox was replaced just now, by one without this content.
            }
        })
    }

    /// Removes the content from the current sandbox; later sandboxes do not get it. No sandbox is created for this.
    fn remove_content<'a>(
        &'a self,
        dir: ContentDir,
        name: &'a str,
        options: CallOptions,
    ) -> BoxFuture<'a, Result<(), SandboxError>> {
        Box::pin(async move {
            self.inner.slot.remove_item(dir, name);
            let Some(sandbox) = self.inner.slot.acquire() else { return Ok(()) };
            match sandbox.run_call(sandbox.executor.remove_content(dir, name, options)).await {
                // A later sandbox does not get the content.
                Err(error) if error.kind() == SandboxErrorKind::Lost => Ok(()),
                done => done,
            }
        })
    }
}

/// A content stream that ends with its sandbox.
fn forward(content: ContentStream, sandbox: UseGuard) -> ContentStream {
    stream::unfold(Some((content, sandbox)), |forwarding| async move {
        let (mut content, sandbox) = forwarding?;
        let piece = tokio::select! {
            biased;
            piece = content.next() => piece?,
            lost = sandbox.lost() => Err(lost),
        };
        match piece {
            Ok(piece) => Some((Ok(piece), Some((content, sandbox)))),
            Err(error) => {
                sandbox.check_error(&error);
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
            .field("slot", &self.inner.slot)
            .finish_non_exhaustive()
    }
}
