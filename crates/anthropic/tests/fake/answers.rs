//! The fake's responses, and the script turn that each one uses.

use conjure_anthropic::fake::{FakeMessages, Refusal, Reply};
use conjure_conversation::{ApiErrorKind, Block};
use serde_json::json;

use crate::support::{KEY, assistant, body, call, post, script, start, streamed, user};

const TURNS: &str = "
version: 1
turns:
  - content:
      - thinking: hmm
      - text: I look.
      - tool_use: {name: weather, input: {city: Paris}}
    pieces: 2
    usage: {input_tokens: 12, output_tokens: 7}
  - content: 'It is {{result:last}}.'
  - content: Goodbye.
";

#[tokio::test]
async fn a_stream_has_the_shapes_of_the_service() {
    let fake = start(FakeMessages::builder().script(script(TURNS))).await;
    let answered = post(&fake, &streamed([user("Weather?")])).await;
    assert_eq!(answered.status, 200);
    assert_eq!(answered.header("content-type"), Some("text/event-stream; charset=utf-8"));
    assert_eq!(answered.header("request-id"), Some("req_fake_000001"));
    let events = answered.events();
    assert_eq!(answered.chunks.len(), events.len(), "each event is flushed by itself");
    for (name, data) in &events {
        assert_eq!(data["type"], name.as_str());
    }
    let names: Vec<&str> = events.iter().map(|(name, _)| name.as_str()).collect();
    let expected = "message_start content_block_start ping content_block_delta content_block_delta \
                    content_block_delta content_block_stop content_block_start content_block_delta \
                    content_block_delta content_block_stop content_block_start content_block_delta \
                    content_block_delta content_block_delta content_block_stop message_delta message_stop";
    assert_eq!(names.join(" "), expected);
    assert_eq!(events[0].1["message"]["usage"]["output_tokens"], 1);
    assert_eq!(events[5].1["delta"], json!({"type": "signature_delta", "signature": "scripted"}));
    assert_eq!(events[11].1["content_block"]["input"], json!({}));
    assert_eq!(events[12].1["delta"], json!({"type": "input_json_delta", "partial_json": ""}));
    let input: String =
        events[12..15].iter().map(|(_, data)| data["delta"]["partial_json"].as_str().unwrap()).collect();
    assert_eq!(input, r#"{"city":"Paris"}"#);
    assert_eq!(events[16].1["delta"]["stop_reason"], "tool_use");
    assert_eq!(events[16].1["usage"]["output_tokens"], 7);
}

#[tokio::test]
async fn an_unstreamed_response_equals_the_streamed_one() {
    let fake = start(FakeMessages::builder().script(script(TURNS))).await;
    let first = post(&fake, &body([user("Weather?")])).await.json();
    assert_eq!(first["content"][2]["input"], json!({"city": "Paris"}));
    assert_eq!(first["usage"]["input_tokens"], 12);
    let id = first["content"][2]["id"].clone();
    let result = json!([{"type": "tool_result", "tool_use_id": id, "content": "sunny"}]);
    let history = [user("Weather?"), assistant(first["content"].clone()), user(result)];
    let second = post(&fake, &body(history)).await.json();
    assert_eq!(second["content"], json!([{"type": "text", "text": "It is sunny."}]));
    assert_eq!(second["stop_reason"], "end_turn");
}

#[tokio::test]
async fn the_script_position_follows_from_the_history() {
    let turns = ["one", "two", "three"].map(|text| Reply::blocks(vec![Block::text(text)]));
    let fake = start(FakeMessages::builder().turns(turns)).await;
    let answer_to = async |history: &[serde_json::Value]| {
        post(&fake, &body(history)).await.json()["content"][0]["text"].as_str().unwrap().to_owned()
    };
    let mut history = vec![user("a")];
    assert_eq!(answer_to(&history).await, "one");
    assert_eq!(answer_to(&history).await, "one");
    // Another session, in between.
    assert_eq!(answer_to(&[user("b")]).await, "one");
    history.extend([assistant("one"), user("b")]);
    assert_eq!(answer_to(&history).await, "two");
    // A history that the fake did not make counts by its answers.
    let foreign = [user("x"), assistant("?"), user("y"), assistant("?"), user("z")];
    assert_eq!(answer_to(&foreign).await, "three");
}

#[tokio::test]
async fn a_failing_turn_is_used_once_per_session() {
    let overloaded = Reply::error(Refusal::new(ApiErrorKind::Overloaded, "Overloaded"));
    let turns =
        [overloaded, Reply::blocks(vec![Block::text("one")]), Reply::blocks(vec![Block::text("two")])];
    let fake = start(FakeMessages::builder().turns(turns)).await;
    for session in ["a", "b"] {
        let mut body = body([user("Hi")]);
        body["metadata"] = json!({"user_id": session});
        assert_eq!(post(&fake, &body).await.status, 529);
        assert_eq!(post(&fake, &body).await.json()["content"][0]["text"], "one");
        assert_eq!(post(&fake, &body).await.json()["content"][0]["text"], "one");
        body["messages"] = json!([user("Hi"), assistant("one"), user("Go on")]);
        assert_eq!(post(&fake, &body).await.json()["content"][0]["text"], "two");
    }
}

#[tokio::test]
async fn a_paused_turn_resumes_with_merged_or_separate_messages() {
    let text =
        "version: 1\nturns: [{content: part, stop_reason: pause_turn}, {content: rest}, {content: end}]";
    let fake = start(FakeMessages::builder().script(script(text))).await;
    let joined = json!([{"type": "text", "text": "part"}, {"type": "text", "text": "rest"}]);
    for (first, later) in [("a", vec![assistant(joined)]), ("b", vec![assistant("part"), assistant("rest")])]
    {
        let paused = post(&fake, &body([user(first)])).await.json();
        assert_eq!(paused["stop_reason"], "pause_turn");
        let resumed = post(&fake, &body([user(first), assistant("part")])).await.json();
        assert_eq!(resumed["content"][0]["text"], "rest");
        let history: Vec<_> = [vec![user(first)], later, vec![user("And?")]].concat();
        assert_eq!(post(&fake, &body(history)).await.json()["content"][0]["text"], "end");
    }
}

#[tokio::test]
async fn requests_are_logged_verbatim() {
    let turn = Reply::blocks(vec![Block::text("one"), call("c", "t", &json!({}))]);
    let fake = start(FakeMessages::builder().turns([turn]).keep(2)).await;
    let request = body([user("Hi")]);
    for _ in 0..3 {
        assert_eq!(post(&fake, &request).await.json()["stop_reason"], "tool_use");
    }
    fake.until_received(3).await;
    let requests = fake.requests();
    assert_eq!(requests.len(), 2, "the oldest went");
    assert_eq!((requests[0].number(), requests[1].number()), (2, 3));
    assert_eq!(requests[1].body(), request.to_string().as_bytes());
    assert_eq!((requests[1].method(), requests[1].path()), ("POST", "/v1/messages"));
    assert_eq!((requests[1].header("x-api-key"), requests[1].status()), (Some(KEY), Some(200)));
}
