//! Answers that pause: by `pause_turn` on the Messages wire, by `CONTINUATION` on the Gemini wire.

use conjure::conversation::{Limit, TurnStop};
use conjure::model::StopReason;
use conjure::{Block, Limits};
use serde_json::json;

use crate::support::host::{Host, ask, follow, spec};
use crate::support::sent_request::SentItem;
use crate::support::test_reply::{TestReply, note, raw_block};
use crate::support::test_wire::{TestService, TestWire};

fn pause(text: &str) -> TestReply {
    TestReply::stopped(StopReason::PauseTurn, vec![Block::text(text)])
}

/// What is said of an answer that goes on: Gemini's service keeps it behind a token, all others get it back.
fn said_so_far(wire: TestWire, texts: &[&str]) -> Vec<SentItem> {
    match wire {
        TestWire::Gemini => Vec::new(),
        _ => texts.iter().map(|text| SentItem::Answer((*text).to_owned())).collect(),
    }
}

async fn a_paused_answer_is_resumed_unchanged(wire: TestWire) {
    assert!(wire.has_pauses());
    let last = TestReply::blocks(vec![Block::text("three"), note("call_1", "a")]);
    let replies = [pause("one"), pause("two"), last, TestReply::text("Done."), TestReply::text("Hello.")];
    let service = TestService::start(wire, replies).await;
    let host = Host::new();
    let runtime = host.start(&service).await;
    let session = runtime.open(spec()).await.unwrap();
    assert_eq!(ask(&session, "Go").await, "Done.");
    assert_eq!(ask(&session, "Hi").await, "Hello.");
    let requests = service.requests();
    assert_eq!(requests.len(), 5);
    let question = vec![SentItem::User("Go".to_owned())];
    for (request, texts) in requests.iter().zip([&[][..], &["one"], &["one", "two"]]) {
        assert_eq!(request.items(), [question.clone(), said_so_far(wire, texts)].concat(), "{texts:?}");
        assert_eq!(request.json()["tools"], requests[0].json()["tools"]);
        if wire == TestWire::Gemini {
            let token = &request.json()["continuationToken"];
            assert_eq!(token.is_string(), !texts.is_empty(), "{}", request.body());
        }
    }
    // The whole of it, in one piece, with the call that came last.
    for request in &requests[3..] {
        let answers: Vec<SentItem> =
            request.items().into_iter().filter(|item| matches!(item, SentItem::Answer(_))).collect();
        assert_eq!(
            answers[..3],
            ["one", "two", "three"].map(|text| SentItem::Answer(text.to_owned())),
            "{}",
            request.body()
        );
        assert_eq!(request.results(), [("noted a".to_owned(), false)]);
        assert!(request.json().get("continuationToken").is_none());
    }
    if wire == TestWire::Gemini {
        // Its own signature came back, also behind two pauses.
        let parts = &requests[3].json()["contents"][1]["parts"];
        let signature = parts.as_array().unwrap().iter().find_map(|part| part["thoughtSignature"].as_str());
        assert!(signature.is_some_and(|signature| signature.len() == 64), "{parts}");
    }
    service.check();
}

async fn pauses_are_limited(wire: TestWire) {
    let replies = ["one", "two", "three"].map(pause).into_iter().chain([TestReply::text("Hello.")]);
    let service = TestService::start(wire, replies).await;
    let host = Host::new();
    let runtime = host.start(&service).await;
    let session = runtime.open(spec()).await.unwrap();
    let limits = Limits { pauses: 2, ..Limits::default() };
    let mut turn = session.send_with_limits("Go", Some(limits)).await.unwrap();
    assert_eq!(follow(&mut turn).await.0, TurnStop::Limit(Limit::Pauses));
    assert_eq!(service.received(), 3);
    // What was said up to there stays said, also where no token stands for it any more.
    assert_eq!(ask(&session, "Hi").await, "Hello.");
    let texts = |text: &str| SentItem::Answer(text.to_owned());
    let expected = [
        SentItem::User("Go".to_owned()),
        texts("one"),
        texts("two"),
        texts("three"),
        SentItem::User("Hi".to_owned()),
    ];
    assert_eq!(service.last_request().items(), expected);
    assert!(service.last_request().json().get("continuationToken").is_none());
    service.check();
}

mod messages {
    use super::*;

    #[tokio::test]
    async fn a_paused_answer_is_resumed_unchanged() {
        super::a_paused_answer_is_resumed_unchanged(TestWire::Messages).await;
    }

    #[tokio::test]
    async fn pauses_are_limited() {
        super::pauses_are_limited(TestWire::Messages).await;
    }

    /// The calls of the service's own tools go back to the byte, in the container that they ran in.
    #[tokio::test]
    async fn a_pause_within_a_tool_of_the_service_keeps_its_container() {
        let server_call =
            r#"{"type":"server_tool_use","id":"srvtoolu_1","name":"code_execution","input":{"n":  1.50}}"#;
        let paused = TestReply::stopped(StopReason::PauseTurn, vec![raw_block(server_call)]);
        let result = json!({"type": "code_execution_tool_result", "tool_use_id": "srvtoolu_1", "content": {
            "type": "code_execution_result", "stdout": "", "stderr": "", "return_code": 0, "content": [],
        }});
        let rest = TestReply::blocks(vec![raw_block(&result.to_string()), Block::text("Done.")]);
        let replies = [paused.in_container("container_1"), rest, TestReply::text("Hello.")];
        let service = TestService::start(TestWire::Messages, replies).await;
        let host = Host::new();
        let runtime = host.start(&service).await;
        let session = runtime.open(spec()).await.unwrap();
        assert_eq!(ask(&session, "Go").await, "Done.");
        assert_eq!(ask(&session, "Hi").await, "Hello.");
        for request in &service.requests()[1..] {
            assert!(request.body().contains(server_call), "{}", request.body());
            assert_eq!(request.json()["container"], "container_1");
        }
        service.check();
    }
}

mod gemini {
    use super::*;

    #[tokio::test]
    async fn a_paused_answer_is_resumed_unchanged() {
        super::a_paused_answer_is_resumed_unchanged(TestWire::Gemini).await;
    }

    #[tokio::test]
    async fn pauses_are_limited() {
        super::pauses_are_limited(TestWire::Gemini).await;
    }
}
