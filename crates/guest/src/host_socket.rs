//! Connects to the host over a Unix socket instead of stdin/stdout.
//!
//! The socket replaces standard input and output, so no other code needs to know. State: none. Commands cannot
//! reach the socket: a command has only the descriptors that it is given.

use std::ffi::OsStr;
use std::os::fd::AsFd as _;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};

use conjure_guest::protocol::CONNECT_FAILED;

use crate::error::{FatalError, system_error};

/// Connects to the socket at this path. If that fails, writes [`CONNECT_FAILED`] to standard output.
pub(crate) fn connect_stdio(path: &OsStr) -> Result<(), FatalError> {
    let reached = (|| {
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        connect(socket.as_fd(), &SocketAddrUnix::new(path)?)?;
        Ok::<_, Errno>(socket)
    })();
    match reached {
        Ok(socket) => {
            rustix::stdio::dup2_stdin(&socket).map_err(system_error("use the host's socket"))?;
            rustix::stdio::dup2_stdout(&socket).map_err(system_error("use the host's socket"))
        }
        Err(_) => {
            rustix::io::write(rustix::stdio::stdout(), &[CONNECT_FAILED])
                .map_err(system_error("answer the host"))?;
            Ok(())
        }
    }
}
