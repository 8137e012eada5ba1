//! One connection of a command, and the two directions of its tunnel.
//!
//! State: at most [`WINDOW`] bytes on their way to the client, for which credit was granted, and the socket. In a
//! crash the kernel closes the socket, and the client sees its connection end.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, ioctl_fionread, retry_on_intr};
use rustix::net::{Shutdown, shutdown, sockopt};

use conjure_guest::protocol::{DATA_MAX, StreamId, TUNNEL_WINDOW};

use super::Cx;
use crate::feed::FeedError;
use crate::outbox::Outbox;

/// The most content that waits for the client to take it.
const WINDOW: usize = TUNNEL_WINDOW as usize;

/// What stays allocated for it while none waits.
const SPARE: usize = 4 * 1024;

/// How often one connection is read before others have their turn.
const READS: usize = 2;

/// How long a client may take to close its side once the host has let go of an ended tunnel. What the host sent is
/// with the kernel long before, unless the client does not read at all.
const LINGER: Duration = Duration::from_secs(10);

/// A connection and its channel.
#[derive(Debug)]
pub(super) struct Connection {
    socket: OwnedFd,
    channel: u32,
    to_host: ToHost,
    /// What the host has room for.
    credit: u64,
    to_client: ToClient,
    /// The host has let go of the tunnel: until when the client may take what is left and close.
    until: Option<Duration>,
    /// Content that the client has not taken.
    waiting: VecDeque<u8>,
    /// What the host may still send.
    granted: usize,
    idle: Idle,
}

/// What is polled for while no bytes may move. What was seen and cannot be acted on yet must not be polled for: the
/// kernel would report it without end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Idle {
    /// That the client writes no more, closes, or dies.
    Ends,
    /// That it closes or dies: it writes no more, and what it wrote waits for credit.
    Breaks,
    /// Nothing: the socket is shut both ways, and what the client wrote waits for credit.
    Nothing,
}

/// What becomes of what the client writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ToHost {
    /// It goes to the host.
    Passes,
    /// The host wants none.
    Unwanted,
    /// The client writes no more.
    Ended,
}

/// How far the host is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ToClient {
    /// More may come.
    Passes,
    /// No more comes, but some waits.
    Ending,
    /// The client has it all and knows that no more comes.
    Ended,
}

/// What happened to a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Standing {
    /// It goes on.
    Open,
    /// Both sides have ended.
    Over,
    /// It broke, or is to: what is on its way is lost, and the client is told by a reset.
    Broken,
}

impl Connection {
    /// A connection that was accepted; tells the host.
    pub(super) fn new(socket: OwnedFd, channel: u32, outbox: &mut Outbox) -> Self {
        outbox.tunnel(channel, TUNNEL_WINDOW);
        Self {
            socket,
            channel,
            to_host: ToHost::Passes,
            credit: 0,
            to_client: ToClient::Passes,
            until: None,
            waiting: VecDeque::new(),
            granted: WINDOW,
            idle: Idle::Ends,
        }
    }

    /// What to poll for.
    pub(super) fn interest(&self, outbox: &Outbox) -> Option<(BorrowedFd<'_>, PollFlags)> {
        let events = match (self.events(outbox), self.idle) {
            (events, _) if !events.is_empty() => events,
            (_, Idle::Ends) if self.to_host == ToHost::Passes => PollFlags::RDHUP,
            (_, Idle::Ends | Idle::Breaks) => PollFlags::empty(),
            (_, Idle::Nothing) => return None,
        };
        Some((self.socket.as_fd(), events))
    }

    fn events(&self, outbox: &Outbox) -> PollFlags {
        let mut events = PollFlags::empty();
        let reads = match self.to_host {
            ToHost::Passes => self.room(outbox) > 0,
            ToHost::Unwanted => true,
            ToHost::Ended => false,
        };
        events.set(PollFlags::IN, reads);
        events.set(PollFlags::OUT, !self.waiting.is_empty());
        events
    }

    fn room(&self, outbox: &Outbox) -> usize {
        if outbox.takes_content() {
            usize::try_from(self.credit).unwrap_or(usize::MAX).min(DATA_MAX)
        } else {
            0
        }
    }

    /// The socket is ready, or ended.
    pub(super) fn ready(&mut self, cx: &mut Cx<'_>) -> Standing {
        let moved = if self.events(cx.outbox).is_empty() {
            self.look_at_end(cx.outbox)
        } else {
            self.idle = Idle::Ends;
            self.read(cx).and_then(|()| self.write(cx.outbox))
        };
        self.standing(moved)
    }

    /// Content from the host.
    ///
    /// # Errors
    /// When the host may not send it.
    pub(super) fn data(&mut self, content: &[u8], outbox: &mut Outbox) -> Result<Standing, FeedError> {
        if self.to_client != ToClient::Passes {
            return Err(FeedError::AfterEnd);
        }
        self.granted = self.granted.checked_sub(content.len()).ok_or(FeedError::BeyondCredit)?;
        let mut rest = content;
        if self.waiting.is_empty() {
            match write(&self.socket, content) {
                Ok(written) => rest = content.get(written..).unwrap_or_default(),
                Err(_) => return Ok(Standing::Broken),
            }
        }
        self.waiting.extend(rest);
        self.grant(outbox);
        Ok(Standing::Open)
    }

    /// The host sends no more.
    pub(super) fn end_of_data(&mut self, outbox: &mut Outbox) -> Standing {
        if self.to_client == ToClient::Passes {
            self.to_client = ToClient::Ending;
        }
        let moved = self.write(outbox);
        self.standing(moved)
    }

    /// The host has room for so many more bytes.
    pub(super) fn granted(&mut self, bytes: u32) {
        self.credit = self.credit.saturating_add(bytes.into());
    }

    /// The host lets go of the tunnel.
    pub(super) fn cancel(&mut self, now: Duration) -> Standing {
        if self.to_client == ToClient::Passes {
            return Standing::Broken;
        }
        if self.to_host == ToHost::Passes {
            self.to_host = ToHost::Unwanted;
        }
        self.until.get_or_insert(now + LINGER);
        Standing::Open
    }

    /// Until when the client's end is waited for.
    pub(super) fn due(&self) -> Option<Duration> {
        self.until
    }

    /// What to do about a client whose time is up.
    pub(super) fn late(&self) -> Standing {
        match self.to_client {
            ToClient::Passes | ToClient::Ending => Standing::Broken,
            ToClient::Ended => Standing::Over,
        }
    }

    /// Closes the socket so that the client sees a reset.
    pub(super) fn reset(self) {
        // Where this fails the socket is broken already.
        let _ = sockopt::set_socket_linger(&self.socket, Some(Duration::ZERO));
    }

    /// How the socket has ended, as far as it has, when no bytes may move: an end needs no credit.
    fn look_at_end(&mut self, outbox: &mut Outbox) -> Result<(), Errno> {
        let mut fds = [PollFd::new(&self.socket, PollFlags::RDHUP)];
        retry_on_intr(|| poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })))?;
        let ended: PollFlags = fds.iter().map(PollFd::revents).collect();
        if ended.contains(PollFlags::ERR) {
            return Err(Errno::CONNRESET);
        }
        let writes_no_more = ended.intersects(PollFlags::RDHUP | PollFlags::HUP);
        if writes_no_more && self.to_host == ToHost::Passes && ioctl_fionread(&self.socket)? == 0 {
            self.to_host = ToHost::Ended;
            outbox.eof(self.channel);
        } else if ended.contains(PollFlags::HUP) {
            self.idle = Idle::Nothing;
        } else if writes_no_more {
            self.idle = Idle::Breaks;
        }
        Ok(())
    }

    fn standing(&self, moved: Result<(), Errno>) -> Standing {
        match (moved, self.to_host, self.to_client) {
            (Err(_), ..) => Standing::Broken,
            (Ok(()), ToHost::Ended, ToClient::Ended) => Standing::Over,
            (Ok(()), ..) => Standing::Open,
        }
    }

    fn read(&mut self, cx: &mut Cx<'_>) -> Result<(), Errno> {
        for _ in 0..READS {
            let room = match self.to_host {
                ToHost::Passes => self.room(cx.outbox),
                ToHost::Unwanted => cx.scratch.len(),
                ToHost::Ended => 0,
            };
            let Some(buffer) = cx.scratch.get_mut(..room).filter(|buffer| !buffer.is_empty()) else { break };
            match rustix::io::read(&self.socket, &mut *buffer) {
                Ok(0) => {
                    if self.to_host == ToHost::Passes {
                        cx.outbox.eof(self.channel);
                    }
                    self.to_host = ToHost::Ended;
                }
                Ok(length) if self.to_host == ToHost::Passes => {
                    self.credit = self.credit.saturating_sub(length as u64);
                    cx.outbox.data(self.channel, StreamId::Content, buffer.get(..length).unwrap_or_default());
                }
                Ok(_) | Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => break,
                Err(errno) => return Err(errno),
            }
        }
        Ok(())
    }

    fn write(&mut self, outbox: &mut Outbox) -> Result<(), Errno> {
        loop {
            let (next, _) = self.waiting.as_slices();
            if next.is_empty() {
                break;
            }
            match write(&self.socket, next)? {
                0 => break,
                written => drop(self.waiting.drain(..written)),
            }
        }
        if self.waiting.is_empty() {
            self.waiting.shrink_to(SPARE);
            if self.to_client == ToClient::Ending {
                shutdown(&self.socket, Shutdown::Write)?;
                self.to_client = ToClient::Ended;
            }
        }
        self.grant(outbox);
        Ok(())
    }

    fn grant(&mut self, outbox: &mut Outbox) {
        let room = WINDOW.saturating_sub(self.granted + self.waiting.len());
        if self.to_client == ToClient::Passes && room >= WINDOW / 4 {
            self.granted += room;
            outbox.credit(self.channel, u32::try_from(room).unwrap_or(u32::MAX));
        }
    }
}

/// Writes what the socket takes now, which may be nothing.
fn write(socket: &OwnedFd, bytes: &[u8]) -> Result<usize, Errno> {
    let mut written = 0;
    while let Some(rest) = bytes.get(written..).filter(|rest| !rest.is_empty()) {
        match rustix::io::write(socket, rest) {
            Ok(length) => written += length,
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => break,
            Err(errno) => return Err(errno),
        }
    }
    Ok(written)
}
