//! The stream between the host and a container's guest: a Unix socket that the guest connects to, or else the attach
//! streams of the engine.
//!
//! The attach streams pass two more programs in each direction (the container's shim and the engine), each of which
//! must wake up. A socket in the sandbox's output directory avoids both. Only the guest can reach it:
//! - The guest connects before it runs any command.
//! - The host then removes the socket and stops listening.
//! - Commands cannot enter the directory.
//!
//! When the host dies, the kernel closes the stream, as it does when the guest dies.
//!
//! Not every runtime lets a container connect to sockets of the host (gVisor, Kata, an engine in a virtual machine,
//! an SELinux policy). Then the guest reports that on its standard output, and the attach streams are used.
//!
//! State: the socket, until the guest has connected. The socket is removed with this value, and after a crash with
//! its directory.

use std::fs::{self, Permissions};
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use conjure_guest::protocol::{CONNECT_ARG, CONNECT_FAILED};
use rustix::fs::{CWD, Mode, OFlags};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite};
use tokio::net::UnixListener;

use super::attach::AttachReader;
use crate::jail::OUTPUT;

/// The file name of the socket. Spill files have other names.
const NAME: &str = ".meeting";

/// A socket that a guest connects to.
#[derive(Debug)]
pub(crate) struct GuestListener {
    listener: UnixListener,
    path: PathBuf,
}

/// The streams from and to a guest.
pub(crate) struct GuestStreams {
    pub(crate) reader: Box<dyn AsyncRead + Send + Unpin>,
    pub(crate) writer: Box<dyn AsyncWrite + Send + Unpin>,
    /// If the guest uses the socket: its attach stream, which carries standard error and must be read to its end.
    pub(crate) stderr_tail: Option<AttachReader>,
    pub(crate) transport: StreamTransport,
    /// The process id of the connected guest, if it has one on this machine.
    pub(crate) peer_pid: Option<i32>,
}

/// The transport of the guest's stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StreamTransport {
    /// A Unix socket, which does not depend on the engine.
    Socket,
    /// The attach streams, which break when the engine stops.
    EngineClient,
}

impl GuestStreams {
    /// Uses the attach streams of the engine.
    pub(crate) fn of_engine(output: AttachReader, input: Box<dyn AsyncWrite + Send + Unpin>) -> Self {
        let (reader, transport) = (Box::new(output), StreamTransport::EngineClient);
        Self { reader, writer: input, stderr_tail: None, transport, peer_pid: None }
    }
}

impl GuestListener {
    /// Listens in this directory, which the container has as [`OUTPUT`].
    pub(crate) fn listen(output: &Path) -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let dir = rustix::fs::openat(CWD, output, flags, Mode::empty())?;
        // The path of the directory may be longer than a socket address permits.
        let short = PathBuf::from(format!("/proc/self/fd/{}/{NAME}", dir.as_raw_fd()));
        let listener = UnixListener::bind(&short)?;
        let listener = Self { listener, path: output.join(NAME) };
        // The user in the container is not always known. Other users on the host cannot enter the directory around
        // the socket.
        fs::set_permissions(&listener.path, Permissions::from_mode(0o666))?;
        Ok(listener)
    }

    /// The arguments of the guest.
    pub(crate) fn arguments() -> Vec<String> {
        vec![CONNECT_ARG.to_owned(), format!("{OUTPUT}/{NAME}")]
    }

    /// Waits for the guest of a started container. The caller sets the deadline.
    pub(crate) async fn accept_guest(
        self,
        mut output: AttachReader,
        input: Box<dyn AsyncWrite + Send + Unpin>,
    ) -> io::Result<GuestStreams> {
        let mut byte = [0];
        tokio::select! {
            peer_pid = self.listener.accept() => {
                let (stream, _) = peer_pid?;
                let peer_pid = stream.peer_cred().ok().and_then(|guest| guest.pid()).filter(|pid| *pid > 0);
                let (reader, writer) = stream.into_split();
                let (reader, writer, transport) = (Box::new(reader), Box::new(writer), StreamTransport::Socket);
                Ok(GuestStreams { reader, writer, stderr_tail: Some(output), transport, peer_pid })
            }
            said_length = output.read(&mut byte) => match (said_length?, byte) {
                // A guest that ended at once is reported by the handshake.
                (1, [CONNECT_FAILED]) | (0, _) => {
                    tracing::debug!("the container runtime does not let the guest connect to a socket of the host");
                    Ok(GuestStreams::of_engine(output, input))
                }
                _ => Err(io::Error::new(io::ErrorKind::InvalidData, "the guest says what it must not")),
            },
        }
    }
}

impl Drop for GuestListener {
    fn drop(&mut self) {
        // The socket is removed with its directory at the latest.
        let _ = fs::remove_file(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use bollard::container::LogOutput;
    use bytes::Bytes;
    use futures_util::{StreamExt as _, stream};
    use tokio::io::AsyncWriteExt as _;
    use tokio::net::UnixStream;

    use super::*;
    use crate::docker::container::attach::StderrTail;

    /// The engine's stream of a guest that says this and goes on.
    fn engine_passes_on(byte: &'static [u8]) -> AttachReader {
        let byte = (!byte.is_empty()).then(|| Ok(LogOutput::StdOut { message: Bytes::from_static(byte) }));
        AttachReader::new(Box::pin(stream::iter(byte).chain(stream::pending())), StderrTail::default())
    }

    #[tokio::test]
    async fn who_comes_first_is_heard_and_nobody_can_come_after() {
        let dir = tempfile::tempdir().unwrap();
        // Longer than the path of a socket may be.
        let output = dir.path().join("x".repeat(200));
        fs::create_dir(&output).unwrap();
        let listener = GuestListener::listen(&output).unwrap();
        let open = fs::File::open(&output).unwrap();
        let path = format!("/proc/self/fd/{}/{NAME}", open.as_raw_fd());
        let mut guest = UnixStream::connect(&path).await.unwrap();
        let mut streams =
            listener.accept_guest(engine_passes_on(b""), Box::new(tokio::io::sink())).await.unwrap();
        assert_eq!(streams.peer_pid, Some(std::process::id().cast_signed()));
        assert!(UnixStream::connect(&path).await.is_err());
        assert_eq!(fs::read_dir(&output).unwrap().count(), 0);
        guest.write_all(b"out").await.unwrap();
        streams.writer.write_all(b"in").await.unwrap();
        let (mut out, mut into) = ([0; 3], [0; 2]);
        streams.reader.read_exact(&mut out).await.unwrap();
        guest.read_exact(&mut into).await.unwrap();
        assert_eq!((&out, &into), (b"out", b"in"));
        drop((streams.reader, streams.writer));
        assert_eq!(guest.read(&mut into).await.unwrap(), 0);
    }

    #[tokio::test]
    async fn a_guest_that_cannot_come_is_heard_through_the_engine() {
        let dir = tempfile::tempdir().unwrap();
        let listener = GuestListener::listen(dir.path()).unwrap();
        let output = engine_passes_on(&[CONNECT_FAILED, b'o', b'n']);
        let (input, mut guest) = tokio::io::duplex(16);
        let mut streams = listener.accept_guest(output, Box::new(input)).await.unwrap();
        assert!(streams.stderr_tail.is_none());
        let (mut out, mut into) = ([0; 2], [0; 2]);
        streams.reader.read_exact(&mut out).await.unwrap();
        streams.writer.write_all(b"in").await.unwrap();
        guest.read_exact(&mut into).await.unwrap();
        assert_eq!((&out, &into), (b"on", b"in"));
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[tokio::test]
    async fn what_no_guest_says_is_no_guest() {
        let dir = tempfile::tempdir().unwrap();
        let listener = GuestListener::listen(dir.path()).unwrap();
        let met = listener.accept_guest(engine_passes_on(b"hello"), Box::new(tokio::io::sink())).await;
        assert_eq!(met.err().map(|error| error.kind()), Some(io::ErrorKind::InvalidData));
    }
}
