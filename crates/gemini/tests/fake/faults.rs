//! Errors before and within an answer, broken connections, and what a client does with them.

use std::time::Duration;

use conjure_conversation::{ApiErrorKind, Block, ModelErrorKind, ModelEvent};
use conjure_gemini::fake::{FakeGemini, Refusal, Reply};

use crate::support::{answer, ask, client, drain, impatient_client, request, start, user};

fn four() -> Reply {
    Reply::blocks(vec![Block::text("Four.")])
}

fn refusal(kind: ApiErrorKind) -> Refusal {
    Refusal::new(kind, "so it is")
}

#[tokio::test]
async fn errors_that_pass_are_retried_after_the_time_that_they_name() {
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
async fn errors_that_stay_are_told_at_once() {
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
async fn an_error_within_an_answer_has_the_words_of_the_service() {
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
async fn an_answer_that_breaks_off_is_truncated() {
    for reply in [four().cut_after_pieces(2), four().cut_after_bytes(400), Reply::parts([], "")] {
        let fake = start(FakeGemini::builder().turns([reply.clone(), reply.clone(), reply])).await;
        let error = ask(&client(&fake), &[user("Hi")]).await.unwrap_err();
        assert_eq!(error.kind, ModelErrorKind::Truncated, "{error}");
    }
}

#[tokio::test]
async fn what_was_not_shown_is_tried_again() {
    for fault in [Reply::hang_up(), four().cut_after_bytes(10), Reply::raw(200, "text/event-stream", "")] {
        let fake = start(FakeGemini::builder().turns([four()]).faults([fault])).await;
        assert_eq!(answer(&ask(&client(&fake), &[user("Hi")]).await.unwrap()).text(), "Four.");
        assert_eq!(fake.received(), 2);
    }
}

#[tokio::test]
async fn what_is_no_stream_is_told() {
    for (fault, said) in [
        (Reply::html(200), "the Gemini API"),
        (Reply::html(404), "404"),
        (Reply::raw(200, "text/event-stream", "data: {\"candidates\":3}\n\n"), "cannot be read"),
        (Reply::endless("", format!(": {}\n", "and on ".repeat(10_000))), "larger than"),
    ] {
        let fake = start(FakeGemini::builder().faults([fault])).await;
        let error = ask(&client(&fake), &[user("Hi")]).await.unwrap_err();
        assert!(error.message.contains(said), "{error}");
        assert_eq!(fake.received(), 1, "{error}");
    }
}

#[tokio::test]
async fn a_stream_may_come_in_any_pieces() {
    let text = "Grüße aus 東京 \u{1F980}";
    for size in [1, 7, 100] {
        let reply = Reply::blocks(vec![Block::text(text)]).with_chunk_size(size);
        let fake = start(FakeGemini::builder().turns([reply])).await;
        assert_eq!(answer(&ask(&client(&fake), &[user("Hi")]).await.unwrap()).text(), text);
    }
}

#[tokio::test]
async fn a_service_that_does_not_go_on_is_left() {
    for fault in [Reply::silence(), four().stall_after_bytes(300)] {
        let fake = start(FakeGemini::builder().faults([fault])).await;
        let error =
            ask(&impatient_client(&fake, Duration::from_millis(100)), &[user("Hi")]).await.unwrap_err();
        assert_eq!(error.kind, ModelErrorKind::Timeout, "{error}");
    }
}
