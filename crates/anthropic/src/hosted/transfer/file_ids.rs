//! Finds the ids of files that a response reports as created in its container.
//!
//! The ids are in the results of the service's own tools, in the lists of outputs. They are never taken from calls, from the output of a
//! program, or from an error. The module also finds the file that a content block of the user puts into the container.

use conjure_conversation::{Block, BlockKind};
use serde_json::Value;

use crate::hosted::FileId;

/// The ending of the result types that may contain files: `bash_code_execution_tool_result`, `text_editor_code_execution_tool_result`,
/// `code_execution_tool_result`, and future ones.
const RESULT: &str = "code_execution_tool_result";
/// The type of a block that puts a file into a container.
const UPLOAD: &str = "container_upload";

/// The ids of the files in a response of the Messages API, or in a list of its content blocks. Each id occurs once, in order. Any other
/// JSON value has none.
#[must_use]
pub fn extract_file_ids(response: &Value) -> Vec<FileId> {
    let content = response.get("content").unwrap_or(response);
    let mut found = Vec::new();
    for block in content.as_array().map(Vec::as_slice).unwrap_or_default() {
        collect(block, &mut found);
    }
    found
}

/// The ids of the files in a response's blocks.
#[must_use]
pub fn produced_files(content: &[Block]) -> Vec<FileId> {
    let mut found = Vec::new();
    for block in content {
        // Most blocks are not results and are not parsed.
        let is_result = matches!(block.kind(), BlockKind::Other(kind) if kind.ends_with(RESULT));
        if is_result && let Ok(block) = serde_json::from_str::<Value>(block.json()) {
            collect(&block, &mut found);
        }
    }
    found
}

/// The file that a block [`container_upload`](crate::hosted::container_upload) puts into a container.
#[must_use]
pub fn uploaded_file(block: &Block) -> Option<FileId> {
    let BlockKind::Other(kind) = block.kind() else { return None };
    if kind != UPLOAD {
        return None;
    }
    let block: Value = serde_json::from_str(block.json()).ok()?;
    block["file_id"].as_str().filter(|id| !id.is_empty()).map(FileId::new)
}

fn collect(block: &Value, found: &mut Vec<FileId>) {
    if !kind(block).ends_with(RESULT) {
        return;
    }
    let mut pending = vec![&block["content"]];
    while let Some(value) = pending.pop() {
        match value {
            Value::Array(items) => pending.extend(items.iter().rev()),
            Value::Object(fields) if !kind(value).ends_with("_error") => {
                let id = fields.get("file_id").and_then(Value::as_str).filter(|id| !id.is_empty());
                if let Some(id) = id.map(FileId::new).filter(|id| !found.contains(id)) {
                    found.push(id);
                }
                pending.extend(fields.get("content"));
            }
            _ => {}
        }
    }
}

fn kind(value: &Value) -> &str {
    value["type"].as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn result(prefix: &str, content: &Value) -> Value {
        json!({"type": format!("{prefix}code_execution_tool_result"), "tool_use_id": "srvtoolu_1", "content": content})
    }

    fn bash(files: &[&str]) -> Value {
        let files: Vec<Value> =
            files.iter().map(|id| json!({"type": "bash_code_execution_output", "file_id": id})).collect();
        let content = json!({
            "type": "bash_code_execution_result", "stdout": "{\"file_id\":\"file_printed\"}", "stderr": "",
            "return_code": 0, "content": files,
        });
        result("bash_", &content)
    }

    fn check(content: &Value, expected: &[&str]) {
        let expected: Vec<FileId> = expected.iter().map(|id| FileId::new(*id)).collect();
        assert_eq!(extract_file_ids(&json!({"type": "message", "content": content})), expected, "{content}");
        assert_eq!(extract_file_ids(content), expected, "{content}");
        let block = |block: &Value| Block::from_json(block.to_string()).unwrap();
        let blocks: Vec<Block> = content.as_array().unwrap().iter().map(block).collect();
        assert_eq!(produced_files(&blocks), expected, "{content}");
    }

    #[test]
    fn all_tool_results_are_searched_for_files() {
        let output = |id: &str| json!({"type": "code_execution_output", "file_id": id});
        let code = json!({"type": "code_execution_result", "stdout": "", "stderr": "", "return_code": 0,
            "content": [output("file_2"), output("file_1")]});
        let encrypted = json!({"type": "encrypted_code_execution_result", "encrypted_stdout": "x", "stderr": "",
            "return_code": 0, "content": [output("file_4")]});
        let edited = json!({"type": "text_editor_code_execution_create_result", "is_file_update": false,
            "file_id": "file_3"});
        let nested =
            json!([{"type": "group", "content": [{"type": "group", "content": [output("file_5")]}]}]);
        check(
            &json!([
                {"type": "text", "text": "Here it is."},
                bash(&["file_1"]),
                result("", &code),
                result("text_editor_", &edited),
                result("", &encrypted),
                result("python_", &nested),
                bash(&["file_1", "file_5", "file_6"]),
            ]),
            &["file_1", "file_2", "file_3", "file_4", "file_5", "file_6"],
        );
    }

    #[test]
    fn calls_output_errors_and_uploads_contain_no_file_ids() {
        let error = json!({"type": "bash_code_execution_tool_result_error", "error_code": "unavailable",
            "file_id": "file_x", "content": [{"type": "bash_code_execution_output", "file_id": "file_x"}]});
        // Where the seed looked.
        let call = json!({"type": "server_tool_use", "id": "s", "name": "bash_code_execution",
            "input": {"file_id": "file_x"}, "content": [{"type": "bash_code_execution_output", "file_id": "file_x"}]});
        let view = json!({"type": "text_editor_code_execution_view_result", "content": "file_id: file_x",
            "file_type": "text"});
        check(
            &json!([
                call,
                {"type": "container_upload", "file_id": "file_mine"},
                {"type": "text", "text": "file_x"},
                result("bash_", &error),
                result("text_editor_", &view),
                bash(&[]),
                bash(&[""]),
                {"type": "from_next_year", "content": [{"file_id": "file_x"}]},
            ]),
            &[],
        );
        for other in [json!(null), json!("file_1"), json!({"content": "text"}), json!({"error": {}})] {
            assert_eq!(extract_file_ids(&other), []);
        }
    }

    #[test]
    fn only_a_block_that_puts_a_file_into_a_container_names_one() {
        for (block, expected) in [
            (crate::hosted::container_upload(&FileId::new("file_1")), Some("file_1")),
            (json!({"type": "container_upload", "file_id": ""}), None),
            (json!({"type": "container_upload", "file_id": 1}), None),
            (json!({"type": "document", "source": {"type": "file", "file_id": "file_1"}}), None),
            (json!({"type": "text", "text": "{\"type\":\"container_upload\",\"file_id\":\"file_1\"}"}), None),
            (bash(&["file_1"]), None),
        ] {
            let block = Block::from_json(block.to_string()).unwrap();
            assert_eq!(uploaded_file(&block), expected.map(FileId::new), "{block:?}");
        }
    }

    fn value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![Just(Value::Null), "[a-z_]{0,12}".prop_map(Value::from), Just(json!(1))];
        leaf.prop_recursive(5, 40, 5, |inner| {
            let keys = prop_oneof![Just("type"), Just("content"), Just("file_id"), Just("x")];
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map(keys.prop_map(str::to_owned), inner, 0..4)
                    .prop_map(|fields| Value::Object(fields.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn any_response_yields_each_file_id_once(content in value()) {
            let wrapped = json!([result("bash_", &content), result("", &content)]);
            let ids = extract_file_ids(&wrapped);
            let mut once = ids.clone();
            once.sort();
            once.dedup();
            prop_assert_eq!(once.len(), ids.len());
            prop_assert!(ids.iter().all(|id| content.to_string().contains(id.as_str())));
            let _ = extract_file_ids(&content);
        }
    }
}
