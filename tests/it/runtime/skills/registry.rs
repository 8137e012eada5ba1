//! The registry of skills is killed repeatedly while sessions run and open: they continue, and its catalogs keep their last
//! good
//! versions.

use std::sync::atomic::{AtomicBool, Ordering};

use conjure::config::ExecutorKind;
use conjure::runtime::{CatalogKey, CatalogName};
use conjure::{Runtime, Session, SessionSpec};
use futures_util::future::join_all;

use crate::runtime::fixture::{Fixture, ask, soon, tenant};

const TENANTS: [&str; 2] = ["acme", "globex"];
/// How many sessions of each talk.
const SESSIONS: usize = 6;
/// Each crash within a minute is mended later than the one before.
const KILLS: u32 = 9;

fn default() -> CatalogKey {
    CatalogKey::for_embedder(CatalogName::new("default").unwrap())
}

/// Reloads until the actor that is there answers: how many are broken.
async fn reload(runtime: &Runtime) -> usize {
    loop {
        match runtime.registry().reload(default(), soon()).await {
            Ok(reload) => return reload.broken.len(),
            Err(conjure::runtime::RegistryError::Call(_)) => tokio::task::yield_now().await,
            Err(error) => panic!("{error}"),
        }
    }
}

fn described(runtime: &Runtime, name: &str) -> String {
    runtime.registry().get(&default(), name).unwrap().description().to_owned()
}

async fn send_messages(session: &Session, is_over: &AtomicBool) -> u32 {
    let mut turns = 0;
    while !is_over.load(Ordering::Acquire) {
        assert_eq!(ask(session, &format!("number {turns}")).await, format!("heard: number {turns}"));
        turns += 1;
    }
    turns
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sessions_continue_while_the_registry_is_killed_under_load() {
    if !test_support::has_user_namespaces() {
        return;
    }
    let fixture = Fixture::new(ExecutorKind::Jail);
    fixture.write_skill("parting", "good", "echo bye");
    let runtime = fixture.start().await;
    let mut sessions = Vec::new();
    for name in TENANTS {
        for _ in 0..SESSIONS {
            sessions.push(runtime.open(SessionSpec::new(tenant(name))).await.unwrap());
        }
    }
    let is_over = AtomicBool::new(false);
    let conversations = join_all(sessions.iter().map(|session| send_messages(session, &is_over)));
    let killing = async {
        for round in 0..KILLS {
            fixture.write_skill("greeting", &format!("round {round}"), "echo hello");
            // Half of the time the other is broken.
            let text = if round % 2 == 0 { "broken" } else { "---\nname: parting\ndescription: good\n---\n" };
            std::fs::write(fixture.skill("parting").join("SKILL.md"), text).unwrap();
            // Some die in a load, some before it, some while a session looks its skills up.
            if round % 4 == 0 {
                reload(&runtime).await;
            }
            runtime.registry().kill();
            let spec = SessionSpec::new(tenant(TENANTS[round as usize % 2])).skills(["greeting"]);
            let opened = runtime.open(spec).await.unwrap();
            assert_eq!(ask(&opened, "hello").await, "heard: hello");
            runtime.delete(opened.tenant(), opened.id()).await.unwrap();
            assert_eq!(described(&runtime, "parting"), "good");
        }
        is_over.store(true, Ordering::Release);
    };
    let (turns, ()) = tokio::join!(conversations, killing);
    assert!(turns.iter().all(|turns| *turns > 0), "{turns:?}");
    let restarts = runtime.tree().find(&["registry"]).unwrap().actor.restarts;
    assert!(restarts > 1, "{restarts}");

    // It was broken last in an even round; what is written now is loaded.
    std::fs::write(fixture.skill("parting").join("SKILL.md"), "broken").unwrap();
    fixture.write_skill("later", "new", "echo later");
    assert_eq!(reload(&runtime).await, 1);
    assert_eq!(described(&runtime, "parting"), "good");
    assert_eq!(described(&runtime, "greeting"), format!("round {}", KILLS - 1));
    let session = runtime.open(SessionSpec::new(tenant("acme")).skills(["later"])).await.unwrap();
    assert_eq!(ask(&session, "$ sh /mnt/skills/later/scripts/run.sh").await, "it says: later\n");
    runtime.shutdown(soon()).await.unwrap();
}
