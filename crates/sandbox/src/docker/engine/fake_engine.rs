//! A fake engine for this crate's own tests, for behaviour that no real engine shows on demand.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;

use tempfile::TempDir;

use super::address::EngineAddress;
use super::engine_client::EngineClient;

/// The reaction of the engine to a request.
pub(crate) enum FakeReply {
    Answer(String),
    /// It refuses with this status and reason.
    Refusal(u16, &'static str),
    /// It keeps the connection open and sends nothing.
    Silence,
}

/// The product that it claims to be.
#[derive(Debug, Clone, Copy)]
enum FakeEngineKind {
    Docker,
    Podman,
}

impl FakeEngineKind {
    const fn version_json(self) -> &'static str {
        match self {
            Self::Docker => r#"{"Version":"20.10.24","ApiVersion":"1.41","MinAPIVersion":"1.12"}"#,
            Self::Podman => {
                r#"{"Version":"4.3.1","ApiVersion":"1.41","MinAPIVersion":"1.24",
                    "Components":[{"Name":"Podman Engine","Version":"4.3.1"}]}"#
            }
        }
    }
}

/// A fake engine, and the directory of its socket. `reply` selects the response by the first line of a request.
/// Requests for the version and the info always get the usual responses.
pub(crate) async fn scripted(
    reply: impl Fn(&str) -> FakeReply + Send + Sync + 'static,
) -> (EngineClient, TempDir) {
    start(FakeEngineKind::Docker, reply).await
}

/// A fake Podman.
pub(crate) async fn scripted_podman(
    reply: impl Fn(&str) -> FakeReply + Send + Sync + 'static,
) -> (EngineClient, TempDir) {
    start(FakeEngineKind::Podman, reply).await
}

async fn start(
    version: FakeEngineKind,
    reply: impl Fn(&str) -> FakeReply + Send + Sync + 'static,
) -> (EngineClient, TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("socket");
    let listener = UnixListener::bind(&socket).unwrap();
    let reply = Arc::new(reply);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (Ok(stream), reply) = (stream, Arc::clone(&reply)) else { return };
            std::thread::spawn(move || serve(&stream, version, &*reply));
        }
    });
    let engine = EngineClient::find(&[EngineAddress::Unix(socket)]).await.unwrap();
    (engine, dir)
}

fn serve(mut stream: &UnixStream, version: FakeEngineKind, reply: impl Fn(&str) -> FakeReply) {
    let mut reader = BufReader::new(stream);
    let mut request = String::new();
    reader.read_line(&mut request).unwrap();
    let mut line = String::new();
    while line != "\r\n" {
        line.clear();
        if reader.read_line(&mut line).unwrap() == 0 {
            return;
        }
    }
    let answer = match request.as_str() {
        known if known.contains("/version ") => FakeReply::Answer(version.version_json().to_owned()),
        known if known.contains("/info ") => FakeReply::Answer("{}".to_owned()),
        other => reply(other),
    };
    let (status, body) = match answer {
        FakeReply::Answer(body) => (200, body),
        FakeReply::Refusal(status, why) => (status, serde_json::json!({ "message": why }).to_string()),
        // Keeps the connection open until the client closes it.
        FakeReply::Silence => return drop(std::io::copy(&mut reader, &mut std::io::sink())),
    };
    let length = body.len();
    let head = format!("HTTP/1.1 {status} Told\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n");
    drop(stream.write_all(format!("{head}{body}").as_bytes()));
}
