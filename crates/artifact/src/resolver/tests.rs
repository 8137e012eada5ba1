//! Resolution of references, with real directories, a real store and an egress with fixed responses.

use std::fs;
use std::os::unix::fs::symlink;
use std::sync::Mutex;

use conjure_base::Digest;
use conjure_conversation::ContentTypeOrigin;
use conjure_skill::Mode;
use conjure_store::FileMode;
use futures_util::StreamExt as _;
use tempfile::TempDir;

use super::*;
use crate::error::{ArtifactErrorKind as Kind, Retryable};
use crate::fetch::FetchFuture;

struct Session {
    dir: TempDir,
    resolver: ReferenceResolver,
    artifacts: Vec<Arc<Artifact>>,
    cancel: CancellationToken,
}

/// A skill `csv-helper` with an asset, a store, no artifacts, nothing fetched.
fn session() -> Session {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("csv-helper");
    fs::create_dir_all(root.join("assets/deep")).unwrap();
    fs::write(root.join("SKILL.md"), "---\nname: csv-helper\ndescription: d\n---\n").unwrap();
    fs::write(root.join("assets/sample.csv"), "a,b\n1,2\n").unwrap();
    fs::write(root.join("assets/deep/100% sure.txt"), "yes").unwrap();
    let skill = Arc::new(Skill::load(&root, Mode::Strict).unwrap());
    let store = Store::open(&dir.path().join("store")).unwrap();
    let resolver = ReferenceResolver::new(TenantId::new("acme").unwrap(), store, Arc::default())
        .with_skills(vec![skill]);
    Session { dir, resolver, artifacts: Vec::new(), cancel: CancellationToken::new() }
}

impl Session {
    async fn resolve(&self, uri: &str) -> Result<ResolvedReference, ArtifactError> {
        let uri = ArtifactUri::parse(uri)?;
        self.resolver.resolve(&uri, &self.artifacts, Deadline::NEVER, &self.cancel).await
    }

    async fn fails(&self, uri: &str, kind: Kind) -> String {
        let error = self.resolve(uri).await.expect_err(uri);
        assert_eq!(error.kind(), kind, "{uri}: {error}");
        let text = error.to_string();
        assert!(
            !text.contains(self.dir.path().to_str().unwrap()),
            "{uri}: {text} tells a path of the host's"
        );
        text
    }

    async fn read(&self, resolved: &ResolvedReference) -> Vec<u8> {
        let content = self.resolver.open(resolved).await.unwrap();
        assert_eq!(content.size, Some(resolved.size));
        let pieces: Vec<_> = content.stream.collect().await;
        pieces.into_iter().flat_map(Result::unwrap).collect()
    }

    fn add_artifact(&mut self, name: &str, bytes: &[u8]) -> ArtifactContent {
        let stored = self.resolver.store().insert_bytes(bytes, FileMode::Plain).unwrap();
        let content = ArtifactContent { digest: stored.digest, size: stored.size };
        let name = name.parse().unwrap();
        let artifact = Artifact::new(name, ArtifactSource::Content, "text/csv", Some(content.clone()));
        self.artifacts.push(artifact.into());
        content
    }

    fn first(&mut self) -> &mut Artifact {
        Arc::make_mut(&mut self.artifacts[0])
    }

    fn answering(&mut self, bytes: &'static [u8]) -> Arc<FixedEgress> {
        let answers = Arc::new(FixedEgress { bytes: Mutex::new(bytes), requests: Mutex::default() });
        self.resolver = self.resolver.clone().with_fetch(Arc::clone(&answers) as Arc<dyn Fetch>);
        answers
    }
}

/// An egress that leads to these bytes, or to nothing when there are none.
struct FixedEgress {
    bytes: Mutex<&'static [u8]>,
    requests: Mutex<Vec<(String, TenantId)>>,
}

impl Fetch for FixedEgress {
    fn fetch<'a>(&'a self, request: FetchRequest<'a>) -> FetchFuture<'a> {
        Box::pin(async move {
            self.requests.lock().unwrap().push((request.url.to_owned(), request.tenant.clone()));
            let bytes = *self.bytes.lock().unwrap();
            if bytes.is_empty() {
                let (url, reason) = (request.url.to_owned(), "nobody answers".to_owned());
                return Err(ArtifactError::FetchFailed { url, reason, retry: Retryable::Yes });
            }
            let stored = request.store.insert_bytes(bytes, FileMode::Plain)?;
            Ok(FetchedContent {
                content: ArtifactContent { digest: stored.digest, size: stored.size },
                content_type: "application/json".to_owned(),
                name: "data.json".to_owned(),
            })
        })
    }
}

#[tokio::test]
async fn a_file_of_a_skill_is_found_and_read() {
    let session = session();
    let found = session.resolve("skill://csv-helper/assets/sample.csv").await.unwrap();
    assert_eq!((found.content_type.as_str(), found.size), ("text/csv", 8));
    assert!(
        matches!(&found.location, ResolvedLocation::SkillFile { path, .. } if *path == std::path::Path::new("assets/sample.csv"))
    );
    assert_eq!(session.read(&found).await, b"a,b\n1,2\n");
    let found = session.resolve("skill://csv-helper/assets/deep/100%25%20sure.txt").await.unwrap();
    assert_eq!(session.read(&found).await, b"yes");
    assert_eq!(session.resolve("skill://csv-helper/SKILL.md").await.unwrap().content_type, "text/markdown");
}

#[tokio::test]
async fn missing_skill_files_are_reported_without_host_paths() {
    let session = session();
    let text = session.fails("skill://csv-helpr/assets/sample.csv", Kind::SkillNotFound).await;
    assert!(text.contains("`csv-helper`"), "{text}");
    let text = session.fails("skill://csv-helper/assets/absent.csv", Kind::AssetNotFound).await;
    assert!(text.contains("assets/absent.csv"), "{text}");
    session.fails("skill://csv-helper/assets/sample.csv/more", Kind::AssetNotFound).await;
    session.fails("skill://csv-helper/assets", Kind::NotAFile).await;
    session.fails(&format!("skill://csv-helper/{}", "a".repeat(3000)), Kind::AssetNotFound).await;
}

#[tokio::test]
async fn no_link_escapes_a_skill_even_if_swapped() {
    let session = session();
    let assets = session.dir.path().join("csv-helper/assets");
    fs::write(session.dir.path().join("secret"), "secret").unwrap();
    symlink("../../secret", assets.join("up")).unwrap();
    symlink("/etc/passwd", assets.join("absolute")).unwrap();
    symlink("sample.csv", assets.join("inner")).unwrap();
    symlink("circle", assets.join("circle")).unwrap();
    symlink("/proc/self/fd/0", assets.join("magic")).unwrap();
    session.fails("skill://csv-helper/assets/up", Kind::PathTraversal).await;
    session.fails("skill://csv-helper/assets/absolute", Kind::PathTraversal).await;
    session.fails("skill://csv-helper/assets/magic", Kind::PathTraversal).await;
    session.fails("skill://csv-helper/assets/circle", Kind::NotAFile).await;
    assert_eq!(session.resolve("skill://csv-helper/assets/inner").await.unwrap().size, 8);

    // Swapped between the look and the use: it is opened again, and refused.
    let found = session.resolve("skill://csv-helper/assets/sample.csv").await.unwrap();
    fs::remove_file(assets.join("sample.csv")).unwrap();
    symlink("../../secret", assets.join("sample.csv")).unwrap();
    let error = session.resolver.open(&found).await.unwrap_err();
    assert_eq!(error.kind(), Kind::PathTraversal);
}

#[tokio::test]
async fn pipes_in_a_skill_do_not_block() {
    let session = session();
    let pipe = session.dir.path().join("csv-helper/assets/pipe");
    rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::RWXU).unwrap();
    session.fails("skill://csv-helper/assets/pipe", Kind::NotAFile).await;
}

#[tokio::test]
async fn an_artifact_is_found_by_its_name() {
    let mut session = session();
    let content = session.add_artifact("sales", b"a,b\n");
    let found = session.resolve("file://sales").await.unwrap();
    assert!(
        matches!(&found.location, ResolvedLocation::Stored { name, content: stored } if name.as_str() == "sales" && *stored == content)
    );
    assert_eq!((found.content_type.as_str(), found.size, &found.newly_fetched), ("text/csv", 4, &None));
    assert_eq!(session.read(&found).await, b"a,b\n");
    let text = session.fails("file://Sales", Kind::ArtifactNotFound).await;
    assert!(text.ends_with("are: `sales`"), "{text}");
    assert_eq!(fs::read(session.resolver.content_path(&content).await.unwrap()).unwrap(), b"a,b\n");
    session.resolver.store().remove(&content.digest).unwrap();
    let text = session.fails("file://sales", Kind::Store).await;
    assert!(text.contains("not there any more"), "{text}");
    assert_eq!(session.resolver.content_path(&content).await.unwrap_err().kind(), Kind::Store);
    assert_eq!(session.resolver.open(&found).await.unwrap_err().kind(), Kind::Store);
}

#[tokio::test]
async fn an_error_lists_a_bounded_number_of_names() {
    let mut session = session();
    for number in 0..50 {
        session.add_artifact(&format!("a{number:02}"), b"x");
    }
    let text = session.fails("file://b", Kind::ArtifactNotFound).await;
    assert!(text.ends_with("`a19` and 30 more"), "{text}");
}

#[tokio::test]
async fn an_artifacts_url_is_revalidated_and_new_content_is_reported() {
    let mut session = session();
    let answers = session.answering(b"{}");
    let source = ArtifactSource::Url { url: "https://api.example.com/config.json".to_owned() };
    let artifact = Artifact::new("config".parse().unwrap(), source, "application/json", None);
    session.artifacts.push(artifact.into());
    let found = session.resolve("file://config").await.unwrap();
    let fetched = found.newly_fetched.clone().unwrap();
    assert_eq!(fetched.content.digest, Digest::of_bytes(b"{}"));
    assert_eq!(fetched.url, "https://api.example.com/config.json");
    assert_eq!(session.read(&found).await, b"{}");

    session.first().content = Some(fetched.content);
    assert_eq!(session.resolve("file://config").await.unwrap().newly_fetched, None, "nothing is new");
    *answers.bytes.lock().unwrap() = b"{\"a\":1}";
    assert_eq!(session.resolve("file://config").await.unwrap().newly_fetched.unwrap().content.size, 7);
    *answers.bytes.lock().unwrap() = b"";
    session.fails("file://config", Kind::FetchFailed).await;
    assert_eq!(answers.requests.lock().unwrap().len(), 4);
    assert_eq!(answers.requests.lock().unwrap()[0].1.as_str(), "acme");
}

#[tokio::test]
async fn a_declared_media_type_overrides_the_server() {
    let mut session = session();
    session.answering(b"a,b\n");
    let source = ArtifactSource::Url { url: "https://api.example.com/export?format=csv".to_owned() };
    let artifact = Artifact::new("export".parse().unwrap(), source, "text/csv", None);
    let artifact = Artifact { content_type_origin: ContentTypeOrigin::Declared, ..artifact };
    session.artifacts.push(artifact.into());
    let found = session.resolve("file://export").await.unwrap();
    let fetched = found.newly_fetched.unwrap();
    assert_eq!((found.content_type.as_str(), fetched.content_type.as_str()), ("text/csv", "text/csv"));
    session.first().content = Some(fetched.content);
    assert_eq!(session.resolve("file://export").await.unwrap().newly_fetched, None, "nothing is new");
    // A guess gives way.
    session.first().content_type_origin = ContentTypeOrigin::Guessed;
    let found = session.resolve("file://export").await.unwrap();
    assert_eq!(found.content_type, "application/json");
    assert_eq!(found.newly_fetched.unwrap().content_type, "application/json");
}

#[tokio::test]
async fn a_bare_url_gets_a_name_of_its_content() {
    let mut session = session();
    session.answering(b"{}");
    let found = session.resolve("https://example.com/data.json").await.unwrap();
    let ResolvedLocation::Stored { name, .. } = &found.location else { panic!("{found:?}") };
    let hex = Digest::of_bytes(b"{}").to_hex();
    assert_eq!(name.as_str(), format!("url-{}-data.json", &hex[..8]));
    assert_eq!(found.newly_fetched, None);
    assert_eq!(session.read(&found).await, b"{}");
}

#[test]
fn names_of_fetched_files_fit_and_keep_their_endings() {
    let fetched = |name: String| FetchedContent {
        content: ArtifactContent { digest: Digest::of_bytes(b""), size: 0 },
        content_type: String::new(),
        name,
    };
    let name = name_for_fetched(&fetched(format!("{}.csv", "ü".repeat(100)))).unwrap();
    assert!(name.as_str().ends_with("ü.csv") && name.as_str().len() > 120, "{name}");
    assert_eq!(name_for_fetched(&fetched("a/b".to_owned())).unwrap().as_str(), "url-e3b0c442-content");
}

#[tokio::test]
async fn urls_without_a_fetcher_are_an_error() {
    let mut session = session();
    session.fails("https://example.com/", Kind::FetchDisabled).await;
    let answers = session.answering(b"{}");
    let options = ArtifactOptions { url_fetch: UrlFetch::Off, ..ArtifactOptions::default() };
    session.resolver.options = Arc::new(options);
    let text = session.fails("https://example.com/", Kind::FetchDisabled).await;
    assert!(text.contains("switched"), "{text}");
    assert!(answers.requests.lock().unwrap().is_empty());
}

#[tokio::test]
async fn a_cancelled_resolution_returns_cancelled() {
    let mut session = session();
    session.add_artifact("sales", b"a");
    session.cancel.cancel();
    session.fails("file://sales", Kind::Cancelled).await;
    session.fails("skill://csv-helper/SKILL.md", Kind::Cancelled).await;
}

#[tokio::test]
async fn a_file_that_changes_while_it_is_streamed_ends_with_an_error() {
    let session = session();
    let path = session.dir.path().join("csv-helper/assets/big.bin");
    fs::write(&path, vec![7; 1 << 20]).unwrap();
    let found = session.resolve("skill://csv-helper/assets/big.bin").await.unwrap();
    type Change = fn(&std::path::Path);
    let changes: [(Change, &str); 2] = [
        (
            |path| fs::OpenOptions::new().write(true).open(path).unwrap().set_len(300_000).unwrap(),
            "truncated",
        ),
        (
            |path| {
                let mut file = fs::OpenOptions::new().append(true).open(path).unwrap();
                std::io::Write::write_all(&mut file, &[1; 900_000]).unwrap();
            },
            "changed",
        ),
    ];
    for (change, word) in changes {
        let mut stream = session.resolver.open(&found).await.unwrap().stream;
        assert_eq!(stream.next().await.unwrap().unwrap().len(), 256 * 1024);
        change(&path);
        let rest: Vec<_> = stream.collect().await;
        let error = rest.last().unwrap().as_ref().unwrap_err().to_string();
        assert!(error.contains(word), "{error}");
        assert!(rest[..rest.len() - 1].iter().all(Result::is_ok), "nothing follows an error");
    }
}

#[tokio::test]
async fn an_empty_content_streams_nothing() {
    let mut session = session();
    session.add_artifact("empty", b"");
    let found = session.resolve("file://empty").await.unwrap();
    assert_eq!(session.read(&found).await, b"");
}
