//! Sessions that continue after a block that the service refuses, and after their history has grown long.

use conjure::conversation::CompactionPolicy;
use conjure::model::ApiErrorKind;
use conjure::{Block, Runtime, SessionEventKind};
use serde_json::json;

use crate::support::host::{Host, ask, follow, spec, tenant};
use crate::support::sent_request::SentItem;
use crate::support::test_reply::{TestReply, call, image, thinking};
use crate::support::test_wire::{TestService, TestWire, on_every_wire};

on_every_wire!(
    a_refused_image_does_not_end_the_session,
    a_history_is_compacted_between_answers,
    a_compaction_without_progress_is_not_tried_again_and_again,
);

/// What a service says of an image that it does not take. Only the Messages wire names its place.
fn refusal(wire: TestWire) -> TestReply {
    let words = match wire {
        TestWire::Messages => {
            "messages.0.content.1.image.source.base64: image exceeds 5 MB maximum: 6291456 bytes > 5242880 bytes"
        }
        TestWire::Chat | TestWire::Responses => {
            "You uploaded an unsupported image. Please make sure your image is valid."
        }
        TestWire::Gemini => "Unable to process input image. Please retry or report.",
    };
    TestReply::error(ApiErrorKind::InvalidRequest, words)
}

async fn a_refused_image_does_not_end_the_session(wire: TestWire) {
    let replies = [refusal(wire), TestReply::text("I cannot see it."), TestReply::text("Hello.")];
    let service = TestService::start(wire, replies).await;
    let host = Host::new();
    let runtime = host.start(&service).await;
    let session = runtime.open(spec()).await.unwrap();
    let mut turn = session.send(vec![Block::text("Look."), image()]).await.unwrap();
    assert_eq!(follow(&mut turn).await.1, "I cannot see it.");
    assert_eq!(ask(&session, "Hi").await, "Hello.");
    let images: Vec<bool> =
        service.requests().iter().map(|request| request.items().contains(&SentItem::Image)).collect();
    assert_eq!(images, [true, false, false]);
    assert!(service.last_request().user_texts()[0].starts_with("Look.\n"), "the rest of the message stays");
    let statuses: Vec<_> = service.requests().iter().map(|request| request.status().unwrap()).collect();
    assert_eq!(statuses, [400, 200, 200]);
}

/// A history is compacted when it has so many tokens.
const THRESHOLD: u64 = 1_000;

/// The beginning of the request for a summary.
const SUMMARY: &str = "Do not go on with the task now.";

/// A runtime that compacts, and the service behind it.
async fn start_compacting(wire: TestWire, replies: Vec<TestReply>) -> (Host, Runtime, TestService) {
    let service = TestService::start(wire, replies).await;
    let host = Host::new();
    let policy = CompactionPolicy::with_threshold(THRESHOLD).with_kept_messages(2);
    let options = host.options([("model", &service)]).ephemeral().compaction(policy);
    (host, Runtime::spawn(options).await.unwrap(), service)
}

/// Two calls with long results.
fn work(number: usize, tokens: u64) -> TestReply {
    let long = |letter: &str| json!({"text": format!("{number} {}", letter.repeat(2_000))});
    let calls = vec![
        thinking("Hm."),
        Block::text("I work."),
        call(&format!("call_{number}"), "note", &long("x")),
        call(&format!("call_{number}b"), "note", &long("y")),
    ];
    TestReply::blocks(calls).with_input_tokens(tokens)
}

fn is_summary(request: &crate::support::sent_request::SentRequest) -> bool {
    request.user_texts().iter().any(|text| text.contains(SUMMARY))
}

/// Calls and their results stay together, and the rest of the history is sent back unchanged.
async fn a_history_is_compacted_between_answers(wire: TestWire) {
    let summary = TestReply::text("<summary>The user said Go.</summary>");
    let replies =
        vec![work(1, 100), work(2, 100), work(3, THRESHOLD), summary, work(4, 100), TestReply::text("Done.")];
    let (_host, runtime, service) = start_compacting(wire, replies).await;
    let session = runtime.open(spec()).await.unwrap();
    assert_eq!(ask(&session, "Go").await, "Done.");
    let requests = service.requests();
    let summaries: Vec<bool> = requests.iter().map(is_summary).collect();
    assert_eq!(summaries, [false, false, false, true, false, false]);
    assert!(requests[4].body().contains("The user said Go."), "{}", requests[4].body());
    let calls = |place: usize| {
        requests[place].items().iter().filter(|item| matches!(item, SentItem::Call { .. })).count()
    };
    assert_eq!([calls(2), calls(3), calls(4), calls(5)], [4, 4, 2, 4]);
    assert!(requests[4].body().len() < requests[2].body().len());
    service.check();
}

/// A summary that is longer than what it replaces changes nothing, and is not requested again before the history has grown.
async fn a_compaction_without_progress_is_not_tried_again_and_again(wire: TestWire) {
    let replies = vec![
        work(1, 100),
        work(2, 100),
        work(3, THRESHOLD),
        TestReply::text(&"long ".repeat(10_000)),
        work(4, THRESHOLD + 1),
        work(5, THRESHOLD + 2),
        TestReply::text("Done."),
    ];
    let (_host, runtime, service) = start_compacting(wire, replies).await;
    let session = runtime.open(spec()).await.unwrap();
    assert_eq!(ask(&session, "Go").await, "Done.");
    let requests = service.requests();
    let summaries: Vec<bool> = requests.iter().map(is_summary).collect();
    assert_eq!(summaries, [false, false, false, true, false, false, false]);
    assert_eq!(requests[6].results().len(), 10, "nothing of the history is lost");
    let events = runtime.events(&tenant("acme"), session.id(), 0).await.unwrap();
    let failed =
        |kind: &SessionEventKind| matches!(kind, SessionEventKind::CompactionEnd { is_error: true, .. });
    assert_eq!(events.iter().filter(|event| failed(&event.kind)).count(), 1);
    service.check();
}
