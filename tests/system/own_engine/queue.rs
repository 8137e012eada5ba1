//! Many sessions start at once.

use conjure_sandbox::Executor;
use futures_util::future::join_all;

use crate::engine::OwnEngine;
use crate::load::{container, ends, sh};

/// How many.
const SESSIONS: usize = 64;

#[tokio::test]
async fn sixty_four_concurrent_sandboxes_queue_and_all_work() {
    let Some(engine) = OwnEngine::with_disk("1g").await else { return };
    let connector = engine.connector();
    let opened = ends("the queue", join_all((0..SESSIONS).map(|_| container(&connector)))).await;
    let opened: Vec<_> = opened.into_iter().map(Result::unwrap).collect();
    assert_eq!(engine.containers().await.len(), SESSIONS);
    let outputs = join_all(opened.iter().map(|it| sh(&it.sandbox, "cat kept"))).await;
    assert!(outputs.iter().all(|text| text == "kept\n"), "{outputs:?}");
    ends("all cleanups", join_all(opened.iter().map(|it| it.sandbox.cleanup()))).await;
    engine.until_nothing_is_left().await;
}
