//! [`Executor`]: the API of one sandbox, as tool calls use it.

use std::fmt;
use std::path::PathBuf;
use std::pin::Pin;

use bytes::Bytes;
use futures_util::Stream;
use futures_util::future::{self, BoxFuture};

use crate::calls::call_options::CallOptions;
use crate::calls::command::{Command, CommandOutcome};
use crate::calls::files::{CopyOutReport, LineRange, Listing, View, WriteResult};
use crate::calls::process::Process;
use crate::content::{ContentDir, ContentItem};
use crate::error::{SandboxError, SandboxErrorKind};
use crate::settings::isolation::Isolation;
use crate::settings::layout::{HostAccess, Layout};

/// Bytes in chunks, with flow control. A stream that is not polled delays only itself.
pub type ContentStream = Pin<Box<dyn Stream<Item = Result<Bytes, SandboxError>> + Send>>;

/// A sandbox in which tool calls run. Calls may overlap; each is independent.
///
/// An embedder can implement it for its own backend: the methods without a default implementation suffice. Paths are
/// paths in the sandbox, absolute or relative to the workspace.
pub trait Executor: Send + Sync + fmt::Debug {
    /// The paths in the sandbox.
    fn layout(&self) -> &Layout;

    /// The boundaries between the sandbox and the host. The default is none.
    fn isolation(&self) -> Isolation {
        Isolation::NONE
    }

    /// Whether the sandbox mounts directories of the host or has copies of them. The default is mounted.
    fn host_access(&self) -> HostAccess {
        HostAccess::Mounted
    }

    /// Runs a program to its end. A program that fails is an outcome, not an error.
    fn run<'a>(
        &'a self,
        command: Command,
        options: CallOptions,
    ) -> BoxFuture<'a, Result<CommandOutcome, SandboxError>>;

    /// Starts a program that lives between calls, such as a shell or a server. The options apply only to the start:
    /// the program has no deadline. Its standard input begins with `command.input` and stays open; `keep_head`,
    /// `keep_tail` and `spill` do not apply.
    ///
    /// # Errors
    /// `Unsupported` when this executor runs no such programs; `TimedOut` and `Cancelled`; `Lost` when the sandbox
    /// has ended. If the program itself cannot be started, [`Process::next_event`] returns the error.
    fn start(
        &self,
        command: Command,
        options: CallOptions,
    ) -> BoxFuture<'_, Result<Box<dyn Process>, SandboxError>> {
        let _ = (command, options);
        unsupported("start programs that live between calls")
    }

    /// Shows a file or directory. Content beyond `max_bytes` is cut; an image beyond it is `TooLarge`.
    fn view<'a>(
        &'a self,
        path: &'a str,
        range: Option<LineRange>,
        max_bytes: u64,
        options: CallOptions,
    ) -> BoxFuture<'a, Result<View, SandboxError>>;

    /// Writes a whole file atomically, and creates missing directories.
    fn create_file<'a>(
        &'a self,
        path: &'a str,
        content: &'a [u8],
        options: CallOptions,
    ) -> BoxFuture<'a, Result<WriteResult, SandboxError>>;

    /// Replaces the only occurrence of `old` in a text file, atomically. It fails if `old` does not occur, or occurs
    /// several times.
    fn str_replace<'a>(
        &'a self,
        path: &'a str,
        old: &'a str,
        new: &'a str,
        options: CallOptions,
    ) -> BoxFuture<'a, Result<WriteResult, SandboxError>>;

    /// Prepares the sandbox, once per session, before the first call.
    fn init(&self) -> BoxFuture<'_, Result<(), SandboxError>> {
        Box::pin(async { Ok(()) })
    }

    /// Ends everything that runs in the sandbox and releases its resources. A second call does nothing.
    fn cleanup(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {})
    }

    /// Ends the sandbox, and returns as soon as nothing of it can change its workspace any more. Then another sandbox
    /// may use the workspace. The rest is removed in the background; [`Executor::cleanup`] waits for that.
    fn stop(&self) -> BoxFuture<'_, ()> {
        self.cleanup()
    }

    /// Resolves with the reason when the sandbox has ended by itself, was lost or was cleaned up. No call can succeed
    /// any more. The future may be dropped and created again. An executor that cannot detect its end never resolves
    /// it.
    fn wait_ended(&self) -> BoxFuture<'_, SandboxError> {
        Box::pin(future::pending())
    }

    /// Takes the notice for the model. It belongs to the result of the call that has just returned. It says that the
    /// sandbox was recreated and what was lost, or which files of the host were not copied into it. Each notice is
    /// returned once.
    fn take_model_notice(&self) -> Option<String> {
        None
    }

    /// Copies the files and directories that commands created or changed since the last call to the host's directory.
    /// It does this only if the sandbox has a copy of that directory ([`HostAccess::Copied`](crate::HostAccess)).
    /// Each file is copied whole, with its permissions. A file that commands removed stays on the host, unless an
    /// entry of another kind now has its name. The sandbox keeps running. Changes that are not copied out before its
    /// end are lost.
    fn copy_out(&self, options: CallOptions) -> BoxFuture<'_, Result<CopyOutReport, SandboxError>> {
        let _ = options;
        Box::pin(async { Ok(CopyOutReport::default()) })
    }

    /// Pauses all processes that commands left running, until [`Executor::resume`] or until a command is run. Paused
    /// processes use no processor; they keep their memory, files and connections. File calls work meanwhile, and the
    /// sandbox's end is still reported. It must not be called while a command runs. A second call does no harm. A
    /// call that failed, was cancelled or was dropped may have paused processes: call [`Executor::resume`].
    ///
    /// # Errors
    /// `Unsupported` when this executor never pauses; `BadRequest` while a command runs; `TimedOut` when processes
    /// cannot be stopped; `Lost` when the sandbox has ended.
    fn pause(&self, options: CallOptions) -> BoxFuture<'_, Result<(), SandboxError>> {
        let _ = options;
        unsupported("pause what runs in it")
    }

    /// Resumes everything that [`Executor::pause`] stopped, also after an interrupted pause. Without a pause it does
    /// nothing.
    ///
    /// # Errors
    /// `Unsupported` when this executor never pauses; `Lost` when the sandbox has ended.
    fn resume(&self, options: CallOptions) -> BoxFuture<'_, Result<(), SandboxError>> {
        let _ = options;
        unsupported("pause what runs in it")
    }

    /// Lists a directory to this depth, hidden names included.
    fn list<'a>(
        &'a self,
        path: &'a str,
        depth: u32,
        max_entries: u32,
        options: CallOptions,
    ) -> BoxFuture<'a, Result<Listing, SandboxError>> {
        let _ = (path, depth, max_entries, options);
        unsupported("list directories")
    }

    /// Streams the content of a file out of the sandbox.
    fn read<'a>(
        &'a self,
        path: &'a str,
        options: CallOptions,
    ) -> BoxFuture<'a, Result<ContentStream, SandboxError>> {
        let _ = (path, options);
        unsupported("stream files out")
    }

    /// Streams a whole file into the sandbox, atomically. An error in `content` leaves the previous file unchanged.
    fn write<'a>(
        &'a self,
        path: &'a str,
        content: ContentStream,
        options: CallOptions,
    ) -> BoxFuture<'a, Result<WriteResult, SandboxError>> {
        let _ = (path, content, options);
        unsupported("stream files in")
    }

    /// Installs a file or a tree of a store in a content directory of the sandbox, and returns its path there.
    /// Commands can read it and cannot change it. They see it completely or not at all, also while they run. A call
    /// that was cancelled, dropped or timed out installs nothing; a call that succeeded has installed it.
    ///
    /// # Errors
    /// `Exists` when the directory has other content of that name (the same content twice is no error); `BadRequest`
    /// when the name is invalid; `NotFound` when the store lacks some of the content; `NoSpace` when the disk is full;
    /// `Cancelled` and `TimedOut`; `Lost` when the sandbox has ended; `Unsupported` when it has no content directories.
    fn install_content<'a>(
        &'a self,
        provision: ContentItem,
        options: CallOptions,
    ) -> BoxFuture<'a, Result<PathBuf, SandboxError>> {
        let _ = (provision, options);
        unsupported("take content while it runs")
    }

    /// Removes the entry of this name from a content directory, also while commands run. A process that has it open
    /// can still use it. Without such an entry it does nothing. A call that was cancelled or timed out changes
    /// nothing.
    ///
    /// # Errors
    /// `BadRequest` when the name is invalid; `Cancelled` and `TimedOut`; `Lost` when the sandbox has ended;
    /// `Unsupported` when it has no content directories.
    fn remove_content<'a>(
        &'a self,
        dir: ContentDir,
        name: &'a str,
        options: CallOptions,
    ) -> BoxFuture<'a, Result<(), SandboxError>> {
        let _ = (dir, name, options);
        unsupported("give content back while it runs")
    }
}

fn unsupported<T: Send + 'static>(what: &str) -> BoxFuture<'static, Result<T, SandboxError>> {
    let error = SandboxError::new(SandboxErrorKind::Unsupported, format!("this executor does not {what}"));
    Box::pin(async { Err(error) })
}
