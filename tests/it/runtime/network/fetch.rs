//! The guarded fetch through the facade, against a real server: tenants share nothing, and a model reaches no private address.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use conjure::artifact::{
    AddressPolicy, ArtifactErrorKind, Egress, EgressPolicy, HttpFetch, RegistrationSource, ResolvedLocation,
};
use conjure::config::{ArtifactSettings, ExecutorKind};
use conjure::sandbox::NetworkPolicy;
use conjure::{Runtime, Session, SessionError, SessionSpec, Settings, SystemClock, TenantPolicy};
use futures_util::TryStreamExt as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::runtime::fixture::{Fixture, ask, soon, spec, tenant};
use crate::runtime::programs::SentRequests;

/// A server whose answers are numbered.
pub(crate) struct NumberedServer {
    address: SocketAddr,
    request_count: Arc<AtomicU32>,
    serving: tokio::task::JoinHandle<()>,
}

impl Drop for NumberedServer {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

impl NumberedServer {
    async fn start() -> Self {
        Self::responding(|number| format!("answer {number}")).await
    }

    /// With these bodies, of which the first one is number 1.
    pub(crate) async fn responding(body: impl Fn(u32) -> String + Send + 'static) -> Self {
        let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let calls = Arc::new(AtomicU32::new(0));
        let count = Arc::clone(&calls);
        let serving = tokio::runtime::Handle::current().spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let number = count.fetch_add(1, Ordering::SeqCst) + 1;
                let _ = stream.read(&mut [0; 4096]).await;
                let body = body(number);
                let head = "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nConnection: close\r\n";
                let answer = format!("{head}Content-Length: {}\r\n\r\n{body}", body.len());
                let _ = stream.write_all(answer.as_bytes()).await;
            }
        });
        Self { address, request_count: calls, serving }
    }

    /// How many requests have come.
    pub(crate) fn request_count(&self) -> u32 {
        self.request_count.load(Ordering::SeqCst)
    }

    /// Its address and port, as an entry of a list.
    pub(crate) fn host(&self) -> String {
        self.address.to_string()
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/data.txt", self.address)
    }

    /// Fetches as the host's configuration says, and may dial this server.
    pub(crate) fn fetch(&self, fixture: &Fixture) -> HttpFetch {
        let addresses = AddressPolicy::public_only().with_allowed([self.address.ip().into()]);
        let way_out = Egress::new(EgressPolicy::Full).with_addresses(addresses);
        let options = fixture.config().artifacts().unwrap();
        HttpFetch::new(options.into(), way_out, Arc::new(SystemClock)).unwrap()
    }
}

/// The host permits plain HTTP, and blocks no name.
pub(crate) fn permissive_settings() -> Settings {
    let artifacts = ArtifactSettings {
        allowed_schemes: Some(vec!["http".to_owned(), "https".to_owned()]),
        blocked_hosts: Some(Vec::new()),
        ..ArtifactSettings::default()
    };
    Settings { artifacts: Some(artifacts), ..Settings::default() }
}

pub(crate) async fn read(session: &Session, uri: &str) -> String {
    let content = session.artifacts().open(uri).await.unwrap();
    let bytes: Vec<u8> = content.stream.map_ok(|piece| piece.to_vec()).try_concat().await.unwrap();
    String::from_utf8(bytes).unwrap()
}

/// True if a file below the directory has this content.
fn contains_text(dir: &Path, text: &str) -> bool {
    std::fs::read_dir(dir).unwrap().any(|entry| {
        let path = entry.unwrap().path();
        match path.symlink_metadata().unwrap() {
            found if found.is_dir() => contains_text(&path, text),
            found => found.is_file() && std::fs::read(&path).is_ok_and(|bytes| bytes == text.as_bytes()),
        }
    })
}

#[cfg(not(engines))]
#[tokio::test]
async fn two_tenants_with_the_same_names_and_the_same_url_share_nothing() {
    let web = NumberedServer::start().await;
    let fixture = Fixture::with(ExecutorKind::Local, permissive_settings());
    let runtime = Runtime::spawn(fixture.options().fetch(web.fetch(&fixture))).await.unwrap();
    let of = |name: &str| SessionSpec::new(tenant(name)).artifact("api", RegistrationSource::url(web.url()));
    let (acme, other) = (runtime.open(of("acme")).await.unwrap(), runtime.open(of("other")).await.unwrap());
    assert_eq!(web.request_count(), 0, "registering fetches nothing");
    assert_eq!(acme.artifacts().info("api").await.unwrap().size(), None);
    assert_eq!(read(&acme, "file://api").await, "answer 1");
    assert_eq!(read(&other, "file://api").await, "answer 2");
    // A second session of a tenant has what the first one fetched, and no other tenant's.
    let second = runtime.open(of("acme")).await.unwrap();
    assert_eq!(read(&second, "file://api").await, "answer 1");
    assert_eq!(web.request_count(), 2);
    let holds = |name: &str, text: &str| contains_text(&fixture.data().join("tenants").join(name), text);
    assert!(holds("acme", "answer 1") && holds("other", "answer 2"));
    assert!(!holds("acme", "answer 2") && !holds("other", "answer 1"));
    runtime.shutdown(soon()).await.unwrap();
}

#[cfg(not(engines))]
#[tokio::test]
async fn private_addresses_are_never_fetched_and_the_model_is_told_why() {
    let web = NumberedServer::start().await;
    let fixture = Fixture::with(ExecutorKind::Local, permissive_settings());
    let sent = SentRequests::default();
    let runtime = Runtime::spawn(fixture.options().model("program", sent.model())).await.unwrap();
    let session = runtime.open(spec().model("program")).await.unwrap();
    let error = session.artifacts().resolve(&web.url()).await.unwrap_err();
    let SessionError::Artifact(error) = &error else { panic!("{error}") };
    assert_eq!(error.kind(), ArtifactErrorKind::PrivateAddress);
    let program = serde_json::json!([[["view", {"path": web.url()}]]]).to_string();
    ask(&session, &program).await;
    let results = format!("{:?}", sent.last().messages.last().unwrap());
    assert!(results.contains("the input `path` could not be resolved"), "{results}");
    assert!(results.contains("private address"), "{results}");
    assert_eq!(web.request_count(), 0);
    runtime.shutdown(soon()).await.unwrap();
}

/// The allow list of a tenant applies to fetches of the host on its behalf, as soon as it is set.
#[cfg(not(engines))]
#[tokio::test]
async fn urls_outside_of_a_tenants_network_are_fetched_for_none_of_its_sessions() {
    let web = NumberedServer::start().await;
    let fixture = Fixture::with(ExecutorKind::Local, permissive_settings());
    let runtime = Runtime::spawn(fixture.options().fetch(web.fetch(&fixture))).await.unwrap();
    let listed = |entry: String| TenantPolicy::new().network(NetworkPolicy::Limited(vec![entry]));
    let refused = |error: SessionError| {
        let SessionError::Artifact(error) = &error else { panic!("{error}") };
        error.kind()
    };
    let acme = runtime.open(SessionSpec::new(tenant("acme"))).await.unwrap();
    let other = runtime.open(SessionSpec::new(tenant("other"))).await.unwrap();
    acme.artifacts().register("early", RegistrationSource::url(web.url())).await.unwrap();
    runtime.set_tenant(&tenant("acme"), listed("example.com".to_owned())).unwrap();
    for uri in [web.url().as_str(), "file://early"] {
        let error = acme.artifacts().resolve(uri).await.unwrap_err();
        assert_eq!(refused(error), ArtifactErrorKind::HostBlocked, "{uri}");
    }
    let late_error = acme.artifacts().register("late", RegistrationSource::url(web.url())).await.unwrap_err();
    assert_eq!(refused(late_error), ArtifactErrorKind::HostBlocked);
    assert_eq!(web.request_count(), 0);
    assert_eq!(read(&other, &web.url()).await, "answer 1", "another tenant's list is its own");
    runtime.set_tenant(&tenant("acme"), listed(web.address.to_string())).unwrap();
    assert_eq!(read(&acme, "file://early").await, "answer 2");
    runtime.set_tenant(&tenant("acme"), TenantPolicy::new().network(NetworkPolicy::None)).unwrap();
    let error = acme.artifacts().resolve("file://early").await.unwrap_err();
    assert_eq!(refused(error), ArtifactErrorKind::FetchDisabled);
    runtime.shutdown(soon()).await.unwrap();
}

/// ADR-0018, section 7: a file of a skill and a bare URL, as the model names them.
#[cfg(not(engines))]
#[tokio::test]
async fn files_of_skills_and_bare_urls_are_read_where_a_tool_takes_a_path() {
    let web = NumberedServer::start().await;
    let fixture = Fixture::with(ExecutorKind::Jail, permissive_settings());
    let sent = SentRequests::default();
    let options = fixture.options().fetch(web.fetch(&fixture)).model("program", sent.model());
    let runtime = Runtime::spawn(options).await.unwrap();
    let session = runtime.open(spec().model("program")).await.unwrap();
    let program = serde_json::json!([[
        ["view", {"path": "skill://greeting/scripts/run.sh"}],
        ["view", {"path": web.url()}],
        ["view", {"path": "skill://greeting/scripts/none.sh"}],
    ]]);
    ask(&session, &program.to_string()).await;
    let results = format!("{:?}", sent.last().messages.last().unwrap());
    assert!(results.contains("echo hello") && results.contains("answer 1"), "{results}");
    assert!(results.contains("the input `path` could not be resolved"), "{results}");
    assert_eq!(web.request_count(), 1);
    runtime.shutdown(soon()).await.unwrap();
}

#[cfg(not(engines))]
#[tokio::test]
async fn unfetchable_urls_are_reported_at_registration() {
    let fixture = Fixture::new(ExecutorKind::Local);
    let runtime =
        Runtime::spawn(fixture.options().model("program", SentRequests::default().model())).await.unwrap();
    let session = runtime.open(spec().model("program")).await.unwrap();
    for (url, kind) in [
        ("https://localhost/", ArtifactErrorKind::HostBlocked),
        ("https://[::ffff:127.0.0.1]/", ArtifactErrorKind::HostBlocked),
        ("https://example.com:99999/", ArtifactErrorKind::InvalidUri),
        ("http://example.com/", ArtifactErrorKind::SchemeNotAllowed),
    ] {
        let error = session.artifacts().register("a", RegistrationSource::url(url)).await.unwrap_err();
        let SessionError::Artifact(error) = &error else { panic!("{url}: {error}") };
        assert_eq!(error.kind(), kind, "{url}");
    }
    session.artifacts().register("a", RegistrationSource::url("https://example.com/")).await.unwrap();
    runtime.shutdown(soon()).await.unwrap();
}

#[cfg(not(engines))]
#[tokio::test]
async fn without_a_cache_each_use_fetches_and_pinned_bytes_stay() {
    let web = NumberedServer::start().await;
    let settings = permissive_settings();
    let artifacts = settings.artifacts.map(|lax| ArtifactSettings { cache_fetched_urls: Some(false), ..lax });
    let fixture = Fixture::with(ExecutorKind::Local, Settings { artifacts, ..Settings::default() });
    let options = fixture.options().fetch(web.fetch(&fixture));
    let runtime = Runtime::spawn(options).await.unwrap();
    let session = runtime.open(spec().artifact("api", RegistrationSource::url(web.url()))).await.unwrap();
    let first = session.artifacts().resolve("file://api").await.unwrap();
    let opened = session.artifacts().open("file://api").await.unwrap();
    assert_eq!(web.request_count(), 2, "nothing is kept");
    let ResolvedLocation::Stored { content, .. } = &first.location else { panic!("{first:?}") };
    assert_eq!(content.size, 8);
    // Content resolved earlier is present, although it is not in the URL cache.
    let tenants = fixture.data().join("tenants");
    assert!(contains_text(&tenants, "answer 1") && contains_text(&tenants, "answer 2"));
    let bytes: Vec<u8> = opened.stream.map_ok(|piece| piece.to_vec()).try_concat().await.unwrap();
    assert_eq!(bytes, b"answer 2");
    runtime.shutdown(soon()).await.unwrap();
}
