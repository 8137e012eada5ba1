//! Communication with systemd: notifications that the server is ready, reloads or stops (`sd_notify`), and the socket that systemd passes.

use std::fs::File;
use std::io;
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd as _;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr as UnixAddress, UnixDatagram};

use conjure::ProcessEnv;

/// Notifies systemd about the server's state. Without systemd it does nothing.
#[derive(Debug)]
pub(super) struct Notifier(Option<UnixDatagram>);

impl Notifier {
    /// Connects to the socket that the environment names.
    pub(super) fn new(environment: &ProcessEnv) -> Self {
        let connected = environment.notify_socket().map(connect).transpose();
        Self(connected.unwrap_or_else(|error| {
            tracing::warn!(%error, "systemd cannot be told of the server's state");
            None
        }))
    }

    /// Reports that the server is ready.
    pub(super) fn ready(&self) {
        self.send("READY=1");
    }

    /// Reports that the server reloads its configuration.
    pub(super) fn reloading(&self) {
        self.send("RELOADING=1");
    }

    /// Reports that the server is stopping.
    pub(super) fn stopping(&self) {
        self.send("STOPPING=1");
    }

    fn send(&self, state: &str) {
        let Some(socket) = &self.0 else { return };
        if let Err(error) = socket.send(state.as_bytes()) {
            tracing::warn!(%error, state, "systemd was not told of the server's state");
        }
    }
}

fn connect(path: &str) -> io::Result<UnixDatagram> {
    let address = match path.strip_prefix('@') {
        Some(name) => UnixAddress::from_abstract_name(name)?,
        None => UnixAddress::from_pathname(path)?,
    };
    let socket = UnixDatagram::unbound()?;
    // A service manager that does not read must not block the server.
    socket.set_nonblocking(true)?;
    socket.connect_addr(&address)?;
    Ok(socket)
}

/// Takes the listening socket from standard input, and replaces standard input with `/dev/null`. So no later child process inherits the
/// socket.
pub(super) fn socket_of_stdin() -> io::Result<TcpListener> {
    let socket = io::stdin().as_fd().try_clone_to_owned()?;
    let nothing = File::open("/dev/null")?;
    if TcpStream::from(socket.try_clone()?).peer_addr().is_ok() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is a connection, and does not listen"));
    }
    let listener = TcpListener::from(socket);
    listener.local_addr()?;
    listener.set_nonblocking(true)?;
    rustix::stdio::dup2_stdin(nothing)?;
    Ok(listener)
}
