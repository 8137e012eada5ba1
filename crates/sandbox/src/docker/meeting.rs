//! The stream between the host and a container's guest: a socket, where the two can meet at one, and else the streams that the
//! engine passes on.
//!
//! What the engine passes on goes through two more programs in each direction (the container's shim, and the engine), each of
//! which must be woken. A socket in the folder of the sandbox's output goes through none. Only the guest can reach it: it
//! connects before it runs anything, the host then unlinks the socket and listens no more, and the folder is closed to
//! commands besides. When the host dies, the kernel closes the stream, as it does when the guest dies.
//!
//! Not every runtime lets a container's processes connect to sockets of the host (gVisor, Kata, an engine in a machine of its own, a policy
//! of SELinux): then the guest says so on its standard output, and the engine's streams are used.
//!
//! State: the socket, for as long as nobody has come. It is removed with this value, and after a crash with the place it
//! lies in.

use std::fs::{self, Permissions};
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use conjure_guest::protocol::{CONNECT, NOT_MET};
use rustix::fs::{CWD, Mode, OFlags};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite};
use tokio::net::UnixListener;

use super::attach::AttachReader;
use crate::jail::OUTPUT;

/// What the socket is called; spilled output is called otherwise.
const NAME: &str = ".meeting";

/// A socket at which a guest is waited for.
#[derive(Debug)]
pub(super) struct Meeting {
    listener: UnixListener,
    path: PathBuf,
}

/// What a host hears of a guest and says to it.
pub(super) struct Streams {
    pub(super) reader: Box<dyn AsyncRead + Send + Unpin>,
    pub(super) writer: Box<dyn AsyncWrite + Send + Unpin>,
    /// What the engine still passes on where the guest speaks elsewhere: its complaints, to be read to their end.
    pub(super) complaints: Option<AttachReader>,
    pub(super) way: StreamWay,
    /// The number of the process that came to the socket, where it has one here.
    pub(super) came: Option<i32>,
}

/// Which way the guest is spoken to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StreamWay {
    /// By a socket of its own, which needs no engine.
    Socket,
    /// By the engine, with which it breaks.
    Engine,
}

impl Streams {
    /// Those that the engine passes on.
    pub(super) fn of_engine(output: AttachReader, input: Box<dyn AsyncWrite + Send + Unpin>) -> Self {
        let (reader, way) = (Box::new(output), StreamWay::Engine);
        Self { reader, writer: input, complaints: None, way, came: None }
    }
}

impl Meeting {
    /// In this folder, which the container has as [`OUTPUT`].
    pub(super) fn arrange(output: &Path) -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = rustix::fs::openat(CWD, output, flags, Mode::empty())?;
        // The folder's own path may be longer than a socket's may be.
        let short = PathBuf::from(format!("/proc/self/fd/{}/{NAME}", folder.as_raw_fd()));
        let listener = UnixListener::bind(&short)?;
        let meeting = Self { listener, path: output.join(NAME) };
        // Who that is in the container is not always known. Nobody else on the host gets into the folder's folder.
        fs::set_permissions(&meeting.path, Permissions::from_mode(0o666))?;
        Ok(meeting)
    }

    /// What the guest is started with.
    pub(super) fn arguments() -> Vec<String> {
        vec![CONNECT.to_owned(), format!("{OUTPUT}/{NAME}")]
    }

    /// Waits for the guest of a container that was started. The caller bounds the time.
    pub(super) async fn meet(
        self,
        mut output: AttachReader,
        input: Box<dyn AsyncWrite + Send + Unpin>,
    ) -> io::Result<Streams> {
        let mut said = [0];
        tokio::select! {
            came = self.listener.accept() => {
                let (stream, _) = came?;
                let came = stream.peer_cred().ok().and_then(|guest| guest.pid()).filter(|pid| *pid > 0);
                let (reader, writer) = stream.into_split();
                let (reader, writer, way) = (Box::new(reader), Box::new(writer), StreamWay::Socket);
                Ok(Streams { reader, writer, complaints: Some(output), way, came })
            }
            said_length = output.read(&mut said) => match (said_length?, said) {
                // One that ended at once is told of by who waits for its greeting.
                (1, [NOT_MET]) | (0, _) => {
                    tracing::debug!("the runtime lets the guest not connect to a socket of the host");
                    Ok(Streams::of_engine(output, input))
                }
                _ => Err(io::Error::new(io::ErrorKind::InvalidData, "the guest says what it must not")),
            },
        }
    }
}

impl Drop for Meeting {
    fn drop(&mut self) {
        // It goes with its folder at the latest.
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

    use super::super::attach::Complaints;
    use super::*;

    /// The engine's stream of a guest that says this and goes on.
    fn engine_passes_on(said: &'static [u8]) -> AttachReader {
        let said = (!said.is_empty()).then(|| Ok(LogOutput::StdOut { message: Bytes::from_static(said) }));
        AttachReader::new(Box::pin(stream::iter(said).chain(stream::pending())), Complaints::default())
    }

    #[tokio::test]
    async fn who_comes_first_is_heard_and_nobody_can_come_after() {
        let folder = tempfile::tempdir().unwrap();
        // Longer than the path of a socket may be.
        let output = folder.path().join("x".repeat(200));
        fs::create_dir(&output).unwrap();
        let meeting = Meeting::arrange(&output).unwrap();
        let open = fs::File::open(&output).unwrap();
        let path = format!("/proc/self/fd/{}/{NAME}", open.as_raw_fd());
        let mut guest = UnixStream::connect(&path).await.unwrap();
        let mut streams = meeting.meet(engine_passes_on(b""), Box::new(tokio::io::sink())).await.unwrap();
        assert_eq!(streams.came, Some(std::process::id().cast_signed()));
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
        let folder = tempfile::tempdir().unwrap();
        let meeting = Meeting::arrange(folder.path()).unwrap();
        let output = engine_passes_on(&[NOT_MET, b'o', b'n']);
        let (input, mut guest) = tokio::io::duplex(16);
        let mut streams = meeting.meet(output, Box::new(input)).await.unwrap();
        assert!(streams.complaints.is_none());
        let (mut out, mut into) = ([0; 2], [0; 2]);
        streams.reader.read_exact(&mut out).await.unwrap();
        streams.writer.write_all(b"in").await.unwrap();
        guest.read_exact(&mut into).await.unwrap();
        assert_eq!((&out, &into), (b"on", b"in"));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[tokio::test]
    async fn what_no_guest_says_is_no_guest() {
        let folder = tempfile::tempdir().unwrap();
        let meeting = Meeting::arrange(folder.path()).unwrap();
        let met = meeting.meet(engine_passes_on(b"hello"), Box::new(tokio::io::sink())).await;
        assert_eq!(met.err().map(|error| error.kind()), Some(io::ErrorKind::InvalidData));
    }
}
