//! Whole conversations with a real llama.cpp server. Its model is tiny and scripted (`tests/support/tiny-model`); template, tokenizer,
//! grammar and parsers are the server's own.

use std::sync::Arc;

use conjure_anthropic::{Client, Config, ModelOptions};
use conjure_conversation::{
    ApiErrorKind, Block, Message, Model, ModelErrorKind, Request, Response, StopReason, ToolDefinition,
    ToolResult,
};
use conjure_model_http::{CallOptions, HttpClient, HttpConfig};
use conjure_openai::{Chat, Responses};
use secrecy::SecretString;
use serde_json::json;
use test_support::TinyModel;

use crate::support::{answered, ask, blocks, call, request, user};

const MODEL: &str = "tiny";

/// A running server. It ends with this value.
struct Server(TinyModel);

impl Server {
    /// Serves the model with a context of so many tokens; `None`, told loudly, without the Python packages.
    async fn start(context: u32) -> Option<Self> {
        TinyModel::start(context).await.map(Self)
    }

    fn client(&self) -> HttpClient {
        HttpClient::new(&HttpConfig::new(format!("{}/v1", self.0.url))).unwrap()
    }

    fn chat(&self, options: CallOptions) -> Chat {
        Chat::new(self.client(), options)
    }

    fn responses(&self, options: CallOptions) -> Responses {
        Responses::new(self.client(), options)
    }

    /// The model behind each API that the server has.
    fn models(&self) -> [(&'static str, Arc<dyn Model>); 3] {
        let config = Config::new(SecretString::from("none")).with_base_url(self.0.url.as_str());
        let messages = Client::new(&config).unwrap().messages(ModelOptions::new(MODEL)).unwrap();
        [
            ("chat", Arc::new(self.chat(Chat::options(MODEL)))),
            ("responses", Arc::new(self.responses(Responses::options(MODEL)))),
            ("messages", Arc::new(messages)),
        ]
    }
}

fn ask_for(messages: Vec<Message>) -> Request {
    let bash = ToolDefinition {
        name: "bash".to_owned(),
        description: "Runs a command.".to_owned(),
        input_schema: json!({"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]}),
    };
    Request { tools: Arc::from([bash]), ..request(messages) }
}

/// What follows an answer whose calls have this result.
fn results(response: &Response, text: &str) -> Message {
    let result =
        |call: &conjure_conversation::ToolCall| Block::tool_result(&ToolResult::text_result(&call.id, text));
    Message::user(response.content.iter().filter_map(Block::tool_call).map(result).collect())
}

#[tokio::test]
async fn a_conversation_of_two_calls_over_each_wire() {
    let Some(server) = Server::start(8192).await else { return };
    for (name, model) in server.models() {
        let first = ask(&*model, ask_for(vec![user("Say hello.")])).await.unwrap();
        let said = blocks(&first);
        let kinds: Vec<&str> = said.iter().map(|block| block["type"].as_str().unwrap()).collect();
        assert_eq!(kinds, ["thinking", "text", "tool_use"], "{name}");
        assert_eq!(said[0]["thinking"].as_str().unwrap().trim(), "Let me look.", "{name}");
        assert_eq!(said[1]["text"].as_str().unwrap().trim(), "I will run it.", "{name}");
        assert_eq!(
            (&said[2]["name"], &said[2]["input"]),
            (&json!("bash"), &json!({"command": "echo hello"}))
        );
        assert_eq!(first.stop_reason, StopReason::ToolUse, "{name}");
        assert!(
            first.usage.total_input() > 100 && first.usage.output_tokens > 5,
            "{name}: {:?}",
            first.usage
        );
        let history = vec![user("Say hello."), answered(&first), results(&first, "hello")];
        let second = ask(&*model, ask_for(history)).await.unwrap();
        assert_eq!(blocks(&second)[0]["text"], "The command printed hello to you.", "{name}");
        assert_eq!(second.stop_reason, StopReason::EndTurn, "{name}");
    }
}

#[tokio::test]
async fn a_conversation_moves_between_the_wires_of_one_server() {
    let Some(server) = Server::start(8192).await else { return };
    let models = server.models();
    for (place, (from_name, from)) in models.iter().enumerate() {
        let (to_name, to) = &models[(place + 1) % models.len()];
        let first = ask(&**from, ask_for(vec![user("Say hello.")])).await.unwrap();
        let history = vec![user("Say hello."), answered(&first), results(&first, "hello")];
        // The client of the Messages API translates, too: it must leave unsigned thinking out.
        let second = ask(&**to, ask_for(history)).await.unwrap();
        assert_eq!(
            blocks(&second)[0]["text"],
            "The command printed hello to you.",
            "{from_name} to {to_name}"
        );
    }
}

#[tokio::test]
async fn a_call_that_was_cut_never_runs_and_its_history_is_accepted() {
    let Some(server) = Server::start(8192).await else { return };
    let chat = server.chat(Chat::options(MODEL).with_max_tokens(12));
    let responses = server.responses(Responses::options(MODEL).with_max_tokens(12));
    let models: [(&str, &dyn Model); 2] = [("chat", &chat), ("responses", &responses)];
    for (name, model) in models {
        let cut = ask(model, ask_for(vec![user("Say hello.")])).await.unwrap();
        assert_eq!(cut.stop_reason, StopReason::MaxTokens, "{name}");
        // As the conversation keeps a cut answer: without its native form and its thinking.
        let kept =
            cut.content.iter().filter(|block| !block.json().contains("\"thinking\"")).cloned().collect();
        let skipped = results(&cut, "not run: the answer was cut");
        let mut after = skipped.content;
        after.push(Block::text("Go on."));
        let history = vec![user("Say hello."), Message::assistant(kept), Message::user(after)];
        let next = ask(model, ask_for(history)).await.unwrap();
        assert_eq!(blocks(&next)[0]["type"], "thinking", "{name}: the script starts again behind a text");
    }
    // The server answers 500 where the arguments of an old call are no JSON.
    let invalid = vec![
        user("Say hello."),
        Message::assistant(vec![call("a", "bash", &json!({"INVALID_JSON": "{\"comm"}))]),
        Message::user(vec![Block::tool_result(&ToolResult::error(
            &conjure_base::CallId::new("a"),
            "not JSON",
        ))]),
    ];
    for (name, model) in server.models() {
        let next = ask(&*model, ask_for(invalid.clone())).await.unwrap();
        assert_eq!(blocks(&next)[0]["text"], "The command printed hello to you.", "{name}");
    }
}

#[tokio::test]
async fn a_too_long_history_keeps_the_servers_message() {
    let Some(server) = Server::start(1024).await else { return };
    let long = "x ".repeat(4_000);
    for (name, model) in server.models() {
        let error = ask(&*model, ask_for(vec![user(&long)])).await.unwrap_err();
        assert!(error.message.contains("context size"), "{name}: {error}");
        assert!(!error.is_retryable(), "{name}: {error:?}");
        if name != "messages" {
            assert_eq!(error.kind, ModelErrorKind::Api(ApiErrorKind::InvalidRequest), "{name}");
        }
    }
}

#[tokio::test]
async fn an_error_in_the_stream_keeps_the_servers_message() {
    let Some(server) = Server::start(8192).await else { return };
    // The model calls a tool that the request does not have, which the server's grammar refuses.
    let other = ToolDefinition {
        name: "other".to_owned(),
        description: "Does something else.".to_owned(),
        input_schema: json!({"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]}),
    };
    for (name, model) in server.models() {
        let request = Request { tools: Arc::from([other.clone()]), ..request(vec![user("Say hello.")]) };
        let error = ask(&*model, request).await.unwrap_err();
        assert!(error.message.contains("Unexpected empty grammar stack"), "{name}: {error}");
    }
}
