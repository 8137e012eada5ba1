//! A fetch with its own store, and loopback servers that send exactly the bytes of a test.

use std::future::Future;
use std::io::Read as _;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use conjure_artifact::{
    ArtifactError, ArtifactErrorKind, ArtifactOptions, Fetch as _, FetchRequest, FetchedContent, HttpFetch,
};
use conjure_base::{Clock, Deadline, TenantId};
use conjure_egress::{AddressPolicy, DnsResolver, Egress, EgressPolicy, HostName};
use conjure_store::{Store, StoreUsage, Verify};
use futures_util::future::BoxFuture;
use tempfile::TempDir;
use test_support::{Loopback, ManualClock};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

#[path = "../../../egress/tests/it/static_resolver.rs"]
mod static_resolver;

pub(crate) use static_resolver::StaticResolver;

/// The address that the tests allow besides public ones.
pub(crate) const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// Changes to the default options.
pub(crate) struct Settings {
    pub(crate) options: ArtifactOptions,
    pub(crate) policy: EgressPolicy,
    pub(crate) resolver: Arc<dyn DnsResolver>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) roots: Vec<Vec<u8>>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            options: options(),
            policy: EgressPolicy::Full,
            resolver: Arc::new(resolver()),
            // Time is paused: no limit ends a fetch because the machine is busy.
            clock: Arc::new(ManualClock::default()),
            roots: Vec::new(),
        }
    }
}

/// Plain HTTP, and a loopback that is not blocked by name.
pub(crate) fn options() -> ArtifactOptions {
    ArtifactOptions {
        allowed_schemes: vec!["https".to_owned(), "http".to_owned()],
        blocked_hosts: ["localhost", "169.254.169.254", "Blocked.Example.", "bücher.example", "1.2.3.4"]
            .map(str::to_owned)
            .to_vec(),
        ..ArtifactOptions::default()
    }
}

/// A loopback port without a listener, as long as the returned socket exists.
pub(crate) fn unused_port() -> (TcpSocket, u16) {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind((LOOPBACK, 0).into()).unwrap();
    let port = socket.local_addr().unwrap().port();
    (socket, port)
}

pub(crate) fn resolver() -> StaticResolver {
    let answers = [
        ("good.example", vec!["127.0.0.1"]),
        ("other.example", vec!["127.0.0.1"]),
        ("localhost", vec!["127.0.0.1"]),
        ("told.example", vec!["127.0.0.1"]),
        ("private.example", vec!["10.0.0.1"]),
        ("told-private.example", vec!["10.0.0.1"]),
        ("link-local.example", vec!["169.254.1.1"]),
        ("metadata.example", vec!["100.100.100.200"]),
        ("mapped.example", vec!["::ffff:192.168.0.1"]),
        ("unique-local.example", vec!["fd00::1"]),
        ("mixed.example", vec!["127.0.0.1", "10.0.0.1"]),
        ("blocked-address.example", vec!["1.2.3.4"]),
        ("empty.example", vec![]),
    ];
    answers.into_iter().fold(StaticResolver::new(), |resolver, (name, addresses)| {
        resolver
            .with_host(name.parse().unwrap(), addresses.into_iter().map(|address| address.parse().unwrap()))
    })
}

/// Counts its lookups.
#[derive(Debug)]
pub(crate) struct CountingResolver {
    inner: StaticResolver,
    lookups: AtomicUsize,
}

impl CountingResolver {
    pub(crate) fn new(inner: StaticResolver) -> Arc<Self> {
        Arc::new(Self { inner, lookups: AtomicUsize::new(0) })
    }

    pub(crate) fn lookups(&self) -> usize {
        self.lookups.load(Ordering::Relaxed)
    }
}

impl DnsResolver for CountingResolver {
    fn resolve(&self, name: &HostName) -> BoxFuture<'static, std::io::Result<Vec<IpAddr>>> {
        self.lookups.fetch_add(1, Ordering::Relaxed);
        self.inner.resolve(name)
    }
}

/// A fetch, and the store of a tenant.
pub(crate) struct Fixture {
    pub(crate) fetch: HttpFetch,
    pub(crate) store: Store,
    pub(crate) tenant: TenantId,
    _dir: TempDir,
}

impl Fixture {
    pub(crate) fn new() -> Self {
        Self::with(|_| {})
    }

    pub(crate) fn with(change: impl FnOnce(&mut Settings)) -> Self {
        let mut settings = Settings::default();
        change(&mut settings);
        let Settings { options, policy, resolver, clock, roots } = settings;
        let egress = Egress::new(policy)
            .with_resolver(resolver)
            .with_clock(Arc::clone(&clock))
            .with_addresses(AddressPolicy::public_only().with_allowed([LOOPBACK.into()]));
        Self::of(HttpFetch::with_roots(Arc::new(options), egress, clock, roots).unwrap(), "tenant-1")
    }

    /// A store of its own for the same fetch.
    pub(crate) fn of(fetch: HttpFetch, tenant: &str) -> Self {
        crate::logging::keep_events();
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(&dir.path().join("store")).unwrap();
        Self { fetch, store, tenant: TenantId::new(tenant).unwrap(), _dir: dir }
    }

    pub(crate) fn request<'a>(&'a self, url: &'a str) -> FetchRequest<'a> {
        FetchRequest {
            url,
            tenant: &self.tenant,
            store: &self.store,
            network: &EgressPolicy::Full,
            deadline: Deadline::NEVER,
            cancel: CancellationToken::new(),
        }
    }

    pub(crate) async fn fetch(&self, url: &str) -> Result<FetchedContent, ArtifactError> {
        self.fetch.fetch(self.request(url)).await
    }

    /// The text that a URL leads to.
    pub(crate) async fn text(&self, url: &str) -> String {
        let fetched = self.fetch(url).await.unwrap();
        let bytes = self.bytes(&fetched);
        assert_eq!(bytes.len() as u64, fetched.content.size);
        String::from_utf8(bytes).unwrap()
    }

    pub(crate) fn bytes(&self, fetched: &FetchedContent) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.store.get(&fetched.content.digest, Verify::Yes).unwrap().read_to_end(&mut bytes).unwrap();
        bytes
    }

    /// Asserts that the fetch fails with this kind and leaves nothing. Returns the message.
    pub(crate) async fn refuses(&self, url: &str, kind: ArtifactErrorKind) -> String {
        let error = self.fetch(url).await.expect_err(url);
        assert_eq!(error.kind(), kind, "{url}: {error}");
        self.is_empty();
        error.to_string()
    }

    pub(crate) fn is_empty(&self) {
        assert_eq!(self.store.usage().unwrap(), StoreUsage::default());
    }
}

/// The head of a request.
#[derive(Debug, Clone)]
pub(crate) struct RequestHead(String);

impl RequestHead {
    async fn read(stream: &mut (impl AsyncRead + Unpin)) -> Option<Self> {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(stream.read_u8().await.ok()?);
        }
        Some(Self(String::from_utf8(head).unwrap()))
    }

    pub(crate) fn path(&self) -> &str {
        self.0.split(' ').nth(1).unwrap()
    }

    /// A header's value.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let lines = self.0.lines().skip(1).filter_map(|line| line.split_once(": "));
        lines.filter(|(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| value).next()
    }
}

/// A server on loopback, until it is dropped.
pub(crate) struct TestServer {
    pub(crate) port: u16,
    heads: Arc<watch::Sender<Vec<RequestHead>>>,
    _loopback: Loopback,
}

impl TestServer {
    /// Hands each request's head and its connection to `serve`.
    pub(crate) async fn serving<F>(
        serve: impl Fn(RequestHead, TcpStream) -> F + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let heads = Arc::new(watch::Sender::new(Vec::new()));
        let (noted, serve) = (Arc::clone(&heads), Arc::new(serve));
        let loopback = Loopback::start(move |mut stream| {
            let (noted, serve) = (Arc::clone(&noted), Arc::clone(&serve));
            async move {
                let Some(head) = RequestHead::read(&mut stream).await else { return };
                noted.send_modify(|heads| heads.push(head.clone()));
                serve(head, stream).await;
            }
        })
        .await;
        Self { port: loopback.address.port(), heads, _loopback: loopback }
    }

    /// Says what `answer` makes of each request, and hangs up.
    pub(crate) async fn answering<B: AsRef<[u8]> + Send + 'static>(
        answer: impl Fn(&RequestHead) -> B + Send + Sync + 'static,
    ) -> Self {
        Self::serving(move |head, mut stream| {
            let answer = answer(&head);
            async move {
                // A client that has read enough disconnects before the end.
                let _ = stream.write_all(answer.as_ref()).await;
                let _ = stream.shutdown().await;
                let _ = stream.read_to_end(&mut Vec::new()).await;
            }
        })
        .await
    }

    /// Says the same to everybody.
    pub(crate) async fn responding(answer: impl Into<Vec<u8>>) -> Self {
        let answer = answer.into();
        Self::answering(move |_| answer.clone()).await
    }

    pub(crate) fn url(&self, host: &str, path: &str) -> String {
        format!("http://{host}:{}{path}", self.port)
    }

    /// The usual URL.
    pub(crate) fn good_url(&self, path: &str) -> String {
        self.url("good.example", path)
    }

    pub(crate) fn requests(&self) -> Vec<RequestHead> {
        self.heads.borrow().clone()
    }

    pub(crate) fn paths(&self) -> Vec<String> {
        self.requests().iter().map(|head| head.path().to_owned()).collect()
    }

    /// Waits until this many requests have come.
    pub(crate) async fn was_asked(&self, times: usize) {
        self.heads.subscribe().wait_for(|heads| heads.len() >= times).await.unwrap();
    }
}

/// An answer with a body of known length.
pub(crate) fn ok(headers: &str, body: impl AsRef<[u8]>) -> Vec<u8> {
    let body = body.as_ref();
    let head = format!("HTTP/1.1 200 OK\r\n{headers}Content-Length: {}\r\n\r\n", body.len());
    [head.as_bytes(), body].concat()
}

pub(crate) fn redirect(location: &str) -> Vec<u8> {
    format!("HTTP/1.1 302 Found\r\nLocation: {location}\r\nContent-Length: 0\r\n\r\n").into_bytes()
}
