//! Errors of the service, before and within the stream, and what is repeated.

use conjure_conversation::{ApiErrorKind, Block, ModelError, ModelErrorKind};
use conjure_openai::fake::{FakeError, FakeOpenAi, Reply};

use crate::support::{ask, models, request, start, user};

fn four() -> Reply {
    Reply::blocks(vec![Block::text("Four.")])
}

fn error(kind: &ApiErrorKind) -> FakeError {
    FakeError::new(kind, "so it is")
}

fn soon(reply: Reply) -> Reply {
    reply.with_header("retry-after-ms", "1")
}

/// What a client makes of a reply that is followed by a good one, and how often it asked.
async fn outcomes(reply: Reply) -> Vec<(Option<ModelError>, u64)> {
    let mut outcomes = Vec::new();
    for place in 0..2 {
        let fake = start(FakeOpenAi::builder().faults([reply.clone(), four()])).await;
        let [(_, chat), (_, responses)] = models(&fake);
        let model = if place == 0 { chat } else { responses };
        let failed = ask(&*model, request(vec![user("Hi")])).await.err();
        outcomes.push((failed, fake.received()));
    }
    outcomes
}

#[tokio::test]
async fn transient_errors_are_retried_and_others_are_reported() {
    for kind in [ApiErrorKind::RateLimit, ApiErrorKind::Overloaded, ApiErrorKind::Api, ApiErrorKind::Timeout]
    {
        for (failed, asked) in outcomes(soon(Reply::error(error(&kind)))).await {
            assert_eq!((failed, asked), (None, 2), "{kind:?}");
        }
    }
    for kind in [
        ApiErrorKind::InvalidRequest,
        ApiErrorKind::Authentication,
        ApiErrorKind::Permission,
        ApiErrorKind::NotFound,
        ApiErrorKind::Billing,
    ] {
        for (failed, asked) in outcomes(soon(Reply::error(error(&kind)))).await {
            let failed = failed.unwrap();
            assert_eq!((&failed.kind, asked), (&ModelErrorKind::Api(kind.clone()), 1), "{failed}");
            assert!(failed.message.contains("so it is"), "{failed}");
            assert!(failed.request_id.is_some_and(|id| id.starts_with("req_fake_")));
        }
    }
}

#[tokio::test]
async fn an_invalid_tool_call_is_retried() {
    let groq = error(&ApiErrorKind::InvalidRequest).with_code("tool_use_failed");
    for (failed, asked) in outcomes(soon(Reply::error(groq))).await {
        assert_eq!((failed, asked), (None, 2));
    }
}

#[tokio::test]
async fn a_too_long_history_is_an_invalid_request() {
    let openai = FakeError::invalid("This model's maximum context length is 8192 tokens.")
        .with_code("context_length_exceeded");
    let llama = r#"{"error":{"code":400,"message":"the request exceeds the available context size","type":"exceed_context_size_error","n_prompt_tokens":9000,"n_ctx":4096}}"#;
    for reply in [Reply::error(openai), Reply::raw(400, "application/json", llama)] {
        for (failed, asked) in outcomes(reply).await {
            let failed = failed.unwrap();
            assert_eq!((&failed.kind, asked), (&ModelErrorKind::Api(ApiErrorKind::InvalidRequest), 1));
            assert!(failed.message.contains("context"), "{failed}");
        }
    }
}

#[tokio::test]
async fn an_error_under_status_200_is_an_error() {
    let body = r#"{"error":{"code":402,"message":"no credits left"}}"#;
    for (failed, asked) in outcomes(Reply::raw(200, "application/json", body)).await {
        let failed = failed.unwrap();
        assert_eq!((&failed.kind, asked), (&ModelErrorKind::Api(ApiErrorKind::Billing), 1));
        assert!(failed.message.contains("no credits left"), "{failed}");
    }
}

#[tokio::test]
async fn json_without_an_answer_is_an_error() {
    for (failed, asked) in outcomes(Reply::raw(200, "application/json", r#"{"x":1}"#)).await {
        let failed = failed.unwrap();
        assert_eq!((&failed.kind, asked), (&ModelErrorKind::Protocol, 1));
        assert!(failed.message.contains("is the base URL that of"), "{failed}");
    }
}

#[tokio::test]
async fn errors_in_the_stream_are_repeated_only_before_output() {
    let early = four().error_after_events(1, error(&ApiErrorKind::Api));
    for (failed, asked) in outcomes(early).await {
        assert_eq!((failed, asked), (None, 2));
    }
    let late = four().error_after_events(6, error(&ApiErrorKind::Api));
    for (failed, asked) in outcomes(late).await {
        let failed = failed.unwrap();
        assert_eq!((&failed.kind, asked), (&ModelErrorKind::Api(ApiErrorKind::Api), 1));
        assert!(failed.message.contains("so it is"), "{failed}");
    }
    for (failed, asked) in outcomes(four().cut_after_events(1)).await {
        assert_eq!((failed, asked), (None, 2));
    }
    for (failed, asked) in outcomes(four().cut_after_events(6)).await {
        assert!(failed.is_some_and(|failed| failed.is_retryable()), "the connection broke");
        assert_eq!(asked, 1);
    }
    for (failed, asked) in outcomes(Reply::stream("data: [1]\n\n")).await {
        assert_eq!((failed.map(|failed| failed.kind), asked), (Some(ModelErrorKind::Protocol), 1));
    }
}
