//! [`HttpServer`]: a server by HTTP that answers as a function says, and keeps what it was asked.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use test_support::Loopback;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use url::Url;

/// A request as it came.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    pub(crate) method: String,
    pub(crate) url: Url,
    /// Names in lower case.
    headers: Vec<(String, String)>,
    pub(crate) body: String,
}

impl Request {
    pub(crate) fn path(&self) -> &str {
        self.url.path()
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(found, _)| found == name).map(|(_, value)| value.as_str())
    }

    /// The names of all headers, in lower case.
    pub(crate) fn header_names(&self) -> impl Iterator<Item = &str> {
        self.headers.iter().map(|(name, _)| name.as_str())
    }

    /// Its message; `null` for a body that is none.
    pub(crate) fn message(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_default()
    }

    /// The method of its message.
    pub(crate) fn rpc_method(&self) -> Option<String> {
        self.message()["method"].as_str().map(str::to_owned)
    }

    /// The parameters of its address, and those of its body if that is a form.
    pub(crate) fn parameters(&self) -> BTreeMap<String, String> {
        let is_form =
            self.header("content-type").is_some_and(|kind| kind.starts_with("application/x-www-form"));
        let form = if is_form { self.body.as_bytes() } else { b"" };
        let form = url::form_urlencoded::parse(form).into_owned();
        self.url.query_pairs().into_owned().chain(form).collect()
    }

    /// The server's own address, without a path.
    pub(crate) fn origin(&self) -> String {
        self.url.origin().ascii_serialization()
    }
}

/// What is answered.
#[derive(Debug, Clone)]
pub(crate) struct Reply {
    status: u16,
    headers: Vec<(&'static str, String)>,
    body: String,
}

impl Reply {
    pub(crate) fn status(status: u16) -> Self {
        Self { status, headers: Vec::new(), body: String::new() }
    }

    pub(crate) fn json(body: &Value) -> Self {
        Self {
            status: 200,
            headers: vec![("content-type", "application/json".to_owned())],
            body: body.to_string(),
        }
    }

    pub(crate) fn with_status(self, status: u16) -> Self {
        Self { status, ..self }
    }

    pub(crate) fn with_header(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    /// The result of a message.
    pub(crate) fn result(message: &Value, result: &Value) -> Self {
        Self::json(&json!({"jsonrpc": "2.0", "id": message["id"], "result": result}))
    }

    /// The error of a message.
    pub(crate) fn error(message: &Value, code: i64, text: &str, data: &Value) -> Self {
        let error = json!({"code": code, "message": text, "data": data});
        Self::json(&json!({"jsonrpc": "2.0", "id": message["id"], "error": error})).with_status(400)
    }
}

/// A server. It ends when it is dropped.
pub(crate) struct HttpServer {
    origin: String,
    requests: Arc<Mutex<Vec<Request>>>,
    _loopback: Loopback,
}

impl HttpServer {
    pub(crate) async fn start(answer: impl Fn(&Request) -> Reply + Send + Sync + 'static) -> Self {
        let requests = Arc::new(Mutex::new(Vec::new()));
        let (seen, answer) = (Arc::clone(&requests), Arc::new(answer));
        let loopback = Loopback::start(move |mut stream| {
            let (seen, answer) = (Arc::clone(&seen), Arc::clone(&answer));
            async move {
                let origin = format!("http://{}", stream.local_addr().unwrap());
                // A client that opens a connection and says nothing is none.
                let Some(request) = read(&mut stream, &origin).await else { return };
                let reply = answer(&request);
                seen.lock().unwrap().push(request);
                write(&mut stream, &reply).await;
            }
        })
        .await;
        Self { origin: format!("http://{}", loopback.address), requests, _loopback: loopback }
    }

    pub(crate) fn at(&self, path: &str) -> String {
        format!("{}{path}", self.origin)
    }

    /// What it was asked, in order.
    pub(crate) fn requests(&self) -> Vec<Request> {
        self.requests.lock().unwrap().clone()
    }

    /// The requests with messages of this method, in order.
    pub(crate) fn messages(&self, method: &str) -> Vec<Request> {
        let mut requests = self.requests();
        requests.retain(|request| request.rpc_method().as_deref() == Some(method));
        requests
    }

    /// The requests for this path, in order.
    pub(crate) fn asked(&self, path: &str) -> Vec<Request> {
        let mut requests = self.requests();
        requests.retain(|request| request.path() == path);
        requests
    }
}

/// Gets an address as a browser does, which follows no redirect. Returns where it is sent, if it is, and the page.
pub(crate) async fn visit(address: &str) -> (Option<String>, String) {
    let url = Url::parse(address).unwrap();
    let target = &url[url::Position::BeforePath..url::Position::AfterQuery];
    let host = format!("{}:{}", url.host_str().unwrap(), url.port().unwrap());
    let mut stream = TcpStream::connect(&host).await.unwrap();
    let request = format!("GET {target} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let (head, page) = answer.split_once("\r\n\r\n").unwrap();
    let location = head.lines().find_map(|line| line.strip_prefix("location: "));
    (location.map(str::to_owned), page.to_owned())
}

async fn read(stream: &mut TcpStream, origin: &str) -> Option<Request> {
    let mut bytes = Vec::new();
    let end = loop {
        if let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            break end;
        }
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    };
    let head = String::from_utf8(bytes[..end].to_vec()).unwrap();
    let mut lines = head.lines();
    let mut first = lines.next()?.split(' ');
    let (method, target) = (first.next()?.to_owned(), first.next()?);
    let url = Url::parse(&format!("{origin}{target}")).unwrap();
    let headers: Vec<(String, String)> = lines
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.trim_matches(' ').to_owned()))
        .collect();
    let length = headers.iter().find(|(name, _)| name == "content-length");
    let length = length.map_or(0, |(_, length)| length.parse().unwrap());
    let mut body = bytes.split_off(end + 4);
    while body.len() < length {
        if stream.read_buf(&mut body).await.ok()? == 0 {
            return None;
        }
    }
    Some(Request { method, url, headers, body: String::from_utf8(body).unwrap() })
}

async fn write(stream: &mut TcpStream, reply: &Reply) {
    let mut answer = format!("HTTP/1.1 {} Scripted\r\n", reply.status);
    for (name, value) in &reply.headers {
        answer.push_str(&format!("{name}: {value}\r\n"));
    }
    answer.push_str(&format!(
        "content-length: {}\r\nconnection: close\r\n\r\n{}",
        reply.body.len(),
        reply.body
    ));
    // A client that has gone misses its answer.
    let _ = stream.write_all(answer.as_bytes()).await;
    let _ = stream.shutdown().await;
}
