//! A small client of HTTP/1.1: requests on a connection that stays open, and streams of server-sent events.
//!
//! It does nothing beside what a benchmark must have, so that little of what is measured is its own.

use std::net::SocketAddr;

use serde_json::Value;
use tokio::io::{AsyncBufRead, AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpSocket, TcpStream};

use crate::harness::Result;

/// A connection, on which one request follows the other.
#[derive(Debug)]
pub(crate) struct Connection(BufReader<TcpStream>);

/// A request.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    method: &'static str,
    path: String,
    body: String,
}

impl Request {
    pub(crate) const fn get(path: String) -> Self {
        Self { method: "GET", path, body: String::new() }
    }

    pub(crate) fn post(path: impl Into<String>, body: &Value) -> Self {
        Self { method: "POST", path: path.into(), body: body.to_string() }
    }
}

/// A stream of events.
#[derive(Debug)]
pub(crate) struct EventStream {
    reader: BufReader<TcpStream>,
    /// What arrived of the next record.
    text: String,
}

impl Connection {
    pub(crate) async fn open(server: SocketAddr) -> Result<Self> {
        let stream = TcpStream::connect(server).await?;
        stream.set_nodelay(true)?;
        Ok(Self(BufReader::new(stream)))
    }

    /// The same with so many bytes for what arrives and is not read.
    pub(crate) async fn with_receive_buffer(server: SocketAddr, bytes: u32) -> Result<Self> {
        let socket = TcpSocket::new_v4()?;
        socket.set_recv_buffer_size(bytes)?;
        Ok(Self(BufReader::new(socket.connect(server).await?)))
    }

    /// Sends a request, and reads its answer, which must be good.
    pub(crate) async fn answer(&mut self, request: &Request) -> Result<Value> {
        self.write(request).await?;
        let head = read_head(&mut self.0).await?;
        let mut body = vec![0; head.length.ok_or("the answer has no length")?];
        self.0.read_exact(&mut body).await?;
        if head.status != 200 {
            let body = String::from_utf8_lossy(&body);
            return Err(format!("{}: {} {body}", request.path, head.status).into());
        }
        Ok(serde_json::from_slice(&body)?)
    }

    /// Opens a stream, whose first record has arrived then.
    pub(crate) async fn stream(mut self, path: &str) -> Result<EventStream> {
        self.write(&Request::get(path.to_owned())).await?;
        let head = read_head(&mut self.0).await?;
        if head.status != 200 {
            return Err(format!("GET {path}: {}", head.status).into());
        }
        let mut stream = EventStream { reader: self.0, text: String::new() };
        stream.next().await?;
        Ok(stream)
    }

    /// Sends the request of a stream, and reads nothing.
    pub(crate) async fn stalled_stream(mut self, path: &str) -> Result<TcpStream> {
        self.write(&Request::get(path.to_owned())).await?;
        Ok(self.0.into_inner())
    }

    async fn write(&mut self, request: &Request) -> Result<()> {
        let Request { method, path, body } = request;
        let length = body.len();
        let request = format!(
            "{method} {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
        );
        Ok(self.0.get_mut().write_all(request.as_bytes()).await?)
    }
}

/// The head of an answer.
#[derive(Debug)]
pub(crate) struct Head {
    pub(crate) status: u16,
    length: Option<usize>,
}

/// Reads the head of an answer.
pub(crate) async fn read_head(reader: &mut (impl AsyncBufRead + Unpin)) -> Result<Head> {
    let status = line(reader).await?;
    let status = status.split(' ').nth(1).ok_or("no status")?.parse()?;
    let mut length = None;
    loop {
        let line = line(reader).await?.to_ascii_lowercase();
        if line.is_empty() {
            return Ok(Head { status, length });
        }
        if let Some(value) = line.strip_prefix("content-length:") {
            length = Some(value.trim().parse()?);
        }
    }
}

impl EventStream {
    /// The data of the next record.
    pub(crate) async fn next(&mut self) -> Result<Value> {
        loop {
            if let Some((record, rest)) = self.text.split_once("\n\n") {
                let data = record.lines().find_map(|line| line.strip_prefix("data:")).ok_or("no data")?;
                let data = serde_json::from_str(data.trim())?;
                self.text = rest.to_owned();
                return Ok(data);
            }
            let size = usize::from_str_radix(&line(&mut self.reader).await?, 16)?;
            if size == 0 {
                return Err("the stream has ended".into());
            }
            let mut chunk = vec![0; size + 2];
            self.reader.read_exact(&mut chunk).await?;
            chunk.truncate(size);
            self.text.push_str(&String::from_utf8(chunk)?);
        }
    }

    /// Reads up to the end of a turn. Returns how many events there were.
    pub(crate) async fn until_idle(&mut self) -> Result<usize> {
        let mut events = 0;
        loop {
            let event = self.next().await?;
            events += usize::from(event["type"] != "ping");
            if event["type"] == "session.status_idle" {
                return Ok(events);
            }
        }
    }
}

async fn line(reader: &mut (impl AsyncBufRead + Unpin)) -> Result<String> {
    let mut line = String::new();
    if reader.read_line(&mut line).await? == 0 {
        return Err("the connection has ended".into());
    }
    Ok(line.trim_end().to_owned())
}
