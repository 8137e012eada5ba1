//! A runtime with an unusable journal: the error names the file and has a hint.

use std::time::Duration;

use conjure::config::ExecutorKind;
use conjure::journal::{JournalErrorKind, SqliteOptions};
use conjure::model::parse_response;
use conjure::session::SessionBody;
use conjure::{Runtime, RuntimeError, RuntimeOptions, model_fn};
use test_support::lock_database;

use crate::runtime::fixture::{Fixture, ask, ask_again, model, soon, spec, tenant, until};

/// How spawning a runtime fails.
async fn refused(options: RuntimeOptions) -> (JournalErrorKind, String) {
    let error = Runtime::spawn(options).await.unwrap_err();
    let RuntimeError::Journal(journal) = &error else { panic!("{error}") };
    (journal.kind(), error.to_string())
}

/// A host with a session, at rest.
async fn idle_session() -> (Fixture, conjure::SessionId) {
    let fixture = Fixture::new(ExecutorKind::Jail);
    let runtime = fixture.start().await;
    let session = runtime.open(spec()).await.unwrap();
    ask(&session, "hello").await;
    runtime.shutdown(soon()).await.unwrap();
    (fixture, session.id())
}

#[tokio::test]
async fn a_journal_locked_by_another_process_is_reported_with_its_file() {
    let (fixture, id) = idle_session().await;
    let database = fixture.data().join("journal/journal.sqlite");
    let impatient = || {
        let patience = Duration::from_millis(1);
        fixture.options().journal(SqliteOptions { busy_timeout: patience, ..SqliteOptions::default() })
    };
    let runtime = Runtime::spawn(impatient()).await.unwrap();
    let session = runtime.session(&tenant("acme"), id).await.unwrap();
    let holder = lock_database(&database);
    let message = format!("`{}` is locked by another process; end it, or try again", database.display());

    let error = runtime.open(spec()).await.unwrap_err();
    let RuntimeError::Journal(journal) = &error else { panic!("{error}") };
    assert_eq!((journal.kind(), error.is_retryable()), (JournalErrorKind::Locked, true));
    assert!(error.to_string().contains(&message), "{error}");
    let error = session.send("anybody?").await.unwrap_err();
    assert!(error.to_string().contains(&message), "{error}");
    // Recorded events are readable.
    let listed = runtime.sessions(&tenant("acme"), None, 10).await.unwrap();
    assert!(matches!(listed.sessions[0].body, SessionBody::Ok(_)), "{listed:?}");

    drop(holder);
    assert_eq!(ask_again(&session, "and now?").await, "heard: and now?");
    // Our own other writes lock it briefly, too, and this connection does not wait.
    until(async || match runtime.open(spec()).await {
        Ok(_) => true,
        Err(RuntimeError::Journal(journal)) if journal.kind() == JournalErrorKind::Locked => false,
        Err(error) => panic!("{error}"),
    })
    .await;
    runtime.shutdown(soon()).await.unwrap();
}

#[tokio::test]
async fn a_truncated_or_invalid_journal_is_reported_with_its_file() {
    let (fixture, id) = idle_session().await;
    let database = fixture.data().join("journal/journal.sqlite");
    let complete = std::fs::read(&database).unwrap();
    let path = database.display().to_string();
    for (content, kind) in [
        (complete[..complete.len() / 2].to_vec(), JournalErrorKind::Corrupt),
        (b"These are notes and no database. ".repeat(100), JournalErrorKind::Corrupt),
    ] {
        std::fs::write(&database, content).unwrap();
        let (found, text) = refused(fixture.options()).await;
        assert_eq!(found, kind, "{text}");
        assert!(text.contains(&path), "{text}");
        for log in ["-wal", "-shm"] {
            let _ = std::fs::remove_file(format!("{path}{log}"));
        }
    }
    // The attempt changed nothing.
    std::fs::write(&database, &complete).unwrap();
    let runtime = fixture.start().await;
    let revived = runtime.session(&tenant("acme"), id).await.unwrap();
    assert_eq!(revived.snapshot().await.unwrap().last_text, "heard: hello");
    runtime.shutdown(soon()).await.unwrap();
}

#[tokio::test]
async fn a_journal_of_a_later_version_is_rejected() {
    let (fixture, _) = idle_session().await;
    let database = fixture.data().join("journal/journal.sqlite");
    // The field that SQLite keeps for a program's own version, big-endian.
    let mut bytes = std::fs::read(&database).unwrap();
    bytes[60..64].copy_from_slice(&4242_u32.to_be_bytes());
    std::fs::write(&database, bytes).unwrap();
    let (kind, message) = refused(fixture.options()).await;
    assert_eq!(kind, JournalErrorKind::Newer, "{message}");
    assert!(
        message.contains(&database.display().to_string()) && message.contains("use a newer version"),
        "{message}"
    );
}

/// For root, who may run the tests, every directory can be written but those of the system.
#[tokio::test]
async fn a_read_only_journal_is_reported_with_its_path() {
    let fixture = Fixture::new(ExecutorKind::Jail);
    let config = fixture.config();
    let settings = conjure::Settings { data: Some("/proc/self/data".into()), ..conjure::Settings::default() };
    let error = Runtime::spawn(config.with(settings).unwrap()).await.unwrap_err();
    let RuntimeError::Data { path, .. } = &error else { panic!("{error}") };
    assert_eq!(path, std::path::Path::new("/proc/self/data"));
    // A directory in which no file can be created.
    std::fs::create_dir_all(fixture.data()).unwrap();
    let journal = fixture.data().join("journal");
    std::os::unix::fs::symlink("/sys/kernel", &journal).unwrap();
    let (kind, text) = refused(fixture.options()).await;
    assert_eq!(kind, JournalErrorKind::ReadOnly, "{text}");
    assert!(text.contains("`/sys/kernel/lock` cannot be written; use a writable directory"), "{text}");
    std::fs::remove_file(&journal).unwrap();
    // A file, where its directory should be.
    std::fs::write(fixture.data().join("journal"), "").unwrap();
    let (_, text) = refused(fixture.options()).await;
    assert!(text.contains(&fixture.data().join("journal").display().to_string()), "{text}");
}

#[tokio::test]
async fn a_full_disk_is_reported_and_acknowledged_events_stay() {
    let fixture = Fixture::new(ExecutorKind::Jail);
    let small = SqliteOptions { max_bytes: Some(400 << 10), ..SqliteOptions::default() };
    // It says little, so that what finds no room is what its user says.
    let terse =
        model_fn(|_| async { Ok(parse_response(r#"{"content": [], "stop_reason": "end_turn"}"#).unwrap()) });
    let options = fixture.options().journal(small).model("terse", terse);
    let runtime = Runtime::spawn(options).await.unwrap();
    let session = runtime.open(spec().model("terse")).await.unwrap();
    let mut acknowledged = 0;
    let long = "x".repeat(20_000);
    let error = loop {
        match session.send(format!("{acknowledged} {long}")).await {
            Ok(turn) => {
                acknowledged += 1;
                turn.end().await.unwrap();
            }
            Err(error) => break error,
        }
        assert!(acknowledged < 100, "there is room for all of it");
    };
    let message = error.to_string();
    assert!(
        message.contains("there is no space for `") && message.contains("journal.sqlite`; free some"),
        "{message}"
    );
    assert!(acknowledged > 3, "{acknowledged}");
    let error = runtime.open(spec().base_prompt("y".repeat(60_000))).await.unwrap_err();
    let RuntimeError::Journal(journal) = &error else { panic!("{error}") };
    assert_eq!(journal.kind(), JournalErrorKind::DiskFull);
    let _ = runtime.shutdown(soon()).await;
    drop((session, runtime));

    // With more room it continues, and everything is there.
    let runtime = Runtime::spawn(fixture.options().model("terse", model())).await.unwrap();
    let listed = runtime.sessions(&tenant("acme"), None, 10).await.unwrap();
    assert_eq!(listed.sessions.len(), 1, "nothing is left of a session that was not opened: {listed:?}");
    let revived = runtime.session(&tenant("acme"), listed.sessions[0].id).await.unwrap();
    let recorded = runtime.events(&tenant("acme"), revived.id(), 0).await.unwrap();
    let texts: Vec<String> = recorded.iter().map(|event| serde_json::to_string(event).unwrap()).collect();
    for number in 0..acknowledged {
        assert!(texts.iter().any(|text| text.contains(&format!("\"{number} xxx"))), "{number}");
    }
    assert!(ask(&revived, "more?").await.ends_with("more?"));
    runtime.shutdown(soon()).await.unwrap();
}
