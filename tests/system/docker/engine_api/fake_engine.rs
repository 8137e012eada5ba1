//! A fake engine that responds as a test wants, for what no real engine does on demand.

use std::io::{BufRead as _, BufReader, Read, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use conjure_sandbox::{Docker, DockerOptions, EngineAddress};

pub(crate) fn unix(path: &Path) -> EngineAddress {
    EngineAddress::Unix(path.to_owned())
}

/// Answers every request with this, each on a thread of its own, as long as the test lives. It is given the first line;
/// an empty answer breaks the connection.
pub(crate) fn answering(socket: &Path, answer: impl Fn(&str) -> String + Send + Sync + 'static) {
    let listener = UnixListener::bind(socket).unwrap();
    let answer = Arc::new(answer);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            let answer = Arc::clone(&answer);
            std::thread::spawn(move || {
                let Some(request) = request(&stream) else { return };
                let _ = stream.write_all(answer(&request).as_bytes());
            });
        }
    });
}

/// The first line of a request, which is read to its end: to close before breaks the answer, too.
fn request(stream: &UnixStream) -> Option<String> {
    let mut reader = BufReader::new(stream);
    let mut first = String::new();
    reader.read_line(&mut first).ok()?;
    let (mut length, mut is_chunked) = (0, false);
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).ok()? == 0 || line == "\r\n" {
            break;
        }
        let lower = line.to_ascii_lowercase();
        if let Some(number) = lower.strip_prefix("content-length:") {
            length = number.trim().parse().ok()?;
        }
        is_chunked |= lower.starts_with("transfer-encoding:");
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    let mut line = String::new();
    while is_chunked && line != "0\r\n" {
        line.clear();
        if reader.read_line(&mut line).ok()? == 0 {
            break;
        }
    }
    Some(first)
}

pub(crate) fn json(body: &str) -> String {
    with_status("200 OK", body)
}

pub(crate) fn with_status(status: &str, body: &str) -> String {
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    )
}

/// An engine as it should be, but for what is asked of containers.
pub(crate) struct FakeEngine {
    _dir: tempfile::TempDir,
    socket: PathBuf,
}

impl FakeEngine {
    /// `containers` answers what is asked of one, given the method and the path.
    pub(crate) fn new(containers: impl Fn(&str, &str) -> String + Send + Sync + 'static) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("socket");
        answering(&socket, move |request| {
            let (method, remainder) = request.split_once(' ').unwrap_or_default();
            let path = remainder.split(' ').next().unwrap_or_default();
            let path = path
                .strip_prefix("/v")
                .and_then(|path| path.find('/').map(|offset| &path[offset..]))
                .unwrap_or(path);
            if path.starts_with("/version") {
                return json(r#"{"Version":"20.10.24","ApiVersion":"1.41","MinAPIVersion":"1.12"}"#);
            }
            if path.starts_with("/info") {
                return json("{}");
            }
            if path.starts_with("/images/") {
                return json(r#"{"Id":"sha256:0","Config":{}}"#);
            }
            if path.starts_with("/containers/json") {
                return json("[]");
            }
            containers(method, path)
        });
        Self { _dir: dir, socket }
    }

    pub(crate) fn options(&self) -> DockerOptions {
        DockerOptions { engine: vec![unix(&self.socket)], ..DockerOptions::default() }
    }

    pub(crate) fn connector(&self) -> Docker {
        Docker::new(self.options(), [])
    }
}
