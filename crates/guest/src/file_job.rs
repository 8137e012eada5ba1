//! File operations: the guest's side. A worker process does the work and may block, crash or be killed.
//!
//! State: the worker's reply, and content on its way. In a crash of the guest the worker sees its pipes end
//! and undoes what it did not finish.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::PollFlags;
use rustix::process::{Pid, WaitStatus};

use conjure_guest::protocol::{ErrorCode, GuestError, PAYLOAD_MAX, Request, StreamId};

use crate::feed::{Feed, FeedError, Framing};
use crate::files::{Roots, Work};
use crate::job::{
    Cut, Cx, Got, Interest, PATIENCE, Port, kill, next_patience, pipe_from_child, pipe_to_child, read,
    tell_to_end,
};
use crate::quota::Room;
use crate::{error, sys};

/// Where files are, and how much may be written there.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Places<'a> {
    pub(crate) roots: &'a Roots,
    pub(crate) room: Option<&'a Room<'a>>,
    /// The folder of the shelves, where there is one.
    pub(crate) shelves: Option<BorrowedFd<'a>>,
    pub(crate) null: BorrowedFd<'a>,
}

/// A file operation under way.
#[derive(Debug)]
pub(crate) struct FileJob {
    /// The worker, until it was reaped.
    worker: Option<Pid>,
    is_well: bool,
    /// Where the worker replies, until it did.
    reply_from: Option<OwnedFd>,
    reply: Vec<u8>,
    /// Content for the worker.
    feed: Option<Feed>,
    /// Content from the worker.
    content: Option<OwnedFd>,
    cut: Option<(Cut, Duration)>,
    is_change: bool,
    /// What is done and to what, for messages.
    name: String,
}

impl FileJob {
    /// Starts an operation, and returns with it the worker's process id.
    pub(crate) fn start(
        request: &Request,
        places: &Places<'_>,
        cx: &mut Cx<'_>,
    ) -> Result<(Self, Pid), GuestError> {
        let Places { roots, room, shelves, null } = *places;
        let (takes, gives, doing, path) = match request {
            Request::Write { path, .. } => (true, false, "writing", path),
            Request::Provide { name, .. } => match shelves {
                Some(_) => (true, false, "providing", name),
                None => {
                    return Err(error::error(ErrorCode::BadRequest, "this sandbox has no shelves to fill"));
                }
            },
            Request::Withdraw { name, .. } => match shelves {
                Some(_) => (false, false, "withdrawing", name),
                None => {
                    return Err(error::error(ErrorCode::BadRequest, "this sandbox has no shelves to fill"));
                }
            },
            Request::View { path, .. } => (false, true, "viewing", path),
            Request::Read { path, .. } => (false, true, "reading", path),
            Request::Replace { path, .. } => (false, false, "editing", path),
            Request::List { path, .. } | Request::Walk { path, .. } => (false, false, "listing", path),
            Request::Folder { path, .. } => (false, false, "making", path),
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
            room.map_or(null, |room| room.folder),
            shelves.unwrap_or(null),
        ];
        descriptors.extend(roots.descriptors());
        let guest = rustix::process::getpid();
        let work = Work { request, roots, room, guest };
        let worker = sys::fork(&descriptors, |owned| work.run(owned)).map_err(crate::job::exhausted)?;
        let job = Self {
            worker: Some(worker),
            is_well: false,
            reply_from: Some(reply_from),
            reply: Vec::new(),
            feed: input.map(|(_, to)| Feed::new(to, Framing::Pieces, cx.channel, cx.outbox)),
            content: output.map(|(from, _)| from),
            cut: None,
            is_change: matches!(
                request,
                Request::Write { .. } | Request::Replace { .. } | Request::Folder { .. }
            ),
            name: format!("{doing} `{path}`"),
        };
        Ok((job, worker))
    }

    /// What to poll for.
    pub(crate) fn interests<'a>(&'a self, room: usize, interests: &mut Vec<Interest<'a>>) {
        if let Some(pipe) = &self.reply_from {
            interests.push((Port::Report, pipe.as_fd(), PollFlags::IN));
        }
        if let Some(pipe) = self.feed.as_ref().and_then(Feed::wants_to_write) {
            interests.push((Port::Feed, pipe, PollFlags::OUT));
        }
        if let Some(pipe) = self.content.as_ref().filter(|_| room > 0) {
            interests.push((Port::Output(StreamId::Content), pipe.as_fd(), PollFlags::IN));
        }
    }

    /// A descriptor is ready.
    pub(crate) fn ready(&mut self, port: Port, cx: &mut Cx<'_>) {
        match port {
            Port::Report => self.read_reply(cx),
            Port::Feed => {
                if let Some(feed) = &mut self.feed {
                    feed.write(cx.channel, cx.outbox);
                }
            }
            Port::Output(_) => self.pass_content(cx),
        }
    }

    fn read_reply(&mut self, cx: &mut Cx<'_>) {
        while let Some(pipe) = &self.reply_from {
            match read(pipe, cx.scratch) {
                Got::Bytes(length) if self.reply.len() + length <= PAYLOAD_MAX => {
                    self.reply.extend_from_slice(cx.scratch.get(..length).unwrap_or_default());
                }
                Got::Nothing => break,
                Got::Bytes(_) | Got::End => self.reply_from = None,
            }
        }
    }

    fn pass_content(&mut self, cx: &mut Cx<'_>) {
        while let Some(pipe) = &self.content {
            let room = cx.room();
            let Some(buffer) = cx.scratch.get_mut(..room).filter(|buffer| !buffer.is_empty()) else { break };
            match read(pipe, buffer) {
                Got::Bytes(length) => {
                    *cx.credit = cx.credit.saturating_sub(length as u64);
                    cx.outbox.data(cx.channel, StreamId::Content, buffer.get(..length).unwrap_or_default());
                }
                Got::Nothing => break,
                Got::End => self.content = None,
            }
        }
    }

    /// New content of the file.
    pub(crate) fn data(&mut self, content: &[u8], cx: &mut Cx<'_>) -> Result<(), FeedError> {
        match &mut self.feed {
            Some(feed) => feed.push(content, cx.channel, cx.outbox),
            // After a cut the host may not know yet.
            None if content.is_empty() || self.cut.is_some() => Ok(()),
            None => Err(FeedError::BeyondCredit),
        }
    }

    /// The content is whole.
    pub(crate) fn end_of_data(&mut self, cx: &mut Cx<'_>) {
        if let Some(feed) = &mut self.feed {
            feed.end(cx.channel, cx.outbox);
        }
    }

    /// Ends the operation early.
    pub(crate) fn cut(&mut self, cut: Cut, now: Duration) {
        if self.cut.is_some() {
            return;
        }
        self.cut = Some((cut, now));
        // Content that ends without its mark is not kept by the worker.
        self.feed = None;
        self.content = None;
        if let Some(worker) = self.worker {
            tell_to_end(worker);
        }
    }

    /// Whether time still ends it.
    pub(crate) fn has_deadline(&self) -> bool {
        self.cut.is_none()
    }

    /// The worker was reaped.
    pub(crate) fn reaped(&mut self, status: WaitStatus, cx: &mut Cx<'_>) {
        self.worker = None;
        self.is_well = status.exit_status() == Some(0);
        self.read_reply(cx);
        self.reply_from = None;
    }

    /// When to look again, if nothing happens before.
    pub(crate) fn next_look(&self, now: Duration) -> Option<Duration> {
        self.cut.map(|(_, since)| next_patience(since, now))
    }

    /// Goes as far as it can. The payload of the last frame, when it is over.
    pub(crate) fn advance(&mut self, cx: &mut Cx<'_>) -> Option<Vec<u8>> {
        if let Some((cut, since)) = self.cut {
            if self.worker.is_some() && cx.now >= since + PATIENCE {
                self.worker.inspect(|worker| kill(*worker));
            }
            if self.worker.is_some() && cx.now < since + 2 * PATIENCE {
                return None;
            }
            // It may have been too late to undo it: a file that was replaced is reported as such.
            if self.is_well && self.is_finished_change() {
                return Some(std::mem::take(&mut self.reply));
            }
            let (code, how) = match cut {
                Cut::TimedOut => (ErrorCode::TimedOut, "took too long and was ended"),
                Cut::Cancelled | Cut::Lost | Cut::OverQuota(_) => (ErrorCode::Cancelled, "was cancelled"),
            };
            let outcome = match self.worker {
                None => "nothing was changed",
                Some(_) => "its disk does not answer, so whether anything was changed is not known",
            };
            return Some(error::encode(&Err(error::error(code, format!("{} {how}; {outcome}", self.name)))));
        }
        // The worker is gone, so what is in the pipe is all that will come: its end is seen without credit.
        if self.worker.is_none() && self.content.as_ref().is_some_and(is_drained) {
            self.content = None;
        }
        if self.content.is_some() || self.worker.is_some() || self.reply_from.is_some() {
            return None;
        }
        if self.is_well {
            return Some(std::mem::take(&mut self.reply));
        }
        let message = format!("{} failed: its process was killed", self.name);
        Some(error::encode(&Err(error::io(message))))
    }

    fn is_finished_change(&self) -> bool {
        [br#"{"Ok":{"write":"#.as_slice(), br#"{"Ok":{"folder":"#, br#"{"Ok":{"provide":"#]
            .iter()
            .any(|done| self.reply.starts_with(done))
    }

    /// Whether it changes a file, or tries to.
    pub(crate) const fn is_change(&self) -> bool {
        self.is_change
    }
}

/// Whether nothing is in the pipe. A pipe that cannot be asked counts as not empty: its end is read then.
fn is_drained(pipe: &OwnedFd) -> bool {
    rustix::io::ioctl_fionread(pipe).is_ok_and(|bytes| bytes == 0)
}
