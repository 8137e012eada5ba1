//! Clients, requests and conversations in one line.

use std::sync::Arc;

use conjure_base::CallId;
use conjure_conversation::scripted::{Script, ScriptFormat};
use conjure_conversation::{
    Block, Message, Model, ModelError, ModelEvent, ModelStream, Request, Response, ToolDefinition, ToolResult,
};
use conjure_gemini::fake::{FakeGemini, FakeGeminiBuilder};
use conjure_gemini::{Gemini, KEY_HEADER};
use conjure_model_http::{CallOptions, HttpClient, HttpConfig};
use futures_util::StreamExt as _;
use secrecy::SecretString;
use serde_json::{Value, json};

pub(crate) const KEY: &str = "AIza-fake-0123456789";
pub(crate) const MODEL: &str = "gemini-3-pro";

pub(crate) async fn start(builder: FakeGeminiBuilder) -> FakeGemini {
    builder.key(KEY).model(MODEL).start().await.unwrap()
}

pub(crate) fn config(fake: &FakeGemini) -> HttpConfig {
    HttpConfig::new(fake.base_url()).with_key(SecretString::from(KEY), KEY_HEADER).with_seed(1)
}

pub(crate) fn client_with(fake: &FakeGemini, options: CallOptions) -> Gemini {
    Gemini::new(HttpClient::new(&config(fake)).unwrap(), options)
}

pub(crate) fn client(fake: &FakeGemini) -> Gemini {
    client_with(fake, Gemini::options(MODEL))
}

pub(crate) fn script(text: &str) -> Script {
    Script::from_text(text, ScriptFormat::Yaml, "a test").unwrap()
}

pub(crate) fn user(text: &str) -> Message {
    Message::user(vec![Block::text(text)])
}

pub(crate) fn block(value: &Value) -> Block {
    Block::from_json(value.to_string()).unwrap()
}

pub(crate) fn call(id: &str, name: &str, input: &Value) -> Block {
    block(&json!({"type": "tool_use", "id": id, "name": name, "input": input}))
}

pub(crate) fn thinking(text: &str) -> Block {
    block(&json!({"type": "thinking", "thinking": text, "signature": ""}))
}

pub(crate) fn tool(name: &str) -> ToolDefinition {
    ToolDefinition {
        name: name.to_owned(),
        description: "Does it.".to_owned(),
        input_schema: json!({"type": "object", "properties": {"path_name": {"type": "string"}}}),
    }
}

pub(crate) fn request(messages: &[Message]) -> Request {
    Request {
        call: u32::try_from(messages.len().div_ceil(2)).unwrap(),
        instructions: vec!["Be brief.".to_owned()],
        tools: Arc::from([tool("view"), tool("9lives")]),
        ..Request::new(messages.iter().cloned().map(Arc::new).collect())
    }
}

/// The answer as the history keeps it.
pub(crate) fn answer(response: &Response) -> Message {
    Message { native: response.native.clone(), ..Message::assistant(response.content.clone()) }
}

/// The results of an answer's calls: `done` and the number of the call.
pub(crate) fn results(response: &Response) -> Message {
    let calls = response.content.iter().filter_map(Block::tool_call);
    let result = |(place, id): (usize, &CallId)| {
        Block::tool_result(&ToolResult::text_result(id, format!("done {place}")))
    };
    Message::user(calls.map(|call| &call.id).enumerate().map(result).collect())
}

/// All events of a stream up to its end, and how it ended.
pub(crate) async fn drain(mut stream: ModelStream) -> (Vec<ModelEvent>, Result<Response, ModelError>) {
    let mut shown = Vec::new();
    while let Some(item) = stream.next().await {
        match item {
            Ok(ModelEvent::Finished(response)) => {
                assert!(stream.next().await.is_none(), "`Finished` is the last event");
                return (shown, Ok(*response));
            }
            Ok(event) => shown.push(event),
            Err(error) => {
                assert!(stream.next().await.is_none(), "an error is the last event");
                return (shown, Err(error));
            }
        }
    }
    panic!("the stream ended without an answer or an error: {shown:?}");
}

pub(crate) async fn ask(model: &Gemini, messages: &[Message]) -> Result<Response, ModelError> {
    drain(model.stream(request(messages))).await.1
}

/// Answers calls until the model has no more, and returns the history.
pub(crate) async fn converse(model: &Gemini, question: &str) -> Vec<Message> {
    let mut history = vec![user(question)];
    loop {
        let response = ask(model, &history).await.unwrap();
        history.push(answer(&response));
        if !response.content.iter().any(|block| block.tool_call().is_some()) {
            return history;
        }
        history.push(results(&response));
    }
}

/// The bodies that the fake was sent.
pub(crate) fn bodies(fake: &FakeGemini) -> Vec<String> {
    fake.requests().iter().map(|request| String::from_utf8(request.body().to_vec()).unwrap()).collect()
}
