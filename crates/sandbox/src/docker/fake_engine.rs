//! An engine for this room's own tests, which answers as the test wants: for what no real engine does on demand.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;

use tempfile::TempDir;

use super::address::EngineAddress;
use super::engine_client::EngineClient;

/// What an engine does that was asked for something.
pub(super) enum FakeReply {
    Answer(String),
    /// It refuses with this status, and says why.
    Refusal(u16, &'static str),
    /// It lets the connection be, and says nothing.
    Silence,
}

/// What it says that it is.
#[derive(Debug, Clone, Copy)]
enum FakeEngineKind {
    Docker,
    Podman,
}

impl FakeEngineKind {
    const fn told(self) -> &'static str {
        match self {
            Self::Docker => r#"{"Version":"20.10.24","ApiVersion":"1.41","MinAPIVersion":"1.12"}"#,
            Self::Podman => {
                r#"{"Version":"4.3.1","ApiVersion":"1.41","MinAPIVersion":"1.24",
                    "Components":[{"Name":"Podman Engine","Version":"4.3.1"}]}"#
            }
        }
    }
}

/// An engine, and the folder of its socket. It is asked by the first lines of requests, for all but its version and what it
/// can.
pub(super) async fn scripted(
    reply: impl Fn(&str) -> FakeReply + Send + Sync + 'static,
) -> (EngineClient, TempDir) {
    start(FakeEngineKind::Docker, reply).await
}

/// The same, of Podman.
pub(super) async fn scripted_podman(
    reply: impl Fn(&str) -> FakeReply + Send + Sync + 'static,
) -> (EngineClient, TempDir) {
    start(FakeEngineKind::Podman, reply).await
}

async fn start(
    version: FakeEngineKind,
    reply: impl Fn(&str) -> FakeReply + Send + Sync + 'static,
) -> (EngineClient, TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("socket");
    let listener = UnixListener::bind(&socket).unwrap();
    let reply = Arc::new(reply);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (Ok(stream), reply) = (stream, Arc::clone(&reply)) else { return };
            std::thread::spawn(move || serve(&stream, version, &*reply));
        }
    });
    let engine = EngineClient::find(&[EngineAddress::Unix(socket)]).await.unwrap();
    (engine, folder)
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
        known if known.contains("/version ") => FakeReply::Answer(version.told().to_owned()),
        known if known.contains("/info ") => FakeReply::Answer("{}".to_owned()),
        other => reply(other),
    };
    let (status, body) = match answer {
        FakeReply::Answer(body) => (200, body),
        FakeReply::Refusal(status, why) => (status, serde_json::json!({ "message": why }).to_string()),
        // Until the other one goes.
        FakeReply::Silence => return drop(std::io::copy(&mut reader, &mut std::io::sink())),
    };
    let length = body.len();
    let head = format!("HTTP/1.1 {status} Told\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n");
    drop(stream.write_all(format!("{head}{body}").as_bytes()));
}
