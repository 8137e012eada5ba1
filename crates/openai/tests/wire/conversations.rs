//! Whole conversations with the fake, which refuses what the service would refuse.

use conjure_conversation::scripted::{Script, ScriptFormat};
use conjure_conversation::{Block, Message, ModelEvent, StopReason, Usage};
use conjure_model_http::{HttpClient, HttpConfig};
use conjure_openai::Chat;
use conjure_openai::fake::{FakeOpenAi, Reply};
use serde_json::json;

use crate::support::{
    answered, ask, blocks, call, client, events, models, models_of, request, result, start, user,
};

fn script() -> Script {
    let text = r"
version: 1
turns:
- content:
  - thinking: Let me look.
  - I will run it.
  - tool_use: {name: bash, input: {command: echo hello}}
  - tool_use: {name: skills.load, input: {command: sales}}
  usage: {input_tokens: 100, output_tokens: 20, cache_read_input_tokens: 40}
- content: 'It printed: {{result:last}}'
";
    Script::from_text(text, ScriptFormat::Yaml, "a test").unwrap()
}

#[tokio::test]
async fn a_script_is_played_over_both_wires_and_answers_go_back_as_they_came() {
    let fake = start(FakeOpenAi::builder().script(script())).await;
    for (place, (name, model)) in models(&fake).into_iter().enumerate() {
        let (shown, first) = events(&*model, request(vec![user("Hi")])).await;
        let first = first.unwrap();
        assert_eq!(first.stop_reason, StopReason::ToolUse, "{name}");
        let said = blocks(&first);
        assert_eq!(said.len(), 4, "{name}: {said:?}");
        assert_eq!(said[0]["thinking"], "Let me look.");
        assert_eq!(said[1]["text"], "I will run it.");
        assert_eq!(
            (&said[2]["name"], &said[2]["input"]),
            (&json!("bash"), &json!({"command": "echo hello"}))
        );
        assert_eq!(said[3]["name"], "skills.load", "{name}: mapped back");
        assert_eq!((first.usage.input_tokens, first.usage.cache_read_input_tokens), (100, 40));
        assert!(first.request_id.as_deref().unwrap().starts_with("req_fake_"));
        let started = ModelEvent::ToolUseStarted { index: 3, name: "skills.load".to_owned() };
        assert!(shown.contains(&started), "{name}: {shown:?}");
        let results: Vec<Block> = first
            .content
            .iter()
            .filter_map(Block::tool_call)
            .map(|call| result(call.id.as_str(), "hello"))
            .collect();
        let history = vec![user("Hi"), answered(&first), Message::user(results)];
        let second = ask(&*model, request(history)).await.unwrap();
        assert_eq!(blocks(&second), [json!({"type": "text", "text": "It printed: hello"})], "{name}");
        assert_eq!(second.stop_reason, StopReason::EndTurn);
        let sent = String::from_utf8(fake.requests()[place * 2 + 1].body().to_vec()).unwrap();
        for item in &first.native.as_ref().unwrap().items {
            assert!(sent.contains(item.json()), "{name}: {} is not in {sent}", item.json());
        }
    }
}

#[tokio::test]
async fn a_conversation_moves_from_one_wire_to_the_other() {
    let fake = start(FakeOpenAi::builder().script(script())).await;
    let [(_, chat), (_, responses)] = models(&fake);
    for (from, to) in [(&chat, &responses), (&responses, &chat)] {
        let first = ask(&**from, request(vec![user("Hi")])).await.unwrap();
        let results = first.content.iter().filter_map(Block::tool_call);
        let results = results.map(|call| result(call.id.as_str(), "hello")).collect();
        let history = vec![user("Hi"), answered(&first), Message::user(results)];
        let second = ask(&**to, request(history)).await.unwrap();
        assert_eq!(blocks(&second)[0]["text"], "It printed: hello");
    }
    // What only its own service understands is left out.
    assert!(!String::from_utf8(fake.requests()[1].body().to_vec()).unwrap().contains("Let me look."));
    assert!(!String::from_utf8(fake.requests()[3].body().to_vec()).unwrap().contains("encrypted-"));
}

#[tokio::test]
async fn an_answer_in_one_body_is_read_too() {
    let chat = json!({"id": "a", "choices": [{"index": 0, "finish_reason": "tool_calls", "message": {
        "role": "assistant", "content": "I run.",
        "tool_calls": [{"id": "call_1", "type": "function", "function": {"name": "bash", "arguments": "{}"}}],
    }}]});
    let responses = json!({"id": "a", "object": "response", "status": "completed", "output": [
        {"type": "message", "id": "m", "role": "assistant", "status": "completed",
            "content": [{"type": "output_text", "text": "I run.", "annotations": []}]},
        {"type": "function_call", "id": "f", "call_id": "call_1", "name": "bash", "arguments": "{}", "status": "completed"},
    ]});
    for (place, body) in [chat, responses].iter().enumerate() {
        let reply = Reply::raw(200, "application/json", body.to_string());
        let fake = FakeOpenAi::builder().faults([reply]).start().await.unwrap();
        // A local server gets no key.
        let client = HttpClient::new(&HttpConfig::new(fake.base_url())).unwrap();
        let (name, model) = &models_of(client)[place];
        let answer = ask(&**model, request(vec![user("Hi")])).await.unwrap();
        assert_eq!(answer.content, [Block::text("I run."), call("call_1", "bash", &json!({}))], "{name}");
        assert_eq!(answer.stop_reason, StopReason::ToolUse, "{name}");
        assert_eq!(fake.requests()[0].header("authorization"), None);
    }
}

#[tokio::test]
async fn an_answer_that_was_cut_or_refused_is_no_reason_to_run_its_calls() {
    let cut = |stop_reason| {
        let response = conjure_conversation::Response {
            content: vec![Block::text("I"), call("call_1", "bash", &json!({"command": "x"}))],
            stop_reason,
            ..conjure_conversation::Response::text("")
        };
        Reply::answer(response)
    };
    for (stop, expected) in [
        (StopReason::MaxTokens, StopReason::MaxTokens),
        (StopReason::Refusal, StopReason::Refusal),
        (StopReason::Unknown("soon".to_owned()), StopReason::Unknown("soon".to_owned())),
    ] {
        let is_unknown = matches!(stop, StopReason::Unknown(_));
        let fake = start(FakeOpenAi::builder().turns([cut(stop)])).await;
        for (name, model) in models(&fake) {
            let answer = ask(&*model, request(vec![user("Hi")])).await.unwrap();
            // A chat server's own name for a finished answer is no cut. A response says that it is incomplete.
            let expected = if is_unknown && name == "chat" { &StopReason::ToolUse } else { &expected };
            assert_eq!(&answer.stop_reason, expected, "{name}");
        }
    }
}

#[tokio::test]
async fn any_piece_of_the_network_gives_the_same_answer() {
    let reply = || Reply::blocks(vec![Block::text("Grüße aus 東京 \u{1F980}")]).with_pieces(3);
    let fake = start(
        FakeOpenAi::builder()
            .faults((1..9).flat_map(|size| [reply().with_chunk_size(size), reply().with_chunk_size(size)])),
    )
    .await;
    for _ in 1..9 {
        for (name, model) in models(&fake) {
            let answer = ask(&*model, request(vec![user("Hi")])).await.unwrap();
            assert_eq!(blocks(&answer)[0]["text"], "Grüße aus 東京 \u{1F980}", "{name}");
        }
    }
}

#[tokio::test]
async fn without_usage_tokens_are_estimated_by_what_the_service_reported_before() {
    let reported = Reply::answer(conjure_conversation::Response {
        usage: Usage { input_tokens: 200, output_tokens: 5, ..Usage::default() },
        ..conjure_conversation::Response::text("12345678")
    });
    let silent = || Reply::blocks(vec![Block::text("12345678")]).without_usage();
    let fake = start(FakeOpenAi::builder().faults([silent(), reported, silent()])).await;
    let chat = Chat::new(client(&fake), Chat::options("m"));
    let mut usages = Vec::new();
    for _ in 0..3 {
        usages.push(ask(&chat, request(vec![user("Hi")])).await.unwrap().usage);
    }
    let bytes = fake.requests()[0].body().len() as u64;
    assert_eq!((usages[0].input_tokens, usages[0].output_tokens), (bytes.div_ceil(4), 2));
    assert_eq!(usages[1].input_tokens, 200);
    assert_eq!(usages[2].input_tokens, 200, "the same request has as many tokens as before");
}
