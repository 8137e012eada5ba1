//! A file operation, on the guest's side. A worker process does the work; it may block, crash or be killed.
//!
//! State: the worker's reply, and content in transit. When the guest crashes, the worker sees the end of its pipes
//! and undoes unfinished work.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::PollFlags;
use rustix::process::{Pid, WaitStatus};

use conjure_guest::protocol::{ErrorCode, GuestError, PAYLOAD_MAX, Reply, Request, StreamId};

use crate::error::CreditError;
use crate::files::{FileRequest, Roots};
use crate::job::{
    AbortReason, JobContext, JobFd, KILL_RETRY_DELAY, PollInterest, ReadOutcome, kill, next_kill_delay,
    pipe_from_child, pipe_to_child, read, request_stop,
};
use crate::pipe_writer::{PipeFraming, PipeWriter};
use crate::quota::WriteBudget;
use crate::{error, sys};

/// What file operations need besides the request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FileJobEnv<'a> {
    pub(crate) roots: &'a Roots,
    pub(crate) write_budget: Option<&'a WriteBudget<'a>>,
    /// The directory that holds the content directories, if there is one.
    pub(crate) content_root: Option<BorrowedFd<'a>>,
    pub(crate) null: BorrowedFd<'a>,
}

/// A file operation in progress.
#[derive(Debug)]
pub(crate) struct FileJob {
    /// The worker, until it is reaped.
    worker: Option<Pid>,
    succeeded: bool,
    /// The pipe for the worker's reply, until the reply is complete.
    reply_from: Option<OwnedFd>,
    reply: Vec<u8>,
    /// Content for the worker.
    input: Option<PipeWriter>,
    /// Content from the worker.
    content: Option<OwnedFd>,
    aborted: Option<(AbortReason, Duration)>,
    is_change: bool,
    /// The operation and its path, for messages.
    name: String,
}

impl FileJob {
    /// Starts an operation. Also returns the worker's process id.
    pub(crate) fn start(
        request: &Request,
        env: &FileJobEnv<'_>,
        cx: &mut JobContext<'_>,
    ) -> Result<(Self, Pid), GuestError> {
        let FileJobEnv { roots, write_budget, content_root, null } = *env;
        let (takes, gives, doing, path) = match request {
            Request::Write { path, .. } => (true, false, "writing", path),
            Request::Install { name, .. } => match content_root {
                Some(_) => (true, false, "installing", name),
                None => {
                    return Err(error::error(
                        ErrorCode::BadRequest,
                        "this sandbox accepts no content through its guest",
                    ));
                }
            },
            Request::Remove { name, .. } => match content_root {
                Some(_) => (false, false, "removing", name),
                None => {
                    return Err(error::error(
                        ErrorCode::BadRequest,
                        "this sandbox accepts no content through its guest",
                    ));
                }
            },
            Request::View { path, .. } => (false, true, "viewing", path),
            Request::Read { path, .. } => (false, true, "reading", path),
            Request::Replace { path, .. } => (false, false, "editing", path),
            Request::List { path, .. } | Request::Walk { path, .. } => (false, false, "listing", path),
            Request::MakeDir { path, .. } => (false, false, "making", path),
            Request::Exec(_) | Request::Pause | Request::Resume => {
                return Err(error::error(ErrorCode::BadRequest, "not a file operation"));
            }
        };
        let (reply_from, reply_to) = pipe_from_child()?;
        let input = if takes { Some(pipe_to_child()?) } else { None };
        let output = if gives { Some(pipe_from_child()?) } else { None };
        let mut descriptors = vec![
            input.as_ref().map_or(null, |(from, _)| from.as_fd()),
            output.as_ref().map_or(null, |(_, to)| to.as_fd()),
            rustix::stdio::stderr(),
            reply_to.as_fd(),
            write_budget.map_or(null, |write_budget| write_budget.dir),
            content_root.unwrap_or(null),
        ];
        descriptors.extend(roots.descriptors());
        let guest = rustix::process::getpid();
        let work = FileRequest { request, roots, write_budget, guest };
        let worker = sys::fork(&descriptors, |owned| work.run(owned)).map_err(crate::job::exhausted)?;
        let job = Self {
            worker: Some(worker),
            succeeded: false,
            reply_from: Some(reply_from),
            reply: Vec::new(),
            input: input.map(|(_, to)| PipeWriter::new(to, PipeFraming::Chunked, cx.channel, cx.frames)),
            content: output.map(|(from, _)| from),
            aborted: None,
            is_change: matches!(
                request,
                Request::Write { .. } | Request::Replace { .. } | Request::MakeDir { .. }
            ),
            name: format!("{doing} `{path}`"),
        };
        Ok((job, worker))
    }

    /// Adds the descriptors to poll.
    pub(crate) fn interests<'a>(&'a self, room: usize, interests: &mut Vec<PollInterest<'a>>) {
        if let Some(pipe) = &self.reply_from {
            interests.push((JobFd::Report, pipe.as_fd(), PollFlags::IN));
        }
        if let Some(pipe) = self.input.as_ref().and_then(PipeWriter::wants_to_write) {
            interests.push((JobFd::Input, pipe, PollFlags::OUT));
        }
        if let Some(pipe) = self.content.as_ref().filter(|_| room > 0) {
            interests.push((JobFd::Output(StreamId::Content), pipe.as_fd(), PollFlags::IN));
        }
    }

    /// Handles a descriptor that is ready.
    pub(crate) fn ready(&mut self, port: JobFd, cx: &mut JobContext<'_>) {
        match port {
            JobFd::Report => self.read_reply(cx),
            JobFd::Input => {
                if let Some(input) = &mut self.input {
                    input.write(cx.channel, cx.frames);
                }
            }
            JobFd::Output(_) => self.pass_content(cx),
        }
    }

    fn read_reply(&mut self, cx: &mut JobContext<'_>) {
        while let Some(pipe) = &self.reply_from {
            match read(pipe, cx.scratch) {
                ReadOutcome::Bytes(length) if self.reply.len() + length <= PAYLOAD_MAX => {
                    self.reply.extend_from_slice(cx.scratch.get(..length).unwrap_or_default());
                }
                ReadOutcome::Nothing => break,
                ReadOutcome::Bytes(_) | ReadOutcome::End => self.reply_from = None,
            }
        }
    }

    fn pass_content(&mut self, cx: &mut JobContext<'_>) {
        while let Some(pipe) = &self.content {
            let room = cx.room();
            let Some(buffer) = cx.scratch.get_mut(..room).filter(|buffer| !buffer.is_empty()) else {
                break;
            };
            match read(pipe, buffer) {
                ReadOutcome::Bytes(length) => {
                    *cx.credit = cx.credit.saturating_sub(length as u64);
                    cx.frames.data(cx.channel, StreamId::Content, buffer.get(..length).unwrap_or_default());
                }
                ReadOutcome::Nothing => break,
                ReadOutcome::End => self.content = None,
            }
        }
    }

    /// Accepts new content of the file.
    pub(crate) fn data(&mut self, content: &[u8], cx: &mut JobContext<'_>) -> Result<(), CreditError> {
        match &mut self.input {
            Some(input) => input.push(content, cx.channel, cx.frames),
            // The host may not know about the abort yet.
            None if content.is_empty() || self.aborted.is_some() => Ok(()),
            None => Err(CreditError::BeyondCredit),
        }
    }

    /// Marks the end of the content.
    pub(crate) fn end_of_data(&mut self, cx: &mut JobContext<'_>) {
        if let Some(input) = &mut self.input {
            input.end(cx.channel, cx.frames);
        }
    }

    /// Ends the operation early.
    pub(crate) fn abort(&mut self, reason: AbortReason, now: Duration) {
        if self.aborted.is_some() {
            return;
        }
        self.aborted = Some((reason, now));
        // The worker drops content that ends without its end mark.
        self.input = None;
        self.content = None;
        if let Some(worker) = self.worker {
            request_stop(worker);
        }
    }

    /// Whether its timeout still applies.
    pub(crate) fn has_deadline(&self) -> bool {
        self.aborted.is_none()
    }

    /// Records that the worker was reaped.
    pub(crate) fn reaped(&mut self, status: WaitStatus, cx: &mut JobContext<'_>) {
        self.worker = None;
        self.succeeded = status.exit_status() == Some(0);
        self.read_reply(cx);
        self.reply_from = None;
    }

    /// When to call [`FileJob::advance`] again if nothing else happens.
    pub(crate) fn next_wakeup(&self, now: Duration) -> Option<Duration> {
        self.aborted.map(|(_, since)| next_kill_delay(since, now))
    }

    /// Continues as far as possible. Returns the payload of the last frame once the operation has ended.
    pub(crate) fn advance(&mut self, cx: &mut JobContext<'_>) -> Option<Vec<u8>> {
        if let Some((reason, since)) = self.aborted {
            if self.worker.is_some() && cx.now >= since + KILL_RETRY_DELAY {
                self.worker.inspect(|worker| kill(*worker));
            }
            if self.worker.is_some() && cx.now < since + 2 * KILL_RETRY_DELAY {
                return None;
            }
            // The worker may already have replaced the file. Then the operation reports success.
            if self.succeeded && is_finished_change(&self.reply) {
                return Some(std::mem::take(&mut self.reply));
            }
            let (code, how) = match reason {
                AbortReason::TimedOut => (ErrorCode::TimedOut, "took too long and was ended"),
                AbortReason::Cancelled | AbortReason::Lost | AbortReason::OverQuota(_) => {
                    (ErrorCode::Cancelled, "was cancelled")
                }
            };
            let outcome = match self.worker {
                None => "nothing was changed",
                Some(_) => "its disk does not answer, so whether anything was changed is not known",
            };
            return Some(error::encode(&Err(error::error(code, format!("{} {how}; {outcome}", self.name)))));
        }
        // The worker has exited, so the pipe gets no more bytes. Its end is detected without credit.
        if self.worker.is_none() && self.content.as_ref().is_some_and(is_drained) {
            self.content = None;
        }
        if self.content.is_some() || self.worker.is_some() || self.reply_from.is_some() {
            return None;
        }
        if self.succeeded {
            return Some(std::mem::take(&mut self.reply));
        }
        let message = format!("{} failed: its process was killed", self.name);
        Some(error::encode(&Err(error::io(message))))
    }

    /// Whether the operation changes a file.
    pub(crate) const fn is_change(&self) -> bool {
        self.is_change
    }
}

/// Whether a reply says that a file or directory was changed.
fn is_finished_change(reply: &[u8]) -> bool {
    let reply = serde_json::from_slice::<Result<Reply, GuestError>>(reply);
    matches!(
        reply,
        Ok(Ok(Reply::Write { .. } | Reply::MakeDir { .. } | Reply::Install { .. } | Reply::Remove { .. }))
    )
}

/// Whether the pipe is empty. A pipe whose state is unknown counts as not empty, and a later read finds its end.
fn is_drained(pipe: &OwnedFd) -> bool {
    rustix::io::ioctl_fionread(pipe).is_ok_and(|bytes| bytes == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finished_changes_are_known_by_their_replies() {
        for (reply, expected) in [
            (Reply::Write { size: 1, existed: false, dirs: 0 }, true),
            (Reply::MakeDir { created: 1 }, true),
            (Reply::Install { files: 1, bytes: 1 }, true),
            (Reply::Remove { existed: true }, true),
            (Reply::Read { size: 1 }, false),
        ] {
            assert_eq!(is_finished_change(&error::encode(&Ok(reply.clone()))), expected, "{reply:?}");
        }
        assert!(!is_finished_change(&error::encode(&Err(error::io("no")))));
        assert!(!is_finished_change(b"{"));
    }
}
