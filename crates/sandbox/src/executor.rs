//! What a tool call needs of a sandbox.

use std::fmt;
#[cfg(target_os = "linux")]
use std::path::PathBuf;
use std::pin::Pin;

use bytes::Bytes;
use conjure_base::Deadline;
use futures_util::Stream;
use futures_util::future::{self, BoxFuture};
use tokio_util::sync::CancellationToken;

use crate::error::{SandboxError, SandboxErrorKind};
use crate::isolation::Isolation;
#[cfg(target_os = "linux")]
use crate::provision::{Provision, Shelf};
use crate::types::{
    BroughtBack, Command, CommandOutcome, Layout, LineRange, Listing, Sharing, View, Written,
};

/// Bytes in pieces, with flow control: a stream that is not polled holds up nothing but itself.
pub type ContentStream = Pin<Box<dyn Stream<Item = Result<Bytes, SandboxError>> + Send>>;

/// The bounds of one call.
#[derive(Debug, Clone)]
pub struct CallOptions {
    /// When the call ends, done or not; everything it started is ended with it.
    pub deadline: Deadline,
    /// Cancels the call: it still returns, soon, with what it knows. Dropping the call's future cancels too.
    pub cancel: CancellationToken,
}

impl CallOptions {
    /// A call that ends at `deadline` and that nobody cancels.
    #[must_use]
    pub fn until(deadline: Deadline) -> Self {
        Self { deadline, cancel: CancellationToken::new() }
    }
}

/// A sandbox in which tool calls run. Calls may overlap; each is independent.
///
/// A host can implement it for a backend of its own: the first five methods suffice. Paths are as the sandbox
/// has them, absolute or relative to the workspace.
pub trait Executor: Send + Sync + fmt::Debug {
    /// Where things lie in it.
    fn layout(&self) -> &Layout;

    /// What it keeps apart from the host: nothing, unless it says so.
    fn isolation(&self) -> Isolation {
        Isolation::NONE
    }

    /// How it has what is the host's: its own folders, unless it says otherwise.
    fn sharing(&self) -> Sharing {
        Sharing::Shared
    }

    /// Runs a program to its end. A program that fails is an outcome, not an error.
    fn run<'a>(
        &'a self,
        command: Command,
        options: CallOptions,
    ) -> BoxFuture<'a, Result<CommandOutcome, SandboxError>>;

    /// Shows a file or folder; content beyond `max_bytes` is cut, an image beyond it is `TooLarge`.
    fn view<'a>(
        &'a self,
        path: &'a str,
        range: Option<LineRange>,
        max_bytes: u64,
        options: CallOptions,
    ) -> BoxFuture<'a, Result<View, SandboxError>>;

    /// Writes a file whole and atomically, making missing folders.
    fn create_file<'a>(
        &'a self,
        path: &'a str,
        content: &'a [u8],
        options: CallOptions,
    ) -> BoxFuture<'a, Result<Written, SandboxError>>;

    /// Replaces the one occurrence of `old` in a text file, atomically. None or several is an error that says
    /// which.
    fn str_replace<'a>(
        &'a self,
        path: &'a str,
        old: &'a str,
        new: &'a str,
        options: CallOptions,
    ) -> BoxFuture<'a, Result<Written, SandboxError>>;

    /// Prepares the sandbox, once per session, before the first call.
    fn init(&self) -> BoxFuture<'_, Result<(), SandboxError>> {
        Box::pin(async { Ok(()) })
    }

    /// Ends everything that runs in the sandbox and releases what it holds. Calling it again does nothing.
    fn cleanup(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {})
    }

    /// Ends it, and returns as soon as nothing of it can change its workspace any more, which another sandbox may have then. What
    /// is left of it is removed behind that, and [`Executor::cleanup`] waits for it.
    fn vacate(&self) -> BoxFuture<'_, ()> {
        self.cleanup()
    }

    /// Resolves when the sandbox has ended by itself, was lost or was cleaned up, with the reason: no call can succeed in it
    /// any more. May be dropped and asked again. An executor that cannot tell never resolves it.
    fn ended(&self) -> BoxFuture<'_, SandboxError> {
        Box::pin(future::pending())
    }

    /// What the model is to be told, once, with the result of a call that has just returned: that the sandbox is another
    /// one than before, and what of the old one is gone; what of the host's files it was not given. Taking it is telling it.
    fn take_notice(&self) -> Option<String> {
        None
    }

    /// Brings what commands made and changed in the workspace since the last time back to the host's folder, where it is not
    /// there already ([`Sharing::Transferred`]): folders, and plain files, each whole, with their permissions. What commands
    /// removed stays there, but where something of another kind has its name now. The sandbox goes on; what is not brought back
    /// before its end is lost.
    fn bring_back(&self, options: CallOptions) -> BoxFuture<'_, Result<BroughtBack, SandboxError>> {
        let _ = options;
        Box::pin(async { Ok(BroughtBack::default()) })
    }

    /// Has everything that commands left running stand still, until [`Executor::resume`] or until a command is run: it uses no
    /// processor then, and keeps its memory, its files and its connections. Files are read and written as ever, and the sandbox's
    /// end is seen and told. It must not be asked for while a command runs. Asking again does no harm. What failed, was cancelled
    /// or dropped may have happened: resume.
    ///
    /// # Errors
    /// `Unsupported` when this executor never does; `BadRequest` while a command runs; `TimedOut` when processes cannot be
    /// brought to rest; `Lost` when the sandbox has ended.
    fn pause(&self, options: CallOptions) -> BoxFuture<'_, Result<(), SandboxError>> {
        let _ = options;
        unsupported("pause what runs in it")
    }

    /// Has everything go on that [`Executor::pause`] stopped, wherever that broke off. Where nothing is paused it does nothing.
    ///
    /// # Errors
    /// `Unsupported` when this executor never pauses; `Lost` when the sandbox has ended.
    fn resume(&self, options: CallOptions) -> BoxFuture<'_, Result<(), SandboxError>> {
        let _ = options;
        unsupported("pause what runs in it")
    }

    /// Lists a folder to this depth, hidden names included.
    fn list<'a>(
        &'a self,
        path: &'a str,
        depth: u32,
        max_entries: u32,
        options: CallOptions,
    ) -> BoxFuture<'a, Result<Listing, SandboxError>> {
        let _ = (path, depth, max_entries, options);
        unsupported("list folders")
    }

    /// Streams a file out.
    fn read<'a>(
        &'a self,
        path: &'a str,
        options: CallOptions,
    ) -> BoxFuture<'a, Result<ContentStream, SandboxError>> {
        let _ = (path, options);
        unsupported("stream files out")
    }

    /// Streams a file in, whole and atomically. An error in `content` leaves what was there before.
    fn write<'a>(
        &'a self,
        path: &'a str,
        content: ContentStream,
        options: CallOptions,
    ) -> BoxFuture<'a, Result<Written, SandboxError>> {
        let _ = (path, content, options);
        unsupported("stream files in")
    }

    /// Puts a file or a folder of a store onto one of the sandbox's shelves, also while commands run, and yields where
    /// the sandbox has it. Commands can read it and not change it. It is seen whole or not at all: a call that was
    /// cancelled, dropped or too late leaves nothing, and one that says it is there is right.
    ///
    /// # Errors
    /// `Exists` when the shelf has something else of the name: to give the same twice is to give it once; `BadRequest` when the name is none; `NotFound` when
    /// the store does not have all of it; `NoSpace` when the disk is full; `Cancelled` and `TimedOut`; `Lost` when the
    /// sandbox has ended; `Unsupported` when it has no shelves.
    #[cfg(target_os = "linux")]
    fn provide<'a>(
        &'a self,
        provision: Provision,
        options: CallOptions,
    ) -> BoxFuture<'a, Result<PathBuf, SandboxError>> {
        let _ = (provision, options);
        unsupported("take content while it runs")
    }

    /// Takes what has this name off a shelf, also while commands run: it is gone for all that look for it, and whoever has it open
    /// keeps it. What is not there is off already. A call that was cancelled or too late leaves it as it was.
    ///
    /// # Errors
    /// `BadRequest` when the name is none; `Cancelled` and `TimedOut`; `Lost` when the sandbox has ended; `Unsupported` when it has
    /// no shelves.
    #[cfg(target_os = "linux")]
    fn withdraw<'a>(
        &'a self,
        shelf: Shelf,
        name: &'a str,
        options: CallOptions,
    ) -> BoxFuture<'a, Result<(), SandboxError>> {
        let _ = (shelf, name, options);
        unsupported("give content back while it runs")
    }
}

fn unsupported<T: Send + 'static>(what: &str) -> BoxFuture<'static, Result<T, SandboxError>> {
    let error = SandboxError::new(SandboxErrorKind::Unsupported, format!("this executor does not {what}"));
    Box::pin(async { Err(error) })
}
