//! Failures of the service: overload in mid-stream, limits of a key, answers that are cut off.

use std::collections::BTreeMap;

use conjure::conversation::TurnStop;
use conjure::model::{ApiErrorKind, ModelErrorKind};
use futures_util::future::join_all;

use crate::support::host::{Host, ask, say, spec};
use crate::support::test_reply::{Progress, TestReply, note};
use crate::support::test_wire::{TestService, TestWire, on_every_wire};

on_every_wire!(
    an_overload_before_output_is_retried,
    an_overload_behind_output_is_not_retried,
    an_answer_that_breaks_off_is_no_answer,
    sessions_of_a_limited_key_wait_and_are_all_answered,
);

async fn an_overload_before_output_is_retried(wire: TestWire) {
    let broken = TestReply::text("Never said.").broken_after(Progress::Nothing, ApiErrorKind::Overloaded);
    let service = TestService::start(wire, [broken, TestReply::text("Hello.")]).await;
    let host = Host::new();
    let runtime = host.start(&service).await;
    let session = runtime.open(spec()).await.unwrap();
    assert_eq!(ask(&session, "Hi").await, "Hello.");
    let requests = service.requests();
    assert_eq!(requests.len(), 2);
    assert_eq!(requests[0].body(), requests[1].body());
    service.check();
}

/// After some text was shown or a call was begun, nothing is retried. No tool runs, and nothing of the answer stays in the history.
async fn an_overload_behind_output_is_not_retried(wire: TestWire) {
    for (progress, reply) in [
        (Progress::Text, TestReply::text("Half of this is shown.")),
        (Progress::Call, TestReply::blocks(vec![note("call_1", "never")])),
    ] {
        let broken = reply.broken_after(progress, ApiErrorKind::Overloaded);
        let service = TestService::start(wire, [broken, TestReply::text("Hello.")]).await;
        let host = Host::new();
        let runtime = host.start(&service).await;
        let session = runtime.open(spec()).await.unwrap();
        let (stop, _) = say(&session, "Hi").await;
        let TurnStop::ModelFailed(error) = &stop else { panic!("{progress:?}: {stop}") };
        assert_eq!(error.kind, ModelErrorKind::Api(ApiErrorKind::Overloaded), "{progress:?}");
        assert_eq!(service.received(), 1, "{progress:?}");
        assert!(host.tools.lines().is_empty());
        assert_eq!(ask(&session, "And now?").await, "Hello.");
        let texts = service.last_request().user_texts();
        assert_eq!(service.last_request().items().len(), texts.len(), "only the user has said something");
        service.check();
    }
}

/// A truncated response is an error even if the connection is closed properly.
async fn an_answer_that_breaks_off_is_no_answer(wire: TestWire) {
    let cut = |progress| TestReply::text("Half of this is shown.").cut_after(progress);
    let replies = [cut(Progress::Text), cut(Progress::Nothing), TestReply::text("Hello.")];
    let service = TestService::start(wire, replies).await;
    let host = Host::new();
    let runtime = host.start(&service).await;
    let session = runtime.open(spec()).await.unwrap();
    let (stop, _) = say(&session, "Hi").await;
    let TurnStop::ModelFailed(error) = &stop else { panic!("{stop}") };
    assert!(matches!(error.kind, ModelErrorKind::Truncated | ModelErrorKind::Connection), "{error}");
    assert_eq!(service.received(), 1, "what was shown is not repeated");
    // The second one has shown nothing, so it is.
    assert_eq!(ask(&session, "And now?").await, "Hello.");
    assert_eq!(service.received(), 3);
    service.check();
}

/// A refused call is repeated once.
async fn sessions_of_a_limited_key_wait_and_are_all_answered(wire: TestWire) {
    const SESSIONS: usize = 12;
    const REFUSED: usize = 6;
    let service = TestService::start_by_position(wire, [TestReply::text("Hello.")]).await;
    let refusal = TestReply::error(ApiErrorKind::RateLimit, "slow down").retry_after_ms(100);
    (0..REFUSED).for_each(|_| service.add_reply(&refusal));
    let host = Host::new();
    let runtime = host.start(&service).await;
    let opening = join_all((0..SESSIONS).map(|_| runtime.open(spec()))).await;
    let sessions: Vec<_> = opening.into_iter().map(Result::unwrap).collect();
    let asking = sessions.iter().enumerate().map(|(number, session)| async move {
        assert_eq!(ask(session, &format!("Hi from {number}")).await, "Hello.");
    });
    join_all(asking).await;
    let mut asked: BTreeMap<Vec<String>, usize> = BTreeMap::new();
    for request in service.requests() {
        *asked.entry(request.user_texts()).or_default() += 1;
    }
    assert_eq!(asked.len(), SESSIONS);
    assert_eq!(asked.values().sum::<usize>(), SESSIONS + REFUSED, "{asked:?}");
    assert!(asked.values().all(|count| *count <= 2), "no session is refused twice: {asked:?}");
}
