//! The stream to the host, where it is no pair of pipes: a socket that the host listens on.
//!
//! It becomes standard input and output, so that nothing else need know of it. State: none. The socket is closed to
//! commands as the pipes are: no command has a descriptor that it was not given.

use std::ffi::OsStr;
use std::os::fd::AsFd as _;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};

use conjure_guest::protocol::NOT_MET;

use crate::guest::{Fatal, system};

/// Connects to the socket at this path; where that cannot be done, says so on the standard output.
pub(crate) fn meet(path: &OsStr) -> Result<(), Fatal> {
    let reached = (|| {
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        connect(socket.as_fd(), &SocketAddrUnix::new(path)?)?;
        Ok::<_, Errno>(socket)
    })();
    match reached {
        Ok(socket) => {
            rustix::stdio::dup2_stdin(&socket).map_err(system("use the host's socket"))?;
            rustix::stdio::dup2_stdout(&socket).map_err(system("use the host's socket"))
        }
        Err(_) => {
            rustix::io::write(rustix::stdio::stdout(), &[NOT_MET]).map_err(system("answer the host"))?;
            Ok(())
        }
    }
}
