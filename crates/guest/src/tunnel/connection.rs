//! One connection of a command, with both directions of its tunnel.
//!
//! State: the socket, and at most [`WINDOW`] bytes for the client, for which the host had credit. When the guest
//! crashes, the kernel closes the socket.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, ioctl_fionread, retry_on_intr};
use rustix::net::{Shutdown, shutdown, sockopt};

use conjure_guest::protocol::{DATA_MAX, StreamId, TUNNEL_WINDOW};

use crate::error::CreditError;
use crate::frame_queue::FrameQueue;

/// The maximum number of bytes that wait for the client.
const WINDOW: usize = TUNNEL_WINDOW as usize;

/// The capacity that the buffer keeps while it is empty.
const KEPT_CAPACITY: usize = 4 * 1024;

/// How often one connection is read before others get their turn.
const READS: usize = 2;

/// How long a client may take to close its side after the host cancelled an ended tunnel. The kernel has the
/// host's content long before, unless the client does not read.
const LINGER: Duration = Duration::from_secs(10);

/// The parts of the event loop that tunnels use.
#[derive(Debug)]
pub(crate) struct TunnelContext<'a> {
    pub(crate) now: Duration,
    pub(crate) frames: &'a mut FrameQueue,
    pub(crate) scratch: &'a mut [u8],
}

/// A connection and its channel.
#[derive(Debug)]
pub(super) struct Connection {
    socket: OwnedFd,
    channel: u32,
    to_host: ToHost,
    /// How many bytes the host accepts.
    credit: u64,
    to_client: ToClient,
    /// After the host cancelled the tunnel: until when the client may read the rest and close.
    close_deadline: Option<Duration>,
    /// Content that the client has not read.
    buffer: VecDeque<u8>,
    /// How many bytes the host may still send.
    granted: usize,
    idle: IdlePoll,
}

/// What to poll for while no bytes can move. An event that was seen but cannot be handled yet must not be polled
/// for, since the kernel would report it endlessly.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum IdlePoll {
    /// The client half-closes, closes, or dies.
    AnyEnd,
    /// The client closes or dies. It has half-closed, and its content waits for credit.
    FullClose,
    /// Nothing: the socket is closed in both directions, and the client's content waits for credit.
    Nothing,
}

/// The state of the direction from client to host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ToHost {
    /// Content is sent to the host.
    Passes,
    /// Content is dropped, because the host wants none.
    Discarded,
    /// The client sends no more.
    Ended,
}

/// The state of the direction from host to client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ToClient {
    /// The host may send more.
    Passes,
    /// The host sends no more, but content waits for the client.
    Ending,
    /// The client has received everything and the end.
    Ended,
}

/// The state of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ConnectionState {
    /// It continues.
    Open,
    /// Both directions have ended.
    Closed,
    /// It failed, or is to be reset: content in transit is lost, and the client sees a reset.
    Failed,
}

impl Connection {
    /// Creates a tunnel for an accepted connection, and announces it to the host.
    pub(super) fn new(socket: OwnedFd, channel: u32, frames: &mut FrameQueue) -> Self {
        frames.tunnel(channel, TUNNEL_WINDOW);
        Self {
            socket,
            channel,
            to_host: ToHost::Passes,
            credit: 0,
            to_client: ToClient::Passes,
            close_deadline: None,
            buffer: VecDeque::new(),
            granted: WINDOW,
            idle: IdlePoll::AnyEnd,
        }
    }

    /// Returns the socket and the events to poll for.
    pub(super) fn interest(&self, frames: &FrameQueue) -> Option<(BorrowedFd<'_>, PollFlags)> {
        let events = match (self.events(frames), self.idle) {
            (events, _) if !events.is_empty() => events,
            (_, IdlePoll::AnyEnd) if self.to_host == ToHost::Passes => PollFlags::RDHUP,
            (_, IdlePoll::AnyEnd | IdlePoll::FullClose) => PollFlags::empty(),
            (_, IdlePoll::Nothing) => return None,
        };
        Some((self.socket.as_fd(), events))
    }

    fn events(&self, frames: &FrameQueue) -> PollFlags {
        let mut events = PollFlags::empty();
        let reads = match self.to_host {
            ToHost::Passes => self.room(frames) > 0,
            ToHost::Discarded => true,
            ToHost::Ended => false,
        };
        events.set(PollFlags::IN, reads);
        events.set(PollFlags::OUT, !self.buffer.is_empty());
        events
    }

    fn room(&self, frames: &FrameQueue) -> usize {
        if frames.has_room_for_data() {
            usize::try_from(self.credit).unwrap_or(usize::MAX).min(DATA_MAX)
        } else {
            0
        }
    }

    /// Handles a socket that is ready or has ended.
    pub(super) fn ready(&mut self, cx: &mut TunnelContext<'_>) -> ConnectionState {
        let moved = if self.events(cx.frames).is_empty() {
            self.check_end(cx.frames)
        } else {
            self.idle = IdlePoll::AnyEnd;
            self.read(cx).and_then(|()| self.write(cx.frames))
        };
        self.state(moved)
    }

    /// Accepts content from the host.
    ///
    /// # Errors
    /// When the host exceeds its credit, or has ended the content.
    pub(super) fn data(
        &mut self,
        content: &[u8],
        frames: &mut FrameQueue,
    ) -> Result<ConnectionState, CreditError> {
        if self.to_client != ToClient::Passes {
            return Err(CreditError::AfterEnd);
        }
        self.granted = self.granted.checked_sub(content.len()).ok_or(CreditError::BeyondCredit)?;
        let mut rest = content;
        if self.buffer.is_empty() {
            match write(&self.socket, content) {
                Ok(written) => rest = content.get(written..).unwrap_or_default(),
                Err(_) => return Ok(ConnectionState::Failed),
            }
        }
        self.buffer.extend(rest);
        self.grant(frames);
        Ok(ConnectionState::Open)
    }

    /// Handles the end of the host's content.
    pub(super) fn end_of_data(&mut self, frames: &mut FrameQueue) -> ConnectionState {
        if self.to_client == ToClient::Passes {
            self.to_client = ToClient::Ending;
        }
        let moved = self.write(frames);
        self.state(moved)
    }

    /// Adds credit: the host accepts this many more bytes.
    pub(super) fn granted(&mut self, bytes: u32) {
        self.credit = self.credit.saturating_add(bytes.into());
    }

    /// Handles the host's cancellation of the tunnel.
    pub(super) fn cancel(&mut self, now: Duration) -> ConnectionState {
        if self.to_client == ToClient::Passes {
            return ConnectionState::Failed;
        }
        if self.to_host == ToHost::Passes {
            self.to_host = ToHost::Discarded;
        }
        self.close_deadline.get_or_insert(now + LINGER);
        ConnectionState::Open
    }

    /// Returns the deadline for the client's close.
    pub(super) fn due(&self) -> Option<Duration> {
        self.close_deadline
    }

    /// Returns the final state after the deadline.
    pub(super) fn late(&self) -> ConnectionState {
        match self.to_client {
            ToClient::Passes | ToClient::Ending => ConnectionState::Failed,
            ToClient::Ended => ConnectionState::Closed,
        }
    }

    /// Closes the socket with a reset.
    pub(super) fn reset(self) {
        // When this fails, the connection has failed already.
        let _ = sockopt::set_socket_linger(&self.socket, Some(Duration::ZERO));
    }

    /// Checks how the socket has ended while no bytes can move. An end needs no credit.
    fn check_end(&mut self, frames: &mut FrameQueue) -> Result<(), Errno> {
        let mut fds = [PollFd::new(&self.socket, PollFlags::RDHUP)];
        retry_on_intr(|| poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })))?;
        let ended: PollFlags = fds.iter().map(PollFd::revents).collect();
        if ended.contains(PollFlags::ERR) {
            return Err(Errno::CONNRESET);
        }
        let writes_no_more = ended.intersects(PollFlags::RDHUP | PollFlags::HUP);
        if writes_no_more && self.to_host == ToHost::Passes && ioctl_fionread(&self.socket)? == 0 {
            self.to_host = ToHost::Ended;
            frames.eof(self.channel);
        } else if ended.contains(PollFlags::HUP) {
            self.idle = IdlePoll::Nothing;
        } else if writes_no_more {
            self.idle = IdlePoll::FullClose;
        }
        Ok(())
    }

    fn state(&self, moved: Result<(), Errno>) -> ConnectionState {
        match (moved, self.to_host, self.to_client) {
            (Err(_), ..) => ConnectionState::Failed,
            (Ok(()), ToHost::Ended, ToClient::Ended) => ConnectionState::Closed,
            (Ok(()), ..) => ConnectionState::Open,
        }
    }

    fn read(&mut self, cx: &mut TunnelContext<'_>) -> Result<(), Errno> {
        for _ in 0..READS {
            let room = match self.to_host {
                ToHost::Passes => self.room(cx.frames),
                ToHost::Discarded => cx.scratch.len(),
                ToHost::Ended => 0,
            };
            let Some(buffer) = cx.scratch.get_mut(..room).filter(|buffer| !buffer.is_empty()) else { break };
            match rustix::io::read(&self.socket, &mut *buffer) {
                Ok(0) => {
                    if self.to_host == ToHost::Passes {
                        cx.frames.eof(self.channel);
                    }
                    self.to_host = ToHost::Ended;
                }
                Ok(length) if self.to_host == ToHost::Passes => {
                    self.credit = self.credit.saturating_sub(length as u64);
                    cx.frames.data(self.channel, StreamId::Content, buffer.get(..length).unwrap_or_default());
                }
                Ok(_) | Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => break,
                Err(errno) => return Err(errno),
            }
        }
        Ok(())
    }

    fn write(&mut self, frames: &mut FrameQueue) -> Result<(), Errno> {
        loop {
            let (next, _) = self.buffer.as_slices();
            if next.is_empty() {
                break;
            }
            match write(&self.socket, next)? {
                0 => break,
                written => drop(self.buffer.drain(..written)),
            }
        }
        if self.buffer.is_empty() {
            self.buffer.shrink_to(KEPT_CAPACITY);
            if self.to_client == ToClient::Ending {
                shutdown(&self.socket, Shutdown::Write)?;
                self.to_client = ToClient::Ended;
            }
        }
        self.grant(frames);
        Ok(())
    }

    fn grant(&mut self, frames: &mut FrameQueue) {
        let room = WINDOW.saturating_sub(self.granted + self.buffer.len());
        if self.to_client == ToClient::Passes && room >= WINDOW / 4 {
            self.granted += room;
            frames.credit(self.channel, u32::try_from(room).unwrap_or(u32::MAX));
        }
    }
}

/// Writes as much as the socket accepts, which may be nothing.
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
