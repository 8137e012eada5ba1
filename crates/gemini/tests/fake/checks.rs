//! What the fake refuses, as the service does.

use conjure_gemini::fake::{FakeGemini, Reply};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::support::{KEY, MODEL, start};

/// The status and the body of an answer.
async fn send(fake: &FakeGemini, path: &str, headers: &str, body: &str) -> (u16, Value) {
    let address = fake.server_url().strip_prefix("http://").unwrap().to_owned();
    let mut stream = TcpStream::connect(&address).await.unwrap();
    let length = body.len();
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\ncontent-length: {length}\r\n{headers}\r\n"
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.write_all(body.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let status = answer.split(' ').nth(1).unwrap().parse().unwrap();
    // The chunks of a chunked body are lines of JSON between lines of sizes.
    let body = answer.split_once("\r\n\r\n").unwrap().1;
    let body = body.lines().find(|line| line.starts_with(['{', '['])).unwrap_or("null");
    (status, serde_json::from_str(body).unwrap())
}

async fn post(fake: &FakeGemini, body: &Value) -> (u16, Value) {
    let path = format!("/v1beta/models/{MODEL}:generateContent");
    send(fake, &path, &format!("x-goog-api-key: {KEY}\r\n"), &body.to_string()).await
}

fn user(parts: Value) -> Value {
    json!({"role": "user", "parts": parts})
}

fn model(parts: Value) -> Value {
    json!({"role": "model", "parts": parts})
}

fn contents(contents: Value) -> Value {
    json!({ "contents": contents })
}

fn with(field: &str, value: Value) -> Value {
    let mut body = contents(json!([user(json!([{"text": "Hi"}]))]));
    body[field] = value;
    body
}

const SKIP: &str = "skip_thought_signature_validator";

fn call(name: &str) -> Value {
    json!({"functionCall": {"name": name, "args": {}}, "thoughtSignature": SKIP})
}

fn result(name: &str) -> Value {
    json!({"functionResponse": {"name": name, "response": {"output": "x"}}})
}

#[tokio::test]
async fn invalid_requests_are_rejected_with_the_services_messages() {
    let hi = || user(json!([{"text": "Hi"}]));
    let declare = |declaration: Value| with("tools", json!([{"functionDeclarations": declaration}]));
    let name_of = |name: &str| declare(json!([{"name": name, "parametersJsonSchema": {"type": "object"}}]));
    let after_hi = |rest: Vec<Value>| contents(Value::from([vec![hi()], rest].concat()));
    let cases: Vec<(Value, &str)> = vec![
        (json!([]), "Expected an object"),
        (json!({}), "contents is not specified"),
        (contents(json!([])), "contents is not specified"),
        (with("max_tokens", 1.into()), "Unknown name \"maxTokens\": Cannot find field."),
        (
            with("generationConfig", json!({"maxTokens": 1})),
            "Unknown name \"maxTokens\" at 'generation_config'",
        ),
        (with("generationConfig", json!({"maxOutputTokens": 0})), "must be positive"),
        (with("continuationToken", "a b".into()), "TYPE_BYTES"),
        (name_of("9lives"), "Invalid function name. Must start with a letter or an underscore."),
        (name_of("a b"), "Invalid function name."),
        (name_of(&"a".repeat(129)), "maximum length of 128"),
        (declare(json!([{"name": "a"}, {"name": "a"}])), "Duplicate function declaration found: a"),
        (
            declare(json!([{"name": "a", "parametersJsonSchema": {"type": "string"}}])),
            "should be of type OBJECT",
        ),
        (
            declare(
                json!([{"name": "a", "parametersJsonSchema": {"type": "object"}, "parameters": {"type": "OBJECT"}}]),
            ),
            "mutually exclusive",
        ),
        (declare(json!([{"name": "a", "input_schema": {}}])), "Unknown name \"inputSchema\""),
        (
            with("toolConfig", json!({"functionCallingConfig": {"mode": "AUTO"}})),
            "without function_declarations",
        ),
        (contents(json!([{"role": "assistant", "parts": [{"text": "a"}]}])), "valid role: user, model"),
        (contents(json!([user(json!([]))])), "contents[0].parts: contents.parts must not be empty"),
        (contents(json!([user(json!([{"thought": true}]))])), "must have one initialized field"),
        (
            contents(json!([user(json!([{"text": "a", "inlineData": {}}]))])),
            "oneof field 'data' is already set",
        ),
        (
            contents(json!([user(json!([{"type": "text", "text": "a"}]))])),
            "Unknown name \"type\" at 'contents[0].parts[0]'",
        ),
        (
            contents(json!([user(json!([{"inlineData": {"mimeType": "image/png", "data": "a b"}}]))])),
            "Base64 decoding failed",
        ),
        (contents(json!([user(json!([call("a")]))])), "not allowed in the role 'user'"),
        (after_hi(vec![model(json!([result("a")]))]), "not allowed in the role 'model'"),
        (after_hi(vec![user(json!([result("a")]))]), "comes immediately after a function call turn"),
        (after_hi(vec![model(json!([call("a")]))]), "number of function response parts is equal"),
        (after_hi(vec![model(json!([call("a")])), hi()]), "number of function response parts is equal"),
        (
            after_hi(vec![model(json!([call("a"), call("b")])), user(json!([result("a")]))]),
            "number of function response parts is equal",
        ),
        (
            after_hi(vec![model(json!([call("a"), call("b")])), user(json!([result("b"), result("a")]))]),
            "the function response `b` was given, but that of `a` was expected",
        ),
        (
            contents(json!([model(json!([call("a")])), user(json!([result("a")]))])),
            "function call turn comes immediately after a user turn",
        ),
        (
            after_hi(vec![model(json!([{"functionCall": {"name": "a"}}])), user(json!([result("a")]))]),
            "Function call is missing a thought_signature in functionCall parts.",
        ),
        (
            after_hi(vec![
                model(json!([{"functionCall": {"name": "a"}, "thoughtSignature": "AAAA"}])),
                user(json!([result("a")])),
            ]),
            "Corrupted thought signature.",
        ),
        (
            after_hi(vec![model(
                json!([{"functionCall": {"name": "a", "args": []}, "thoughtSignature": SKIP}]),
            )]),
            "expected an object",
        ),
        (
            after_hi(vec![
                model(json!([{"functionCall": {"id": "x", "name": "a"}, "thoughtSignature": SKIP}])),
                user(json!([result("a")])),
            ]),
            "is not that of its function call",
        ),
        (
            after_hi(vec![
                model(json!([call("a")])),
                user(json!([{"functionResponse": {"name": "a", "response": "x"}}])),
            ]),
            "function_response.response', expected an object",
        ),
    ];
    let fake = start(FakeGemini::builder().turns([Reply::blocks(Vec::new())])).await;
    for (body, expected) in cases {
        let (status, answer) = post(&fake, &body).await;
        let message = answer["error"]["message"].as_str().unwrap_or_default();
        assert!(message.contains(expected), "{body}: {answer}");
        assert_eq!((status, &answer["error"]["code"]), (400, &json!(400)));
        assert_eq!(answer["error"]["status"], "INVALID_ARGUMENT");
    }
}

#[tokio::test]
async fn signatures_are_valid_only_in_their_own_part() {
    let turns = vec![Reply::blocks(vec![crate::support::call("a", "view", &json!({"n": 1}))]); 2];
    let fake = start(FakeGemini::builder().turns(turns)).await;
    let hi = user(json!([{"text": "Hi"}]));
    let (_, answer) = post(&fake, &contents(json!([hi]))).await;
    let call = answer["candidates"][0]["content"]["parts"][0].clone();
    let again = |call: &Value| contents(json!([hi, model(json!([call])), user(json!([result("view")]))]));
    assert_eq!(post(&fake, &again(&call)).await.0, 200);
    let mut changed = call.clone();
    changed["functionCall"]["args"]["n"] = 2.into();
    let (status, answer) = post(&fake, &again(&changed)).await;
    assert_eq!((status, &answer["error"]["message"]), (400, &json!("Corrupted thought signature.")));
    let mut moved = again(&call);
    let signature = call["thoughtSignature"].clone();
    moved["contents"][1]["parts"] =
        json!([{"text": "", "thoughtSignature": signature}, {"functionCall": call["functionCall"]}]);
    assert_eq!(post(&fake, &moved).await.0, 400);
}

#[tokio::test]
async fn keys_paths_and_forms_are_those_of_the_service() {
    let fake = start(FakeGemini::builder().turns([Reply::parts([json!({"text": "Hi"})], "STOP")])).await;
    let body = contents(json!([user(json!([{"text": "Hi"}]))])).to_string();
    let key = format!("x-goog-api-key: {KEY}\r\n");
    let path = |rest: &str| format!("/v1/models/{rest}");
    let whole = path("gemini-3-pro:generateContent");
    for (path, key, status, expected) in [
        (whole.clone(), "", 403, "unregistered callers"),
        (whole.clone(), "x-goog-api-key: wrong\r\n", 400, "API key not valid"),
        ("/v1/messages".to_owned(), key.as_str(), 404, "not found"),
        (path("gemini-3-pro:countTokens"), key.as_str(), 404, "not found"),
        (path("gemini-1:generateContent"), key.as_str(), 404, "models/gemini-1 is not found"),
    ] {
        let (found, answer) = send(&fake, &path, key, &body).await;
        assert_eq!(found, status, "{path}");
        assert!(answer["error"]["message"].as_str().unwrap().contains(expected), "{answer}");
    }
    let (status, answer) = send(&fake, &whole, &key, &body).await;
    assert_eq!((status, &answer["candidates"][0]["content"]["parts"]), (200, &json!([{"text": "Hi"}])));
    // Without `alt=sse` a stream is one list.
    let (_, answer) = send(&fake, &path("gemini-3-pro:streamGenerateContent"), &key, &body).await;
    assert_eq!(answer.as_array().unwrap().len(), 2);
    assert_eq!(answer[1]["candidates"][0]["finishReason"], "STOP");
}
