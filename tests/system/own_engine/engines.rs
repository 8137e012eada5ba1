//! The engine is killed, ends, hangs, or has no space, under load.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::Path;

use conjure_sandbox::{CallOptions, Command, CommandEnd, Executor, SandboxErrorKind};
use rustix::process::Signal;

use crate::engine::{OwnEngine, Part};
use crate::load::{Load, assert_told, assert_works, container, ends, sh};
use crate::support::{options, soon};

#[tokio::test]
async fn a_killed_engine_blocks_nothing_and_is_used_again() {
    let Some(engine) = OwnEngine::new().await else { return };
    let connector = engine.connector();
    for _ in 0..3 {
        let mut load = Load::on(&connector, 2).await;
        engine.end(Signal::KILL).await;
        load.openings_end().await;
        let refused = container(&connector).await.unwrap_err();
        assert_eq!(refused.kind(), SandboxErrorKind::EngineUnavailable, "{refused}");
        // Running containers need no engine, until the next one ends them.
        load.assert_continues().await;
        engine.start().await;
        let workspaces = load.end_as_lost().await;
        for workspace in &workspaces {
            assert_works(&connector, workspace.path()).await;
        }
        // Without a sweep: who has lost them removes them, also those that were just being made.
        engine.until_nothing_is_left().await;
    }
}

#[tokio::test]
async fn an_engine_stopped_under_load_loses_its_containers_and_is_used_again() {
    let Some(engine) = OwnEngine::new().await else { return };
    let connector = engine.connector();
    let load = Load::on(&connector, 2).await;
    let (workspaces, ()) = tokio::join!(load.end_as_lost(), engine.end(Signal::TERM));
    engine.start().await;
    assert_works(&connector, workspaces[0].path()).await;
    engine.until_nothing_is_left().await;
}

/// As one that is starved of everything, or whose disk does not answer.
#[tokio::test]
async fn a_hanging_engine_blocks_nobody_beyond_the_deadline() {
    let Some(engine) = OwnEngine::new().await else { return };
    let connector = engine.connector();
    let it = container(&connector).await.unwrap();
    assert_eq!(sh(&it.sandbox, "echo well").await, "well\n");
    engine.signal(Part::Daemon, Signal::STOP);
    let running = it.sandbox.run(Command::new(["busybox", "sleep", "1000"]), CallOptions::until(soon(1)));
    assert_eq!(ends("a call", running).await.unwrap().end, CommandEnd::TimedOut);
    assert_eq!(sh(&it.sandbox, "echo well").await, "well\n");
    let context = conjure_sandbox::ExecutionContext::new(it.workspace.path());
    let clock = std::sync::Arc::new(conjure_base::SystemClock);
    let opening = conjure_sandbox::Sandbox::open(&connector, &context, clock, soon(1));
    let error = ends("an opening", opening).await.unwrap_err();
    assert_eq!(error.kind(), SandboxErrorKind::TimedOut, "{error}");
    ends("a cleanup", it.sandbox.cleanup()).await;
    engine.signal(Part::Daemon, Signal::CONT);
    assert_works(&connector, it.workspace.path()).await;
    engine.until_nothing_is_left().await;
}

#[tokio::test]
async fn an_engine_with_a_full_disk_reports_it_and_recovers() {
    let Some(engine) = OwnEngine::with_disk("48m").await else { return };
    let connector = engine.connector();
    let running = container(&connector).await.unwrap();
    let filling = engine.data().join("filling");
    fill(&filling);
    let refused = container(&connector).await.unwrap_err();
    assert_eq!(refused.kind(), SandboxErrorKind::NoSpace, "{refused}");
    assert!(refused.to_string().contains("make room where the engine keeps its data"), "{refused}");
    // Running containers need no space there.
    assert_eq!(sh(&running.sandbox, "echo well > made; cat made").await, "well\n");
    running.sandbox.create_file("another", b"well", options()).await.unwrap();
    running.sandbox.cleanup().await;
    fs::remove_file(filling).unwrap();
    assert_works(&connector, running.workspace.path()).await;
    engine.until_nothing_is_left().await;
}

/// Until nothing fits any more.
fn fill(path: &Path) {
    let mut file = File::create(path).unwrap();
    for piece in [1 << 20, 1 << 12, 1] {
        let piece = vec![b'x'; piece];
        let full = loop {
            if let Err(error) = file.write_all(&piece) {
                break error;
            }
        };
        assert_eq!(full.kind(), io::ErrorKind::StorageFull);
    }
}

/// An engine's early errors are reported like later ones.
#[tokio::test]
async fn an_engine_that_ends_during_detection_is_reported() {
    let Some(engine) = OwnEngine::new().await else { return };
    let workspace = tempfile::tempdir().unwrap();
    fs::write(workspace.path().join("kept"), "kept\n").unwrap();
    let connectors = [engine.connector(), engine.connector(), engine.connector()];
    let opening = futures_util::future::join_all(connectors.iter().map(container));
    let (opened, ()) = tokio::join!(ends("openings", opening), engine.end(Signal::KILL));
    for opened in opened {
        match opened {
            Ok(container) => container.sandbox.cleanup().await,
            Err(error) => assert_told(&error),
        }
    }
    engine.start().await;
    for connector in &connectors {
        assert_works(connector, workspace.path()).await;
    }
    engine.until_nothing_is_left().await;
}
