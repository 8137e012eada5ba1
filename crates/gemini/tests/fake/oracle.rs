//! The official SDK (`google-genai`) as the oracle: it reads what the fake streams as we do, and its requests are ours.

use conjure_base::CallId;
use conjure_conversation::{ApiErrorKind, Block, BlockKind, Message, Response, ResultContent, ToolResult};
use conjure_gemini::Gemini;
use conjure_gemini::fake::{FakeGemini, Refusal, Reply};
use serde_json::{Value, json};
use test_support::Python;
use tokio::sync::OnceCell;

use crate::support::{
    KEY, MODEL, answer, ask, block, bodies, call, client, client_with, request, start, thinking, user,
};

const IMAGE: &str = "iVBORw0KGgo=";

/// The interpreter that has the SDK, if there is one.
async fn oracle() -> Option<Python> {
    // Asked once: the SDK takes long to load.
    static FOUND: OnceCell<Option<Python>> = OnceCell::const_new();
    let find = || Python::find("CONJURE_ORACLE_PYTHON", "from google import genai", "`google-genai`");
    FOUND.get_or_init(find).await.clone()
}

/// What the SDK makes of it.
async fn sdk(python: &Python, what: &str, given: &Value) -> Value {
    python.run_json(&[concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fake/oracle.py"), what], given).await
}

/// What both sides need to know.
fn given(fake: &FakeGemini) -> Value {
    json!({"url": fake.server_url(), "key": KEY, "model": MODEL})
}

/// What both must read alike.
fn essence(response: &Response) -> Value {
    let texts = |is_thought: bool| -> String {
        let text = |block: &Block| match block.kind() {
            BlockKind::Text(text) if !is_thought => text.clone(),
            BlockKind::Thinking(text) if is_thought => text.clone(),
            _ => String::new(),
        };
        response.content.iter().map(text).collect()
    };
    let calls = response.content.iter().filter_map(Block::tool_call);
    let calls: Vec<Value> = calls.map(|call| json!([call.name, call.input_value()])).collect();
    let native = response.native.iter().flat_map(|native| &native.items);
    let signed = native.filter_map(|item| {
        serde_json::from_str::<Value>(item.json()).unwrap()["thoughtSignature"].as_str().map(str::to_owned)
    });
    json!({
        "text": texts(false),
        "thoughts": texts(true),
        "calls": calls,
        "usage": [response.usage.total_input(), response.usage.output_tokens],
        "version": response.model,
        "signed": signed.collect::<Vec<String>>(),
    })
}

#[tokio::test]
async fn the_sdk_reads_streams_as_we_do() {
    let Some(python) = oracle().await else { return };
    let replies = || {
        vec![
            Reply::blocks(vec![Block::text("Grüße aus 東京 \u{1F980}")]),
            Reply::blocks(vec![thinking("Let me think."), Block::text("Four.")]),
            Reply::blocks(vec![
                thinking("Both."),
                Block::text("I look."),
                call("a", "view", &json!({"path": "/a", "n": [1, 2.5]})),
                call("b", "view", &json!({})),
            ]),
            Reply::parts([json!({"text": "I "})], "MAX_TOKENS"),
            Reply::blocks(vec![Block::text("in pieces")]).with_chunk_size(3),
        ]
    };
    let count = replies().len();
    let fake = start(FakeGemini::builder().faults(replies().into_iter().chain(replies()))).await;
    let model = client(&fake);
    let mut ours = Vec::new();
    for _ in 0..count {
        ours.push(essence(&ask(&model, &[user("Hi")]).await.unwrap()));
    }
    let theirs = sdk(&python, "reads", &Value::from(vec![given(&fake); count])).await;
    for (place, ours) in ours.iter().enumerate() {
        let theirs = &theirs[place];
        for name in ["text", "thoughts", "calls", "usage", "version", "signed"] {
            assert_eq!(ours[name], theirs[name], "{name} of answer {place}: {theirs}");
        }
    }
    let finishes: Vec<&str> = (0..count).map(|place| theirs[place]["finish"].as_str().unwrap()).collect();
    assert_eq!(finishes, ["STOP", "STOP", "STOP", "MAX_TOKENS", "STOP"]);
    assert_eq!(theirs[2]["calls"].as_array().unwrap().len(), 2);
}

#[tokio::test]
async fn the_sdk_reports_refusals_and_errors_as_it_does_with_the_service() {
    let Some(python) = oracle().await else { return };
    let refusal = |kind| Refusal::new(kind, "so it is");
    let fake = start(FakeGemini::builder().faults([
        Reply::blocked("PROHIBITED_CONTENT"),
        Reply::parts([], "SAFETY"),
        Reply::error(refusal(ApiErrorKind::RateLimit)),
        Reply::blocks(vec![Block::text("abcd")]).error_after_pieces(2, refusal(ApiErrorKind::Overloaded)),
    ]))
    .await;
    let mut all = vec![given(&fake); 5];
    all[4]["key"] = "wrong".into();
    let theirs = sdk(&python, "reads", &Value::from(all)).await;
    assert_eq!((&theirs[0]["blocked"], &theirs[0]["finish"]), (&json!("PROHIBITED_CONTENT"), &Value::Null));
    assert_eq!(theirs[1]["finish"], "SAFETY");
    assert_eq!(
        theirs[2],
        json!({"code": 429, "status": "RESOURCE_EXHAUSTED", "message": "so it is", "text": ""})
    );
    assert_eq!(theirs[3], json!({"code": 503, "status": "UNAVAILABLE", "message": "so it is", "text": "ab"}));
    assert_eq!((&theirs[4]["code"], &theirs[4]["status"]), (&json!(400), &json!("INVALID_ARGUMENT")));
}

/// A body with the names of fields in the one form that both use, and without the role of the instructions, which the SDK may add.
fn normal(body: &str) -> Value {
    let renamed = [
        ("parameters_json_schema", "parametersJsonSchema"),
        ("inline_data", "inlineData"),
        ("mime_type", "mimeType"),
        ("include_thoughts", "includeThoughts"),
        ("function_calling_config", "functionCallingConfig"),
    ];
    let body = renamed
        .iter()
        .fold(body.to_owned(), |body, (from, to)| body.replace(&format!("\"{from}\""), &format!("\"{to}\"")));
    let mut body: Value = serde_json::from_str(&body).unwrap();
    body["systemInstruction"].as_object_mut().unwrap().remove("role");
    body
}

fn declarations() -> Value {
    let tools = request(&[]).tools;
    // The SDK's user must take a name that the service takes; ours is mapped.
    let declare = |tool: &conjure_conversation::ToolDefinition| json!({"name": tool.name, "description": tool.description, "parameters_json_schema": tool.input_schema});
    tools.iter().filter(|tool| tool.name != "9lives").map(declare).collect()
}

/// The results of the calls: the key, the text, and an image.
fn planned_results() -> Value {
    json!([["output", "a picture", IMAGE], ["error", "it broke", null], ["output", "done", null]])
}

#[tokio::test]
async fn our_requests_are_those_of_the_sdk() {
    let Some(python) = oracle().await else { return };
    for gives_ids in [false, true] {
        let turns = || {
            let steps = [
                vec![
                    thinking("Both."),
                    Block::text("I look."),
                    call("a", "view", &json!({"path_name": "/a", "n": 1.5})),
                    call("b", "view", &json!({"path_name": "/b"})),
                ],
                vec![call("c", "view", &json!({}))],
                vec![thinking("So."), Block::text("Done.")],
            ];
            steps.into_iter().map(|step| Reply::blocks(step).with_pieces(1))
        };
        let builder = || match gives_ids {
            true => FakeGemini::builder().with_call_ids().turns(turns()),
            false => FakeGemini::builder().turns(turns()),
        };
        let (for_sdk, for_us) = (start(builder()).await, start(builder()).await);
        let mut asked = given(&for_sdk);
        asked["tools"] = declarations();
        asked["question"] = "Look.".into();
        asked["results"] = planned_results();
        asked["config"] = json!({"max_output_tokens": 100, "temperature": 0.5,
            "thinking_config": {"include_thoughts": true},
            "tool_config": {"function_calling_config": {"mode": "AUTO"}},
            "safety_settings": [{"category": "HARM_CATEGORY_HATE_SPEECH", "threshold": "BLOCK_NONE"}]});
        assert_eq!(sdk(&python, "converse", &asked).await, 6);

        let options = Gemini::options(MODEL)
            .with_max_tokens(100)
            .with_field(
                "generationConfig",
                json!({"temperature": 0.5, "thinkingConfig": {"includeThoughts": true}}),
            )
            .and_then(|options| {
                options.with_field("toolConfig", json!({"functionCallingConfig": {"mode": "AUTO"}}))
            })
            .and_then(|options| {
                let setting = json!([{"category": "HARM_CATEGORY_HATE_SPEECH", "threshold": "BLOCK_NONE"}]);
                options.with_field("safetySettings", setting)
            })
            .unwrap();
        let model = client_with(&for_us, options);
        let mut history = vec![user("Look.")];
        let planned = planned_results();
        let mut planned = planned.as_array().unwrap().iter();
        while history.len() < 6 {
            let mut request = request(&history);
            request.tools = request.tools.iter().filter(|tool| tool.name != "9lives").cloned().collect();
            let response =
                crate::support::drain(conjure_conversation::Model::stream(&model, request)).await.1;
            let response = response.unwrap();
            history.push(answer(&response));
            let calls = response.content.iter().filter_map(Block::tool_call);
            let results: Vec<Block> =
                calls.map(|call| planned_result(&call.id, planned.next().unwrap())).collect();
            if results.is_empty() {
                break;
            }
            history.push(Message::user(results));
        }
        let (theirs, ours) = (bodies(&for_sdk), bodies(&for_us));
        assert_eq!(theirs.len(), 3);
        for (theirs, ours) in theirs.iter().zip(&ours) {
            assert_eq!(normal(ours), normal(theirs), "ids are given: {gives_ids}");
        }
        assert_eq!(ours.len(), 3);
        // The same header, and the same method but for the stream.
        let (theirs, ours) = (&for_sdk.requests()[0], &for_us.requests()[0]);
        assert_eq!(theirs.header("x-goog-api-key"), ours.header("x-goog-api-key"));
        assert_eq!(theirs.path(), format!("/v1/models/{MODEL}:generateContent"));
    }
}

fn planned_result(id: &CallId, planned: &Value) -> Block {
    let text = planned[1].as_str().unwrap();
    let mut result = ToolResult { is_error: planned[0] == "error", ..ToolResult::text_result(id, text) };
    if let Some(data) = planned[2].as_str() {
        result
            .content
            .push(ResultContent::Image { media_type: "image/png".to_owned(), data: data.to_owned() });
    }
    Block::tool_result(&result)
}

#[tokio::test]
async fn a_history_of_another_model_is_sent_as_the_sdk_sends_it() {
    let Some(python) = oracle().await else { return };
    let fake = start(
        FakeGemini::builder()
            .faults([Reply::blocks(vec![Block::text("Yes.")]), Reply::blocks(vec![Block::text("Yes.")])]),
    )
    .await;
    let mut asked = given(&fake);
    asked["image"] = IMAGE.into();
    sdk(&python, "foreign", &asked).await;
    let source = json!({"type": "base64", "media_type": "image/png", "data": IMAGE});
    let history = [
        Message::user(vec![Block::text("Look."), block(&json!({"type": "image", "source": source}))]),
        Message::assistant(vec![
            block(&json!({"type": "thinking", "thinking": "Hm", "signature": "of another"})),
            Block::text("I look."),
            call("toolu_1", "view", &json!({"path_name": "/a"})),
        ]),
        Message::user(vec![Block::tool_result(&ToolResult::error(&CallId::new("toolu_1"), "it is gone"))]),
    ];
    ask(&client(&fake), &history).await.unwrap();
    let bodies = bodies(&fake);
    assert_eq!(normal(&bodies[1])["contents"], normal(&bodies[0])["contents"]);
}
