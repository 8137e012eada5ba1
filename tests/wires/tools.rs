//! Tool calls beside others that fail, and messages that the user adds meanwhile.

use std::time::Duration;

use conjure::conversation::TurnStop;
use serde_json::json;

use crate::support::host::{Host, ask, follow, spec, until};
use crate::support::sent_request::SentItem;
use crate::support::test_reply::{TestReply, call, note};
use crate::support::test_wire::{TestService, TestWire, on_every_wire};

on_every_wire!(siblings_keep_their_results, steering_follows_the_results_and_the_queue_waits);

/// One call fails, one panics, one takes too long, one is denied, one names an unknown tool. The others have their results, in order.
async fn siblings_keep_their_results(wire: TestWire) {
    let nothing = json!({});
    let calls = vec![
        note("call_1", "first"),
        call("call_2", "fail", &nothing),
        call("call_3", "panic", &nothing),
        call("call_4", "hang", &nothing),
        call("call_5", "forbidden", &nothing),
        call("call_6", "no_such_tool", &nothing),
        note("call_7", "last"),
    ];
    let service = TestService::start(wire, [TestReply::blocks(calls), TestReply::text("Done.")]).await;
    let host = Host::with_tool_timeout(Duration::from_millis(300));
    let runtime = host.start(&service).await;
    let session = runtime.open(spec()).await.unwrap();
    assert_eq!(ask(&session, "Go").await, "Done.");
    let results = service.last_request().results();
    let expected = [
        ("noted first", false),
        ("it failed", true),
        ("crashed", true),
        ("timed out", true),
        ("never", true),
        ("no_such_tool", true),
        ("noted last", false),
    ];
    assert_eq!(results.len(), expected.len(), "{results:?}");
    for ((text, is_error), (says, fails)) in results.iter().zip(expected) {
        assert!(text.contains(says), "`{text}` does not say `{says}`");
        assert_eq!(*is_error, fails, "{text}");
    }
    service.check();
}

/// Steering and queued messages are both delivered first in, first out.
async fn steering_follows_the_results_and_the_queue_waits(wire: TestWire) {
    let calls = vec![call("call_1", "gate", &json!({"text": "a"})), note("call_2", "b")];
    let heard = (0..3).map(|number| TestReply::text(&format!("Heard {number}.")));
    let replies = [TestReply::blocks(calls), TestReply::text("Done.")];
    let service = TestService::start(wire, replies.into_iter().chain(heard)).await;
    let host = Host::new();
    let runtime = host.start(&service).await;
    let session = runtime.open(spec()).await.unwrap();
    let mut turn = session.send("Go").await.unwrap();
    until(async || host.tools.lines().len() == 2).await;
    let mut queued = Vec::new();
    for number in 0..3 {
        queued.push(session.send(format!("Queued {number}")).await.unwrap());
        session.steer(format!("By the way {number}")).await.unwrap();
    }
    host.tools.open_gate();
    assert_eq!(follow(&mut turn).await.1, "Done.");
    for (number, turn) in queued.iter_mut().enumerate() {
        let (stop, said) = follow(turn).await;
        assert!(matches!(stop, TurnStop::Answered(_)), "{stop}");
        assert_eq!(said, format!("Heard {number}."));
    }
    let requests = service.requests();
    assert_eq!(requests.len(), 5);
    let items = requests[1].items();
    let behind = items.iter().rposition(|item| matches!(item, SentItem::Result { .. })).unwrap() + 1;
    let steered = "By the way 0\nBy the way 1\nBy the way 2";
    assert_eq!(items[behind..], [SentItem::User(steered.to_owned())]);
    for (number, request) in requests[2..].iter().enumerate() {
        assert_eq!(request.user_texts().pop().unwrap(), format!("Queued {number}"));
    }
    service.check();
}
