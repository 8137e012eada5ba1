//! [`EngineAddress`]: the address of a container engine, and the usual addresses.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

/// Where a container engine listens.
///
/// ```
/// use conjure_sandbox::EngineAddress;
///
/// let address: EngineAddress = "unix:///run/podman/podman.sock".parse()?;
/// assert_eq!(address.to_string(), "unix:///run/podman/podman.sock");
/// assert!("ssh://me@there".parse::<EngineAddress>().is_err());
/// # Ok::<(), String>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum EngineAddress {
    /// A Unix socket of this machine. The engine is assumed to run on this machine, with the same directories.
    Unix(PathBuf),
    /// A host and port, without encryption. Anyone who can reach the port has the rights of root on that machine.
    /// Anyone on the network path can read and change everything. So use the port of a tunnel (SSH, stunnel, a
    /// private network). A TCP address is tried only when the caller gives it. No directory is shared with the
    /// engine; content is copied through the guest ([`crate::HostAccess::Copied`]).
    Tcp(String),
}

/// The sockets of Docker and Podman when root runs them.
const USUAL: [&str; 2] = ["/var/run/docker.sock", "/run/podman/podman.sock"];

/// Their sockets in the runtime directory of a user.
const ROOTLESS: [&str; 2] = ["docker.sock", "podman/podman.sock"];

impl EngineAddress {
    /// The addresses to try, likeliest first: only the one of `DOCKER_HOST`, or else the usual sockets, including those
    /// in `XDG_RUNTIME_DIR`.
    ///
    /// # Errors
    /// When the address is malformed. The message lists the supported forms.
    pub fn candidates(docker_host: Option<&str>, runtime_dir: Option<&Path>) -> Result<Vec<Self>, String> {
        if let Some(host) = docker_host.filter(|host| !host.is_empty()) {
            return Ok(vec![host.parse()?]);
        }
        let usual = USUAL.map(PathBuf::from);
        let rootless = runtime_dir.into_iter().flat_map(|dir| ROOTLESS.map(|name| dir.join(name)));
        let [docker, podman] = usual;
        Ok([docker].into_iter().chain(rootless).chain([podman]).map(Self::Unix).collect())
    }

    /// Whether it is a socket of this machine.
    pub(crate) const fn is_local(&self) -> bool {
        matches!(self, Self::Unix(_))
    }

    /// Sends one request without a runtime, and returns the HTTP status. Each step times out after `timeout`. For
    /// removals in `Drop`.
    pub(crate) fn ask_blocking(&self, request: &str, timeout: Duration) -> io::Result<u16> {
        let request = format!("{request} HTTP/1.0\r\nHost: engine\r\n\r\n");
        match self {
            Self::Unix(path) => {
                let stream = connect_at_once(path)?;
                stream.set_read_timeout(Some(timeout))?;
                stream.set_write_timeout(Some(timeout))?;
                status(stream, &request)
            }
            Self::Tcp(host) => {
                let address = host.to_socket_addrs()?.next().ok_or(io::ErrorKind::NotFound)?;
                let stream = TcpStream::connect_timeout(&address, timeout)?;
                stream.set_read_timeout(Some(timeout))?;
                stream.set_write_timeout(Some(timeout))?;
                status(stream, &request)
            }
        }
    }
}

/// Connects without blocking. A connect to a socket whose backlog is full would block without a timeout, so it fails
/// instead.
fn connect_at_once(path: &Path) -> io::Result<UnixStream> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    rustix::net::connect(&socket, &SocketAddrUnix::new(path)?)?;
    let stream = UnixStream::from(socket);
    stream.set_nonblocking(false)?;
    Ok(stream)
}

/// Sends the request, and returns the status code from the first line of the response.
fn status(mut stream: impl Read + Write, request: &str) -> io::Result<u16> {
    stream.write_all(request.as_bytes())?;
    let mut line = [0; 12];
    stream.read_exact(&mut line)?;
    let number = std::str::from_utf8(&line).ok().and_then(|line| line.rsplit(' ').next()?.parse().ok());
    number.ok_or_else(|| io::ErrorKind::InvalidData.into())
}

impl fmt::Display for EngineAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix://{}", path.display()),
            Self::Tcp(host) => write!(f, "tcp://{host}"),
        }
    }
}

impl FromStr for EngineAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let refused = |why: &str| {
            Err(format!(
                "`{text}` is no engine's address that can be used: {why}; use `unix:///path/to/socket` or `tcp://host:port`"
            ))
        };
        match text.split_once("://") {
            Some(("unix", path)) if path.starts_with('/') => Ok(Self::Unix(path.into())),
            Some(("unix", _)) => refused("the socket's path must be absolute"),
            Some(("tcp" | "http", host)) => {
                let host = host.trim_end_matches('/');
                let has_port = host
                    .rsplit_once(':')
                    .is_some_and(|(name, port)| !name.is_empty() && port.parse::<u16>().is_ok());
                if has_port { Ok(Self::Tcp(host.to_owned())) } else { refused("it names no host and port") }
            }
            Some(("https" | "ssh" | "npipe", _)) => refused(
                "neither TLS, SSH nor named pipes are spoken; forward a port to the engine's socket instead, as by \
                         `ssh -N -L 127.0.0.1:2375:/var/run/docker.sock HOST`, and name `tcp://127.0.0.1:2375`",
            ),
            _ => refused("it has no scheme that is known"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_named_engine_is_the_only_one_and_else_the_usual_sockets_are_tried() {
        let named = EngineAddress::candidates(Some("tcp://10.0.0.1:2375/"), Some(Path::new("/run/user/7")));
        assert_eq!(named, Ok(vec![EngineAddress::Tcp("10.0.0.1:2375".to_owned())]));
        let usual = EngineAddress::candidates(None, Some(Path::new("/run/user/7"))).unwrap();
        let texts: Vec<String> = usual.iter().map(ToString::to_string).collect();
        assert_eq!(
            texts,
            [
                "unix:///var/run/docker.sock",
                "unix:///run/user/7/docker.sock",
                "unix:///run/user/7/podman/podman.sock",
                "unix:///run/podman/podman.sock"
            ]
        );
        assert_eq!(EngineAddress::candidates(Some(""), None).unwrap().len(), 2);
    }

    #[test]
    fn what_is_not_spoken_is_refused_with_what_is() {
        for text in [
            "https://a:2376",
            "ssh://a",
            "unix://relative",
            "tcp://",
            "tcp://a",
            "tcp://a:70000",
            "/run/docker.sock",
            "",
        ] {
            let refusal = text.parse::<EngineAddress>().unwrap_err();
            assert!(refusal.contains("unix:///path/to/socket"), "{refusal}");
        }
    }

    #[test]
    fn nobody_waits_long_for_an_engine_that_is_silent() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        let _silent = std::os::unix::net::UnixListener::bind(&path).unwrap();
        let address = EngineAddress::Unix(path);
        let error = address.ask_blocking("GET /_ping", Duration::from_millis(10)).unwrap_err();
        assert!(matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut), "{error}");
    }

    #[test]
    fn nobody_waits_for_an_engine_that_accepts_no_more_connections() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        let socket = rustix::net::socket(AddressFamily::UNIX, SocketType::STREAM, None).unwrap();
        rustix::net::bind(&socket, &SocketAddrUnix::new(&path).unwrap()).unwrap();
        rustix::net::listen(&socket, 1).unwrap();
        let mut waiting = Vec::new();
        while let Ok(stream) = connect_at_once(&path) {
            waiting.push(stream);
        }
        assert!(!waiting.is_empty());
        let error =
            EngineAddress::Unix(path).ask_blocking("GET /_ping", Duration::from_secs(60)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock, "{error}");
    }
}
