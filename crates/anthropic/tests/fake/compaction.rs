//! The service's own compaction, over the bytes on the wire: asked for, kept, and sent back as it came.

use std::num::NonZeroU64;
use std::sync::Arc;

use conjure_anthropic::fake::{FakeMessages, RecordedRequest, Reply};
use conjure_anthropic::{Caching, Client, Config, Messages, ModelOptions};
use conjure_base::SystemClock;
use conjure_conversation::{
    Block, BlockKind, CommandKind, Conversation, Limits, MemoryEventLog, Model, PromptPrefix, TurnOptions,
    TurnOutcome, TurnServices, TurnStop, run_turn,
};
use secrecy::SecretString;
use serde_json::{Value, json};

use crate::oracle::{ask, oracle};
use crate::runner::Tools;
use crate::support::{KEY, body, post, send, start, user};

const BETA: &str = "compact-2026-01-12";

fn options() -> ModelOptions {
    ModelOptions::new("m").with_caching(Caching::Off)
}

fn client(fake: &FakeMessages, options: ModelOptions) -> Messages {
    let config = Config::new(SecretString::from(KEY)).with_base_url(fake.base_url());
    Client::new(&config).unwrap().messages(options).unwrap()
}

fn text_reply(text: &str) -> Reply {
    Reply::blocks(vec![Block::text(text)])
}

async fn load(event_log: &Arc<MemoryEventLog>) -> Conversation {
    Conversation::load(event_log.clone(), Arc::new(SystemClock), Arc::new(())).await.unwrap()
}

async fn answered(conversation: &mut Conversation, model: &dyn Model, text: &str) -> String {
    let input = vec![Block::text(text)];
    conversation.submit(CommandKind::StartTurn { input, limits: Limits::default() }).await.unwrap();
    let composer = PromptPrefix::default();
    let services = TurnServices { model, composer: &composer, tools: &Tools };
    let outcome = run_turn(conversation, services, TurnOptions::default()).await.unwrap();
    assert!(matches!(outcome, TurnOutcome::Finished(TurnStop::Answered(_))), "{outcome:?}");
    conversation.state().last_text()
}

fn text(request: &RecordedRequest) -> &str {
    std::str::from_utf8(request.body()).unwrap()
}

fn compactions(conversation: &Conversation) -> Vec<String> {
    let blocks = conversation.state().messages().iter().flat_map(|message| &message.content);
    let compactions =
        blocks.filter(|block| matches!(block.kind(), BlockKind::Other(kind) if kind == "compaction"));
    compactions.map(|block| block.json().to_owned()).collect()
}

#[tokio::test]
async fn a_long_history_is_compacted_and_the_block_is_sent_back() {
    let turns = ["One.", "Two.", "Three.", "Four.", "Five.", "Six."].map(text_reply);
    let fake = start(FakeMessages::builder().turns(turns)).await;
    // A token is four bytes to the fake; a message here is some 210 of them.
    let model = client(&fake, options().with_compaction(NonZeroU64::new(500).unwrap()));
    let event_log = Arc::new(MemoryEventLog::new());
    let mut conversation = load(&event_log).await;
    let long = "x".repeat(800);
    for (text, compacted) in
        [("One.", 0), ("Two.", 0), ("Three.", 1), ("Four.", 1), ("Five.", 1), ("Six.", 2)]
    {
        assert_eq!(answered(&mut conversation, &model, &long).await, text);
        assert_eq!(compactions(&conversation).len(), compacted, "{text}");
        // Also after a restart.
        conversation = load(&event_log).await;
    }
    let requests = fake.requests();
    for request in &requests {
        assert_eq!(request.header("anthropic-beta"), Some(BETA));
        assert_eq!(request.status(), Some(200));
    }
    let block = &compactions(&conversation)[0];
    assert!(text(&requests[3]).contains(&format!(r#"{{"role":"assistant","content":[{block},"#)), "{block}");
    // Each body continues the one before.
    for pair in requests.windows(2) {
        assert!(text(&pair[1]).starts_with(text(&pair[0]).strip_suffix("]}]}").unwrap()));
    }
    // The service reports the usage of the compaction separately, and it is counted.
    assert_eq!(conversation.state().usage().input_tokens, 6 * 10 + 2 * 1_000);
    assert_eq!(conversation.state().usage().output_tokens, 6 * 10 + 2 * 50);
}

#[tokio::test]
async fn a_response_paused_after_compaction_is_resumed() {
    let fake = start(FakeMessages::builder().turns(["One.", "Two.", "Three."].map(text_reply))).await;
    let edit = json!({
        "type": "compact_20260112", "pause_after_compaction": true, "trigger": {"type": "input_tokens", "value": 500},
    });
    let options =
        options().with_field("context_management", json!({"edits": [edit]})).unwrap().with_beta(BETA);
    let model = client(&fake, options);
    let event_log = Arc::new(MemoryEventLog::new());
    let mut conversation = load(&event_log).await;
    let long = "x".repeat(1_500);
    for text in ["One.", "Two.", "Three."] {
        assert_eq!(answered(&mut conversation, &model, &long).await, text);
    }
    assert_eq!(compactions(&conversation).len(), 1);
    let requests = fake.requests();
    assert_eq!(requests.len(), 4);
    let block = &compactions(&conversation)[0];
    assert!(text(&requests[2]).ends_with(&format!(r#"{{"role":"assistant","content":[{block}]}}]}}"#)));
}

#[tokio::test]
async fn the_fake_rejects_invalid_compaction_requests() {
    let fake = start(FakeMessages::builder().turns([text_reply("One.")])).await;
    let with = |field: Value| {
        let mut body = body(json!([user("Hi")]));
        body["context_management"] = field;
        body
    };
    let edit = json!({"type": "compact_20260112"});
    let refused = async |field: Value| post(&fake, &with(field)).await.message();
    assert!(refused(json!({"edits": [edit]})).await.contains("needs the beta `compact-2026-01-12`"));
    assert!(
        refused(json!({"edits": [{"type": "compact"}]})).await.contains("edits.0: Input tag 'compact' found")
    );
    assert!(refused(json!({"edits": {}})).await.contains("edits: Input should be a valid list"));
    let key = format!("x-api-key: {KEY}");
    let beta = format!("anthropic-beta: other-1, {BETA}");
    let headers = [&key, "anthropic-version: 2023-06-01", "content-type: application/json", &beta];
    let ask = async |field: Value| {
        send(&fake, "POST /v1/messages", &headers, with(field).to_string().as_bytes()).await
    };
    for trigger in [json!({"type": "input_tokens", "value": 0}), json!({"type": "pages"})] {
        let answered = ask(json!({"edits": [{"type": "compact_20260112", "trigger": trigger}]})).await;
        assert!(answered.message().contains("context_management.edits.0.trigger"), "{}", answered.message());
    }
    assert_eq!(ask(json!({"edits": [edit]})).await.status, 200);
}

#[tokio::test]
async fn the_sdk_parses_compaction_responses() {
    let Some(python) = oracle().await else { return };
    let fake = start(FakeMessages::builder().key(KEY).turns([text_reply("One.")])).await;
    let input =
        json!({"url": fake.base_url(), "key": KEY, "trigger": 10, "messages": [user("x".repeat(100))]});
    let answers = ask(&python, "compacted", &input).await;
    for answer in answers.as_array().unwrap() {
        assert_eq!(answer["content"][0]["type"], "compaction", "{answer}");
        assert_eq!(answer["content"][0]["content"], "A summary of 1 messages.");
        assert_eq!(answer["content"][1]["text"], "One.");
        assert_eq!(answer["usage"]["iterations"][0]["type"], "compaction");
    }
    // Ours reads the same, and adds up what the service tells apart.
    let model = client(&fake, options().with_compaction(NonZeroU64::new(10).unwrap()));
    let mut conversation = load(&Arc::new(MemoryEventLog::new())).await;
    answered(&mut conversation, &model, &"x".repeat(100)).await;
    assert_eq!(compactions(&conversation), [r#"{"type":"compaction","content":"A summary of 1 messages."}"#]);
    let usage = &answers[0]["usage"];
    let steps = usage["iterations"].as_array().unwrap();
    let all: u64 = steps.iter().map(|step| step["input_tokens"].as_u64().unwrap()).sum();
    assert_eq!(conversation.state().usage().input_tokens, all);
}
