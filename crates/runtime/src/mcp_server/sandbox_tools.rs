//! The tools of one client's sandbox.
//!
//! The first call opens the sandbox. If the sandbox has ended, the next call opens a new one, and its result says so.
//!
//! State, in memory: the sandbox, and the number of running calls. A crash of the process ends the sandbox.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use conjure_base::{CallId, Clock as _, Deadline, SystemClock, lock};
use conjure_conversation::{ResultContent, ToolCall, ToolDefinition, ToolEnding, ToolResult};
use conjure_mcp::server::{ToolFuture, ToolHost};
use futures_util::future::BoxFuture;

use crate::conversation::execute;
use crate::workbench::Workbench;

/// Opens the sandbox of a client. The error is the reason why that failed.
pub type OpenWorkbench = Box<dyn Fn() -> BoxFuture<'static, Result<Workbench, String>> + Send + Sync>;

/// The note for the client after its sandbox was lost.
const LOST: &str =
    "Note: the sandbox was lost, and this call ran in a new one. Files outside of a kept workspace are gone.";

/// The note for the client after its idle sandbox was closed.
const IDLE: &str =
    "Note: the sandbox was idle and was closed. This call ran in a new one, without the former files.";

/// The tools of one client's sandbox.
pub struct SandboxTools {
    open: OpenWorkbench,
    definitions: Arc<[ToolDefinition]>,
    idle_timeout: Duration,
    sandbox: Mutex<ClientSandbox>,
    /// Locked while a sandbox is created.
    opening: tokio::sync::Mutex<()>,
}

struct ClientSandbox {
    current: Option<Arc<Workbench>>,
    /// The note about the former sandbox for the next result.
    note: Option<&'static str>,
    /// Whether the sandbox is closed for good.
    is_closed: bool,
    calls: usize,
    /// The time at which the sandbox is idle, if no call runs.
    idle_at: Deadline,
}

impl SandboxTools {
    /// Creates tools with these definitions. `open` opens a sandbox when one is needed. A sandbox is idle if no call runs
    /// in it for `idle_timeout`.
    #[must_use]
    pub fn new(definitions: Arc<[ToolDefinition]>, idle_timeout: Duration, open: OpenWorkbench) -> Self {
        let sandbox = ClientSandbox {
            current: None,
            note: None,
            is_closed: false,
            calls: 0,
            idle_at: SystemClock.deadline(idle_timeout),
        };
        let (sandbox, opening) = (Mutex::new(sandbox), tokio::sync::Mutex::default());
        Self { open, definitions, idle_timeout, sandbox, opening }
    }

    /// Sets an open sandbox, in which the first calls run.
    #[must_use]
    pub fn with_sandbox(self, workbench: Workbench) -> Self {
        lock(&self.sandbox).current = Some(Arc::new(workbench));
        self
    }

    async fn workbench(&self) -> Result<Arc<Workbench>, String> {
        let _opening_guard = self.opening.lock().await;
        {
            let sandbox = lock(&self.sandbox);
            if sandbox.is_closed {
                return Err("the sandbox has ended, since its client or the server ends".to_owned());
            }
            if let Some(workbench) = &sandbox.current {
                return Ok(Arc::clone(workbench));
            }
        }
        let workbench = Arc::new((self.open)().await?);
        let is_closed = {
            let mut sandbox = lock(&self.sandbox);
            if !sandbox.is_closed {
                sandbox.current = Some(Arc::clone(&workbench));
            }
            sandbox.is_closed
        };
        if is_closed {
            workbench.cleanup().await;
            return Err("the sandbox was closed while it was opened".to_owned());
        }
        Ok(workbench)
    }

    /// Ends the sandbox if no call has run in it for the idle timeout.
    pub async fn close_if_idle(&self) {
        let idle = {
            let mut sandbox = lock(&self.sandbox);
            let is_idle = sandbox.calls == 0 && SystemClock.remaining(sandbox.idle_at).is_zero();
            let idle = sandbox.current.take_if(|_| is_idle);
            if idle.is_some() {
                sandbox.note = Some(IDLE);
            }
            idle
        };
        if let Some(workbench) = idle {
            workbench.cleanup().await;
        }
    }

    /// Ends the sandbox and everything in it. Later calls fail.
    pub async fn close(&self) {
        let current = {
            let mut sandbox = lock(&self.sandbox);
            sandbox.is_closed = true;
            sandbox.current.take()
        };
        if let Some(workbench) = current {
            workbench.cleanup().await;
        }
    }

    /// Runs the calls in one sandbox, and stops at the first that fails. Returns the result of the last call that ran.
    async fn run(&self, calls: &[ToolCall]) -> ToolResult {
        let _counted = RunningCall::begin(self);
        let id = calls.first().map(|call| call.id.clone()).unwrap_or_else(|| CallId::new("none"));
        let workbench = match self.workbench().await {
            Ok(workbench) => workbench,
            Err(reason) => return ToolResult::error(&id, reason),
        };
        let mut result = ToolResult::error(&id, "nothing was run");
        for call in calls {
            result = execute(call, &workbench).await;
            if result.is_error {
                break;
            }
        }
        let mut sandbox = lock(&self.sandbox);
        if let Some(note) = sandbox.note.take() {
            result.content.insert(0, ResultContent::Text { text: note.to_owned() });
        }
        if result.ending == ToolEnding::Lost {
            let lost = sandbox.current.take_if(|current| Arc::ptr_eq(current, &workbench));
            if lost.is_some() {
                sandbox.note = Some(LOST);
            }
        }
        result
    }
}

/// Counts a running call until it is dropped.
struct RunningCall<'t>(&'t SandboxTools);

impl<'t> RunningCall<'t> {
    fn begin(tools: &'t SandboxTools) -> Self {
        lock(&tools.sandbox).calls += 1;
        Self(tools)
    }
}

impl Drop for RunningCall<'_> {
    fn drop(&mut self) {
        let mut sandbox = lock(&self.0.sandbox);
        sandbox.calls -= 1;
        sandbox.idle_at = SystemClock.deadline(self.0.idle_timeout);
    }
}

impl ToolHost for SandboxTools {
    fn definitions(&self) -> Arc<[ToolDefinition]> {
        Arc::clone(&self.definitions)
    }

    fn call<'a>(&'a self, calls: &'a [ToolCall]) -> ToolFuture<'a> {
        Box::pin(self.run(calls))
    }
}

impl std::fmt::Debug for SandboxTools {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SandboxTools").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
