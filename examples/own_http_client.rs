//! A conversation over an HTTP client of one's own, given to the loop as a callback (specification 10.1, 11.2): what to
//! send, what to make of the answer, and which errors to tell apart.
//!
//! ```text
//! cargo run -p examples --example own_http_client
//! ```
//!
//! It speaks to the fake of the service, whose address is on this machine; so a TCP connection is client enough here. A
//! real one brings TLS, timeouts and retries, as the client of the feature `anthropic` does.

use std::error::Error;
use std::io::{self, Write as _};
use std::sync::Arc;

use conjure::config::ExecutorKind;
use conjure::conversation::{final_text, loop_options};
use conjure::model::{ApiErrorKind, ContainerId, ModelErrorKind, Script, parse_response};
use conjure::session::ContextOptions;
use conjure::{
    Block, Config, Message, ModelError, ProcessEnv, Request, Response, Settings, ToolDefinition, Workbench,
    load, model_fn, run_loop,
};
use conjure_anthropic::fake::FakeMessages;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// The body of a request. The order of the fields is that of the service's cache. It is written from a struct and not by
/// way of a `serde_json::Value`: so what the model said before goes back byte for byte.
#[derive(Serialize)]
struct Body<'r> {
    model: &'r str,
    max_tokens: u32,
    tools: &'r [ToolDefinition],
    system: String,
    messages: &'r [Arc<Message>],
    /// Where the service's own tools ran, if it has any and they did.
    #[serde(skip_serializing_if = "Option::is_none")]
    container: Option<&'r ContainerId>,
}

/// One model call: the callback.
async fn call(host: String, request: Request) -> Result<Response, ModelError> {
    let body = Body {
        model: "claude-sonnet-4-5",
        max_tokens: 4096,
        tools: &request.tools,
        system: request.instructions.join("\n\n"),
        messages: &request.messages,
        container: request.container.as_ref(),
    };
    let body = serde_json::to_string(&body).map_err(|error| failed(ModelErrorKind::Protocol, error))?;
    let (status, answer) =
        post(&host, &body).await.map_err(|error| failed(ModelErrorKind::Connection, error))?;
    if status == 200 {
        return parse_response(&answer).map_err(|error| failed(ModelErrorKind::Protocol, error));
    }
    // `{"type": "error", "error": {"type": "overloaded_error", "message": "…"}}`
    #[derive(Deserialize)]
    struct Refused {
        error: Detail,
    }
    #[derive(Deserialize)]
    struct Detail {
        r#type: String,
        message: String,
    }
    Err(match serde_json::from_str::<Refused>(&answer) {
        Ok(Refused { error }) => {
            ModelError::new(ModelErrorKind::Api(ApiErrorKind::from(error.r#type)), error.message)
        }
        Err(_) => failed(ModelErrorKind::Protocol, format!("status {status} without an error in the body")),
    })
}

fn failed(kind: ModelErrorKind, reason: impl std::fmt::Display) -> ModelError {
    ModelError::new(kind, reason.to_string())
}

/// Posts the body and gives the status and the body of the answer. HTTP/1.0, whose answers end with the connection.
async fn post(host: &str, body: &str) -> io::Result<(u16, String)> {
    let mut stream = TcpStream::connect(host).await?;
    let head = format!(
        "POST /v1/messages HTTP/1.0\r\nhost: {host}\r\nx-api-key: no-key-is-needed\r\nanthropic-version: 2023-06-01\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).await?;
    stream.write_all(body.as_bytes()).await?;
    let mut answer = String::new();
    stream.take(32 << 20).read_to_string(&mut answer).await?;
    let no_http = || io::Error::new(io::ErrorKind::InvalidData, "the answer is no HTTP");
    let (head, body) = answer.split_once("\r\n\r\n").ok_or_else(no_http)?;
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).ok_or_else(no_http)?;
    Ok((status, body.to_owned()))
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let script = Script::from_file("fixtures/scripts/log-analyzer.yaml")?;
    let fake = FakeMessages::builder().script(script).start().await?;
    let host = fake.base_url().trim_start_matches("http://").to_owned();

    let settings = Settings { executor: Some(ExecutorKind::Local), ..Settings::default() };
    let config = Config::from_layers(settings, &ProcessEnv::from_process(), None)?;
    let workbench =
        Workbench::open(load("fixtures/skills")?.skills, &config, ContextOptions::default()).await?;
    if let Some(context) = workbench.context() {
        context.workspace().add_file("fixtures/data/app.log".as_ref())?;
    }

    let model = model_fn(move |request| call(host.clone(), request));
    let question = vec![Message::user(vec![Block::text("What is wrong according to app.log?")])];
    let outcome = run_loop(question, &workbench, "Be brief.", &model, loop_options(&config)).await?;
    workbench.close().await;
    writeln!(io::stdout(), "{}", final_text(&outcome)?)?;
    Ok(())
}
