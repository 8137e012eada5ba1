//! Tests of the script format, the model that plays it and the recorder that writes it.

mod bad_files;
mod expectations;
mod expressions;
mod fixtures;
mod playing;
mod recording;

use std::sync::Arc;

use conjure_base::CallId;
use futures_util::StreamExt as _;
use serde_json::json;

use crate::scripted::{Script, ScriptFormat, ScriptedModel};
use crate::{
    Block, Message, Model, ModelError, ModelErrorKind, ModelEvent, Request, Response, ToolDefinition,
    ToolResult,
};

/// The instructions of [`request`], in the form of the reference, with a skill whose location needs escaping.
const INSTRUCTIONS: &str = "You help.\n<available_skills>\n<skill>\n<name>\nother\n</name>\n<description>\nx &lt;skill&gt;\n\
    </description>\n<location>\n/skills/other/SKILL.md\n</location>\n</skill>\n<skill>\n<name>\nsales-report\n</name>\n\
    <description>\nSales\n</description>\n<location>\n/srv/it&#x27;s &amp;lt;/sales-report/SKILL.md\n</location>\n</skill>\n\
    </available_skills>";

/// A request with instructions, two tools, and these messages.
fn request(messages: Vec<Message>) -> Request {
    let tool = |name: &str| ToolDefinition {
        name: name.to_owned(),
        description: "does it".to_owned(),
        input_schema: json!({"type": "object"}),
    };
    Request {
        instructions: vec![INSTRUCTIONS.to_owned(), "Be brief.".to_owned()],
        tools: Arc::from([tool("view"), tool("bash_tool")]),
        ..Request::new(messages.into_iter().map(Arc::new).collect())
    }
}

/// The first user message.
fn first_message() -> Message {
    Message::user(vec![Block::text("Which region grew fastest?")])
}

/// A conversation with two tool results.
fn with_results() -> Vec<Message> {
    let calls = [("c1", "view"), ("c2", "bash_tool")].map(|(id, name)| {
        Block::from_json(format!(r#"{{"type":"tool_use","id":"{id}","name":"{name}","input":{{}}}}"#))
            .unwrap()
    });
    let results = [
        ToolResult::text_result(&CallId::new("c1"), "total: 42\nlast line\n"),
        ToolResult::error(&CallId::new("c2"), r#"{"top": [{"count": 25, "message": "it broke"}]}"#),
    ];
    vec![
        first_message(),
        Message::assistant(calls.into()),
        Message::user(results.iter().map(Block::tool_result).collect()),
    ]
}

/// A model that plays this YAML.
fn model(yaml: &str) -> ScriptedModel {
    ScriptedModel::new(Script::from_text(yaml, ScriptFormat::Yaml, "test.yaml").unwrap())
}

/// Why this YAML is no script.
fn refused(yaml: &str) -> String {
    Script::from_text(yaml, ScriptFormat::Yaml, "test.yaml").unwrap_err().to_string()
}

/// All that a call yields, but for what no script plays: that the request is on its way.
async fn events(model: &impl Model, request: Request) -> Vec<Result<ModelEvent, ModelError>> {
    let all = model.stream(request);
    all.filter(|event| std::future::ready(*event != Ok(ModelEvent::Sent))).collect().await
}

/// The answer of a call that ends well.
async fn answer(model: &impl Model, request: Request) -> Response {
    match events(model, request).await.pop() {
        Some(Ok(ModelEvent::Finished(response))) => *response,
        other => panic!("no answer, but {other:?}"),
    }
}

/// The message of a call that fails as a mistake of the script.
async fn script_error(model: &impl Model, request: Request) -> String {
    match events(model, request).await.pop() {
        Some(Err(ModelError { kind: ModelErrorKind::Script, message, .. })) => message,
        other => panic!("no script error, but {other:?}"),
    }
}
