//! A conversation with your own model client, step by step (specification 17.1): the library composes the request and runs the
//! tools, and you send the request.
//!
//! ```text
//! cargo run -p examples --example own_client
//! ```

use conjure::config::ExecutorKind;
use conjure::conversation::{
    Composer as _, ProcessedResponse, format_tool_results_message, process_response,
};
use conjure::model::{BlockKind, parse_response};
use conjure::prompt::build_tools_param;
use conjure::session::ContextOptions;
use conjure::{Block, Config, Error, Message, ProcessEnv, Response, Settings, Workbench, load};

/// Your client would send the request to the model's service here. This one has two fixed responses.
fn call_the_service(
    system: &str,
    tools: &serde_json::Value,
    messages: &[Message],
) -> Result<Response, Error> {
    assert!(system.contains("sales-report") && tools.as_array().is_some_and(|tools| tools.len() == 8));
    let body = match messages {
        [_question] => r#"{"stop_reason": "tool_use", "content": [
                {"type": "text", "text": "I count the lines."},
                {"type": "tool_use", "id": "toolu_1", "name": "bash_tool",
                 "input": {"command": "wc -l < sales.csv", "description": "Count the lines"}}]}"#
            .to_owned(),
        [.., results] => {
            let count = match results.content.first().map(Block::kind) {
                Some(BlockKind::ToolResult { text, .. }) => text.trim(),
                _ => "no",
            };
            let text = serde_json::json!({"type": "text", "text": format!("It has {count} lines.")});
            serde_json::json!({"stop_reason": "end_turn", "content": [text]}).to_string()
        }
        [] => unreachable!("a conversation begins with a question"),
    };
    Ok(parse_response(&body)?)
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let skills = load("fixtures/skills")?.skills;
    let settings = Settings { executor: Some(ExecutorKind::Local), ..Settings::default() };
    let config = Config::from_layers(settings, &ProcessEnv::from_process(), None)?;
    let workbench = Workbench::open(skills, &config, ContextOptions::default()).await?;
    if let Some(context) = workbench.context() {
        context.workspace().add_file("fixtures/data/sales.csv".as_ref())?;
    }

    let composer = workbench.composer("You are a helpful assistant.");
    let mut messages = vec![Message::user(vec![Block::text("How many lines has sales.csv?")])];
    let answer = loop {
        // Compose it for each call: it includes the instructions of the skills that are loaded by now.
        let composed = composer.compose(&workbench.loaded_skills());
        let (system, tools) = (composed.instructions.join("\n\n"), build_tools_param(&composed.tools));
        let response = call_the_service(&system, &tools, &messages)?;
        let processed = process_response(&response, &workbench).await;
        messages.push(Message::assistant(response.content));
        match processed {
            ProcessedResponse::Continue(results) => messages.push(format_tool_results_message(&results)),
            ProcessedResponse::Resume => {}
            ProcessedResponse::Done(text) | ProcessedResponse::Stopped(text) => break text,
        }
    };
    workbench.close().await;

    use std::io::Write as _;
    writeln!(std::io::stdout(), "{answer}")?;
    Ok(())
}
