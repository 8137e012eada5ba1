//! All tunnels of the sandbox, and the port that commands connect to.
//!
//! State: the listening socket and the connections. An error of a connection ends only that connection. Only a
//! host that breaks the protocol is an error of the guest.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, accept_with, bind, listen, socket_with, sockopt};

use conjure_guest::protocol::{FIRST_TUNNEL, Frame, FrameKind, ProxySpec, TUNNELS_MAX};

use super::connection::{Connection, ConnectionState, TunnelContext};
use crate::error::FatalError;
use crate::frame_queue::FrameQueue;

/// The backlog of connections while the maximum number is open. The kernel may allow fewer.
const BACKLOG: i32 = 4096;

/// The maximum number of connections to accept in one iteration of the event loop.
const ACCEPTS_PER_ITERATION: usize = 32;

/// How long the guest accepts no connection after the system was out of descriptors or memory.
const PAUSE: Duration = Duration::from_millis(100);

/// A descriptor of the tunnels in the poll set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TunnelFd {
    /// The listening socket.
    Listener,
    /// The connection of this channel.
    Connection(u32),
}

/// The tunnels of a sandbox. The default has no port, and so no tunnels.
#[derive(Debug, Default)]
pub(crate) struct Tunnels {
    listener: Option<OwnedFd>,
    /// How many tunnels were ever opened. Their numbers count up.
    opened: u32,
    /// No connection is accepted before this time.
    no_accept_until: Option<Duration>,
    connections: BTreeMap<u32, Connection>,
}

impl Tunnels {
    /// Opens the port. No command can use it afterwards.
    pub(crate) fn listen(spec: ProxySpec) -> Result<Self, Errno> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)?;
        // A restarted guest must not wait for connections of the previous one.
        sockopt::set_socket_reuseaddr(&socket, true)?;
        // Connections inherit this option. The host's content arrives in chunks that are worth sending at once.
        sockopt::set_tcp_nodelay(&socket, true)?;
        bind(&socket, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, spec.port))?;
        listen(&socket, BACKLOG)?;
        Ok(Self { listener: Some(socket), ..Self::default() })
    }

    /// Returns the port.
    #[cfg(test)]
    pub(super) fn port(&self) -> u16 {
        let socket = self.listener.as_ref().expect("it listens");
        let address = rustix::net::getsockname(socket).expect("it is bound");
        SocketAddrV4::try_from(address).expect("it is of IPv4").port()
    }

    /// Adds the descriptors to poll.
    pub(crate) fn interests<'a>(
        &'a self,
        frames: &FrameQueue,
        mut add: impl FnMut(TunnelFd, BorrowedFd<'a>, PollFlags),
    ) {
        // Frames of new tunnels are queued like content, so a flood of connections uses no memory.
        let accepts = self.connections.len() < TUNNELS_MAX
            && self.no_accept_until.is_none()
            && frames.has_room_for_data();
        if let Some(listener) = self.listener.as_ref().filter(|_| accepts) {
            add(TunnelFd::Listener, listener.as_fd(), PollFlags::IN);
        }
        for (&number, connection) in &self.connections {
            if let Some((fd, events)) = connection.interest(frames) {
                add(TunnelFd::Connection(number), fd, events);
            }
        }
    }

    /// When to call [`Tunnels::close_overdue`] again if nothing else happens.
    pub(crate) fn next_wakeup(&self) -> Option<Duration> {
        self.connections.values().filter_map(Connection::due).chain(self.no_accept_until).min()
    }

    /// Closes connections whose deadline has passed.
    pub(crate) fn close_overdue(&mut self, cx: &mut TunnelContext<'_>) {
        self.no_accept_until = self.no_accept_until.filter(|until| *until > cx.now);
        let late: Vec<(u32, ConnectionState)> = self
            .connections
            .iter()
            .filter(|(_, connection)| connection.due().is_some_and(|due| due <= cx.now))
            .map(|(number, connection)| (*number, connection.late()))
            .collect();
        for (number, standing) in late {
            self.finish(number, standing, cx.frames);
        }
    }

    /// Handles a socket that is ready.
    pub(crate) fn ready(&mut self, port: TunnelFd, cx: &mut TunnelContext<'_>) {
        match port {
            TunnelFd::Listener => self.accept(cx),
            TunnelFd::Connection(number) => {
                if let Some(connection) = self.connections.get_mut(&number) {
                    let standing = connection.ready(cx);
                    self.finish(number, standing, cx.frames);
                }
            }
        }
    }

    /// Handles a frame of the host for a tunnel.
    ///
    /// # Errors
    /// When the host breaks the protocol. Frames for a tunnel that has ended are no error, because the host may
    /// not know yet.
    pub(crate) fn frame(&mut self, frame: &Frame, cx: &mut TunnelContext<'_>) -> Result<(), FatalError> {
        let number = frame.channel;
        let kind = frame.kind;
        if number.checked_sub(FIRST_TUNNEL).is_none_or(|index| index >= self.opened) {
            return Err(FatalError::Protocol(format!(
                "a {kind:?} frame on tunnel {number}, which was never opened"
            )));
        }
        let Some(connection) = self.connections.get_mut(&number) else { return Ok(()) };
        let standing = match kind {
            FrameKind::Data => {
                let (_, content) = frame.data()?;
                let taken = connection.data(content, cx.frames);
                taken.map_err(|error| FatalError::Data { channel: number, error })?
            }
            FrameKind::Eof => connection.end_of_data(cx.frames),
            FrameKind::Credit => {
                connection.granted(frame.credit()?);
                ConnectionState::Open
            }
            FrameKind::Cancel => connection.cancel(cx.now),
            _ => return Err(FatalError::Protocol(format!("a {kind:?} frame on tunnel {number}"))),
        };
        self.finish(number, standing, cx.frames);
        Ok(())
    }

    fn finish(&mut self, number: u32, standing: ConnectionState, frames: &mut FrameQueue) {
        if standing == ConnectionState::Open {
            return;
        }
        if let Some(connection) = self.connections.remove(&number) {
            frames.done(number, &[]);
            if standing == ConnectionState::Failed {
                connection.reset();
            }
        }
    }

    fn accept(&mut self, cx: &mut TunnelContext<'_>) {
        for _ in 0..ACCEPTS_PER_ITERATION {
            let Some(listener) = self.listener.as_ref().filter(|_| self.connections.len() < TUNNELS_MAX)
            else {
                return;
            };
            let Some(number) = FIRST_TUNNEL.checked_add(self.opened) else {
                // The numbers are used up, after about two thousand million connections.
                self.listener = None;
                return;
            };
            match accept_with(listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
                Ok(socket) => {
                    self.opened += 1;
                    self.connections.insert(number, Connection::new(socket, number, cx.frames));
                }
                Err(Errno::AGAIN) => return,
                // The connection ended before it was accepted.
                Err(Errno::INTR | Errno::CONNABORTED) => {}
                // The system is out of descriptors or memory.
                Err(_) => {
                    self.no_accept_until = Some(cx.now + PAUSE);
                    return;
                }
            }
        }
    }
}
