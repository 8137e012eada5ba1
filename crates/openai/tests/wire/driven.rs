//! The conversation's own loop with these models: what it keeps of an answer is what goes back.

use std::sync::Arc;

use conjure_conversation::{
    Authorization, Block, CallConcurrency, CallContext, CallTraits, LoopOptions, LoopOutcome, Model,
    PromptPrefix, SessionView, StopReason, ToolCall, ToolDefinition, ToolResult, ToolRunOutcome, ToolRunner,
    TurnOutcome, TurnStop, run_loop,
};
use conjure_openai::fake::{FakeOpenAi, Reply};
use futures_util::future::BoxFuture;
use serde_json::json;

use crate::support::{call, models, start, thinking, user};

/// Answers each call with its command.
struct Echo;

impl ToolRunner for Echo {
    fn traits(&self, _: &ToolCall) -> CallTraits {
        CallTraits { concurrency: CallConcurrency::Shared, idempotent: true }
    }

    fn authorize<'a>(&'a self, _: &'a ToolCall, _: &'a SessionView) -> BoxFuture<'a, Authorization> {
        Box::pin(async { Authorization::Allow })
    }

    fn run<'a>(&'a self, call: &'a ToolCall, _: CallContext) -> BoxFuture<'a, ToolRunOutcome> {
        let command = call.input_value()["command"].as_str().unwrap_or_default().to_owned();
        Box::pin(async move { ToolResult::text_result(&call.id, command).into() })
    }
}

async fn drive(model: &Arc<dyn Model>) -> LoopOutcome {
    let prefix = PromptPrefix {
        tools: Arc::from([ToolDefinition {
            name: "bash".to_owned(),
            description: "Runs a command.".to_owned(),
            input_schema: json!({"type": "object"}),
        }]),
        ..PromptPrefix::default()
    };
    run_loop(vec![user("Hi")], model, &prefix, &Echo, LoopOptions::default()).await.unwrap()
}

#[tokio::test]
async fn call_ids_that_a_server_gives_again_and_again_are_told_apart() {
    let turn = |command: &str| {
        let both = vec![
            thinking("Hm"),
            call("call_0", "bash", &json!({"command": command})),
            call("call_1", "bash", &json!({"command": "same"})),
        ];
        Reply::blocks(both)
    };
    let turns = [turn("first"), turn("second"), Reply::blocks(vec![Block::text("Done.")])];
    let fake = start(FakeOpenAi::builder().turns(turns)).await;
    for (place, (name, model)) in models(&fake).into_iter().enumerate() {
        let outcome = drive(&model).await;
        assert_eq!(outcome.text(), "Done.", "{name}: {:?}", outcome.stop);
        let ids: Vec<String> = outcome
            .messages
            .iter()
            .flat_map(|message| message.tool_calls().map(|call| call.id.to_string()))
            .collect();
        assert_eq!((ids[0].as_str(), ids[1].as_str(), ids.len()), ("call_0", "call_1", 4), "{name}");
        assert!(ids[2] != ids[0] && ids[3] != ids[1], "{name}: the conversation makes them unique: {ids:?}");
        // The server sees its own ids all the same, since it gets its own answers back.
        let last = String::from_utf8(fake.requests()[place * 3 + 2].body().to_vec()).unwrap();
        assert!(!last.contains(ids[2].as_str()), "{name}: {last}");
        for message in &outcome.messages {
            for item in message.native.iter().flat_map(|native| &native.items).take(1) {
                let is_last = outcome.messages.last().is_some_and(|last| Arc::ptr_eq(last, message));
                assert!(is_last || last.contains(item.json()), "{name}: {} is not in {last}", item.json());
            }
        }
        assert!(last.contains("first") && last.contains("second"));
    }
}

#[tokio::test]
async fn a_cut_answer_goes_back_as_a_translation_that_the_service_accepts() {
    let cut = Reply::answer(conjure_conversation::Response {
        content: vec![thinking("Hm"), Block::text("I run"), call("call_0", "bash", &json!({"command": "x"}))],
        stop_reason: StopReason::MaxTokens,
        ..conjure_conversation::Response::text("")
    });
    let turns = [cut, Reply::blocks(vec![Block::text("Done.")])];
    let fake = start(FakeOpenAi::builder().turns(turns)).await;
    for (name, model) in models(&fake) {
        let cut = drive(&model).await;
        let expected = TurnOutcome::Finished(TurnStop::Truncated(StopReason::MaxTokens));
        assert_eq!(format!("{:?}", cut.stop), format!("{expected:?}"), "{name}");
        let mut history: Vec<_> = cut.messages.iter().map(|message| (**message).clone()).collect();
        history.last_mut().unwrap().content.push(Block::text("Go on."));
        let next = crate::support::ask(&*model, crate::support::request(history)).await.unwrap();
        assert_eq!(crate::support::blocks(&next)[0]["text"], "Done.", "{name}");
    }
}
