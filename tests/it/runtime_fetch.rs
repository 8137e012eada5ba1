//! The guarded fetch through the facade, against a real server: nothing of it crosses tenants, and a model reaches nothing private.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use conjure::{
    AddressPolicy, ArtifactErrorKind, ArtifactSettings, ArtifactSource, Egress, EgressPolicy, ExecutorKind,
    HttpFetch, Runtime, Session, SessionError, SessionSpec, Settings, SystemClock,
};
use futures_util::TryStreamExt as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::runtime_bed::{Host, ask, soon, spec, tenant};
use crate::runtime_programs::Sent;

/// A server whose answers are numbered.
struct Web {
    address: SocketAddr,
    asked: Arc<AtomicU32>,
    serving: tokio::task::JoinHandle<()>,
}

impl Drop for Web {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

impl Web {
    async fn start() -> Self {
        let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let asked = Arc::new(AtomicU32::new(0));
        let count = Arc::clone(&asked);
        let serving = tokio::runtime::Handle::current().spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let number = count.fetch_add(1, Ordering::SeqCst) + 1;
                let _ = stream.read(&mut [0; 4096]).await;
                let body = format!("answer {number}");
                let head = "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nConnection: close\r\n";
                let answer = format!("{head}Content-Length: {}\r\n\r\n{body}", body.len());
                let _ = stream.write_all(answer.as_bytes()).await;
            }
        });
        Self { address, asked, serving }
    }

    fn url(&self) -> String {
        format!("http://{}/data.txt", self.address)
    }
}

/// The host permits plain HTTP, and blocks no name.
fn lax() -> Settings {
    let artifacts = ArtifactSettings {
        allowed_schemes: Some(vec!["http".to_owned(), "https".to_owned()]),
        blocked_hosts: Some(Vec::new()),
        ..ArtifactSettings::default()
    };
    Settings { artifacts: Some(artifacts), ..Settings::default() }
}

async fn read(session: &Session, uri: &str) -> String {
    let content = session.artifacts().open(uri).await.unwrap();
    let bytes: Vec<u8> = content.stream.map_ok(|piece| piece.to_vec()).try_concat().await.unwrap();
    String::from_utf8(bytes).unwrap()
}

/// Whether a file beneath a folder is this text.
fn holds(folder: &Path, text: &str) -> bool {
    std::fs::read_dir(folder).unwrap().any(|entry| {
        let path = entry.unwrap().path();
        match path.symlink_metadata().unwrap() {
            found if found.is_dir() => holds(&path, text),
            found => found.is_file() && std::fs::read(&path).is_ok_and(|bytes| bytes == text.as_bytes()),
        }
    })
}

#[tokio::test]
async fn two_tenants_with_the_same_names_and_the_same_url_share_nothing() {
    let web = Web::start().await;
    let host = Host::with(ExecutorKind::Local, lax());
    let addresses = AddressPolicy::public_only().allow_addresses(["127.0.0.1".parse().unwrap()]);
    let way_out = Egress::new(EgressPolicy::Full).with_addresses(addresses);
    let options = host.config().artifacts().unwrap();
    let fetch = HttpFetch::new(options.into(), way_out, Arc::new(SystemClock)).unwrap();
    let runtime = Runtime::spawn(host.options().fetch(fetch)).await.unwrap();
    let of = |name: &str| SessionSpec::new(tenant(name)).artifact("api", ArtifactSource::url(web.url()));
    let (acme, other) = (runtime.open(of("acme")).await.unwrap(), runtime.open(of("other")).await.unwrap());
    assert_eq!(web.asked.load(Ordering::SeqCst), 0, "registering fetches nothing");
    assert_eq!(acme.artifacts().info("api").await.unwrap().size(), None);
    assert_eq!(read(&acme, "file://api").await, "answer 1");
    assert_eq!(read(&other, "file://api").await, "answer 2");
    // A second session of a tenant has what the first one fetched, and no other tenant's.
    let second = runtime.open(of("acme")).await.unwrap();
    assert_eq!(read(&second, "file://api").await, "answer 1");
    assert_eq!(web.asked.load(Ordering::SeqCst), 2);
    let holds = |name: &str, text: &str| holds(&host.data().join("tenants").join(name), text);
    assert!(holds("acme", "answer 1") && holds("other", "answer 2"));
    assert!(!holds("acme", "answer 2") && !holds("other", "answer 1"));
    runtime.shutdown(soon()).await.unwrap();
}

#[tokio::test]
async fn what_is_private_is_fetched_for_nobody_and_the_model_reads_why() {
    let web = Web::start().await;
    let host = Host::with(ExecutorKind::Local, lax());
    let sent = Sent::default();
    let runtime = Runtime::spawn(host.options().model("program", sent.model())).await.unwrap();
    let session = runtime.open(spec().model("program")).await.unwrap();
    let error = session.artifacts().resolve(&web.url()).await.unwrap_err();
    let SessionError::Artifact(error) = &error else { panic!("{error}") };
    assert_eq!(error.kind(), ArtifactErrorKind::PrivateAddress);
    let program = serde_json::json!([[["view", {"path": web.url()}]]]).to_string();
    ask(&session, &program).await;
    let results = format!("{:?}", sent.last().messages.last().unwrap());
    assert!(results.contains("the input `path` could not be resolved"), "{results}");
    assert!(results.contains("private address"), "{results}");
    assert_eq!(web.asked.load(Ordering::SeqCst), 0);
    runtime.shutdown(soon()).await.unwrap();
}

#[tokio::test]
async fn what_can_never_be_fetched_is_told_when_it_is_registered() {
    let host = Host::new(ExecutorKind::Local);
    let runtime = Runtime::spawn(host.options().model("program", Sent::default().model())).await.unwrap();
    let session = runtime.open(spec().model("program")).await.unwrap();
    for (url, kind) in [
        ("https://localhost/", ArtifactErrorKind::HostBlocked),
        ("https://[::ffff:127.0.0.1]/", ArtifactErrorKind::HostBlocked),
        ("https://example.com:99999/", ArtifactErrorKind::InvalidUri),
        ("http://example.com/", ArtifactErrorKind::SchemeNotAllowed),
    ] {
        let error = session.artifacts().register("a", ArtifactSource::url(url)).await.unwrap_err();
        let SessionError::Artifact(error) = &error else { panic!("{url}: {error}") };
        assert_eq!(error.kind(), kind, "{url}");
    }
    session.artifacts().register("a", ArtifactSource::url("https://example.com/")).await.unwrap();
    runtime.shutdown(soon()).await.unwrap();
}
