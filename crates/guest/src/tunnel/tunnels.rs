//! All tunnels of the sandbox, and the port where commands connect.
//!
//! State: the listening socket and the connections. A connection that cannot go on costs nothing but itself; only a
//! host that breaks the protocol is an error.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, accept_with, bind, listen, socket_with, sockopt};

use conjure_guest::protocol::{FIRST_TUNNEL, Frame, FrameKind, ProxySpec, TUNNELS_MAX};

use super::Cx;
use super::connection::{Connection, Standing};
use crate::guest::Fatal;
use crate::outbox::Outbox;

/// Connections that wait to be accepted, while the most that may be are open; the kernel may allow fewer.
const BACKLOG: i32 = 4096;

/// The most connections that are accepted in one turn of the loop.
const ACCEPTS: usize = 32;

/// How long none is accepted after the system had no more of what it takes.
const PAUSE: Duration = Duration::from_millis(100);

/// What in the poll set belongs to tunnels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Port {
    /// Somebody connects.
    Listener,
    /// The connection of this channel.
    Connection(u32),
}

/// The tunnels of a sandbox. By default there is no port, and so there are none.
#[derive(Debug, Default)]
pub(crate) struct Tunnels {
    listener: Option<OwnedFd>,
    /// How many were ever opened: their numbers count up.
    opened: u32,
    /// No connection is accepted until then.
    rests_until: Option<Duration>,
    connections: BTreeMap<u32, Connection>,
}

impl Tunnels {
    /// Opens the port. From here on no command can have it.
    pub(crate) fn listen(spec: ProxySpec) -> Result<Self, Errno> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)?;
        // A guest that was started again must not wait for the connections of the one before.
        sockopt::set_socket_reuseaddr(&socket, true)?;
        // Connections inherit it. What the host sends comes in pieces that are ready to be read.
        sockopt::set_tcp_nodelay(&socket, true)?;
        bind(&socket, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, spec.port))?;
        listen(&socket, BACKLOG)?;
        Ok(Self { listener: Some(socket), ..Self::default() })
    }

    /// The port.
    #[cfg(test)]
    pub(super) fn port(&self) -> u16 {
        let socket = self.listener.as_ref().expect("it listens");
        let address = rustix::net::getsockname(socket).expect("it is bound");
        SocketAddrV4::try_from(address).expect("it is of IPv4").port()
    }

    /// What to poll for.
    pub(crate) fn interests<'a>(
        &'a self,
        outbox: &Outbox,
        mut add: impl FnMut(Port, BorrowedFd<'a>, PollFlags),
    ) {
        // Frames of new tunnels wait for the host like content: a flood of connections takes no memory.
        let accepts =
            self.connections.len() < TUNNELS_MAX && self.rests_until.is_none() && outbox.takes_content();
        if let Some(listener) = self.listener.as_ref().filter(|_| accepts) {
            add(Port::Listener, listener.as_fd(), PollFlags::IN);
        }
        for (&number, connection) in &self.connections {
            if let Some((fd, events)) = connection.interest(outbox) {
                add(Port::Connection(number), fd, events);
            }
        }
    }

    /// When to look again, if nothing happens before.
    pub(crate) fn next_look(&self) -> Option<Duration> {
        self.connections.values().filter_map(Connection::due).chain(self.rests_until).min()
    }

    /// Does what is due.
    pub(crate) fn look(&mut self, cx: &mut Cx<'_>) {
        self.rests_until = self.rests_until.filter(|until| *until > cx.now);
        let late: Vec<(u32, Standing)> = self
            .connections
            .iter()
            .filter(|(_, connection)| connection.due().is_some_and(|due| due <= cx.now))
            .map(|(number, connection)| (*number, connection.late()))
            .collect();
        for (number, standing) in late {
            self.settle(number, standing, cx.outbox);
        }
    }

    /// A socket is ready.
    pub(crate) fn ready(&mut self, port: Port, cx: &mut Cx<'_>) {
        match port {
            Port::Listener => self.accept(cx),
            Port::Connection(number) => {
                if let Some(connection) = self.connections.get_mut(&number) {
                    let standing = connection.ready(cx);
                    self.settle(number, standing, cx.outbox);
                }
            }
        }
    }

    /// A frame of the host for a tunnel.
    ///
    /// # Errors
    /// When the host breaks the protocol. Frames for a tunnel that is over are none: the host may not know yet.
    pub(crate) fn frame(&mut self, frame: &Frame, cx: &mut Cx<'_>) -> Result<(), Fatal> {
        let number = frame.channel;
        let kind = frame.kind;
        if number.checked_sub(FIRST_TUNNEL).is_none_or(|index| index >= self.opened) {
            return Err(Fatal::Protocol(format!(
                "a {kind:?} frame on tunnel {number}, which was never opened"
            )));
        }
        let Some(connection) = self.connections.get_mut(&number) else { return Ok(()) };
        let standing = match kind {
            FrameKind::Data => {
                let (_, content) = frame.data()?;
                let taken = connection.data(content, cx.outbox);
                taken.map_err(|error| Fatal::Data { channel: number, error })?
            }
            FrameKind::Eof => connection.end_of_data(cx.outbox),
            FrameKind::Credit => {
                connection.granted(frame.credit()?);
                Standing::Open
            }
            FrameKind::Cancel => connection.cancel(cx.now),
            _ => return Err(Fatal::Protocol(format!("a {kind:?} frame on tunnel {number}"))),
        };
        self.settle(number, standing, cx.outbox);
        Ok(())
    }

    fn settle(&mut self, number: u32, standing: Standing, outbox: &mut Outbox) {
        if standing == Standing::Open {
            return;
        }
        if let Some(connection) = self.connections.remove(&number) {
            outbox.done(number, &[]);
            if standing == Standing::Broken {
                connection.reset();
            }
        }
    }

    fn accept(&mut self, cx: &mut Cx<'_>) {
        for _ in 0..ACCEPTS {
            let Some(listener) = self.listener.as_ref().filter(|_| self.connections.len() < TUNNELS_MAX)
            else {
                return;
            };
            let Some(number) = FIRST_TUNNEL.checked_add(self.opened) else {
                // Two thousand million connections are enough for one sandbox.
                self.listener = None;
                return;
            };
            match accept_with(listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
                Ok(socket) => {
                    self.opened += 1;
                    self.connections.insert(number, Connection::new(socket, number, cx.outbox));
                }
                Err(Errno::AGAIN) => return,
                // The connection ended before it was accepted.
                Err(Errno::INTR | Errno::CONNABORTED) => {}
                // The system has no more descriptors or memory.
                Err(_) => {
                    self.rests_until = Some(cx.now + PAUSE);
                    return;
                }
            }
        }
    }
}
