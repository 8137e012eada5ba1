//! Timeouts of uploads and downloads: stalled transfers end, active ones continue, and ended ones leave nothing.

use std::fs;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use conjure_anthropic::Client;
use conjure_anthropic::hosted::{FileId, Files, HostedErrorKind, HostedLimits, SkillId, Upload, VersionId};
use futures_util::TryStreamExt as _;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpSocket;
use tokio::sync::watch;

use crate::clock::ManualClock;
use crate::server::{Part, Server, answer, error};
use crate::support::{IDLE, TOTAL, config};

const JSON: [(&str, &str); 1] = [("content-type", "application/json")];

fn client(server: &Server, retries: u32) -> (Client, ManualClock) {
    let clock = ManualClock::new();
    let config = config(server).with_http(|http| http.with_retries(retries));
    (Client::with_clock(&config, Arc::new(clock.clone())).unwrap(), clock)
}

fn record(size: usize) -> Vec<u8> {
    let record = json!({"id": "file_1", "filename": "a", "mime_type": "x/y", "size_bytes": size});
    answer("200 OK", &JSON, &record.to_string())
}

#[tokio::test]
async fn a_missing_response_leaves_the_upload_outcome_unknown() {
    let server = Server::start(|_, _| vec![Part::Hang]).await;
    let (client, clock) = client(&server, 0);
    let files = client.files();
    let upload = files.upload("a.txt", tempfile::tempfile().unwrap(), "text/plain");
    let (ended, ()) = tokio::join!(upload, async {
        server.received(1).await;
        // In the first of the two the body was sent.
        for _ in 0..2 {
            clock.sleeper_for(IDLE).await;
            clock.advance(IDLE);
        }
    });
    let failure = ended.unwrap_err();
    assert_eq!(failure.kind(), HostedErrorKind::Timeout, "{failure}");
    assert!(failure.may_have_happened() && !failure.is_retryable(), "{failure:?}");
    server.disconnected(1).await;

    let id = FileId::new("file_1");
    let (ended, ()) = tokio::join!(files.metadata(&id), async {
        server.received(2).await;
        clock.sleeper_for(IDLE).await;
        clock.advance(IDLE);
    });
    let failure = ended.unwrap_err();
    assert_eq!((failure.kind(), failure.may_have_happened()), (HostedErrorKind::Timeout, false));
    server.disconnected(2).await;
}

#[tokio::test]
async fn only_a_regular_file_with_a_name_is_uploaded() {
    let server = Server::always("").await;
    let (client, _) = client(&server, 0);
    let dir = tempfile::tempdir().unwrap();
    for (name, file) in [
        ("", tempfile::tempfile().unwrap()),
        ("directory", fs::File::open(dir.path()).unwrap()),
        ("null", fs::File::open("/dev/null").unwrap()),
    ] {
        let failure = client.files().upload(name, file, "text/plain").await.unwrap_err();
        assert_eq!(failure.kind(), HostedErrorKind::Unreadable, "{failure}");
        assert!(failure.to_string().contains("only a regular file with a name can be uploaded"), "{failure}");
    }
    assert_eq!(server.requests().len(), 0, "nothing was sent");
}

#[tokio::test]
async fn a_slow_upload_continues_while_it_makes_progress() {
    const SIZE: usize = 48 << 20;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("my-skill");
    fs::create_dir(&path).unwrap();
    fs::write(path.join("SKILL.md"), "---\nname: my-skill\ndescription: D\n---\n").unwrap();
    fs::write(path.join("large.bin"), vec![0; SIZE]).unwrap();
    let socket = TcpSocket::new_v4().unwrap();
    // Else the system may hold so much of it that all is sent before half of it is read.
    socket.set_recv_buffer_size(1 << 20).unwrap();
    socket.bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
    let listener = socket.listen(1).unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let clock = ManualClock::new();
    let key = secrecy::SecretString::from(crate::support::KEY);
    let config =
        conjure_anthropic::Config::new(key).with_base_url(url).with_http(|http| http.with_retries(0));
    let config = config.with_http(|http| {
        http.with_timeouts(conjure_anthropic::Timeouts {
            connect: Duration::from_secs(10),
            idle: IDLE,
            total: TOTAL,
        })
    });
    let mut limits = HostedLimits::default();
    limits.skill_bytes = 64 << 20;
    let skills = Client::with_clock(&config, Arc::new(clock.clone())).unwrap().skills().with_limits(limits);
    let (sender, mut sent_progress) = watch::channel(0);
    let upload = Upload::new().on_progress(move |progress| {
        sender.send_replace(progress.sent);
    });
    let (uploaded, ()) = tokio::join!(skills.upload(&path, upload), async {
        let (mut stream, _) = listener.accept().await.unwrap();
        let (mut read, mut seen, mut is_over) = (0, 0, false);
        let mut buffer = vec![0; 1 << 20];
        while !is_over {
            // The client waits again for the time that it waits at most, and what it sends moves in the meantime.
            clock.sleeper_for(IDLE).await;
            let last = *sent_progress.borrow_and_update();
            let until = read + (12 << 20);
            while read < until && !is_over {
                let count = stream.read(&mut buffer).await.unwrap();
                assert!(count > 0, "the upload ended after {read} bytes");
                read += count;
                is_over = read > SIZE && buffer[..count].ends_with(b"\n");
            }
            if read < SIZE {
                sent_progress.wait_for(|sent| *sent > last.max(seen)).await.unwrap();
                seen = *sent_progress.borrow();
                clock.advance(IDLE);
            }
        }
        let skill = json!({"id": "skill_1", "source": "custom", "created_at": "a", "updated_at": "b"});
        stream.write_all(&answer("200 OK", &JSON, &skill.to_string())).await.unwrap();
        stream.shutdown().await.unwrap();
    });
    assert_eq!(uploaded.unwrap().id, SkillId::new("skill_1"));
    assert!(clock.elapsed() > IDLE * 2, "{:?}", clock.elapsed());
}

fn limits(transfer: Duration) -> HostedLimits {
    let mut limits = HostedLimits::default();
    limits.transfer = transfer;
    limits
}

/// Begins the download of a file of four bytes, of which two come.
async fn half_read_download(files: &Files) -> conjure_anthropic::hosted::Download {
    let mut download = files.download(&FileId::new("file_1")).await.unwrap();
    assert_eq!(download.chunk().await.unwrap().unwrap(), "ab");
    download
}

#[tokio::test]
async fn a_stalled_download_times_out_and_a_dropped_one_closes_the_connection() {
    let server = Server::start(|n, _| match n % 2 {
        0 => vec![Part::Bytes(record(4))],
        _ => vec![Part::Bytes(answer("200 OK", &[], "ab")), Part::Hang],
    })
    .await;
    let (client, clock) = client(&server, 0);
    let mut download = half_read_download(&client.files()).await;
    let (ended, ()) = tokio::join!(download.chunk(), async {
        clock.sleeper_for(IDLE).await;
        clock.advance(IDLE);
    });
    let failure = ended.unwrap_err();
    assert!(failure.kind() == HostedErrorKind::Timeout && failure.to_string().contains("sent nothing"));
    assert!(download.chunk().await.unwrap().is_none());
    drop(download);
    server.disconnected(1).await;

    // The whole of it has an end too.
    let mut download = half_read_download(&client.files().with_limits(limits(Duration::from_secs(7)))).await;
    let (ended, ()) = tokio::join!(download.chunk(), async {
        clock.sleeper_for(Duration::from_secs(7)).await;
        clock.advance(Duration::from_secs(7));
    });
    let failure = ended.unwrap_err();
    assert_eq!(failure.to_string(), "the download took longer than 7s");
    drop(download);
    server.disconnected(2).await;

    drop(half_read_download(&client.files()).await);
    server.disconnected(3).await;
}

#[tokio::test]
async fn a_rejection_during_an_upload_is_read() {
    let refusal = error("413 Too Large", &[], "request_too_large", "Request exceeds the maximum size");
    let server = Server::always(refusal).await;
    let (client, _) = client(&server, 2);
    let file = tempfile::tempfile().unwrap();
    // More than a socket buffers without a reader.
    file.set_len(16 << 20).unwrap();
    let failure = client.files().upload("a.bin", file, "text/plain").await.unwrap_err();
    assert_eq!((failure.kind(), failure.status_code()), (HostedErrorKind::TooLarge, Some(413)));
    assert!(!failure.may_have_happened());
    assert_eq!(server.requests().len(), 1);
}

#[tokio::test]
async fn the_newest_version_is_found_whatever_the_order_is() {
    let version = |id: &str, number: Option<&str>, created_at: &str| {
        let mut version =
            json!({"id": id, "skill_id": "s", "name": "n", "description": id, "created_at": created_at});
        if let Some(number) = number {
            version["version"] = number.into();
        }
        version
    };
    for (listed, newest) in [
        // By their numbers, as numbers.
        (vec![version("a", Some("999"), "z"), version("b", Some("1759178010641129"), "a")], "b"),
        (vec![version("b", Some("1759178010641129"), "a"), version("a", Some("999"), "z")], "b"),
        // By their dates.
        (vec![version("a", None, "2026-11-21T10:00:00Z"), version("b", None, "2026-11-22T09:00:00Z")], "b"),
    ] {
        let page = json!({"data": listed, "next_page": null}).to_string();
        let server = Server::always(answer("200 OK", &JSON, &page)).await;
        let (client, _) = client(&server, 0);
        let skills = client.skills();
        let found = skills.version(&SkillId::new("s"), &VersionId::new("latest")).await.unwrap();
        assert_eq!(found.description, newest);
        assert!(
            server.requests()[0].line.starts_with("GET /v1/skills/s/versions?"),
            "paths take no `latest`"
        );
    }
    let server = Server::always(answer("200 OK", &JSON, r#"{"data":[]}"#)).await;
    let (client, _) = client(&server, 0);
    let none = client.skills().delete_version(&SkillId::new("s"), &VersionId::new("latest")).await;
    assert_eq!(none.unwrap_err().kind(), HostedErrorKind::NotFound);
    let all: Vec<_> = client.skills().versions(&SkillId::new("s")).try_collect().await.unwrap();
    assert!(all.is_empty());
}

#[tokio::test]
async fn a_skill_is_deleted_with_concurrently_created_versions() {
    let page = |ids: &[&str]| {
        let data: Vec<_> = ids
            .iter()
            .map(|id| json!({"id": id, "skill_id": "s", "name": "n", "description": "d", "created_at": "a"}))
            .collect();
        answer("200 OK", &JSON, &json!({"data": data}).to_string())
    };
    let done = || answer("200 OK", &JSON, "{}");
    let not_found = error("404 None", &[], "not_found_error", "version not found");
    // Two versions, of which another has deleted one; then one that is new; then none.
    let answers = vec![page(&["1", "2"]), done(), not_found, page(&["3"]), done(), page(&[]), done()];
    let server = Server::answers(answers).await;
    let (client, _) = client(&server, 0);
    client.skills().delete_with_versions(&SkillId::new("s")).await.unwrap();
    let lines: Vec<String> = server.requests().iter().map(|request| request.line.clone()).collect();
    let deleted: Vec<&str> =
        lines.iter().filter_map(|line| line.strip_prefix("DELETE /v1/skills/s")).collect();
    let rest = "?beta=true HTTP/1.1";
    assert_eq!(
        deleted,
        [
            format!("/versions/1{rest}"),
            format!("/versions/2{rest}"),
            format!("/versions/3{rest}"),
            rest.to_owned()
        ]
    );
}
