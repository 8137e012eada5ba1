//! A process that runs between the calls of a session's sandbox.
//!
//! Between its calls the sandbox may be paused, and stopped as idle. The process ends with its sandbox: the next one
//! does not have it.

use std::fmt;
use std::sync::Arc;

use conjure_sandbox::{CallOptions, Process, ProcessCall, RunEvent, SandboxError, SandboxErrorKind};
use futures_util::future::BoxFuture;

use super::live_sandbox::{LiveSandbox, UseGuard};

/// A process in one sandbox of a session.
pub(super) struct SupervisedProcess {
    process: Box<dyn Process>,
    sandbox: Arc<LiveSandbox>,
}

impl SupervisedProcess {
    pub(super) fn new(process: Box<dyn Process>, sandbox: &Arc<LiveSandbox>) -> Self {
        Self { process, sandbox: Arc::clone(sandbox) }
    }
}

impl Process for SupervisedProcess {
    fn begin_call(&self, options: CallOptions) -> BoxFuture<'_, Result<ProcessCall, SandboxError>> {
        Box::pin(async move {
            let Some(sandbox) = UseGuard::acquire(Arc::clone(&self.sandbox)).filter(|guard| guard.is_live())
            else {
                let message = "the sandbox of this program has ended, and the program with it";
                return Err(SandboxError::new(SandboxErrorKind::Lost, message));
            };
            sandbox.resume(&options).await?;
            let call = sandbox.run_call(self.process.begin_call(options)).await?;
            Ok(call.with_guard(sandbox))
        })
    }

    fn write(&self, bytes: Vec<u8>) -> BoxFuture<'_, ()> {
        Box::pin(async {
            tokio::select! {
                biased;
                () = self.process.write(bytes) => {}
                _ = self.sandbox.lost() => {}
            }
        })
    }

    fn close_input(&self) {
        self.process.close_input();
    }

    fn next_event(&self) -> BoxFuture<'_, Result<RunEvent, SandboxError>> {
        Box::pin(self.sandbox.run_call(self.process.next_event()))
    }
}

impl fmt::Debug for SupervisedProcess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SupervisedProcess").field("process", &self.process).finish_non_exhaustive()
    }
}
