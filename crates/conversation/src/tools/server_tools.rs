//! Server-side tool calls: calls of tools that the service runs itself.
//!
//! The service refuses such a call without a result, except in the request that resumes it in its container.

use std::collections::HashSet;

use serde::Deserialize;
use serde_json::Value;

use crate::content::block::{Block, BlockKind};

/// Replaces a call whose container is gone.
pub(crate) const ITS_CONTAINER_EXPIRED: &str =
    "[a tool of the service was running here; its container expired]";
/// Replaces a call that is not resumed.
pub(crate) const NOT_AWAITED: &str = "[a tool of the service was running here; what came of it is not known]";

/// The error codes of a lost container.
const GONE: [&str; 2] = ["container_expired", "container_not_found"];

/// Whether this is a server-side tool call.
pub(crate) fn is_server_tool_call(block: &Block) -> bool {
    matches!(block.kind(), BlockKind::Other(kind) if kind == "server_tool_use")
}

/// Whether the last code execution of a response failed because its container is gone.
pub(crate) fn container_is_gone(content: &[Block]) -> bool {
    let is_result = |block: &&Block| matches!(block.kind(), BlockKind::Other(kind) if kind.ends_with("code_execution_tool_result"));
    content.iter().rev().find(is_result).is_some_and(|result| {
        let json: Value = serde_json::from_str(result.json()).unwrap_or_default();
        json["content"]["error_code"].as_str().is_some_and(|code| GONE.contains(&code))
    })
}

/// Replaces each server-side tool call without a result in this message by a text.
pub(crate) fn replace_unfinished(content: &mut [Block], text: &str) {
    #[derive(Deserialize)]
    struct Named {
        #[serde(default)]
        id: Option<String>,
        #[serde(default)]
        tool_use_id: Option<String>,
    }
    if !content.iter().any(is_server_tool_call) {
        return;
    }
    let named = |block: &Block| serde_json::from_str::<Named>(block.json()).ok();
    let is_result =
        |block: &&Block| matches!(block.kind(), BlockKind::Other(kind) if kind.ends_with("_tool_result"));
    let results = content.iter().filter(is_result).filter_map(named);
    let answered: HashSet<String> = results.filter_map(|named| named.tool_use_id).collect();
    for block in content.iter_mut().filter(|block| is_server_tool_call(block)) {
        let is_answered = named(block).and_then(|named| named.id).is_some_and(|id| answered.contains(&id));
        if !is_answered {
            *block = Block::text(text);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(json: &str) -> Block {
        Block::from_json(json).unwrap()
    }

    #[test]
    fn a_container_is_gone_where_the_last_code_says_so() {
        let result = |kind: &str, content: &str| {
            block(&format!(r#"{{"type":"{kind}","tool_use_id":"s","content":{content}}}"#))
        };
        let bash = "bash_code_execution_tool_result";
        let error = |code: &str| {
            result(
                bash,
                &format!(r#"{{"type":"bash_code_execution_tool_result_error","error_code":"{code}"}}"#),
            )
        };
        let good = result(bash, r#"{"type":"bash_code_execution_result","stdout":"container_expired"}"#);
        assert!(container_is_gone(&[error("container_expired"), Block::text("oh")]));
        assert!(container_is_gone(&[good.clone(), error("container_not_found")]));
        assert!(container_is_gone(&[result(
            "code_execution_tool_result",
            r#"{"error_code":"container_expired"}"#
        )]));
        for other in [
            vec![],
            vec![good.clone()],
            vec![error("unavailable")],
            // The later execution had a container.
            vec![error("container_expired"), good],
            vec![result("web_search_tool_result", r#"{"error_code":"container_expired"}"#)],
            vec![result(bash, "null")],
            vec![Block::text("container_expired")],
        ] {
            assert!(!container_is_gone(&other), "{other:?}");
        }
    }

    #[test]
    fn only_calls_without_a_result_are_replaced() {
        let call = |id: &str| block(&format!(r#"{{"type":"server_tool_use","id":"{id}","name":"x"}}"#));
        let result = block(r#"{"type":"web_search_tool_result","tool_use_id":"a","content":[]}"#);
        let mut content = vec![
            Block::text("t"),
            call("a"),
            result.clone(),
            call("b"),
            block(r#"{"type":"server_tool_use"}"#),
        ];
        replace_unfinished(&mut content, "gone");
        let expected = vec![Block::text("t"), call("a"), result, Block::text("gone"), Block::text("gone")];
        assert_eq!(content, expected);
    }
}
