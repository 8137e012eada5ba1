//! The events of a shell that no call has taken yet: a bounded part of its output, its reports, and its end.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard};

use conjure_base::lock;
use conjure_sandbox::{CommandEnd, CommandOutput, RunEvent, SandboxError};
use tokio::sync::Notify;

use super::driver::{Report, ReportReader};

/// The head and the tail of an output, and its total length.
#[derive(Debug, Default)]
pub(super) struct BoundedOutput {
    head: Vec<u8>,
    tail: VecDeque<u8>,
    total: u64,
    /// The maximum number of bytes of the head, and of the tail.
    keep: usize,
}

impl BoundedOutput {
    pub(super) fn new(keep: usize) -> Self {
        Self { keep, ..Self::default() }
    }

    fn push(&mut self, bytes: &[u8]) {
        self.total += bytes.len() as u64;
        let room = self.keep - self.head.len();
        let (head, rest) = bytes.split_at(room.min(bytes.len()));
        self.head.extend_from_slice(head);
        let rest = rest.get(rest.len().saturating_sub(self.keep)..).unwrap_or_default();
        let surplus = (self.tail.len() + rest.len()).saturating_sub(self.keep);
        self.tail.drain(..surplus);
        self.tail.extend(rest);
    }
}

impl From<BoundedOutput> for CommandOutput {
    fn from(output: BoundedOutput) -> Self {
        let BoundedOutput { head, tail, total, .. } = output;
        Self { head, tail: tail.into(), total, spill_path: None, spilled: 0 }
    }
}

/// How a shell ended.
#[derive(Debug, Clone)]
pub(super) enum ShellEnd {
    /// Its process ended, perhaps because of a command such as `exit`.
    Exited(CommandEnd),
    /// The sandbox failed, or the shell could not be started.
    Failed(SandboxError),
    /// A command wrote to the descriptor of the reports.
    Broken,
}

#[derive(Debug)]
struct InboxState {
    output: BoundedOutput,
    reports: ReportReader,
    end: Option<ShellEnd>,
}

/// The events of a shell that no call has taken yet. One task adds them, also between calls. So a background job that writes is
/// never blocked.
#[derive(Debug)]
pub(super) struct ShellInbox {
    state: Mutex<InboxState>,
    changed: Notify,
    keep: usize,
}

impl ShellInbox {
    /// Creates an inbox that keeps this many bytes of the head and of the tail of each command's output.
    pub(super) fn new(keep: usize) -> Self {
        let state =
            InboxState { output: BoundedOutput::new(keep), reports: ReportReader::default(), end: None };
        Self { state: Mutex::new(state), changed: Notify::new(), keep }
    }

    fn state(&self) -> MutexGuard<'_, InboxState> {
        lock(&self.state)
    }

    /// Adds an event of the process. Returns whether more events may follow.
    pub(super) fn put(&self, event: Result<RunEvent, SandboxError>) -> bool {
        let mut state = self.state();
        match event {
            Ok(RunEvent::Stdout(bytes)) => {
                state.output.push(&bytes);
                // No call waits for output alone.
                return true;
            }
            Ok(RunEvent::Stderr(bytes)) => {
                if state.reports.push(&bytes).is_err() {
                    state.end = Some(ShellEnd::Broken);
                }
            }
            Ok(RunEvent::Ended(outcome)) => state.end = Some(ShellEnd::Exited(outcome.end)),
            Err(error) => state.end = Some(ShellEnd::Failed(error)),
        }
        self.changed.notify_one();
        state.end.is_none()
    }

    /// Takes the output that has arrived since the last call of this function.
    pub(super) fn take_output(&self) -> CommandOutput {
        std::mem::replace(&mut self.state().output, BoundedOutput::new(self.keep)).into()
    }

    /// How the shell ended; `None` while it runs.
    pub(super) fn end(&self) -> Option<ShellEnd> {
        self.state().end.clone()
    }

    /// Waits for the next report. Returns how the shell ended if it ended before. Only one call may wait at a time. The future may
    /// be dropped.
    pub(super) async fn report(&self) -> Result<Report, ShellEnd> {
        loop {
            {
                let mut state = self.state();
                if let Some(report) = state.reports.take() {
                    return Ok(report);
                }
                if let Some(end) = &state.end {
                    return Err(end.clone());
                }
            }
            self.changed.notified().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn head_and_tail_are_those_of_the_output(
            pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..20),
            keep in 0_usize..50,
        ) {
            let mut output = BoundedOutput::new(keep);
            pieces.iter().for_each(|piece| output.push(piece));
            let all = pieces.concat();
            let output = CommandOutput::from(output);
            let head = all.len().min(keep);
            let tail = (all.len() - head).min(keep);
            prop_assert_eq!(output.head.as_slice(), &all[..head]);
            prop_assert_eq!(output.tail.as_slice(), &all[all.len() - tail..]);
            prop_assert_eq!(output.total, all.len() as u64);
        }
    }
}
