//! A small client with which tests see the bytes, and short constructors of responses.

use std::fs::File;
use std::io::Write as _;
use std::time::Duration;

use conjure_anthropic::Messages;
use conjure_anthropic::fake::{FakeMessages, FakeMessagesBuilder};
use conjure_conversation::scripted::{Script, ScriptFormat};
use conjure_conversation::{Block, Model as _, ModelError, ModelEvent, Request, Response};
use futures_util::StreamExt as _;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

pub(crate) const KEY: &str = "sk-fake-0123456789";

/// Longer than anything takes; a test that waits so long has failed.
pub(crate) const LONG: Duration = Duration::from_secs(60);

/// A response, read until the connection was closed.
#[derive(Debug)]
pub(crate) struct RawResponse {
    pub(crate) status: u16,
    pub(crate) head: String,
    /// The chunks of a chunked body; else the whole body.
    pub(crate) chunks: Vec<Vec<u8>>,
    /// Set when the body is complete.
    pub(crate) is_whole: bool,
}

impl RawResponse {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let prefix = format!("{name}: ");
        self.head.lines().find_map(|line| line.strip_prefix(prefix.as_str()))
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.chunks.concat()).unwrap()
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text()).unwrap()
    }

    /// The events of a stream: each name, and its data.
    pub(crate) fn events(&self) -> Vec<(String, Value)> {
        let event = |text: &str| {
            let (name, data) = text.split_once('\n').unwrap();
            let data = serde_json::from_str(data.strip_prefix("data: ").unwrap()).unwrap();
            (name.strip_prefix("event: ").unwrap().to_owned(), data)
        };
        self.text().split_terminator("\n\n").map(event).collect()
    }

    pub(crate) fn message(&self) -> String {
        self.json()["error"]["message"].as_str().unwrap().to_owned()
    }
}

pub(crate) fn script(text: &str) -> Script {
    Script::from_text(text, ScriptFormat::Yaml, "a test").unwrap()
}

pub(crate) async fn start(builder: FakeMessagesBuilder) -> FakeMessages {
    builder.start().await.unwrap()
}

/// How a call of the model ends.
pub(crate) async fn ask(model: &Messages, request: Request) -> Result<Response, ModelError> {
    let mut events = model.stream(request);
    loop {
        if let ModelEvent::Finished(response) = events.next().await.unwrap()? {
            return Ok(*response);
        }
    }
}

pub(crate) fn call(id: &str, name: &str, input: &Value) -> Block {
    Block::tool_use(id, name, input)
}

/// An open file of this content.
pub(crate) fn file(content: impl AsRef<[u8]>) -> File {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(content.as_ref()).unwrap();
    file
}

pub(crate) fn user(content: impl Into<Value>) -> Value {
    json!({"role": "user", "content": content.into()})
}

pub(crate) fn assistant(content: impl Into<Value>) -> Value {
    json!({"role": "assistant", "content": content.into()})
}

pub(crate) fn body(messages: impl Into<Value>) -> Value {
    json!({"model": "m", "max_tokens": 100, "messages": messages.into()})
}

pub(crate) fn streamed(messages: impl Into<Value>) -> Value {
    let mut body = body(messages);
    body["stream"] = true.into();
    body
}

/// Sends a body with good headers.
pub(crate) async fn post(fake: &FakeMessages, body: &Value) -> RawResponse {
    let key = format!("x-api-key: {KEY}");
    let headers = [key.as_str(), "anthropic-version: 2023-06-01", "content-type: application/json"];
    send(fake, "POST /v1/messages", &headers, body.to_string().as_bytes()).await
}

/// A connection that has sent a request and has not read its answer.
pub(crate) async fn open(fake: &FakeMessages, body: &Value) -> TcpStream {
    let address = fake.base_url().strip_prefix("http://").unwrap().to_owned();
    let mut stream = TcpStream::connect(&address).await.unwrap();
    let body = body.to_string();
    let head = format!(
        "POST /v1/messages HTTP/1.1\r\nhost: {address}\r\nx-api-key: {KEY}\r\nanthropic-version: 2023-06-01\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    stream
}

pub(crate) async fn send(fake: &FakeMessages, line: &str, headers: &[&str], body: &[u8]) -> RawResponse {
    let address = fake.base_url().strip_prefix("http://").unwrap().to_owned();
    let mut stream = TcpStream::connect(&address).await.unwrap();
    let headers: String = headers.iter().map(|header| format!("{header}\r\n")).collect();
    let length = body.len();
    let head = format!(
        "{line} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\ncontent-length: {length}\r\n{headers}\r\n"
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.write_all(body).await.unwrap();
    let mut bytes = Vec::new();
    // A connection that is reset behind the answer has answered.
    let read = tokio::time::timeout(LONG, stream.read_to_end(&mut bytes)).await.unwrap();
    assert!(read.is_ok() || !bytes.is_empty(), "{read:?}");
    parse(&bytes)
}

fn parse(bytes: &[u8]) -> RawResponse {
    let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") else {
        return RawResponse { status: 0, head: String::new(), chunks: Vec::new(), is_whole: false };
    };
    let head = String::from_utf8(bytes[..end].to_vec()).unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    let mut rest = &bytes[end + 4..];
    if !head.contains("transfer-encoding: chunked") {
        return RawResponse { status, head, chunks: vec![rest.to_vec()], is_whole: true };
    }
    let mut chunks = Vec::new();
    loop {
        let Some(line) = rest.windows(2).position(|window| window == b"\r\n") else {
            return RawResponse { status, head, chunks, is_whole: false };
        };
        let size = usize::from_str_radix(std::str::from_utf8(&rest[..line]).unwrap(), 16).unwrap();
        if size == 0 {
            return RawResponse { status, head, chunks, is_whole: true };
        }
        chunks.push(rest[line + 2..line + 2 + size].to_vec());
        rest = &rest[line + 2 + size + 2..];
    }
}
