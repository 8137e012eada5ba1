//! Two tenants at one service, and the listeners of a session.

use std::collections::BTreeSet;

use conjure::conversation::TurnStop;
use conjure::{Runtime, SessionEventKind, SessionSpec, TurnEvent, Update};
use futures_util::future::join_all;

use crate::support::host::{Host, ask, follow, soon, spec, tenant};
use crate::support::test_reply::{TestReply, note};
use crate::support::test_wire::{KEY, TestService, TestWire, on_every_wire};

on_every_wire!(
    nothing_crosses_between_tenants,
    a_slow_listener_misses_nothing_that_is_recorded,
    a_turn_ends_without_anybody_who_listens,
);

/// Each tenant has a canary in its prompt and in its messages. The service's key is in its header only.
async fn nothing_crosses_between_tenants(wire: TestWire) {
    const TENANTS: [&str; 2] = ["acme", "globex"];
    let replies = [TestReply::note("call_1", "a"), TestReply::text("Done."), TestReply::text("Hello.")];
    let service = TestService::start_by_position(wire, replies).await;
    let host = Host::new();
    let runtime = host.start(&service).await;
    let opening = (0..8).map(|number| {
        let name = TENANTS[number % 2];
        let spec = SessionSpec::new(tenant(name)).without_skills().without_sandbox();
        runtime.open(spec.base_prompt(format!("prompt-canary-of-{name}")))
    });
    let sessions: Vec<_> = join_all(opening).await.into_iter().map(Result::unwrap).collect();
    for words in ["Go", "Hi"] {
        join_all(sessions.iter().enumerate().map(|(number, session)| async move {
            ask(session, &format!("{words} {number}, word-canary-of-{}", TENANTS[number % 2])).await;
        }))
        .await;
    }
    let requests = service.requests();
    assert_eq!(requests.len(), 8 * 3);
    let mut seen = BTreeSet::new();
    for request in &requests {
        let of = |name: &str| request.body().contains(&format!("canary-of-{name}"));
        assert_ne!(of("acme"), of("globex"), "{}", request.body());
        let owner = if of("acme") { "acme" } else { "globex" };
        assert!(request.body().contains(&format!("prompt-canary-of-{owner}")));
        assert!(request.body().contains(&format!("word-canary-of-{owner}")));
        seen.insert(owner);
        assert!(request.key().ends_with(KEY), "the key is in its header");
        assert!(!request.body().contains(KEY));
    }
    assert_eq!(seen.len(), 2);
    for session in &sessions {
        let told = format!("{:?}", runtime.events(session.tenant(), session.id(), 0).await.unwrap());
        assert!(!told.contains(KEY), "{told}");
    }
    service.check();
}

/// A service whose first answer has a call and a text in many pieces, and whose second one is a text in many pieces.
async fn talkative_service(wire: TestWire) -> TestService {
    let long = "word ".repeat(500);
    let first = TestReply::blocks(vec![conjure::Block::text(long.as_str()), note("call_1", "a")]);
    let replies =
        [first.with_pieces(500), TestReply::text(&long).with_pieces(500), TestReply::text("Hello.")];
    TestService::start(wire, replies).await
}

/// How many events and previews a session keeps for those who listen.
const RING: usize = 8;

async fn start(host: &Host, service: &TestService) -> Runtime {
    let options = host.options([("model", service)]).ephemeral();
    Runtime::spawn(options.sessions(|sessions| sessions.ring = (RING, 1 << 20))).await.unwrap()
}

/// The listener reads only after the end, and then finds each event once, in order.
async fn a_slow_listener_misses_nothing_that_is_recorded(wire: TestWire) {
    let service = talkative_service(wire).await;
    let host = Host::new();
    let runtime = start(&host, &service).await;
    let session = runtime.open(spec()).await.unwrap();
    let mut slow = session.subscribe(0).await.unwrap();
    ask(&session, "Go").await;
    let told = runtime.events(&tenant("acme"), session.id(), 0).await.unwrap();
    let told: Vec<_> = told.into_iter().map(|event| event.id).collect();
    let (mut heard, mut previews, mut has_lagged) = (Vec::new(), 0, false);
    while heard.len() < told.len() {
        match slow.next().await.unwrap() {
            Update::Recorded(event) => heard.push(event.id),
            Update::Preview(_) => previews += 1,
            Update::Lagged => has_lagged = true,
            _ => {}
        }
    }
    assert_eq!(heard, told);
    assert!(has_lagged && previews <= RING, "{previews} of about a thousand previews were kept");
    service.check();
}

/// The sender of the message disconnects in mid-stream. Another client finds the answer.
async fn a_turn_ends_without_anybody_who_listens(wire: TestWire) {
    let service = talkative_service(wire).await;
    let host = Host::new();
    let runtime = start(&host, &service).await;
    let session = runtime.open(spec()).await.unwrap();
    let mut turn = session.send("Go").await.unwrap();
    let from = turn.accepted().seq();
    while !matches!(turn.next().await.unwrap().unwrap(), TurnEvent::Update(Update::Preview(_))) {}
    drop(turn);
    let mut later = session.subscribe(from).await.unwrap();
    let mut said = String::new();
    loop {
        let Update::Recorded(event) = later.next().await.unwrap() else { continue };
        match event.kind {
            SessionEventKind::AgentMessage { content } => said = conjure::Message::assistant(content).text(),
            SessionEventKind::SessionStatusIdle { .. } => break,
            _ => {}
        }
    }
    assert_eq!(said, "word ".repeat(500));
    assert_eq!(host.tools.lines(), ["a"]);
    let mut turn = session.send("Hi").await.unwrap();
    let (stop, said) = follow(&mut turn).await;
    assert!(matches!(stop, TurnStop::Answered(_)), "{stop}");
    assert_eq!(said, "Hello.");
    service.check();
    runtime.shutdown(soon()).await.unwrap();
}
