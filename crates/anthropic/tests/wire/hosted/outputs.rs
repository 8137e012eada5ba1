//! The files of a hosted session. Produced files are found in its history, looked up once and read as streams. Artifacts are
//! uploaded from a store.

use std::sync::Arc;

use conjure_anthropic::Client;
use conjure_anthropic::hosted::{HostedFileDeletion, HostedLimits, HostedOutputs, HostedUploads};
use conjure_artifact::{
    ArtifactErrorKind, ArtifactUploader, DeleteError, DeleteOutcome, FinishedTurnInfo, OutputError,
    OutputStore as _, ServiceFileDeletion as _,
};
use conjure_base::{Timestamp, TurnId};
use conjure_conversation::{
    Artifact, ArtifactContent, ArtifactSource, Block, FileSource, Message, SessionFile,
};
use conjure_store::{FileMode, Store};
use futures_util::TryStreamExt as _;
use serde_json::json;

use crate::clock::ManualClock;
use crate::server::{Server, answer, error};
use crate::support::config;

const JSON: [(&str, &str); 1] = [("content-type", "application/json")];

fn outputs(server: &Server) -> HostedOutputs {
    let config = config(server).with_http(|http| http.with_retries(0));
    HostedOutputs::new(Client::with_clock(&config, Arc::new(ManualClock::new())).unwrap().files())
}

fn message_with_file(file: &str) -> Arc<Message> {
    let result = json!({"type": "bash_code_execution_tool_result", "tool_use_id": "s", "content": {
        "type": "bash_code_execution_result", "stdout": "", "stderr": "", "return_code": 0,
        "content": [{"type": "bash_code_execution_output", "file_id": file}]}});
    Arc::new(Message::assistant(vec![Block::from_json(result.to_string()).unwrap()]))
}

fn record(messages: Vec<Arc<Message>>, known: Vec<SessionFile>) -> FinishedTurnInfo {
    FinishedTurnInfo { turn: TurnId::FIRST, began: Timestamp::default(), messages, known }
}

fn metadata(id: &str, name: &str) -> Vec<u8> {
    let body = json!({"id": id, "type": "file", "filename": name, "mime_type": "text/csv", "size_bytes": 5});
    answer("200 OK", &JSON, &body.to_string())
}

#[tokio::test]
async fn a_file_is_listed_once_with_the_services_name() {
    let server =
        Server::answers(vec![metadata("file_1", "../a/table.csv"), metadata("file_2", "b.csv")]).await;
    let store = outputs(&server);
    let first = store
        .turn_outputs(&record(vec![message_with_file("file_1"), message_with_file("file_1")], Vec::new()))
        .await
        .unwrap()
        .files;
    let [file] = first.as_slice() else { panic!("{first:?}") };
    let file_info =
        (file.id.as_str(), file.name.as_str(), file.size, file.content_type.as_str(), file.source);
    assert_eq!(file_info, ("file_1", "table.csv", Some(5), "text/csv", FileSource::Hosted));
    // Known files are not looked up again.
    let both = record(vec![message_with_file("file_1"), message_with_file("file_2")], first);
    let second = store.turn_outputs(&both).await.unwrap().files;
    assert_eq!(second.iter().map(|file| file.id.as_str()).collect::<Vec<_>>(), ["file_2"]);
    assert_eq!(server.requests().len(), 2);
}

#[tokio::test]
async fn deleted_files_are_listed_by_id_and_failures_are_retried() {
    let not_found = error("404 None", &JSON, "not_found_error", "no such file");
    let server = Server::answers(vec![not_found]).await;
    let files = outputs(&server)
        .turn_outputs(&record(vec![message_with_file("file_1")], Vec::new()))
        .await
        .unwrap()
        .files;
    assert_eq!((files[0].name.as_str(), files[0].size), ("file_1", None));
    let server = Server::answers(vec![error("500 Oops", &JSON, "api_error", "later")]).await;
    let failed = outputs(&server)
        .turn_outputs(&record(vec![message_with_file("file_1")], Vec::new()))
        .await
        .unwrap_err();
    assert!(matches!(failed, OutputError::Failed { .. }), "{failed:?}");
}

#[tokio::test]
async fn a_file_is_read_to_its_end() {
    let bytes = |body: &str| answer("200 OK", &[("content-type", "text/csv")], body);
    for (body, whole) in [("a,b,c", true), ("a,b", false)] {
        let server =
            Server::answers(vec![metadata("file_1", "t.csv"), metadata("file_1", "t.csv"), bytes(body)])
                .await;
        let store = outputs(&server);
        let files =
            store.turn_outputs(&record(vec![message_with_file("file_1")], Vec::new())).await.unwrap().files;
        let content = store.open(&files[0]).await.unwrap();
        assert_eq!((content.name.as_str(), content.size), ("t.csv", Some(5)));
        let read: Result<Vec<_>, _> = content.stream.try_collect().await;
        assert_eq!(read.is_ok(), whole, "{read:?}");
    }
    let not_found = error("404 None", &JSON, "not_found_error", "no such file");
    let server = Server::answers(vec![metadata("file_1", "t.csv"), not_found]).await;
    let store = outputs(&server);
    let files =
        store.turn_outputs(&record(vec![message_with_file("file_1")], Vec::new())).await.unwrap().files;
    assert!(matches!(store.open(&files[0]).await.unwrap_err(), OutputError::NotFound { .. }));
}

#[tokio::test]
async fn removal_outcomes_are_distinguished() {
    let answers = [
        (answer("200 OK", &JSON, r#"{"id":"file_1","type":"file_deleted"}"#), Ok(DeleteOutcome::Deleted)),
        (error("404 None", &JSON, "not_found_error", "no such file"), Ok(DeleteOutcome::Absent)),
        (error("401 No", &JSON, "authentication_error", "who?"), Err("key")),
        (error("403 No", &JSON, "permission_error", "not you"), Err("refused")),
        (error("400 Bad", &JSON, "invalid_request_error", "not this"), Err("refused")),
        (error("408 Late", &JSON, "timeout_error", "again"), Err("unreachable")),
        (error("409 Busy", &JSON, "invalid_request_error", "in use"), Err("failed")),
        (error("429 Slow", &JSON, "rate_limit_error", "later"), Err("unreachable")),
        (error("500 Oops", &JSON, "api_error", "later"), Err("failed")),
        (error("503 Full", &JSON, "api_error", "later"), Err("unreachable")),
        (error("529 Full", &JSON, "overloaded_error", "later"), Err("unreachable")),
    ];
    for (text, expected) in answers {
        let server = Server::answers(vec![text]).await;
        let client = Client::with_clock(
            &config(&server).with_http(|http| http.with_retries(0)),
            Arc::new(ManualClock::new()),
        )
        .unwrap();
        let removal = HostedFileDeletion::new(client.files());
        let removed = removal.delete("file_1").await.map_err(|error| match error {
            DeleteError::KeyRefused { .. } => "key",
            DeleteError::Refused { .. } => "refused",
            DeleteError::Failed { .. } => "failed",
            _ => "unreachable",
        });
        assert_eq!(removed, expected);
        assert!(server.requests()[0].line.starts_with("DELETE /v1/files/file_1?beta=true "));
        // No redirect is followed.
        let error = removal.delete("..").await.unwrap_err();
        assert!(matches!(error, DeleteError::Refused { .. }), "{error}");
        assert_eq!(server.requests().len(), 1);
    }
}

#[tokio::test]
async fn an_artifact_is_uploaded_from_the_store_under_its_name() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(&dir.path().join("store")).unwrap();
    let inserted = store.insert_bytes(b"a,b,c", FileMode::Plain).unwrap();
    let content = ArtifactContent { digest: inserted.digest, size: inserted.size };
    let name = || "Q3 sales.csv".parse().unwrap();
    let artifact = Artifact::new(name(), ArtifactSource::Content, "text/csv", Some(content));
    let server = Server::answers(vec![metadata("file_9", "Q3 sales.csv")]).await;
    let files = || {
        let config = config(&server).with_http(|http| http.with_retries(0));
        Client::with_clock(&config, Arc::new(ManualClock::new())).unwrap().files()
    };
    let uploads = ArtifactUploader::new(store.clone(), Arc::new(HostedUploads::new(files())));
    let block = uploads.upload(&artifact).await.unwrap();
    assert_eq!(block.json(), r#"{"type":"container_upload","file_id":"file_9"}"#);
    let sent = String::from_utf8(server.requests()[0].body.clone()).unwrap();
    assert!(sent.contains("filename=\"Q3 sales.csv\"\r\n"), "{sent}");
    assert!(
        sent.to_lowercase().contains("content-type: text/csv\r\n") && sent.contains("\r\n\r\na,b,c\r\n"),
        "{sent}"
    );

    // Oversized, missing and changed contents are not uploaded.
    let mut small = HostedLimits::default();
    small.file_bytes = 4;
    let limited =
        ArtifactUploader::new(store.clone(), Arc::new(HostedUploads::new(files().with_limits(small))));
    assert_eq!(limited.upload(&artifact).await.unwrap_err().kind(), ArtifactErrorKind::TooLarge);
    let unknown =
        Artifact::new(name(), ArtifactSource::Url { url: "https://a.example/".into() }, "text/csv", None);
    assert_eq!(uploads.upload(&unknown).await.unwrap_err().kind(), ArtifactErrorKind::Unsupported);
    store.remove(&inserted.digest).unwrap();
    assert_eq!(uploads.upload(&artifact).await.unwrap_err().kind(), ArtifactErrorKind::Store);
    assert_eq!(server.requests().len(), 1);
}
