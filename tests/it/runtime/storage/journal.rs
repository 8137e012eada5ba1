//! A runtime whose journal cannot be used: each time it is said which file it is, and what helps.

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;
use std::time::Duration;

use conjure::config::ExecutorKind;
use conjure::journal::{JournalErrorKind, SqliteOptions};
use conjure::model::parse_response;
use conjure::session::SessionBody;
use conjure::{Runtime, RuntimeError, RuntimeOptions, model_fn};

use crate::runtime::fixture::{Fixture, ask, ask_again, model, soon, spec, tenant, until};

/// How spawning a runtime fails.
async fn refused(options: RuntimeOptions) -> (JournalErrorKind, String) {
    let error = Runtime::spawn(options).await.unwrap_err();
    let RuntimeError::Journal(journal) = &error else { panic!("{error}") };
    (journal.kind(), error.to_string())
}

/// A host with a session, at rest.
async fn rested() -> (Fixture, conjure::SessionId) {
    let fixture = Fixture::new(ExecutorKind::Jail);
    let runtime = fixture.start().await;
    let session = runtime.open(spec()).await.unwrap();
    ask(&session, "hello").await;
    runtime.shutdown(soon()).await.unwrap();
    (fixture, session.id())
}

#[tokio::test]
async fn a_journal_that_another_process_holds_is_reported_by_its_file() {
    let (fixture, id) = rested().await;
    let database = fixture.data().join("journal/journal.sqlite");
    let impatient = || {
        let patience = Duration::from_millis(1);
        fixture.options().journal(SqliteOptions { busy_timeout: patience, ..SqliteOptions::default() })
    };
    let runtime = Runtime::spawn(impatient()).await.unwrap();
    let session = runtime.session(&tenant("acme"), id).await.unwrap();
    let program = "import sqlite3, sys\n\
                   database = sqlite3.connect(sys.argv[1], isolation_level=None)\n\
                   database.execute('BEGIN IMMEDIATE')\n\
                   print('held', flush=True)\n\
                   sys.stdin.read()\n";
    #[expect(clippy::disallowed_methods, reason = "the test needs another process")]
    let mut holder = std::process::Command::new("python3");
    holder.args(["-c", program]).arg(&database).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut holder = Killed(holder.spawn().unwrap());
    let mut line = String::new();
    BufReader::new(holder.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "held\n");
    let said = format!("`{}` is locked by another process; end it, or try again", database.display());

    let error = runtime.open(spec()).await.unwrap_err();
    let RuntimeError::Journal(journal) = &error else { panic!("{error}") };
    assert_eq!((journal.kind(), error.is_retryable()), (JournalErrorKind::Locked, true));
    assert!(error.to_string().contains(&said), "{error}");
    let error = session.send("anybody?").await.unwrap_err();
    assert!(error.to_string().contains(&said), "{error}");
    // What is recorded can be read.
    let listed = runtime.sessions(&tenant("acme"), None, 10).await.unwrap();
    assert!(matches!(listed.sessions[0].body, SessionBody::Ok(_)), "{listed:?}");

    drop(holder.0.stdin.take());
    holder.0.wait().unwrap();
    assert_eq!(ask_again(&session, "and now?").await, "heard: and now?");
    // Our own other writes have it for a moment, too, and nobody is patient here.
    until(async || match runtime.open(spec()).await {
        Ok(_) => true,
        Err(RuntimeError::Journal(journal)) if journal.kind() == JournalErrorKind::Locked => false,
        Err(error) => panic!("{error}"),
    })
    .await;
    runtime.shutdown(soon()).await.unwrap();
}

/// A process that goes with the test.
struct Killed(std::process::Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test]
async fn a_journal_that_was_cut_or_is_none_is_reported_by_its_file() {
    let (fixture, id) = rested().await;
    let database = fixture.data().join("journal/journal.sqlite");
    let whole = std::fs::read(&database).unwrap();
    let path = database.display().to_string();
    for (content, kind) in [
        (whole[..whole.len() / 2].to_vec(), JournalErrorKind::Corrupt),
        (b"These are notes and no database. ".repeat(100), JournalErrorKind::Corrupt),
    ] {
        std::fs::write(&database, content).unwrap();
        let (found, said) = refused(fixture.options()).await;
        assert_eq!(found, kind, "{said}");
        assert!(said.contains(&path), "{said}");
        for log in ["-wal", "-shm"] {
            let _ = std::fs::remove_file(format!("{path}{log}"));
        }
    }
    // Nothing was made worse by trying.
    std::fs::write(&database, &whole).unwrap();
    let runtime = fixture.start().await;
    let again = runtime.session(&tenant("acme"), id).await.unwrap();
    assert_eq!(again.snapshot().await.unwrap().last_text, "heard: hello");
    runtime.shutdown(soon()).await.unwrap();
}

#[tokio::test]
async fn a_journal_of_a_later_version_is_refused_as_such() {
    let (fixture, _) = rested().await;
    let database = fixture.data().join("journal/journal.sqlite");
    // The field that SQLite keeps for a program's own version, big-endian.
    let mut bytes = std::fs::read(&database).unwrap();
    bytes[60..64].copy_from_slice(&4242_u32.to_be_bytes());
    std::fs::write(&database, bytes).unwrap();
    let (kind, said) = refused(fixture.options()).await;
    assert_eq!(kind, JournalErrorKind::Newer, "{said}");
    assert!(said.contains(&database.display().to_string()) && said.contains("use a newer version"), "{said}");
}

/// For root, who may run the tests, every folder can be written but those of the system.
#[tokio::test]
async fn a_journal_that_cannot_be_written_is_reported_by_its_place() {
    let fixture = Fixture::new(ExecutorKind::Jail);
    let config = fixture.config();
    let settings = conjure::Settings { data: Some("/proc/self/data".into()), ..conjure::Settings::default() };
    let error = Runtime::spawn(config.with(settings).unwrap()).await.unwrap_err();
    let RuntimeError::Data { path, .. } = &error else { panic!("{error}") };
    assert_eq!(path, std::path::Path::new("/proc/self/data"));
    // A folder in which nobody makes a file.
    std::fs::create_dir_all(fixture.data()).unwrap();
    let journal = fixture.data().join("journal");
    std::os::unix::fs::symlink("/sys/kernel", &journal).unwrap();
    let (kind, said) = refused(fixture.options()).await;
    assert_eq!(kind, JournalErrorKind::ReadOnly, "{said}");
    assert!(said.contains("`/sys/kernel/lock` cannot be written; use a writable directory"), "{said}");
    std::fs::remove_file(&journal).unwrap();
    // A file, where its folder should be.
    std::fs::write(fixture.data().join("journal"), "").unwrap();
    let (_, said) = refused(fixture.options()).await;
    assert!(said.contains(&fixture.data().join("journal").display().to_string()), "{said}");
}

#[tokio::test]
async fn a_full_disk_is_reported_and_what_was_acknowledged_stays() {
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
    let said = error.to_string();
    assert!(
        said.contains("there is no space for `") && said.contains("journal.sqlite`; free some"),
        "{said}"
    );
    assert!(acknowledged > 3, "{acknowledged}");
    let error = runtime.open(spec().base_prompt("y".repeat(60_000))).await.unwrap_err();
    let RuntimeError::Journal(journal) = &error else { panic!("{error}") };
    assert_eq!(journal.kind(), JournalErrorKind::DiskFull);
    let _ = runtime.shutdown(soon()).await;
    drop((session, runtime));

    // With more room it goes on, and everything is there.
    let runtime = Runtime::spawn(fixture.options().model("terse", model())).await.unwrap();
    let listed = runtime.sessions(&tenant("acme"), None, 10).await.unwrap();
    assert_eq!(listed.sessions.len(), 1, "nothing is left of a session that was not opened: {listed:?}");
    let again = runtime.session(&tenant("acme"), listed.sessions[0].id).await.unwrap();
    let told = runtime.events(&tenant("acme"), again.id(), 0).await.unwrap();
    let texts: Vec<String> = told.iter().map(|event| serde_json::to_string(event).unwrap()).collect();
    for number in 0..acknowledged {
        assert!(texts.iter().any(|text| text.contains(&format!("\"{number} xxx"))), "{number}");
    }
    assert!(ask(&again, "more?").await.ends_with("more?"));
    runtime.shutdown(soon()).await.unwrap();
}
