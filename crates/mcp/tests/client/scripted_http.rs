//! [`HttpServer`]: a server by HTTP that answers as a function says, and keeps what it was asked.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use test_support::http::{Part, Recorded, Server, answer};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use url::Url;

/// A request as it came.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    pub(crate) method: String,
    pub(crate) url: Url,
    /// Names in lower case.
    headers: BTreeMap<String, String>,
    pub(crate) body: String,
}

impl From<&Recorded> for Request {
    fn from(recorded: &Recorded) -> Self {
        let mut line = recorded.line.split(' ');
        let (method, target) = (line.next().unwrap().to_owned(), line.next().unwrap());
        let url = Url::parse(&format!("http://{}{target}", recorded.headers["host"])).unwrap();
        let body = String::from_utf8(recorded.body.clone()).unwrap();
        Self { method, url, headers: recorded.headers.clone(), body }
    }
}

impl Request {
    pub(crate) fn path(&self) -> &str {
        self.url.path()
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(String::as_str)
    }

    /// The names of all headers, in lower case.
    pub(crate) fn header_names(&self) -> impl Iterator<Item = &str> {
        self.headers.keys().map(String::as_str)
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

    fn into_part(self) -> Part {
        let headers: Vec<(&str, &str)> =
            self.headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
        Part::Bytes(answer(&format!("{} Scripted", self.status), &headers, &self.body))
    }
}

/// A server. It ends when it is dropped.
pub(crate) struct HttpServer(Server);

impl HttpServer {
    pub(crate) async fn start(reply: impl Fn(&Request) -> Reply + Send + Sync + 'static) -> Self {
        Self(Server::start(move |_, request| vec![reply(&request.into()).into_part()]).await)
    }

    pub(crate) fn at(&self, path: &str) -> String {
        format!("{}{path}", self.0.url())
    }

    /// What it was asked, in order.
    pub(crate) fn requests(&self) -> Vec<Request> {
        self.0.requests().iter().map(Request::from).collect()
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
