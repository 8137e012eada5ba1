//! What the toolbox logs. A program of its own, because a subscriber of `tracing` is one for the whole process.

use std::sync::{Arc, Mutex};

use conjure_conversation::{
    CallConcurrency, CallContext, CallTraits, ToolCall, ToolDefinition, ToolRunner as _,
};
use conjure_toolbox::{ToolOutput, Toolbox, tool_fn};
use serde_json::json;
use test_support::OnEvent;

#[tokio::test(start_paused = true)]
async fn every_call_is_logged_without_content() {
    let log = Arc::new(Mutex::new(Vec::new()));
    let told = Arc::clone(&log);
    let collector = OnEvent::new(
        |target| target == "conjure::tool",
        move |fields| {
            let line: String = fields.iter().map(|(name, value)| format!("{name}={value} ")).collect();
            told.lock().unwrap().push(line);
        },
    );
    tracing::subscriber::set_global_default(collector).unwrap();
    let definition = ToolDefinition {
        name: "tell".to_owned(),
        description: "A tool.".to_owned(),
        input_schema: json!({"type": "object"}),
    };
    let traits = CallTraits { concurrency: CallConcurrency::Shared, idempotent: true };
    let tool = tool_fn(definition, traits, |input, _| async move {
        match input["do"].as_str() {
            Some("succeed") => ToolOutput::text("a secret"),
            Some("fail") => ToolOutput::error("a secret"),
            _ => std::future::pending().await,
        }
    });
    let toolbox = Toolbox::builder().with_tool(tool).build().unwrap();
    for (id, name, input) in [
        ("toolu_1", "tell", json!({"do": "succeed", "with": "a secret"})),
        ("toolu_2", "tell", json!({"do": "fail"})),
        ("toolu_3", "tell", json!({"do": "hang"})),
        ("toolu_4", "tell", json!("a secret")),
        ("toolu_5", "a_secret", json!({})),
    ] {
        let context = CallContext::default();
        toolbox.run(&ToolCall::new(id, name, &input), context).await;
    }
    insta::assert_snapshot!(log.lock().unwrap().join("\n"));
}
