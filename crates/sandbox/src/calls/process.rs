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
/// Dropping the handle ends the program and everything it started. What a program that ended by itself left running goes
/// on until the sandbox ends, as after [`Executor::run`](crate::Executor::run).
///
/// A sandbox may be paused while no call is in it, and the program with it: see [`Process::begin_call`].
pub trait Process: Send + Sync + fmt::Debug {
    /// Begins a call: the sandbox goes on if it was paused. It is neither paused nor put away as unused before the
    /// returned guard is dropped.
    ///
    /// # Errors
    /// `Lost` when the sandbox has ended, `TimedOut` and `Cancelled` by the options, and why nothing may be run now.
    fn begin_call(&self, options: CallOptions) -> BoxFuture<'_, Result<ProcessCall, SandboxError>>;

    /// Writes to its standard input; returns when the sandbox has room for all of it. What a program that has ended
    /// would have read is dropped. One writer at a time. A dropped future may have written a part.
    fn write(&self, bytes: Vec<u8>) -> BoxFuture<'_, ()>;

    /// Ends its standard input.
    fn close_input(&self);

    /// What it says next. A program whose events are not taken is held up once half a megabyte waits. What it wrote to
    /// standard output before it wrote to standard error comes first. One reader at a time; the future may be dropped.
    ///
    /// # Errors
    /// Why it could not be started; `Lost` when the sandbox has ended. Nothing follows an error or
    /// [`RunEvent::Ended`].
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

    /// Keeps this until the call is over.
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
