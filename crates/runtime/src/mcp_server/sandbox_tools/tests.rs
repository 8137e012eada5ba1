use std::time::Duration;

use conjure_conversation::{ResultContent, ToolCall, ToolResult};
use futures_util::{FutureExt as _, TryFutureExt as _};
use serde_json::json;

use super::*;
use crate::config::{Config, ExecutorKind, Settings};
use crate::context::ContextOptions;

fn tools() -> SandboxTools {
    let settings = Settings { executor: Some(ExecutorKind::Local), ..Settings::default() };
    let config = Config::default().with(settings).unwrap();
    let definitions = Workbench::definitions_for(&[], &config);
    let open = move || {
        let config = config.clone();
        let none: [conjure_skill::Skill; 0] = [];
        async move { Workbench::open(none, &config, ContextOptions::default()).await }
            .map_err(|error| error.to_string())
            .boxed()
    };
    // Whatever does not run is idle.
    SandboxTools::new(definitions.into(), Duration::ZERO, Box::new(open))
}

async fn bash(tools: &SandboxTools, command: &str) -> ToolResult {
    let call =
        ToolCall::new("call", "bash_tool", &json!({"command": command, "description": "A step of a test"}));
    tools.call(&[call]).await
}

fn text(result: &ToolResult) -> String {
    let part = |part: &ResultContent| match part {
        ResultContent::Text { text } => text.clone(),
        other => panic!("{other:?}"),
    };
    result.content.iter().map(part).collect::<Vec<_>>().join("\n")
}

#[tokio::test]
async fn a_sandbox_that_ended_is_replaced_and_the_result_says_so() {
    let tools = tools();
    assert_eq!(tools.definitions().len(), 4);
    tools.close_if_idle().await;
    assert!(!bash(&tools, "echo kept > a.txt").await.is_error);
    assert_eq!(text(&bash(&tools, "cat a.txt").await).trim(), "kept");
    tools.close_if_idle().await;
    let after = text(&bash(&tools, "ls -A; echo listed").await);
    assert!(after.contains(IDLE) && after.contains("listed") && !after.contains("a.txt"), "{after}");
    let later = text(&bash(&tools, "echo again").await);
    assert_eq!(later.trim(), "again");

    tools.workbench().await.unwrap().cleanup().await;
    let lost = bash(&tools, "echo lost").await;
    assert!(lost.is_error, "{lost:?}");
    let after = text(&bash(&tools, "echo new").await);
    assert!(after.contains(LOST) && after.contains("new"), "{after}");

    tools.close().await;
    let closed = bash(&tools, "echo closed").await;
    assert!(closed.is_error && text(&closed).contains("has ended"), "{closed:?}");
}

#[tokio::test]
async fn a_sandbox_in_which_a_call_runs_is_not_idle() {
    let tools = tools();
    let waiting = bash(&tools, "touch begun; until test -e go; do sleep 0.05; done; echo went");
    let going = async {
        while text(&bash(&tools, "ls").await).trim() != "begun" {}
        tools.close_if_idle().await;
        bash(&tools, "touch go").await
    };
    let (waited, gone) = tokio::join!(waiting, going);
    assert_eq!((text(&waited).trim(), text(&gone).trim()), ("went", "[exit code 0, no output]"));
    tools.close().await;
}
