//! What the toolbox logs. A program of its own, because a subscriber of `tracing` is one for the whole process.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use conjure_conversation::{
    CallConcurrency, CallContext, CallTraits, ToolCall, ToolDefinition, ToolRunner as _,
};
use conjure_toolbox::{ToolOutput, Toolbox, tool_fn};
use serde_json::json;

/// Keeps the events of calls as text.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<String>>>);

impl tracing::Subscriber for Log {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        metadata.target() == "conjure::tool"
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}

    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        struct Fields(String);
        impl tracing::field::Visit for Fields {
            fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn fmt::Debug) {
                self.0.push_str(&format!("{}={value:?} ", field.name()));
            }
        }
        let mut fields = Fields(String::new());
        event.record(&mut fields);
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(fields.0);
    }

    fn enter(&self, _: &tracing::span::Id) {}

    fn exit(&self, _: &tracing::span::Id) {}
}

#[tokio::test(start_paused = true)]
async fn every_call_is_logged_without_content() {
    let log = Log::default();
    tracing::subscriber::set_global_default(log.clone()).unwrap();
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
    insta::assert_snapshot!(log.0.lock().unwrap().join("\n"));
}
