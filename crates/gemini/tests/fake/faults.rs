//! Errors before and within an answer, broken connections, and what a client does with them.

use std::time::Duration;

use conjure_conversation::{ApiErrorKind, Block, ModelErrorKind, ModelEvent};
use conjure_gemini::fake::{FakeGemini, Refusal, Reply};

use crate::support::{answer, ask, client, drain, request, start, user};

fn four() -> Reply {
    Reply::blocks(vec![Block::text("Four.")])
}

fn refusal(kind: ApiErrorKind) -> Refusal {
    Refusal::new(kind, "so it is")
}

#[tokio::test]
async fn transient_errors_are_retried_after_their_delay() {
    let wait = Duration::from_millis(20);
    let faults = [
        Reply::error(refusal(ApiErrorKind::RateLimit).with_retry_delay(wait)),
        Reply::error(refusal(ApiErrorKind::Overloaded).with_retry_delay(wait)),
    ];
    let fake = start(FakeGemini::builder().turns([four()]).faults(faults)).await;
    let response = ask(&client(&fake), &[user("Hi")]).await.unwrap();
    assert_eq!(answer(&response).text(), "Four.");
    let statuses: Vec<_> = fake.requests().iter().map(|request| request.status().unwrap()).collect();
    assert_eq!(statuses, [429, 503, 200]);
    // All requests are the same to the byte.
    let requests = fake.requests();
    assert!(requests.iter().all(|request| request.body() == requests[0].body()));
}

#[tokio::test]
async fn permanent_errors_are_reported_at_once() {
    for (kind, status) in [
        (ApiErrorKind::InvalidRequest, 400),
        (ApiErrorKind::Authentication, 400),
        (ApiErrorKind::Permission, 403),
        (ApiErrorKind::NotFound, 404),
    ] {
        let fake = start(FakeGemini::builder().faults([Reply::error(refusal(kind.clone()))])).await;
        let error = ask(&client(&fake), &[user("Hi")]).await.unwrap_err();
        assert_eq!(error.kind, ModelErrorKind::Api(kind));
        assert!(
            error.message.contains(&status.to_string()) && error.message.ends_with("so it is"),
            "{error}"
        );
        assert_eq!(fake.received(), 1);
    }
}

#[tokio::test]
async fn an_error_within_an_answer_keeps_the_services_message() {
    let broken = four().error_after_pieces(2, refusal(ApiErrorKind::Overloaded));
    let fake = start(FakeGemini::builder().faults([broken])).await;
    let (shown, outcome) =
        drain(conjure_conversation::Model::stream(&client(&fake), request(&[user("Hi")]))).await;
    let error = outcome.unwrap_err();
    assert_eq!(error.kind, ModelErrorKind::Api(ApiErrorKind::Overloaded));
    assert!(error.message.ends_with("so it is"), "{error}");
    assert!(shown.iter().any(|event| matches!(event, ModelEvent::TextDelta { .. })));
    // Something was shown, so it is not tried again.
    assert_eq!(fake.received(), 1);
}

#[tokio::test]
async fn what_is_no_answer_is_told() {
    let fault = Reply::raw(200, "text/event-stream", "data: {\"candidates\":3}\n\n");
    let fake = start(FakeGemini::builder().faults([fault])).await;
    let error = ask(&client(&fake), &[user("Hi")]).await.unwrap_err();
    assert!(error.message.contains("cannot be read"), "{error}");
    assert_eq!(fake.received(), 1, "{error}");
}
