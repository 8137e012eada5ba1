//! A process that is killed during a tool call, and the next process: the session continues from what is
//! recorded, the model learns that the call's outcome is unknown, and nothing is done twice.
//!
//! ```text
//! cargo run -p examples --example crash_and_resume
//! ```

use std::error::Error;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use conjure::model::BlockKind;
use conjure::tool::{CallConcurrency, CallTraits};
use conjure::{
    Block, Clock as _, Config, Message, ProcessEnv, Request, Response, Runtime, RuntimeOptions,
    SessionEventKind, SessionSpec, Settings, StopReason, SystemClock, TenantId, Tool, ToolDefinition,
    ToolOutput, model_fn, tool_fn,
};

/// The model: when asked, it calls the tool that sends the invoice, and then reports the result.
fn answer(request: &Request) -> Response {
    let last = request.messages.last().and_then(|message| message.content.last()).map(Block::kind);
    match last {
        Some(BlockKind::Text(text)) if text == "Send the invoice." => {
            let call = Block::tool_use("toolu_1", "send_invoice", &serde_json::json!({}));
            Response::new(vec![call], StopReason::ToolUse)
        }
        Some(BlockKind::ToolResult { text, .. }) => Response::text(format!("I was told: {text}")),
        _ => Response::text("The invoice may have been sent; I look before I send it again."),
    }
}

/// A tool that sends an invoice, which must not happen twice. The process is killed before the tool can report it.
fn send_invoice(sent: PathBuf) -> impl Tool {
    let definition = ToolDefinition {
        name: "send_invoice".to_owned(),
        description: "Sends the invoice.".to_owned(),
        input_schema: serde_json::json!({"type": "object", "properties": {}}),
    };
    let traits = CallTraits { concurrency: CallConcurrency::Exclusive, idempotent: false };
    tool_fn(definition, traits, move |_, _| {
        let sent = sent.clone();
        async move {
            let wrote = std::fs::OpenOptions::new().append(true).create(true).open(&sent);
            if let Err(error) = wrote.and_then(|mut file| writeln!(file, "an invoice")) {
                return ToolOutput::error(error.to_string());
            }
            let _ = writeln!(std::io::stdout(), "sent");
            std::future::pending().await
        }
    })
}

fn options(dir: &Path) -> Result<RuntimeOptions, Box<dyn Error>> {
    let settings = Settings { data: Some(dir.join("data")), ..Settings::default() };
    let config = Config::from_layers(settings, &ProcessEnv::from_process(), None)?;
    let model = model_fn(|request| async move { Ok(answer(&request)) });
    Ok(RuntimeOptions::from(config).model("scripted", model).tool(send_invoice(dir.join("sent"))))
}

/// The process that is killed.
async fn first(dir: &Path) -> Result<(), Box<dyn Error>> {
    let runtime = Runtime::spawn(options(dir)?).await?;
    let session = runtime.open(SessionSpec::new(TenantId::new("acme")?).without_skills()).await?;
    writeln!(std::io::stdout(), "{}", session.id())?;
    session.send("Send the invoice.").await?.end().await?;
    Ok(())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    if let Some(dir) = std::env::args().nth(1) {
        return first(dir.as_ref()).await;
    }
    let dir = tempfile::tempdir()?;
    #[expect(clippy::disallowed_methods, reason = "it is this program, to be killed")]
    let mut host = std::process::Command::new(std::env::current_exe()?);
    let mut host = host.arg(dir.path()).stdout(Stdio::piped()).spawn()?;
    let mut lines = BufReader::new(host.stdout.take().ok_or("it has no output")?).lines();
    let id = lines.next().ok_or("it said nothing")??.parse()?;
    assert_eq!(lines.next().ok_or("it sent nothing")??, "sent");
    host.kill()?;
    host.wait()?;

    let runtime = Runtime::spawn(options(dir.path())?).await?;
    let session = runtime.session(&TenantId::new("acme")?, id).await?;
    // The turn that was under way goes on by itself. What is said meanwhile waits for its end.
    session.send("What happened?").await?.end().await?;
    for event in runtime.events(session.tenant(), id, 0).await? {
        if let SessionEventKind::AgentMessage { content } = event.kind {
            writeln!(std::io::stdout(), "{}", Message::assistant(content).text())?;
        }
    }
    let sent = std::fs::read_to_string(dir.path().join("sent"))?;
    assert_eq!(sent, "an invoice\n", "it is sent once");
    runtime.shutdown(SystemClock.deadline(Duration::from_secs(10))).await?;
    Ok(())
}
