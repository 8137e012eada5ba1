//! What the model is told of a replaced sandbox (S11), and what is there again.

use std::sync::Arc;

use conjure_conversation::{CallContext, ToolCall, ToolResult, execute_tool_calls};
use conjure_sandbox::{DataFolder, Executor, Provision, Shelf};
use conjure_store::Variant;
use conjure_toolbox::Toolbox;
use serde_json::json;

use crate::bed::{Bed, Kind, options};
use crate::for_kinds;

for_kinds! {
    the_next_result_tells_once_what_is_gone,
    a_session_that_goes_on_tells_it_with_the_first_result,
}

fn toolbox(bed: &Bed) -> Toolbox {
    Toolbox::builder().executor(Arc::new(bed.executor.clone())).build().unwrap()
}

async fn call(toolbox: &Toolbox, command: &str) -> ToolResult {
    let call = ToolCall::new("toolu_1", "bash_tool", &json!({"command": command}));
    let context = CallContext::default();
    execute_tool_calls(toolbox, &[call], context).await.remove(0)
}

async fn the_next_result_tells_once_what_is_gone(kind: Kind) {
    let bed = Bed::of(kind).await;
    let toolbox = toolbox(&bed);
    assert_eq!(call(&toolbox, "echo kept > file; echo made").await.text(), "made\n");
    bed.leave_a_sleeper().await;
    bed.kill_guest();
    bed.source.until_asked(2).await;
    let told = call(&toolbox, "cat file").await;
    let text = told.text();
    assert!(!told.is_error && text.ends_with("kept\n"), "{text}");
    assert!(text.starts_with("[Before this call the sandbox ended: "), "{text}");
    let files = match kind {
        Kind::Jail => "all files that were not in `/workspace`",
        Kind::Local => "Still there: all files",
    };
    assert!(text.contains(files), "{text}");
    assert_eq!(call(&toolbox, "cat file").await.text(), "kept\n");
    bed.end().await;
}

async fn a_session_that_goes_on_tells_it_with_the_first_result(kind: Kind) {
    let bed = Bed::with(kind, |_| {}, |spec| spec.resumed()).await;
    let toolbox = toolbox(&bed);
    let text = call(&toolbox, "echo well").await.text();
    assert!(text.starts_with("[The conversation was taken up again.") && text.ends_with("well\n"), "{text}");
    assert_eq!(call(&toolbox, "echo well").await.text(), "well\n");
    bed.end().await;
}

#[tokio::test]
async fn what_was_provided_is_provided_again() {
    let folder = tempfile::tempdir().unwrap();
    let data = DataFolder::open(folder.path()).unwrap();
    let digest = data.store().insert_bytes(b"an artifact\n", Variant::Plain).unwrap().digest;
    let provision = Provision::file(Shelf::Artifacts, "notes.txt", data.store(), digest, Variant::Plain);
    let bed = Bed::of(Kind::Jail).await;
    let path = bed.executor.provide(provision, options()).await.unwrap();
    assert_eq!(path.to_str(), Some("/artifacts/notes.txt"));
    for sandboxes in 2..4 {
        bed.leave_a_sleeper().await;
        bed.kill_guest();
        bed.source.until_asked(sandboxes).await;
        assert_eq!(bed.sh("cat /artifacts/notes.txt").await, "an artifact\n");
    }
    bed.end().await;
}
