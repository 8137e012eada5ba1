//! A proxy on a socket, servers behind it, and clients that send exactly the given bytes.

use std::future::Future;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};

use conjure_egress::{AddressPolicy, Egress, EgressObserver, EgressPolicy, Refusal, RefusalReason, Target};
use test_support::{Loopback, ManualClock, authority};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::watch;

// Included here, because the tests of sandboxes include this file, too.
#[path = "static_resolver.rs"]
mod static_resolver;

pub(crate) use static_resolver::StaticResolver;

/// The address that the tests allow besides public ones.
pub(crate) const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// Records refusals and connections.
#[derive(Debug)]
pub(crate) struct Recorder {
    refusals: watch::Sender<Vec<Refusal>>,
    connected: Mutex<Vec<(String, SocketAddr)>>,
}

impl Recorder {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self { refusals: watch::Sender::default(), connected: Mutex::default() })
    }

    pub(crate) fn refusals(&self) -> Vec<Refusal> {
        self.refusals.borrow().clone()
    }

    /// The first refusal, which is waited for.
    pub(crate) async fn first(&self) -> Refusal {
        let mut refusals = self.refusals.subscribe();
        refusals.wait_for(|refusals| !refusals.is_empty()).await.unwrap()[0].clone()
    }

    pub(crate) fn connected(&self) -> Vec<(String, SocketAddr)> {
        self.connected.lock().unwrap().clone()
    }
}

impl EgressObserver for Recorder {
    fn refused(&self, refusal: &Refusal) {
        self.refusals.send_modify(|refusals| refusals.push(refusal.clone()));
    }

    fn connected(&self, target: &Target, address: SocketAddr) {
        self.connected.lock().unwrap().push((target.to_string(), address));
    }
}

/// A proxy that serves on loopback until it is dropped.
pub(crate) struct Proxy {
    pub(crate) address: SocketAddr,
    pub(crate) recorder: Arc<Recorder>,
    _loopback: Loopback,
}

impl Proxy {
    /// A proxy under `policy`, for which `good.example` and its subdomains are on loopback.
    pub(crate) async fn start(policy: EgressPolicy) -> Self {
        Self::start_with(egress(policy)).await
    }

    pub(crate) async fn start_with(egress: Egress) -> Self {
        let recorder = Recorder::new();
        let egress = egress.with_observer(Arc::clone(&recorder) as Arc<dyn EgressObserver>);
        let loopback = Loopback::start(move |stream| {
            let egress = egress.clone();
            async move { egress.serve(stream).await }
        })
        .await;
        Self { address: loopback.address, recorder, _loopback: loopback }
    }

    /// Sends `bytes`, closes, and returns what the proxy sends until it closes.
    pub(crate) async fn ask(&self, bytes: impl AsRef<[u8]>) -> String {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        // A refusal may arrive before everything was read.
        let _ = stream.write_all(bytes.as_ref()).await;
        let _ = stream.shutdown().await;
        read_text(&mut stream).await
    }

    /// A tunnel to `target`, as `CONNECT` opens it.
    pub(crate) async fn tunnel(&self, target: &str) -> TcpStream {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        stream.write_all(format!("CONNECT {target} HTTP/1.1\r\n\r\n").as_bytes()).await.unwrap();
        expect(&mut stream, b"HTTP/1.1 200 Connection established\r\n\r\n").await;
        stream
    }

    pub(crate) fn reasons(&self) -> Vec<RefusalReason> {
        self.recorder.refusals().into_iter().map(|refusal| refusal.reason).collect()
    }
}

/// The egress that the tests adapt. Its clock does not move, so no timeout ends a connection on a busy machine.
pub(crate) fn egress(policy: EgressPolicy) -> Egress {
    without_timeouts(policy)
        .with_resolver(Arc::new(resolver()))
        .with_addresses(AddressPolicy::public_only().with_allowed([LOOPBACK.into()]))
}

/// An egress as in production, with a clock that does not move.
pub(crate) fn without_timeouts(policy: EgressPolicy) -> Egress {
    Egress::new(policy).with_clock(Arc::new(ManualClock::default()))
}

/// A loopback port without a listener, as long as the returned socket exists.
pub(crate) fn unused_port() -> (TcpSocket, u16) {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind((LOOPBACK, 0).into()).unwrap();
    let port = socket.local_addr().unwrap().port();
    (socket, port)
}

pub(crate) fn resolver() -> StaticResolver {
    ["good.example", "www.good.example", "other.example"]
        .into_iter()
        .fold(StaticResolver::new(), |resolver, name| resolver.with_host(name.parse().unwrap(), [LOOPBACK]))
}

/// A policy that allows these entries.
pub(crate) fn limited(list: impl AsRef<str>) -> EgressPolicy {
    EgressPolicy::Limited(list.as_ref().parse().unwrap())
}

/// The bytes until the other side closes or fails.
pub(crate) async fn read_text(stream: &mut (impl tokio::io::AsyncRead + Unpin)) -> String {
    let mut received = Vec::new();
    let _ = stream.read_to_end(&mut received).await;
    received.iter().map(|byte| char::from(*byte)).collect()
}

/// Reads exactly `bytes`.
pub(crate) async fn expect(stream: &mut (impl tokio::io::AsyncRead + Unpin), bytes: &[u8]) {
    let mut received = vec![0; bytes.len()];
    stream.read_exact(&mut received).await.unwrap();
    assert_eq!(String::from_utf8_lossy(&received), String::from_utf8_lossy(bytes));
}

/// A server on loopback that passes each connection to `serve`, until it is dropped.
pub(crate) struct Server {
    pub(crate) port: u16,
    _loopback: Loopback,
}

impl Server {
    pub(crate) async fn start<F>(serve: impl Fn(TcpStream) -> F + Send + 'static) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let loopback = Loopback::start(serve).await;
        Self { port: loopback.address.port(), _loopback: loopback }
    }

    /// A server that records what it reads, and sends `answer` when that ends with `end`. It continues to read, and
    /// closes when the other side does.
    pub(crate) async fn recording(answer: &'static str, end: &'static str) -> (Self, ReceivedData) {
        let received = ReceivedData::default();
        let recorder = received.clone();
        let server = Self::start(move |stream| {
            let recorder = recorder.clone();
            async move { recorder.serve(stream, answer, end).await }
        })
        .await;
        (server, received)
    }

    pub(crate) fn at(&self, host: &str) -> String {
        format!("{host}:{}", self.port)
    }
}

/// The bytes that a server has received, by connection.
#[derive(Debug, Clone, Default)]
pub(crate) struct ReceivedData(Arc<watch::Sender<Vec<Conversation>>>);

#[derive(Debug, Clone, Default)]
struct Conversation {
    text: String,
    is_over: bool,
}

impl ReceivedData {
    pub(crate) fn all(&self) -> Vec<String> {
        self.0.borrow().iter().map(|received| received.text.clone()).collect()
    }

    /// The bytes received in the first connection, after its end.
    pub(crate) async fn first(&self) -> String {
        let mut all = self.0.subscribe();
        let is_over = |all: &Vec<Conversation>| all.first().is_some_and(|first| first.is_over);
        all.wait_for(is_over).await.unwrap()[0].text.clone()
    }

    async fn serve(&self, mut stream: TcpStream, answer: &str, end: &str) {
        let offset = {
            let mut offset = 0;
            self.0.send_modify(|received| {
                offset = received.len();
                received.push(Conversation::default());
            });
            offset
        };
        let mut buffer = vec![0; 1 << 16];
        while let Ok(count @ 1..) = stream.read(&mut buffer).await {
            let piece: String = buffer[..count].iter().map(|byte| char::from(*byte)).collect();
            self.0.send_modify(|received| received[offset].text.push_str(&piece));
            let has_ended = self.0.borrow()[offset].text.ends_with(end);
            if has_ended {
                stream.write_all(answer.as_bytes()).await.unwrap();
            }
        }
        self.0.send_modify(|received| received[offset].is_over = true);
    }
}

/// A server that speaks HTTP over TLS under `names` and answers every request with `hello over TLS`. Also its authority.
pub(crate) async fn tls_server(names: &[&str]) -> (Vec<u8>, Server) {
    let (root, acceptor) = authority(names);
    let server = Server::start(move |stream| {
        let acceptor = acceptor.clone();
        async move {
            let Ok(mut stream) = acceptor.accept(stream).await else { return };
            let mut request = Vec::new();
            while !request.ends_with(b"\r\n\r\n") {
                let Ok(byte) = stream.read_u8().await else { return };
                request.push(byte);
            }
            let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 14\r\nConnection: close\r\n\r\nhello over TLS";
            let _ = stream.write_all(answer).await;
            let _ = stream.shutdown().await;
        }
    })
    .await;
    (root, server)
}
