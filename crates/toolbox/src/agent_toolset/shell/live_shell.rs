//! One shell process, and the task that reads its events.

use std::collections::BTreeMap;
use std::sync::Arc;

use conjure_sandbox::{CallOptions, Executor, Process, ProcessCall, SandboxError, SandboxErrorKind};
use tokio::task::JoinSet;

use super::driver::{self, Report};
use super::inbox::{ShellEnd, ShellInbox};

/// A shell that accepts commands. Dropping it ends it and everything that runs in it.
#[derive(Debug)]
pub(super) struct LiveShell {
    process: Arc<dyn Process>,
    pub(super) inbox: Arc<ShellInbox>,
    /// The variables that it has exported for calls.
    exported: BTreeMap<String, String>,
    /// Its working directory at its last report.
    pub(super) directory: String,
    /// Whether no file may grow in this shell. The workspace was over its limit when the shell started, and the kernel does not let
    /// a process raise such a limit again. So the shell serves only one command.
    pub(super) is_read_only: bool,
    /// The task that reads the shell's events. It ends when the shell is dropped.
    _reader: JoinSet<()>,
}

impl LiveShell {
    /// Starts a shell in this directory, and waits until it accepts commands. Its inbox keeps this many bytes of head and tail.
    pub(super) async fn start(
        executor: &dyn Executor,
        directory: Option<&str>,
        keep: usize,
        options: &CallOptions,
    ) -> Result<(Self, ProcessCall), ShellEnd> {
        let started = executor.start(driver::start_command(directory), options.clone()).await;
        let process: Arc<dyn Process> = Arc::from(started.map_err(ShellEnd::Failed)?);
        let call = process.begin_call(options.clone()).await.map_err(ShellEnd::Failed)?;
        let inbox = Arc::new(ShellInbox::new(keep));
        let mut reader = JoinSet::new();
        reader.spawn({
            let (process, inbox) = (Arc::clone(&process), Arc::clone(&inbox));
            async move { while inbox.put(process.next_event().await) {} }
        });
        let Report { value, directory } = inbox.report().await?;
        let is_read_only = value == "0";
        Ok((
            Self { process, inbox, exported: BTreeMap::new(), directory, is_read_only, _reader: reader },
            call,
        ))
    }

    /// Begins a call, unless the shell has ended.
    pub(super) async fn begin_call(&self, options: &CallOptions) -> Result<ProcessCall, ShellEnd> {
        if let Some(end) = self.inbox.end() {
            return Err(end);
        }
        self.process.begin_call(options.clone()).await.map_err(ShellEnd::Failed)
    }

    /// Runs a command that sees these variables, and returns its exit code.
    pub(super) async fn run(
        &mut self,
        command: &str,
        environment: &BTreeMap<String, String>,
    ) -> Result<i32, ShellEnd> {
        let is_new = |(name, value): &(&String, &String)| self.exported.get(*name) != Some(*value);
        let exports: BTreeMap<String, String> =
            environment.iter().filter(is_new).map(|(name, value)| (name.clone(), value.clone())).collect();
        self.process.write(driver::encode(command, &exports)).await;
        self.exported.extend(exports);
        let Report { value, directory } = self.inbox.report().await?;
        self.directory = directory;
        value.parse().map_err(|_| ShellEnd::Broken)
    }
}

/// Whether an executor has no `bash`.
pub(super) fn is_missing(error: &SandboxError) -> bool {
    error.kind() == SandboxErrorKind::NotFound && error.to_string().contains("`bash`")
}
