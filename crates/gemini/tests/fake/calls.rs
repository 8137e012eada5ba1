//! Whole calls over HTTP: what is sent, what comes back, and what goes back then.

use conjure_conversation::{BlockKind, ModelApi, ModelErrorKind, ModelEvent, Origin, StopReason};
use conjure_gemini::Gemini;
use conjure_gemini::fake::{FakeGemini, Reply};
use serde_json::{Value, json};

use crate::support::{
    KEY, MODEL, answer, ask, bodies, call, client, client_with, converse, drain, request, results, start,
    thinking, user,
};

fn two_steps() -> Vec<Reply> {
    vec![
        Reply::blocks(vec![
            thinking("I look at both."),
            conjure_conversation::Block::text("Looking."),
            call("a", "view", &json!({"path_name": "/a", "n": 1.50})),
            call("b", "9lives", &json!({})),
        ]),
        Reply::blocks(vec![call("c", "view", &json!({"path_name": "/c"}))]),
        Reply::blocks(vec![thinking("So."), conjure_conversation::Block::text("All done: Grüße aus 東京.")]),
    ]
}

#[tokio::test]
async fn a_conversation_with_calls_in_two_steps() {
    let fake = start(FakeGemini::builder().turns(two_steps())).await;
    let history = converse(&client(&fake), "Look.").await;
    assert_eq!(history.len(), 6);
    assert_eq!(history[5].text(), "All done: Grüße aus 東京.");
    // The fake has checked the signatures; here is where they are.
    let parts = |place: usize| history[place].native.as_ref().unwrap().items.clone();
    let signed = |place: usize| -> Vec<bool> {
        parts(place).iter().map(|part| part.json().contains("thoughtSignature")).collect()
    };
    assert_eq!(signed(1), [false, false, true, false]);
    assert_eq!(signed(3), [true]);
    assert_eq!(signed(5), [false, false, true]);
    let origin = Origin {
        api: ModelApi::Gemini,
        service: fake.server_url().strip_prefix("http://").unwrap().to_owned(),
        model: MODEL.to_owned(),
    };
    assert_eq!(history[1].native.as_ref().unwrap().origin, origin);
    // A name that the service would not take has come back as its own.
    let names: Vec<&str> = history[1].tool_calls().map(|call| call.name.as_str()).collect();
    assert_eq!(names, ["view", "9lives"]);
    for request in fake.requests() {
        assert_eq!(request.path(), format!("/v1/models/{MODEL}:streamGenerateContent?alt=sse"));
        assert_eq!((request.header("x-goog-api-key"), request.status()), (Some(KEY), Some(200)));
    }
    // Each body up to the end of its contents is a byte prefix of the next.
    let bodies = bodies(&fake);
    for pair in bodies.windows(2) {
        assert!(pair[1].starts_with(pair[0].strip_suffix("]}").unwrap()), "{pair:?}");
    }
    // Our ids are ours.
    for call in history.iter().flat_map(|message| message.tool_calls()) {
        assert!(call.id.as_str().starts_with("call_") && !bodies[2].contains(call.id.as_str()));
    }
}

#[tokio::test]
async fn ids_of_the_service_go_back() {
    let fake = start(FakeGemini::builder().with_call_ids().turns(two_steps())).await;
    let history = converse(&client(&fake), "Look.").await;
    assert_eq!(history[1].tool_calls().map(|call| call.id.as_str()).collect::<Vec<_>>(), ["a", "b"]);
    let body: Value = serde_json::from_str(&bodies(&fake)[2]).unwrap();
    assert_eq!(body["contents"][2]["parts"][1]["functionResponse"]["id"], "b");
}

#[tokio::test]
async fn another_model_gets_a_translation() {
    let fake = FakeGemini::builder().turns(two_steps()).start().await.unwrap();
    let first = client_with(&fake, Gemini::options("one"));
    let response = ask(&first, &[user("Look.")]).await.unwrap();
    let history = [user("Look."), answer(&response), results(&response)];
    let other = client_with(&fake, Gemini::options("tunedModels/two"));
    // The fake knows the paths of `models` only.
    let error = ask(&other, &history).await.unwrap_err();
    assert!(error.to_string().contains("not found"), "{error}");
    assert!(fake.requests()[1].path().starts_with("/v1/tunedModels/two:"), "{:?}", fake.requests()[1].path());
    let other = client_with(&fake, Gemini::options("two"));
    assert_eq!(ask(&other, &history).await.unwrap().stop_reason, StopReason::ToolUse);
    let body = bodies(&fake)[2].clone();
    assert!(
        body.contains("skip_thought_signature_validator") && !body.contains("\"thought\":true"),
        "{body}"
    );
}

#[tokio::test]
async fn events_come_in_their_order() {
    let fake = start(FakeGemini::builder().turns(two_steps())).await;
    let (shown, response) =
        drain(conjure_conversation::Model::stream(&client(&fake), request(&[user("Look.")]))).await;
    let response = response.unwrap();
    assert_eq!(response.stop_reason, StopReason::ToolUse);
    assert_eq!(response.model.as_deref(), Some(MODEL));
    assert_eq!((response.usage.input_tokens, response.usage.output_tokens), (10, 10));
    assert!(
        matches!(shown[..3], [ModelEvent::Sent, ModelEvent::UsageReported(_), ModelEvent::Started]),
        "{shown:?}"
    );
    let is_call = |event: &&ModelEvent| matches!(event, ModelEvent::ToolUseStarted { .. });
    let calls: Vec<&ModelEvent> = shown.iter().filter(is_call).collect();
    assert_eq!(calls[1], &ModelEvent::ToolUseStarted { index: 3, name: "9lives".to_owned() });
}

#[tokio::test]
async fn refusals_and_truncations_have_a_reason() {
    let text = |text: &str| json!({"text": text});
    let fake = start(FakeGemini::builder().faults([
        Reply::blocked("PROHIBITED_CONTENT"),
        Reply::parts([text("I ")], "SAFETY"),
        Reply::parts([text("I ")], "MAX_TOKENS"),
        Reply::parts([], "MALFORMED_FUNCTION_CALL"),
    ]))
    .await;
    let model = client(&fake);
    let mut stops = Vec::new();
    for _ in 0..4 {
        let response = ask(&model, &[user("Hi")]).await.unwrap();
        let text = answer(&response).text();
        stops.push((response.stop_reason, text));
    }
    let unknown = StopReason::Unknown("MALFORMED_FUNCTION_CALL".to_owned());
    let expected = [
        (StopReason::Refusal, "[The service refused to answer: PROHIBITED_CONTENT]"),
        (StopReason::Refusal, "I \n[The service ended this answer: SAFETY]"),
        (StopReason::MaxTokens, "I "),
        (unknown, "[The service ended this answer: MALFORMED_FUNCTION_CALL]"),
    ];
    assert_eq!(stops, expected.map(|(stop, text)| (stop, text.to_owned())));
}

#[tokio::test]
async fn an_answer_is_continued_with_its_token() {
    let fake = start(FakeGemini::builder().turns([
        Reply::parts([json!({"text": "One, "})], "CONTINUATION"),
        Reply::parts([json!({"text": "two."})], "STOP"),
        Reply::parts([json!({"text": "Welcome."})], "STOP"),
    ]))
    .await;
    let model = client(&fake);
    let paused = ask(&model, &[user("Count")]).await.unwrap();
    assert_eq!(paused.stop_reason, StopReason::PauseTurn);
    let rest = ask(&model, &[user("Count"), answer(&paused)]).await.unwrap();
    assert!(matches!(rest.content[0].kind(), BlockKind::Text(text) if text == "two."));
    assert!(
        bodies(&fake)[1].ends_with(r#"],"continuationToken":"ZmFrZSB0b2tlbg=="}"#),
        "{:?}",
        bodies(&fake)
    );
    // The history joins both; the token is of no use any more.
    let mut joined = answer(&paused);
    joined.content.extend(rest.content);
    joined.native = None;
    let last = ask(&model, &[user("Count"), joined, user("Thanks")]).await.unwrap();
    assert_eq!(answer(&last).text(), "Welcome.");
}

#[tokio::test]
async fn a_wrong_key_and_an_unknown_model_are_errors() {
    let fake = FakeGemini::builder().key("another").start().await.unwrap();
    let error = ask(&client(&fake), &[user("Hi")]).await.unwrap_err();
    let kind = conjure_conversation::ApiErrorKind::Authentication;
    assert_eq!(error.kind, ModelErrorKind::Api(kind));
    assert!(error.message.contains("API key not valid") && !error.message.contains(KEY), "{error}");
    assert_eq!(fake.received(), 1);
    let fake = FakeGemini::builder().model("other").start().await.unwrap();
    let error = ask(&client(&fake), &[user("Hi")]).await.unwrap_err();
    assert_eq!(error.kind, ModelErrorKind::Api(conjure_conversation::ApiErrorKind::NotFound));
    assert!(error.message.contains("gemini-3-pro is not found for API version v1"), "{error}");
}
