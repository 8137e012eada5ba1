//! The [`Executor`] of a [`Sandbox`]: each method is one request to the guest.

use std::path::PathBuf;

use bytes::Bytes;
use conjure_guest::protocol::{Reply, Request};
use futures_util::future::BoxFuture;

use super::Sandbox;
use crate::calls::call_options::CallOptions;
use crate::calls::command::{Command, CommandOutcome};
use crate::calls::executor::{ContentStream, Executor};
#[cfg(feature = "local")]
use crate::calls::files::CopyOutReport;
use crate::calls::files::{LineRange, Listing, View, WriteResult};
use crate::calls::guest_ops::{self, ContentSender};
use crate::calls::process::Process;
use crate::content::{ContentDir, ContentItem};
use crate::error::SandboxError;
use crate::guest_connection::wrong_reply;
use crate::mux::GRACE;
use crate::settings::isolation::Isolation;
#[cfg(feature = "local")]
use crate::settings::layout::HostAccess;
use crate::settings::layout::Layout;

/// The maximum size of a view in memory, whatever the caller requests.
const VIEW_MAX: u32 = 64 * 1024 * 1024;

impl Executor for Sandbox {
    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn isolation(&self) -> Isolation {
        self.isolation
    }

    #[cfg(feature = "local")]
    fn host_access(&self) -> HostAccess {
        if self.copier.is_some() { HostAccess::Copied } else { HostAccess::Mounted }
    }

    #[cfg(feature = "local")]
    fn copy_out(&self, options: CallOptions) -> BoxFuture<'_, Result<CopyOutReport, SandboxError>> {
        Box::pin(async move {
            match &self.copier {
                Some(copier) => copier.copy_out(&options).await,
                None => Ok(CopyOutReport::default()),
            }
        })
    }

    #[cfg(feature = "local")]
    fn take_model_notice(&self) -> Option<String> {
        self.copier.as_ref()?.take_model_notice()
    }

    fn run<'a>(
        &'a self,
        command: Command,
        options: CallOptions,
    ) -> BoxFuture<'a, Result<CommandOutcome, SandboxError>> {
        Box::pin(async move {
            let (request, credit, sender) = guest_ops::captured(self.with_environment(command));
            match self.guest.finish(request, credit, sender, options).await? {
                (call, Reply::Exec(reply), collected) => guest_ops::outcome(reply, collected)
                    .ok_or_else(|| call.protocol_error("its counts of output are wrong")),
                (call, ..) => Err(wrong_reply(&call)),
            }
        })
    }

    fn start(
        &self,
        command: Command,
        options: CallOptions,
    ) -> BoxFuture<'_, Result<Box<dyn Process>, SandboxError>> {
        Box::pin(self.start_process(command, options))
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
            // Credit for one byte more than the maximum: a sender without credit cannot show that nothing follows.
            match self.guest.finish(request, credit + 1, ContentSender::none(), options).await? {
                (call, Reply::View(viewed), collected) => guest_ops::view(viewed, collected.content)
                    .ok_or_else(|| call.protocol_error("the content is not what it says")),
                (call, ..) => Err(wrong_reply(&call)),
            }
        })
    }

    fn create_file<'a>(
        &'a self,
        path: &'a str,
        content: &'a [u8],
        options: CallOptions,
    ) -> BoxFuture<'a, Result<WriteResult, SandboxError>> {
        let request = Request::Write { path: path.to_owned(), mode: None };
        Box::pin(self.change(request, ContentSender::bytes(Bytes::copy_from_slice(content)), options))
    }

    fn str_replace<'a>(
        &'a self,
        path: &'a str,
        old: &'a str,
        new: &'a str,
        options: CallOptions,
    ) -> BoxFuture<'a, Result<WriteResult, SandboxError>> {
        let request = Request::Replace { path: path.to_owned(), old: old.to_owned(), new: new.to_owned() };
        Box::pin(self.change(request, ContentSender::none(), options))
    }

    fn init(&self) -> BoxFuture<'_, Result<(), SandboxError>> {
        let failure = self.failure();
        Box::pin(async { failure.map_or(Ok(()), Err) })
    }

    fn cleanup(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            self.guest.closing.cancel();
            let clock = self.guest.mux.clock();
            // The tasks limit their own waits to less than this time. Beyond it, the kernel blocks a process.
            let timeout = clock.sleep_until(clock.deadline(GRACE * 3));
            tokio::select! {
                () = self.guest.tasks.wait() => {}
                () = timeout => {}
            }
        })
    }

    fn stop(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            let cleaned = self.cleanup();
            tokio::select! {
                biased;
                () = self.guest.mux.workspace_released() => {}
                () = cleaned => {}
            }
        })
    }

    fn wait_ended(&self) -> BoxFuture<'_, SandboxError> {
        Box::pin(self.guest.mux.failed())
    }

    /// Pauses through the guest, for every kind of sandbox. The guest stops its processes with SIGSTOP and keeps
    /// running itself, so that it notices the end of the host. A process resumes itself if it has set a timer with
    /// SIGCONT; its limits still apply.
    fn pause(&self, options: CallOptions) -> BoxFuture<'_, Result<(), SandboxError>> {
        Box::pin(async {
            match self.guest.finish(Request::Pause, 0, ContentSender::none(), options).await? {
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
            match self.guest.finish(Request::Resume, 0, ContentSender::none(), options).await? {
                (_, Reply::Resume { processes }, _) => {
                    tracing::debug!(processes, "a sandbox was resumed");
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
            match self.guest.finish(request, 0, ContentSender::none(), options).await? {
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
        Box::pin(self.guest.stream_file(path, options))
    }

    fn write<'a>(
        &'a self,
        path: &'a str,
        content: ContentStream,
        options: CallOptions,
    ) -> BoxFuture<'a, Result<WriteResult, SandboxError>> {
        let request = Request::Write { path: path.to_owned(), mode: None };
        Box::pin(self.change(request, ContentSender::from_stream(content), options))
    }

    fn install_content<'a>(
        &'a self,
        item: ContentItem,
        options: CallOptions,
    ) -> BoxFuture<'a, Result<PathBuf, SandboxError>> {
        Box::pin(self.install(item, options))
    }

    fn remove_content<'a>(
        &'a self,
        dir: ContentDir,
        name: &'a str,
        options: CallOptions,
    ) -> BoxFuture<'a, Result<(), SandboxError>> {
        Box::pin(self.remove(dir, name, options))
    }
}
