//! The clients of skills and files against the fake, in both profiles.

use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use conjure_anthropic::fake::{FakeMessages, Refusal, Reply};
use conjure_anthropic::hosted::{
    FileId, HostedError, HostedErrorKind, HostedLimits, LATEST, SkillId, SkillSource, Upload, VersionId,
};
use conjure_anthropic::{ApiProfile, Client, Config};
use conjure_conversation::ApiErrorKind;
use conjure_skill::{Mode, Package, PackageLimits, pack_file};
use futures_util::TryStreamExt as _;
use secrecy::SecretString;
use tempfile::TempDir;
use tokio::net::TcpSocket;

use crate::support::{KEY, file, start};

pub(crate) const PROFILES: [ApiProfile; 2] = [ApiProfile::Beta, ApiProfile::Current];

pub(crate) fn client(fake: &FakeMessages, profile: ApiProfile) -> Client {
    let config = Config::new(SecretString::from(KEY)).with_base_url(fake.base_url()).with_profile(profile);
    Client::new(&config.with_http(|http| http.with_seed(1))).unwrap()
}

/// A directory with a skill of three files, and what is left out of it.
pub(crate) fn skill(dir: &TempDir, text: &str) -> PathBuf {
    let root = dir.path().join("my-skill");
    for sub in ["scripts", "assets", ".git", "evals"] {
        fs::create_dir_all(root.join(sub)).unwrap();
    }
    let main = format!("---\nname: my-skill\ndescription: {text}\n---\nBody\n");
    fs::write(root.join("SKILL.md"), main).unwrap();
    fs::write(root.join("scripts/a.py"), "print(1)\n").unwrap();
    fs::write(root.join("assets/weird n\u{e4}me.csv"), b"a,b\r\n--x\r\n").unwrap();
    for left_out in [".git/config", "evals/a.json", ".DS_Store", "scripts/a.pyc"] {
        fs::write(root.join(left_out), "x").unwrap();
    }
    root
}

async fn all<T>(items: impl futures_util::Stream<Item = Result<T, HostedError>>) -> Vec<T> {
    items.try_collect().await.unwrap()
}

fn kind<T: std::fmt::Debug>(result: Result<T, HostedError>) -> HostedErrorKind {
    let error = result.unwrap_err();
    assert!(!format!("{error} {error:?}").contains(KEY), "{error:?}");
    error.kind()
}

#[tokio::test]
async fn a_skill_is_uploaded_versioned_fetched_and_deleted() {
    let dir = tempfile::tempdir().unwrap();
    let path = skill(&dir, "First.");
    for profile in PROFILES {
        let fake = start(FakeMessages::builder().profile(profile)).await;
        let skills = client(&fake, profile).skills();
        let received = Arc::new(Mutex::new(Vec::new()));
        let recorder = Arc::clone(&received);
        let upload = Upload::new().with_title("My \u{e4}").on_progress(move |progress| {
            recorder.lock().unwrap().push((progress.sent, progress.total));
        });
        skill(&dir, "First.");
        let record = skills.upload(&path, upload).await.unwrap();
        assert_eq!((record.title.as_deref(), &record.source), (Some("My \u{e4}"), &SkillSource::Custom));
        let sent = fake.requests()[0].clone();
        let length: u64 = sent.header("content-length").unwrap().parse().unwrap();
        assert_eq!(received.lock().unwrap().last(), Some(&(length, length)));
        let body = String::from_utf8(sent.body().to_vec()).unwrap();
        assert!(body.contains("filename=\"my-skill/assets/weird n\u{e4}me.csv\"\r\nContent-Type: text/csv"));
        assert!(!body.contains(".git") && !body.contains("evals") && !body.contains(".pyc"), "{body}");

        skill(&dir, "Second.");
        let second = skills.create_version(&record.id, path.join("SKILL.md"), Upload::new()).await.unwrap();
        assert_eq!((second.description.as_str(), second.directory.as_str()), ("Second.", "my-skill"));
        assert_eq!(skills.get(&record.id).await.unwrap().latest, Some(second.id.clone()));
        let newest = skills.version(&record.id, &VersionId::new(LATEST)).await.unwrap();
        assert_eq!(newest, second);
        let versions = all(skills.versions(&record.id)).await;
        assert_eq!(versions.len(), 2);
        let first = versions.into_iter().find(|version| version.id != second.id).unwrap();
        assert_eq!(skills.version(&record.id, &first.id).await.unwrap().description, "First.");

        let zip = skills.download_version(&record.id, &VersionId::new(LATEST)).await.unwrap();
        assert_eq!(zip.media_type(), Some("application/zip"));
        let zip = zip.bytes().await.unwrap();
        let package = Package::from_bytes(zip, "x.skill", PackageLimits::default()).unwrap();
        assert_eq!(package.frontmatter(Mode::Strict).unwrap().description(), "Second.");
        assert_eq!(package.read("assets/weird n\u{e4}me.csv").unwrap(), b"a,b\r\n--x\r\n");
        assert_eq!(package.files().count(), 3);

        // The service refuses a skill that has versions.
        assert_eq!(kind(skills.delete(&record.id).await), HostedErrorKind::Refused);
        skills.delete_version(&record.id, &first.id).await.unwrap();
        assert_eq!(kind(skills.delete_version(&record.id, &first.id).await), HostedErrorKind::NotFound);
        skills.delete_with_versions(&record.id).await.unwrap();
        assert_eq!(kind(skills.get(&record.id).await), HostedErrorKind::NotFound);
        assert!(all(skills.list(Some(SkillSource::Custom))).await.is_empty());
    }
}

#[tokio::test]
async fn a_package_is_uploaded_like_its_directory() {
    let dir = tempfile::tempdir().unwrap();
    let path = skill(&dir, "Packed.");
    let package = dir.path().join("other-name.skill");
    pack_file(&path, &package, PackageLimits::default()).unwrap();
    let fake = start(FakeMessages::builder()).await;
    let skills = client(&fake, ApiProfile::Beta).skills();
    for path in [&path, &package] {
        skills.upload(path, Upload::new()).await.unwrap();
    }
    let requests = fake.requests();
    let plain = |index: usize| {
        let boundary = requests[index].header("content-type").unwrap().split_once("boundary=").unwrap().1;
        String::from_utf8(requests[index].body().to_vec()).unwrap().replace(boundary, "BOUNDARY")
    };
    assert_eq!(plain(0), plain(1));
    assert!(plain(0).contains("\"my-skill/SKILL.md\"") && !plain(0).contains("display_title"));
}

#[tokio::test]
async fn lists_are_read_page_by_page_by_source() {
    let dir = tempfile::tempdir().unwrap();
    let path = skill(&dir, "Many.");
    for profile in PROFILES {
        let fake = start(FakeMessages::builder().profile(profile)).await;
        let skills = client(&fake, profile).skills();
        for _ in 0..45 {
            skills.upload(&path, Upload::new()).await.unwrap();
        }
        let before = fake.received();
        let custom = all(skills.list(Some(SkillSource::Custom))).await;
        assert_eq!((custom.len(), fake.received() - before), (45, 3));
        let built_in = all(skills.list(Some(SkillSource::Anthropic))).await;
        assert_eq!(built_in.len(), 4);
        assert_eq!(all(skills.list(None)).await.len(), 49);
    }
}

#[tokio::test]
async fn files_are_uploaded_and_results_downloaded() {
    for profile in PROFILES {
        let fake = start(FakeMessages::builder().profile(profile)).await;
        let files = client(&fake, profile).files();
        let uploaded = files.upload("d\u{e4}ta \"q\".csv", file("1,2\n"), "text/csv").await.unwrap();
        assert_eq!(
            (uploaded.name.as_str(), uploaded.media_type.as_str()),
            ("d\u{e4}ta \"q\".csv", "text/csv")
        );
        assert_eq!((uploaded.size, uploaded.is_downloadable), (4, Some(false)));
        assert_eq!(fake.file(&uploaded.id).unwrap(), "1,2\n");
        assert_eq!(files.metadata(&uploaded.id).await.unwrap(), uploaded);
        // Uploaded files cannot be downloaded.
        assert_eq!(kind(files.download(&uploaded.id).await), HostedErrorKind::Refused);

        let content: Vec<u8> = (0..300_000_u32).map(|n| (n % 253) as u8).collect();
        let created = fake.put_file("../report.xlsx", content.clone());
        let download = files.download(&created).await.unwrap();
        assert_eq!((download.name(), download.size()), (Some("../report.xlsx"), Some(300_000)));
        assert_eq!(download.record().unwrap().safe_name(), "report.xlsx");
        assert!(download.media_type().unwrap().ends_with("spreadsheetml.sheet"));
        let pieces: Vec<_> = download.into_stream().try_collect().await.unwrap();
        assert_eq!(pieces.concat(), content);
        let empty = fake.put_file("empty.txt", "");
        assert_eq!(files.download(&empty).await.unwrap().bytes().await.unwrap(), b"");

        files.delete(&created).await.unwrap();
        assert_eq!(kind(files.metadata(&created).await), HostedErrorKind::NotFound);
        assert_eq!(kind(files.delete(&created).await), HostedErrorKind::NotFound);
    }
}

#[tokio::test]
async fn oversized_or_invalid_skills_are_rejected_before_any_request() {
    let dir = tempfile::tempdir().unwrap();
    let path = skill(&dir, "Limits.");
    let fake = start(FakeMessages::builder()).await;
    let client = client(&fake, ApiProfile::Beta);
    let limited = |set: &dyn Fn(&mut HostedLimits)| {
        let mut limits = HostedLimits::default();
        set(&mut limits);
        limits
    };
    let small = client.skills().with_limits(limited(&|limits| limits.skill_bytes = 60));
    let error = small.upload(&path, Upload::new()).await.unwrap_err();
    assert_eq!(error.kind(), HostedErrorKind::OverLimit);
    assert!(error.to_string().contains("60"), "{error}");
    let few = client.skills().with_limits(limited(&|limits| limits.skill_files = 2));
    assert_eq!(kind(few.upload(&path, Upload::new()).await), HostedErrorKind::OverLimit);
    let package = dir.path().join("p.skill");
    pack_file(&path, &package, PackageLimits::default()).unwrap();
    assert_eq!(kind(small.upload(&package, Upload::new()).await), HostedErrorKind::OverLimit);
    fs::write(&package, "PK no package").unwrap();
    assert_eq!(kind(client.skills().upload(&package, Upload::new()).await), HostedErrorKind::InvalidSkill);
    // The default is what the service takes, whatever would compress.
    let large = dir.path().join("large-skill");
    fs::create_dir(&large).unwrap();
    fs::write(large.join("SKILL.md"), "---\nname: large-skill\ndescription: L\n---\n").unwrap();
    fs::write(large.join("zeros.bin"), vec![0; 29_000_000]).unwrap();
    let skills = client.skills();
    assert!(skills.upload(&large, Upload::new()).await.is_ok());
    fs::write(large.join("more.bin"), vec![0; 1_000_000]).unwrap();
    assert_eq!(kind(skills.upload(&large, Upload::new()).await), HostedErrorKind::OverLimit);

    let missing = dir.path().join("nothing");
    fs::create_dir(dir.path().join("empty")).unwrap();
    for path in [missing.as_path(), &dir.path().join("empty"), Path::new("/dev/null")] {
        assert_eq!(kind(skills.upload(path, Upload::new()).await), HostedErrorKind::InvalidSkill);
    }
    fs::write(path.join("SKILL.md"), "---\nname: other\ndescription: D\n---\n").unwrap();
    let error = skills.upload(&path, Upload::new()).await.unwrap_err();
    assert!(error.kind() == HostedErrorKind::InvalidSkill && error.to_string().contains("other"), "{error}");

    let files = client.files().with_limits(limited(&|limits| limits.file_bytes = 3));
    assert_eq!(kind(files.upload("a", file("1234"), "text/plain").await), HostedErrorKind::OverLimit);
    let typed = files.upload("a", file("1"), "text/plain\r\nx: y");
    assert_eq!(kind(typed.await), HostedErrorKind::Unreadable);
    for id in ["", "..", ".", " ", "a\nb"] {
        assert_eq!(kind(files.delete(&FileId::new(id)).await), HostedErrorKind::InvalidId);
        assert_eq!(kind(skills.delete(&SkillId::new(id)).await), HostedErrorKind::InvalidId);
    }
    assert_eq!(fake.received(), 1, "only the upload within the limits was sent");
    // An id cannot lead to another endpoint.
    assert_eq!(kind(files.metadata(&FileId::new("a/../../skills?x=1#y")).await), HostedErrorKind::NotFound);
    assert_eq!(fake.requests()[1].path(), "/v1/files/a%2F..%2F..%2Fskills%3Fx=1%23y?beta=true");

    let large = fake.put_file("large.bin", vec![0; 100]);
    let files = client.files().with_limits(limited(&|limits| limits.download_bytes = 99));
    assert_eq!(kind(files.download(&large).await), HostedErrorKind::OverLimit);
}

fn refusal(kind: ApiErrorKind) -> Reply {
    Reply::error(Refusal::new(kind, "so it is")).with_header("retry-after-ms", "1")
}

fn status_reply(status: u16, name: &str) -> Reply {
    let refusal = Refusal::new(ApiErrorKind::from(name.to_owned()), format!("no, {KEY}"));
    Reply::error(refusal.with_status(status)).with_header("x-should-retry", "false").with_request_id("req_7")
}

#[tokio::test]
async fn each_error_has_its_kind_its_request_id_and_no_secret() {
    use HostedErrorKind as Kind;
    let fake = start(FakeMessages::builder()).await;
    let files = client(&fake, ApiProfile::Beta).files();
    for (status, name, expected) in [
        (400, "invalid_request_error", Kind::Refused),
        (401, "authentication_error", Kind::WrongKey),
        (403, "permission_error", Kind::Forbidden),
        (404, "not_found_error", Kind::NotFound),
        (409, "conflict_error", Kind::Conflict),
        (413, "request_too_large", Kind::TooLarge),
        (429, "rate_limit_error", Kind::RateLimited),
        (500, "api_error", Kind::Service),
        (529, "overloaded_error", Kind::Service),
    ] {
        fake.add_hosted_fault(status_reply(status, name).with_header("retry-after-ms", "1"));
        let error = files.metadata(&FileId::new("file_1")).await.unwrap_err();
        assert_eq!((error.kind(), error.status_code()), (expected, Some(status)), "{error}");
        assert_eq!(error.request_id(), Some("req_7"));
        assert!(error.to_string().contains(name) && !format!("{error:?}").contains(KEY), "{error:?}");
        assert!(!error.may_have_happened());
    }
    fake.add_hosted_fault(Reply::html(200));
    assert_eq!(kind(files.metadata(&FileId::new("file_1")).await), Kind::Protocol);
    // A wrong key at the fake itself.
    let fake = start(FakeMessages::builder().key("another")).await;
    let error = client(&fake, ApiProfile::Current).skills().get(&SkillId::new("x")).await.unwrap_err();
    assert_eq!(error.kind(), Kind::WrongKey);
    assert!(error.to_string().contains("check the key"), "{error}");
}

#[tokio::test]
async fn reads_and_deletions_are_retried_but_creations_only_if_rejected() {
    let dir = tempfile::tempdir().unwrap();
    let path = skill(&dir, "Retries.");
    let fake = start(FakeMessages::builder()).await;
    let client = client(&fake, ApiProfile::Beta);
    let (skills, files) = (client.skills(), client.files());
    let created = fake.put_file("a.txt", "abc");
    // Reading: anything that passes.
    let before = fake.received();
    fake.add_hosted_fault(refusal(ApiErrorKind::Api));
    fake.add_hosted_fault(Reply::hang_up());
    files.metadata(&created).await.unwrap();
    assert_eq!(fake.received() - before, 3);
    // Deleting: what an attempt without an answer has deleted is deleted.
    fake.add_hosted_fault(Reply::hang_up());
    fake.add_hosted_fault(status_reply(404, "not_found_error"));
    files.delete(&created).await.unwrap();
    // Without such an attempt it is an error; a conflict is one at once.
    assert_eq!(kind(files.delete(&FileId::new("file_x")).await), HostedErrorKind::NotFound);
    let before = fake.received();
    let conflict = Refusal::new(ApiErrorKind::Unknown("conflict_error".to_owned()), "busy").with_status(409);
    fake.add_hosted_fault(Reply::error(conflict));
    assert_eq!(kind(files.delete(&FileId::new("file_x")).await), HostedErrorKind::Conflict);
    assert_eq!(fake.received() - before, 1);

    // Creating: refused by a limit, it has not happened, and is sent again, all of it.
    let before = fake.received();
    fake.add_hosted_fault(refusal(ApiErrorKind::RateLimit));
    fake.add_hosted_fault(refusal(ApiErrorKind::Overloaded));
    skills.upload(&path, Upload::new()).await.unwrap();
    let requests = fake.requests();
    assert_eq!(fake.received() - before, 3);
    let bodies: Vec<&[u8]> = requests.iter().rev().take(3).map(|request| request.body()).collect();
    assert!(bodies[0].len() > 300 && bodies[0] == bodies[1] && bodies[1] == bodies[2]);
    // A request with an unknown outcome is not repeated.
    for fault in [Reply::hang_up(), refusal(ApiErrorKind::Api), Reply::empty()] {
        let before = fake.received();
        fake.add_hosted_fault(fault);
        let error = skills.upload(&path, Upload::new()).await.unwrap_err();
        assert!(error.may_have_happened() && !error.is_retryable(), "{error:?}");
        assert_eq!(fake.received() - before, 1, "{error}");
    }
    assert_eq!(all(skills.list(Some(SkillSource::Custom))).await.len(), 1);
    // No connection: nothing has happened, and it is tried again as often as anything.
    // No other program can listen at the port while this socket holds it.
    let unused_socket = TcpSocket::new_v4().unwrap();
    unused_socket.bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
    let url = format!("http://{}", unused_socket.local_addr().unwrap());
    let config = Config::new(SecretString::from(KEY))
        .with_base_url(url)
        .with_http(|http| http.with_retries(1).with_seed(1));
    let error = Client::new(&config).unwrap().skills().upload(&path, Upload::new()).await.unwrap_err();
    assert_eq!(error.kind(), HostedErrorKind::Connection);
    assert!(!error.may_have_happened() && error.is_retryable(), "{error:?}");
}

#[tokio::test]
async fn a_truncated_or_missized_download_is_an_error() {
    let fake = start(FakeMessages::builder()).await;
    let files = client(&fake, ApiProfile::Beta).files();
    let created = fake.put_file("a.bin", vec![7; 1000]);
    let content = |size: usize| Reply::raw(200, "application/octet-stream", vec![7; size]);
    for (reply, expected) in [
        (content(1000).cut_after_bytes(10), HostedErrorKind::Cut),
        (content(1000).with_header("content-length", "1000").cut_after_bytes(10), HostedErrorKind::Cut),
        // Well ended, and not what the record says.
        (content(999), HostedErrorKind::Cut),
        (content(1001), HostedErrorKind::Protocol),
    ] {
        let record = fake.requests().len();
        // The first fault answers for the record: as it is.
        let metadata = format!(
            r#"{{"id":"{created}","type":"file","filename":"a.bin","mime_type":"x/y","size_bytes":1000}}"#
        );
        fake.add_hosted_fault(Reply::raw(200, "application/json", metadata));
        fake.add_hosted_fault(reply);
        let mut download = files.download(&created).await.unwrap();
        let error = loop {
            match download.chunk().await {
                Ok(Some(_)) => {}
                Ok(None) => panic!("it ended as if it were whole"),
                Err(error) => break error,
            }
        };
        assert_eq!(error.kind(), expected, "{error}");
        assert!(error.request_id().is_some());
        assert!(download.chunk().await.unwrap().is_none(), "nothing follows an error");
        assert_eq!(fake.requests().len() - record, 2);
    }
}

#[tokio::test]
async fn a_rate_limit_closes_the_gate_for_all_clients_of_the_key() {
    let fake = start(FakeMessages::builder().turns([Reply::blocks(Vec::new())])).await;
    let client = client(&fake, ApiProfile::Beta);
    fake.add_hosted_fault(status_reply(429, "rate_limit_error").with_header("retry-after", "3600"));
    let error = client.files().metadata(&FileId::new("file_1")).await.unwrap_err();
    assert_eq!(error.retry_after().map(|wait| wait.as_secs()), Some(3600));
    // The gate is shut for ten minutes; a model call may wait as long as it may take, which is less.
    let error = client.skills().get(&SkillId::new("xlsx")).await.unwrap_err();
    assert_eq!((error.kind(), error.status_code()), (HostedErrorKind::RateLimited, None));
    assert!(error.to_string().contains("is rate limited for another"), "{error}");
    assert_eq!(fake.received(), 1);
}

#[tokio::test]
async fn a_dropped_upload_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let path = skill(&dir, "Large.");
    fs::write(path.join("large.bin"), vec![0; 28 << 20]).unwrap();
    let fake = start(FakeMessages::builder()).await;
    let skills = client(&fake, ApiProfile::Beta).skills();
    let (sent, seen) = tokio::sync::oneshot::channel();
    let sent = Mutex::new(Some(sent));
    let upload = Upload::new().on_progress(move |progress| {
        if let Some(sent) = sent.lock().unwrap().take() {
            sent.send(progress.sent).unwrap();
        }
    });
    tokio::select! {
        done = skills.upload(&path, upload) => panic!("{done:?}"),
        begun = seen => assert!(begun.unwrap() > 0),
    }
    // The connection is gone with it, so nothing was complete; another call works.
    assert!(all(skills.list(Some(SkillSource::Custom))).await.is_empty());
    assert_eq!(fake.received(), 1);
}
