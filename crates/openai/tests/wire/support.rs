//! A client of the fake, and what tests say in one line.

use std::sync::Arc;

use conjure_base::CallId;
use conjure_conversation::{
    Block, Message, Model, ModelError, ModelEvent, Request, Response, ToolDefinition, ToolResult,
};
use conjure_model_http::{HttpClient, HttpConfig, KeyHeader};
use conjure_openai::fake::{FakeOpenAi, FakeOpenAiBuilder};
use conjure_openai::{Chat, Responses};
use futures_util::StreamExt as _;
use secrecy::SecretString;
use serde_json::{Value, json};

pub(crate) const KEY: &str = "sk-fake-0123456789";
pub(crate) const MODEL: &str = "gpt-fake";

/// Both clients, of one fake.
pub(crate) fn models(fake: &FakeOpenAi) -> [(&'static str, Arc<dyn Model>); 2] {
    models_of(client(fake))
}

pub(crate) fn models_of(client: HttpClient) -> [(&'static str, Arc<dyn Model>); 2] {
    [
        ("chat", Arc::new(Chat::new(client.clone(), Chat::options(MODEL)))),
        ("responses", Arc::new(Responses::new(client, Responses::options(MODEL)))),
    ]
}

pub(crate) fn client(fake: &FakeOpenAi) -> HttpClient {
    let config =
        HttpConfig::new(fake.base_url()).with_key(SecretString::from(KEY), KeyHeader::Bearer).with_seed(1);
    HttpClient::new(&config).unwrap()
}

pub(crate) async fn start(builder: FakeOpenAiBuilder) -> FakeOpenAi {
    builder.key(KEY).start().await.unwrap()
}

pub(crate) fn user(text: &str) -> Message {
    Message::user(vec![Block::text(text)])
}

pub(crate) fn call(id: &str, name: &str, input: &Value) -> Block {
    Block::tool_use(id, name, input)
}

pub(crate) fn thinking(text: &str) -> Block {
    Block::from_json(json!({"type": "thinking", "thinking": text, "signature": ""}).to_string()).unwrap()
}

pub(crate) fn result(id: &str, text: &str) -> Block {
    Block::tool_result(&ToolResult::text_result(&CallId::new(id), text))
}

pub(crate) fn request(messages: Vec<Message>) -> Request {
    let tool = |name: &str| ToolDefinition {
        name: name.to_owned(),
        description: "Does it.".to_owned(),
        input_schema: json!({"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]}),
    };
    Request {
        instructions: vec!["Be brief.".to_owned()],
        tools: Arc::from([tool("bash"), tool("skills.load")]),
        ..Request::new(messages.into_iter().map(Arc::new).collect())
    }
}

/// The message that an answer becomes in the history.
pub(crate) fn answered(response: &Response) -> Message {
    Message { native: response.native.clone(), ..Message::assistant(response.content.clone()) }
}

/// All events of a call, and its answer.
pub(crate) async fn events(
    model: &dyn Model,
    request: Request,
) -> (Vec<ModelEvent>, Result<Response, ModelError>) {
    let mut stream = model.stream(request);
    let mut events = Vec::new();
    while let Some(event) = stream.next().await {
        match event {
            Ok(ModelEvent::Finished(response)) => return (events, Ok(*response)),
            Ok(event) => events.push(event),
            Err(error) => return (events, Err(error)),
        }
    }
    panic!("the stream ended without an answer: {events:?}");
}

pub(crate) async fn ask(model: &dyn Model, request: Request) -> Result<Response, ModelError> {
    events(model, request).await.1
}

pub(crate) fn body(fake: &FakeOpenAi, place: usize) -> Value {
    serde_json::from_slice(fake.requests()[place].body()).unwrap()
}

pub(crate) fn blocks(response: &Response) -> Vec<Value> {
    response.content.iter().map(|block| serde_json::from_str(block.json()).unwrap()).collect()
}
