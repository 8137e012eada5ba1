//! [`Process`]: a program that lives between the calls of a sandbox, such as a shell or a server that speaks over its
//! standard input and output.

use std::any::Any;
use std::fmt;

use futures_util::future::BoxFuture;

use crate::calls::call_options::CallOptions;
use crate::calls::command::RunEvent;
use crate::error::SandboxError;

/// A program that lives between calls. It has no deadline. It ends with this handle, with its sandbox, or by itself.
///
/// Dropping the handle ends the program and everything it started. If a program ends by itself, processes that it
/// left running continue until the sandbox ends, as after [`Executor::run`](crate::Executor::run).
///
/// A sandbox may be paused while no call is in progress. The program is then paused, too: see
/// [`Process::begin_call`].
pub trait Process: Send + Sync + fmt::Debug {
    /// Begins a call, and resumes the sandbox if it was paused. Until the returned guard is dropped, the sandbox is
    /// neither paused nor stopped as idle.
    ///
    /// # Errors
    /// `Lost` when the sandbox has ended; `TimedOut` and `Cancelled` by the options; another error when no program
    /// may run now.
    fn begin_call(&self, options: CallOptions) -> BoxFuture<'_, Result<ProcessCall, SandboxError>>;

    /// Writes to its standard input; returns when the sandbox has accepted all bytes. Bytes for a program that has
    /// ended are dropped. Only one writer at a time is allowed. If the future is dropped, a part may have been
    /// written.
    fn write(&self, bytes: Vec<u8>) -> BoxFuture<'_, ()>;

    /// Ends its standard input.
    fn close_input(&self);

    /// Returns the next event. If the caller does not take events, the program is blocked once half a megabyte waits.
    /// Output on standard output that was written before output on standard error comes first. Only one reader at a
    /// time is allowed. The future may be dropped.
    ///
    /// # Errors
    /// The reason why the program could not be started; `Lost` when the sandbox has ended. Nothing follows an error
    /// or [`RunEvent::Ended`].
    fn next_event(&self) -> BoxFuture<'_, Result<RunEvent, SandboxError>>;
}

/// A call of a process; see [`Process::begin_call`].
pub struct ProcessCall {
    guards: Vec<Box<dyn Any + Send + Sync>>,
}

impl ProcessCall {
    /// A call of a process whose sandbox is never paused.
    #[must_use]
    pub const fn new() -> Self {
        Self { guards: Vec::new() }
    }

    /// Keeps `guard` until the call ends.
    #[must_use]
    pub fn with_guard(mut self, guard: impl Any + Send + Sync) -> Self {
        self.guards.push(Box::new(guard));
        self
    }
}

impl Default for ProcessCall {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for ProcessCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProcessCall").field("guards", &self.guards.len()).finish()
    }
}
