//! Ingestion of real files, pipes, devices and contents: what is accepted and what is rejected.

use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt as _, symlink};
use std::sync::atomic::{AtomicBool, Ordering};

use conjure_base::Digest;
use rustix::fs::{CWD, FileType, Mode};
use serde_json::json;
use tempfile::TempDir;

use super::*;
use crate::error::ArtifactErrorKind as Kind;

struct Fixture {
    dir: TempDir,
    store: Store,
    options: ArtifactOptions,
}

impl Fixture {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(&dir.path().join("store")).unwrap();
        Self { dir, store, options: ArtifactOptions::default() }
    }

    /// Only what lies beneath `allowed` may be registered.
    fn fenced() -> Self {
        let mut fixture = Self::new();
        let allowed = fixture.path("allowed");
        fs::create_dir(&allowed).unwrap();
        fixture.options.allowed_dirs = Some(vec![allowed]);
        fixture
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn file(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, bytes).unwrap();
        path
    }

    async fn take(&self, name: &str, source: RegistrationSource) -> Result<Artifact, ArtifactError> {
        self.register(Registration::new(name.parse().unwrap(), source)).await
    }

    async fn register(&self, registration: Registration) -> Result<Artifact, ArtifactError> {
        let ingestor = ArtifactIngestor::new(Arc::new(self.options.clone()));
        ingestor.ingest(registration, &self.store, &CancellationToken::new()).await
    }

    async fn fails(&self, path: &Path, kind: Kind) -> String {
        let error = self.take("it", RegistrationSource::file(path)).await.expect_err(&path.to_string_lossy());
        assert_eq!(error.kind(), kind, "{}: {error}", path.display());
        let text = error.to_string();
        assert!(!text.contains(self.dir.path().to_str().unwrap()), "{text} tells a path of the host's");
        assert_eq!(self.store.usage().unwrap().temporary, 0, "nothing half written is left");
        text
    }
}

#[tokio::test]
async fn a_file_is_ingested_as_it_is_now() {
    let fixture = Fixture::new();
    let path = fixture.file("uploads/abc123.csv", b"a,b\n");
    let artifact = fixture.take("sales", RegistrationSource::file(&path)).await.unwrap();
    assert_eq!(artifact.content, Some(ArtifactContent { digest: Digest::of_bytes(b"a,b\n"), size: 4 }));
    assert_eq!((artifact.content_type.as_str(), artifact.name.as_str()), ("text/csv", "sales"));
    assert_eq!(artifact.source, ArtifactSource::File { path: path.clone() });
    fs::write(&path, "changed").unwrap();
    assert_eq!(
        fixture.store.size(&Digest::of_bytes(b"a,b\n")).unwrap(),
        Some(4),
        "what becomes of the file is all the same"
    );
    assert_eq!(fs::metadata(&path).unwrap().nlink(), 1);
}

#[tokio::test]
async fn a_relative_path_is_recorded_as_an_absolute_one() {
    let fixture = Fixture::new();
    let artifact = fixture.take("manifest", RegistrationSource::file("Cargo.toml")).await.unwrap();
    let ArtifactSource::File { path } = &artifact.source else { panic!("{artifact:?}") };
    assert!(path.is_absolute() && path.ends_with("Cargo.toml"));
    assert_eq!(artifact.content_type, "application/toml");
}

#[tokio::test]
async fn media_types_are_declared_or_detected() {
    let fixture = Fixture::new();
    let upload = fixture.file("upload_1", b"{}");
    assert_eq!(
        fixture.take("config.json", RegistrationSource::file(&upload)).await.unwrap().content_type,
        "application/json"
    );
    let png = fixture.file("page.html", b"\x89PNG\r\n\x1a\n");
    assert_eq!(fixture.take("page", RegistrationSource::file(&png)).await.unwrap().content_type, "image/png");
    let declared = RegistrationSource::content(&b"x"[..], "text/x-mine; charset=utf-8");
    assert_eq!(
        fixture.take("a.csv", declared.clone()).await.unwrap().content_type,
        "text/x-mine; charset=utf-8"
    );
    let mut registration = Registration::new("a".parse().unwrap(), declared);
    registration.content_type = Some("text/csv".to_owned());
    assert_eq!(fixture.register(registration.clone()).await.unwrap().content_type, "text/csv");
    registration.content_type = Some("text/csv\r\nX-Evil: 1".to_owned());
    let error = fixture.register(registration).await.unwrap_err();
    assert_eq!(error.kind(), Kind::InvalidRegistration);
    assert!(!error.to_string().contains('\r'), "{error}");
}

#[tokio::test]
async fn the_record_tells_if_the_media_type_was_declared() {
    let fixture = Fixture::new();
    let file = RegistrationSource::file(fixture.file("data.csv", b"a,b\n"));
    let content = RegistrationSource::Content { bytes: b"{}"[..].into(), content_type: None };
    let declared = RegistrationSource::content(&b"{}"[..], "text/csv");
    let url = RegistrationSource::url("https://api.example.com/data.json");
    for (source, says) in [(file, false), (content, false), (declared, true), (url, false)] {
        let plain = Registration::new("a".parse().unwrap(), source);
        let typed = Registration { content_type: Some("text/x-mine".to_owned()), ..plain.clone() };
        let origin = fixture.register(plain).await.unwrap().content_type_origin;
        assert_eq!(origin == ContentTypeOrigin::Declared, says);
        let artifact = fixture.register(typed).await.unwrap();
        assert_eq!(artifact.content_type, "text/x-mine");
        assert_eq!(artifact.content_type_origin, ContentTypeOrigin::Declared);
    }
}

#[tokio::test]
async fn special_files_are_rejected_without_blocking() {
    let fixture = Fixture::new();
    let pipe = fixture.path("pipe");
    rustix::fs::mkfifoat(CWD, &pipe, Mode::RWXU).unwrap();
    let socket = fixture.path("socket");
    let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    let through_link = fixture.path("to-pipe");
    symlink(&pipe, &through_link).unwrap();
    let circle = fixture.path("circle");
    symlink("circle", &circle).unwrap();
    for path in [
        pipe.as_path(),
        &socket,
        &through_link,
        &circle,
        fixture.dir.path(),
        Path::new("/dev/null"),
        Path::new("/dev/zero"),
        Path::new("/dev/tty"),
        Path::new("/dev/stdin"),
        Path::new("/dev/fd/0"),
        Path::new("/proc/self/environ"),
        Path::new("/proc/self/mem"),
        Path::new("/proc/self/exe"),
        Path::new("/proc/self/root/etc/passwd"),
        Path::new("/proc/cpuinfo"),
        Path::new("/sys/kernel/notes"),
    ] {
        fixture.fails(path, Kind::NotAFile).await;
    }
    fixture.fails(&fixture.path("absent"), Kind::FileNotFound).await;
    fixture.fails(&fixture.path("pipe/x"), Kind::FileNotFound).await;
    fixture.fails(Path::new("a\0b"), Kind::FileNotFound).await;
    fixture.fails(Path::new(""), Kind::FileNotFound).await;
}

/// Only root may create one. It belongs to a driver that does not exist, and opening it would give a distinct error.
#[tokio::test]
async fn devices_are_not_opened() {
    let fixture = Fixture::new();
    let device = fixture.path("device");
    let result = rustix::fs::mknodat(
        CWD,
        &device,
        FileType::CharacterDevice,
        Mode::RWXU,
        rustix::fs::makedev(240, 99),
    );
    let path = if result.is_ok() { device.as_path() } else { Path::new("/dev/full") };
    fixture.fails(path, Kind::NotAFile).await;
}

#[tokio::test]
async fn permission_errors_are_reported() {
    if rustix::process::geteuid().is_root() {
        // Root reads everything; there is nothing to refuse.
        return;
    }
    let fixture = Fixture::new();
    let path = fixture.file("private", b"x");
    fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o000)).unwrap();
    fixture.fails(&path, Kind::PermissionDenied).await;
}

#[tokio::test]
async fn only_files_beneath_allowed_directories_are_ingested() {
    let fixture = Fixture::fenced();
    let valid_file = fixture.file("allowed/deep/a.csv", b"good");
    let secret = fixture.file("secret", b"secret");
    let allowed = fixture.path("allowed");
    assert!(fixture.take("a", RegistrationSource::file(&valid_file)).await.is_ok());
    assert!(fixture.take("a", RegistrationSource::file(allowed.join("deep/../deep/./a.csv"))).await.is_ok());
    fixture.fails(&secret, Kind::PathNotAllowed).await;
    fixture.fails(&fixture.path("absent"), Kind::PathNotAllowed).await;
    fixture.fails(Path::new("/etc/passwd"), Kind::PathNotAllowed).await;
    fixture.fails(&fixture.path("allowed-too/x"), Kind::PathNotAllowed).await;
    fixture.fails(&allowed.join("absent"), Kind::FileNotFound).await;
    fixture.fails(&allowed, Kind::NotAFile).await;
    fixture.fails(&allowed.join("../secret"), Kind::PathTraversal).await;
    fixture.fails(&allowed.join("deep/../../secret"), Kind::PathTraversal).await;
    fixture.fails(&allowed.join("../../../../../../../../etc/passwd"), Kind::PathTraversal).await;
}

#[tokio::test]
async fn links_are_followed_within_the_allowed_directories_only() {
    let fixture = Fixture::fenced();
    let valid_file = fixture.file("allowed/a.csv", b"good");
    let secret = fixture.file("secret", b"secret");
    let allowed = fixture.path("allowed");
    let link = |target: &Path, name: &str| {
        let path = fixture.path(name);
        symlink(target, &path).unwrap();
        path
    };
    for valid_file in [
        link(Path::new("a.csv"), "allowed/inner"),
        link(&valid_file, "allowed/absolute-inner"),
        link(&valid_file, "from-outside"),
        link(&allowed, "directory").join("a.csv"),
    ] {
        assert!(
            fixture.take("a", RegistrationSource::file(&valid_file)).await.is_ok(),
            "{}",
            valid_file.display()
        );
        // Of a file that is given by its real path, a link was put there later.
        assert!(fixture.take("a", RegistrationSource::real_file(&valid_file)).await.is_err());
    }
    assert!(fixture.take("a", RegistrationSource::real_file(fixture.path("allowed/a.csv"))).await.is_ok());
    fixture.fails(&link(Path::new("../secret"), "allowed/up"), Kind::PathTraversal).await;
    fixture.fails(&link(&secret, "allowed/out"), Kind::PathTraversal).await;
    fixture.fails(&link(Path::new(".."), "allowed/directory").join("secret"), Kind::PathTraversal).await;
    fixture
        .fails(&link(Path::new("/proc/self/root"), "allowed/magic").join("etc/passwd"), Kind::PathTraversal)
        .await;
}

#[tokio::test]
async fn an_allowed_directory_may_be_named_by_a_link() {
    let mut fixture = Fixture::fenced();
    let valid_file = fixture.file("allowed/a.csv", b"good");
    let named = fixture.path("named");
    symlink("allowed", &named).unwrap();
    fixture.options.allowed_dirs = Some(vec![fixture.path("absent"), named.clone()]);
    assert!(fixture.take("a", RegistrationSource::file(named.join("a.csv"))).await.is_ok());
    assert!(fixture.take("a", RegistrationSource::file(valid_file)).await.is_ok());
}

#[tokio::test]
async fn an_empty_list_of_directories_allows_nothing() {
    let mut fixture = Fixture::new();
    fixture.options.allowed_dirs = Some(Vec::new());
    let path = fixture.file("a", b"x");
    let text = fixture.fails(&path, Kind::PathNotAllowed).await;
    assert!(text.contains("`it`"), "{text}");
}

/// A link that is swapped all the time between a good file and a secret one: whatever is taken in is the good one.
#[tokio::test]
async fn a_concurrently_swapped_link_never_escapes() {
    let fixture = Fixture::fenced();
    fixture.file("allowed/good", b"good");
    fixture.file("secret", b"secret");
    let swapped = fixture.path("allowed/swapped");
    symlink("good", &swapped).unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let swapper = {
        let (stop, swapped, new) = (Arc::clone(&stop), swapped.clone(), fixture.path("allowed/new"));
        std::thread::spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                for target in ["../secret", "good"] {
                    symlink(target, &new).unwrap();
                    fs::rename(&new, &swapped).unwrap();
                }
            }
        })
    };
    let (mut taken, mut refused) = (0, 0);
    for _ in 0..1_000_000 {
        match fixture.take("it", RegistrationSource::file(&swapped)).await {
            Ok(artifact) => {
                assert_eq!(artifact.content.unwrap().digest, Digest::of_bytes(b"good"));
                taken += 1;
            }
            Err(error) => {
                assert_eq!(error.kind(), Kind::PathTraversal, "{error}");
                refused += 1;
            }
        }
        if taken >= 50 && refused >= 50 {
            break;
        }
    }
    stop.store(true, Ordering::Relaxed);
    swapper.join().unwrap();
    assert!(taken >= 50 && refused >= 50, "{taken} were taken, {refused} refused");
    assert_eq!(fixture.store.size(&Digest::of_bytes(b"secret")).unwrap(), None);
}

#[tokio::test]
async fn files_and_contents_have_a_size_limit() {
    let mut fixture = Fixture::new();
    fixture.options.max_file_size = 5;
    assert!(fixture.take("a", RegistrationSource::file(fixture.file("five", b"12345"))).await.is_ok());
    let text = fixture.fails(&fixture.file("six", b"123456"), Kind::TooLarge).await;
    assert!(text.contains("`it` has more than 5 bytes"), "{text}");
    let sparse = fixture.path("sparse");
    File::create(&sparse).unwrap().set_len(1 << 40).unwrap();
    fixture.fails(&sparse, Kind::TooLarge).await;
    let content = fixture.take("a", RegistrationSource::content(vec![0; 6], "text/plain")).await;
    assert_eq!(content.unwrap_err().kind(), Kind::TooLarge);
}

/// A writer adds to the file all the time: it is refused, or was as it was read, if that was between two writes; never cut.
#[tokio::test]
async fn a_file_that_grows_while_it_is_read_is_refused() {
    let fixture = Fixture::new();
    let path = fixture.file("growing", &vec![b'x'; 4 << 20]);
    let stop = CancellationToken::new();
    let writer = {
        let (stop, file) = (stop.clone(), fs::OpenOptions::new().append(true).open(&path).unwrap());
        std::thread::spawn(move || {
            let mut size = 4 << 20;
            while !stop.is_cancelled() {
                size += 1;
                file.set_len(size).unwrap();
            }
        })
    };
    let mut refused = None;
    for _ in 0..1000 {
        match fixture.take("it", RegistrationSource::file(&path)).await {
            Ok(artifact) => {
                let content = artifact.content.unwrap();
                let bytes = fs::read(&path).unwrap();
                assert_eq!(
                    Digest::of_bytes(&bytes[..usize::try_from(content.size).unwrap()]),
                    content.digest
                );
                fixture.store.remove(&content.digest).unwrap();
            }
            Err(error) => {
                refused = Some(error);
                break;
            }
        }
    }
    stop.cancel();
    writer.join().unwrap();
    let error = refused.unwrap();
    assert_eq!(error.kind(), Kind::Changed, "{error}");
    assert!(error.is_retryable());
    assert_eq!(fixture.store.usage().unwrap().contents, 0);
}

#[tokio::test]
async fn urls_are_checked_and_not_fetched() {
    let mut fixture = Fixture::new();
    let artifact = fixture
        .take("config", RegistrationSource::url("HTTPS://api.example.com/v1/config.json?key=1"))
        .await
        .unwrap();
    assert_eq!(
        artifact.source,
        ArtifactSource::Url { url: "https://api.example.com/v1/config.json?key=1".to_owned() }
    );
    assert_eq!((artifact.content_type.as_str(), &artifact.content), ("application/json", &None));
    let refused = async |fixture: &Fixture, url: &str, kind| {
        let error = fixture.take("config", RegistrationSource::url(url)).await.expect_err(url);
        assert_eq!(error.kind(), kind, "{url}: {error}");
        error.to_string()
    };
    let text = refused(&fixture, "http://example.com/", Kind::SchemeNotAllowed).await;
    assert_eq!(text, "the scheme `http` is not allowed: only `https` is");
    refused(&fixture, "ftp://example.com/", Kind::InvalidUri).await;
    refused(&fixture, "file://report", Kind::InvalidUri).await;
    refused(&fixture, "https://user@example.com/", Kind::InvalidUri).await;
    fixture.options.url_fetch = UrlFetch::Off;
    refused(&fixture, "https://example.com/", Kind::FetchDisabled).await;
}

/// Unfetchable URLs are rejected at registration, without a lookup.
#[cfg(feature = "fetch")]
#[tokio::test]
async fn urls_are_checked_by_the_fetcher() {
    use conjure_base::SystemClock;
    use conjure_egress::{DnsResolver, Egress, EgressPolicy, HostName};

    #[derive(Debug)]
    struct PanickingResolver;

    impl DnsResolver for PanickingResolver {
        fn resolve(
            &self,
            name: &HostName,
        ) -> futures_util::future::BoxFuture<'static, io::Result<Vec<std::net::IpAddr>>> {
            panic!("it was asked for `{name}`");
        }
    }

    let fixture = Fixture::new();
    let options = Arc::new(fixture.options.clone());
    let egress = Egress::new(EgressPolicy::Full).with_resolver(Arc::new(PanickingResolver));
    let fetch = crate::HttpFetch::new(Arc::clone(&options), egress, Arc::new(SystemClock)).unwrap();
    let ingestor = ArtifactIngestor::new(options).with_fetch(Arc::new(fetch));
    for (url, kind) in [
        ("https://example.com/a.csv", None),
        ("https://localhost/", Some(Kind::HostBlocked)),
        ("https://LOCALHOST./", Some(Kind::HostBlocked)),
        ("https://0x7f.1/", Some(Kind::HostBlocked)),
        ("https://[::ffff:127.0.0.1]/", Some(Kind::HostBlocked)),
        ("https://169.254.169.254/latest/meta-data/", Some(Kind::HostBlocked)),
        ("https://example.com:0/", Some(Kind::InvalidUri)),
        ("http://example.com/", Some(Kind::SchemeNotAllowed)),
    ] {
        let registration = Registration::new("a".parse().unwrap(), RegistrationSource::url(url));
        let ingested = ingestor.ingest(registration, &fixture.store, &CancellationToken::new()).await;
        assert_eq!(ingested.err().map(|error| error.kind()), kind, "{url}");
    }
}

#[tokio::test]
async fn content_of_another_store_is_imported() {
    let (fixture, other) = (Fixture::new(), Fixture::new());
    let digest = other.store.insert_bytes(b"%PDF-1.7\n", FileMode::Plain).unwrap().digest;
    let source =
        |digest| RegistrationSource::Stored { store: other.store.clone(), digest, content_type: None };
    let artifact = fixture.take("report", source(digest)).await.unwrap();
    assert_eq!((artifact.content_type.as_str(), artifact.size()), ("application/pdf", Some(9)));
    assert_eq!(artifact.source, ArtifactSource::Content);
    assert_eq!(fixture.store.size(&digest).unwrap(), Some(9));
    let error = fixture.take("report", source(Digest::of_bytes(b"absent"))).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Store);
}

#[tokio::test]
async fn metadata_is_kept_and_bounded() {
    let fixture = Fixture::new();
    let mut registration =
        Registration::new("a".parse().unwrap(), RegistrationSource::content(&b"x"[..], "text/plain"));
    registration.metadata.insert("origin".to_owned(), json!({"user": 7}));
    assert_eq!(fixture.register(registration.clone()).await.unwrap().metadata["origin"]["user"], 7);
    registration.metadata.insert("long".to_owned(), json!("x".repeat(5000)));
    let error = fixture.register(registration).await.unwrap_err();
    assert_eq!(error.kind(), Kind::InvalidRegistration);
    assert!(error.to_string().contains("4096"), "{error}");
}

#[tokio::test]
async fn cancelled_or_dropped_ingests_leave_nothing() {
    let mut fixture = Fixture::new();
    fixture.options.max_file_size = u64::MAX;
    let path = fixture.path("large");
    File::create(&path).unwrap().set_len(16 << 30).unwrap();
    let ingestor = ArtifactIngestor::new(Arc::new(fixture.options.clone()));
    let registration = Registration::new("large".parse().unwrap(), RegistrationSource::file(&path));

    let cancel = CancellationToken::new();
    let cancelling = async {
        tokio::task::yield_now().await;
        cancel.cancel();
    };
    let (ingested, ()) =
        tokio::join!(ingestor.ingest(registration.clone(), &fixture.store, &cancel), cancelling);
    assert_eq!(ingested.unwrap_err().kind(), Kind::Cancelled);
    let second = ingestor.ingest(registration.clone(), &fixture.store, &cancel).await;
    assert_eq!(second.unwrap_err().kind(), Kind::Cancelled);

    let fresh = CancellationToken::new();
    let dropped = ingestor.ingest(registration, &fixture.store, &fresh);
    assert!(futures_util::poll!(Box::pin(dropped)).is_pending());
    // The threads stop at their next piece: a runtime that is shut down would wait for them, and so does this.
    let is_idle = || fixture.store.usage().unwrap().temporary == 0;
    while !is_idle() {
        tokio::task::yield_now().await;
    }
    assert_eq!(fixture.store.usage().unwrap().contents, 0);
}
