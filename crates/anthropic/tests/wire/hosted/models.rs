//! Models with containers of the service: their requests, and the error of an expired container.

use std::sync::Arc;

use conjure_anthropic::hosted::HostedSkill;
use conjure_anthropic::{ApiProfile, Client, Messages, ModelOptions};
use conjure_base::ContainerId;
use conjure_conversation::{ApiErrorKind, ModelErrorKind, Request};
use serde_json::{Value, json};

use crate::clock::ManualClock;
use crate::events::{block, end, message, sse, start, text_delta, text_stream};
use crate::server::{Server, error, stream};
use crate::support::{MODEL, ask, client, config, drain};
use conjure_conversation::Model as _;

/// A request that names two hosted skills.
fn hosted(request: Request) -> Request {
    let skills = [HostedSkill::anthropic("xlsx"), HostedSkill::custom("skill_1").with_version("17")];
    Request { hosted: skills.into(), ..request }
}

fn model(server: &Server, profile: ApiProfile) -> Messages {
    let config = config(server).with_profile(profile).with_http(|http| http.with_retries(0));
    let client = Client::with_clock(&config, Arc::new(ManualClock::new())).unwrap();
    client.messages(ModelOptions::new(MODEL)).unwrap()
}

fn in_container(id: &str) -> Request {
    Request { container: Some(ContainerId::new(id)), ..ask("Hi") }
}

#[tokio::test]
async fn requests_ask_for_skills_tool_and_betas_of_the_profile() {
    let skills = json!([
        {"type": "anthropic", "skill_id": "xlsx", "version": "latest"},
        {"type": "custom", "skill_id": "skill_1", "version": "17"},
    ]);
    for (profile, line, betas) in [
        (
            ApiProfile::Beta,
            "POST /v1/messages?beta=true HTTP/1.1",
            Some("code-execution-2025-08-25,skills-2025-10-02,files-api-2025-04-14"),
        ),
        (ApiProfile::Current, "POST /v1/messages HTTP/1.1", None),
    ] {
        let server = Server::always(stream(&text_stream("Hello"))).await;
        let model = model(&server, profile);
        for request in [hosted(ask("Hi")), hosted(in_container("c_1")), ask("Hi")] {
            drain(model.stream(request)).await.1.unwrap();
        }
        let requests = server.requests();
        let body = |index: usize| serde_json::from_slice::<Value>(&requests[index].body).unwrap();
        assert_eq!(requests[0].line, line);
        assert_eq!(requests[0].headers.get("anthropic-beta").map(String::as_str), betas);
        assert_eq!(body(0)["container"], json!({"skills": skills}));
        assert_eq!(body(0)["tools"][0]["type"], "code_execution_20250825");
        assert_eq!(body(1)["container"], json!({"id": "c_1", "skills": skills}));
        // The next request names none.
        assert_eq!(requests[2].line, "POST /v1/messages HTTP/1.1");
        assert_eq!((&body(2)["container"], &body(2)["tools"]), (&Value::Null, &Value::Null));
    }
}

#[tokio::test]
async fn an_expired_container_is_distinguished_from_other_errors() {
    let not_found = "Container container_1 has expired or was not found";
    let in_stream =
        json!({"type": "error", "error": {"type": "invalid_request_error", "message": not_found}});
    for (answer, request, expected) in [
        (error("400 Bad", &[], "invalid_request_error", not_found), in_container("container_1"), true),
        (error("404 None", &[], "not_found_error", not_found), in_container("container_1"), true),
        (stream(&sse(&[start(), in_stream])), in_container("container_1"), true),
        // The request named no container that could have expired.
        (error("400 Bad", &[], "invalid_request_error", not_found), ask("Hi"), false),
        (error("404 None", &[], "not_found_error", "model: m"), in_container("container_1"), false),
        (error("529 Over", &[], "overloaded_error", not_found), in_container("container_1"), false),
    ] {
        let server = Server::always(answer).await;
        let model = model(&server, ApiProfile::Beta);
        let failure = drain(model.stream(hosted(request))).await.1.unwrap_err();
        assert_eq!(failure.kind == ModelErrorKind::ContainerGone, expected, "{failure:?}");
        assert!(!expected || !failure.is_retryable());
        assert_eq!(server.requests().len(), 1);
    }
    let by_code = json!({"type": "error", "error": {"type": "invalid_request_error", "message": "Gone.",
        "details": {"error_code": "container_expired"}}});
    let head = [("content-type", "application/json"), ("request-id", "req_9")];
    let server = Server::always(crate::server::answer("400 Bad", &head, &by_code.to_string())).await;
    let model = model(&server, ApiProfile::Current);
    let failure = drain(model.stream(in_container("c_1"))).await.1.unwrap_err();
    assert_eq!(failure.kind, ModelErrorKind::ContainerGone);
    assert_eq!(failure.request_id.as_deref(), Some("req_9"));
    assert!(failure.message.contains("Gone."), "{failure}");
}

#[tokio::test]
async fn the_container_of_an_answer_is_in_the_response() {
    let mut paused = end("pause_turn");
    paused[0]["delta"]["container"] =
        json!({"id": "c_1", "expires_at": "2026-11-21T00:00:00Z", "skills": [{"skill_id": "xlsx"}]});
    let paused: Vec<Value> = [start()].into_iter().chain(paused).collect();
    let server = Server::answers(vec![stream(&sse(&paused)), stream(&message(vec![], "end_turn"))]).await;
    let model = model(&server, ApiProfile::Beta);
    let first = drain(model.stream(hosted(ask("Hi")))).await.1.unwrap();
    assert_eq!(first.container, Some(ContainerId::new("c_1")));
    assert_eq!(drain(model.stream(hosted(ask("Hi")))).await.1.unwrap().container, None);
}

/// How a call with a hosted skill ended that was answered so, and how often it was sent.
async fn ended(answers: Vec<Vec<u8>>, request: Request) -> (Option<ModelErrorKind>, usize) {
    let server = Server::answers(answers).await;
    let (model, clock) = client(&server);
    let answer = tokio::select! {
        answer = drain(model.stream(request)) => answer.1,
        _ = async { loop { clock.skip_retry_wait().await; } } => unreachable!(),
    };
    (answer.err().map(|error| error.kind), server.requests().len())
}

#[tokio::test]
async fn a_call_that_the_service_may_have_started_is_never_repeated() {
    let request = || Request { hosted: [HostedSkill::anthropic("xlsx")].into(), ..ask("Hi") };
    let valid = || stream(&text_stream("Hello"));
    let failed = || error("500 Oops", &[], "api_error", "internal");
    let in_stream = || {
        let error = json!({"type": "error", "error": {"type": "overloaded_error", "message": "later"}});
        stream(&sse(&[start(), error]))
    };
    let refused = |before: &[Value]| {
        let error = json!({"type": "error", "error": {"type": "invalid_request_error", "message": "no"}});
        stream(&sse(&[before, &[error]].concat()))
    };
    let cut = || stream(&sse(&[start()]));
    let broken = || stream(&sse(&[start(), json!({"type": "content_block_delta", "index": 7})]));
    let page = || b"HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: 2\r\n\r\nHi".to_vec();
    let unknown = Some(ModelErrorKind::OutcomeUnknown);
    for (answer, name) in [
        (failed(), "500"),
        (in_stream(), "in mid-stream"),
        (cut(), "cut"),
        (Vec::new(), "closed"),
        (broken(), "against the protocol"),
        (page(), "no answer at all"),
        (
            refused(&[start(), block(0, json!({"type": "text", "text": ""})), text_delta(0, "a")]),
            "refused late",
        ),
    ] {
        assert_eq!(ended(vec![answer, valid()], request()).await, (unknown.clone(), 1), "{name}");
    }
    // A rejected call has not started.
    let invalid = Some(ModelErrorKind::Api(ApiErrorKind::InvalidRequest));
    assert_eq!(ended(vec![refused(&[]), valid()], request()).await, (invalid, 1));
    let limited = error("429 Later", &[("retry-after", "1")], "rate_limit_error", "slow down");
    assert_eq!(ended(vec![limited, valid()], request()).await, (None, 2));
    // A call that only the model answers may come twice.
    assert_eq!(ended(vec![failed(), valid()], ask("Hi")).await, (None, 2));
    assert_eq!(ended(vec![in_stream(), valid()], ask("Hi")).await, (None, 2));
    assert_eq!(ended(vec![failed(), valid()], in_container("c_1")).await, (unknown, 1));
}
