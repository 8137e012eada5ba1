//! [`OutputItem`]: a finished item of an answer, in the form that the service gets back, with its canonical blocks.

use conjure_conversation::{Block, NativeItem};
use conjure_model_http::{InputCompletion, RawObject, ToolNames, quoted};
use serde_json::value::RawValue;

use crate::canonical_blocks::{call_block, finish_arguments, thinking_block};
use crate::object_members::{Members, array_items};

/// The name of a call that has none. No tool has this name, so the call gets an error result.
const UNNAMED: &str = "unnamed_tool";

/// A finished item.
#[derive(Debug)]
pub(super) struct OutputItem {
    pub(super) native: NativeItem,
    /// The canonical blocks; empty for items that only the service understands.
    pub(super) blocks: Vec<Block>,
    pub(super) is_refusal: bool,
    /// The number of bytes that the model wrote.
    pub(super) written: u64,
}

/// Finishes an item. `streamed` are the arguments from deltas, for servers that leave them out of the item. `place` is the item's number,
/// for a call without an id.
///
/// # Errors
/// Why the item is invalid.
pub(super) fn finish_item(
    raw: &RawValue,
    streamed: &str,
    place: usize,
    end: InputCompletion,
    names: &ToolNames,
) -> Result<OutputItem, String> {
    let members: Members<'_> = serde_json::from_str(raw.get()).map_err(|error| error.to_string())?;
    let verbatim = || NativeItem::from_json(raw.get()).map_err(|error| error.to_string());
    let mut item = OutputItem {
        native: verbatim()?,
        blocks: Vec::new(),
        is_refusal: false,
        written: raw.get().len() as u64,
    };
    match members.text("type").unwrap_or_default().as_str() {
        "reasoning" => {
            // Open models show their reasoning. Others show a summary of it.
            let text = ["summary", "content"].iter().find_map(|name| {
                let texts = string_parts(&members, name, "text");
                (!texts.is_empty()).then(|| texts.join("\n\n"))
            });
            if let Some(text) = text.filter(|text| !text.trim().is_empty()) {
                item.blocks.push(thinking_block(&text)?);
            }
        }
        "message" => {
            for part in members.get("content").map(array_items).unwrap_or_default() {
                let Ok(part) = serde_json::from_str::<Members<'_>>(part.get()) else { continue };
                let refusal = part.text("refusal");
                item.is_refusal |= refusal.is_some();
                let text = refusal.or_else(|| part.text("text"));
                item.blocks.extend(text.filter(|text| !text.trim().is_empty()).map(Block::text));
            }
        }
        "function_call" => {
            let written = members.text("arguments").filter(|arguments| !arguments.trim().is_empty());
            let arguments = finish_arguments(written.as_deref().unwrap_or(streamed), end);
            let id = members.text("call_id").or_else(|| members.text("id")).filter(|id| !id.is_empty());
            let id = id.unwrap_or_else(|| format!("call_{place}"));
            let name = members.text("name").filter(|name| !name.is_empty());
            let name = name.unwrap_or_else(|| UNNAMED.to_owned());
            item.blocks.push(call_block(&id, names.own_name(&name), &arguments)?);
            item.native = repaired_call(raw, &members, &id, &name, &arguments)?;
        }
        _ => {}
    }
    Ok(item)
}

/// The call in the form that the service gets back. It is the service's own JSON, unless its id, its name or valid arguments are missing.
fn repaired_call(
    raw: &RawValue,
    members: &Members<'_>,
    id: &str,
    name: &str,
    arguments: &str,
) -> Result<NativeItem, String> {
    let mut repaired: Option<RawObject> = None;
    for (member, value) in [("call_id", id), ("name", name), ("arguments", arguments)] {
        if members.text(member).as_deref() != Some(value) {
            let object = match repaired.take() {
                Some(object) => object,
                None => serde_json::from_str(raw.get()).map_err(|error| error.to_string())?,
            };
            repaired.insert(object).set(member, quoted(value));
        }
    }
    let json = repaired.map_or_else(|| raw.get().to_owned(), |object| object.to_json());
    NativeItem::from_json(json).map_err(|error| error.to_string())
}

/// The texts of a list of parts.
fn string_parts(members: &Members<'_>, list: &str, name: &str) -> Vec<String> {
    let parts = members.get(list).map(array_items).unwrap_or_default();
    let parts = parts.iter().filter_map(|part| serde_json::from_str::<Members<'_>>(part.get()).ok());
    parts.filter_map(|part| part.text(name)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn finish(item: &str, streamed: &str) -> OutputItem {
        let raw = RawValue::from_string(item.to_owned()).unwrap();
        finish_item(&raw, streamed, 3, InputCompletion::Complete, &ToolNames::default()).unwrap()
    }

    fn blocks(item: &OutputItem) -> Vec<Value> {
        item.blocks.iter().map(|block| serde_json::from_str(block.json()).unwrap()).collect()
    }

    #[test]
    fn an_item_keeps_its_bytes_and_gives_the_blocks_that_all_services_know() {
        for (raw, expected) in [
            (
                r#"{"id":"rs_1","type":"reasoning", "summary":[{"type":"summary_text","text":"a"},{"type":"summary_text","text":"b"}],"encrypted_content":"E"}"#,
                json!([{"type": "thinking", "thinking": "a\n\nb", "signature": ""}]),
            ),
            (
                r#"{"type":"reasoning","summary":[],"content":[{"type":"reasoning_text","text":"c"}]}"#,
                json!([{"type": "thinking", "thinking": "c", "signature": ""}]),
            ),
            (r#"{"type":"reasoning","summary":[],"encrypted_content":"E"}"#, json!([])),
            (
                r#"{"type":"message","role":"assistant","phase":"commentary","content":[{"type":"output_text","text":"x","annotations":[]},{"type":"output_text","text":" "}]}"#,
                json!([{"type": "text", "text": "x"}]),
            ),
            (
                r#"{"type":"function_call","id":"fc_1","call_id":"call_1","name":"t","arguments":"{\"n\": 1.50}","status":"completed"}"#,
                json!([{"type": "tool_use", "id": "call_1", "name": "t", "input": {"n": 1.5}}]),
            ),
            (r#"{"type":"web_search_call","id":"ws_1","x":1e400}"#, json!([])),
        ] {
            let item = finish(raw, "");
            assert_eq!(item.native.json(), raw);
            assert_eq!(Value::from(blocks(&item)), expected, "{raw}");
            assert!(!item.is_refusal);
        }
    }

    #[test]
    fn a_refusal_is_a_text_and_is_known_as_one() {
        let item = finish(r#"{"type":"message","content":[{"type":"refusal","refusal":"I will not."}]}"#, "");
        assert!(item.is_refusal);
        assert_eq!(blocks(&item), [json!({"type": "text", "text": "I will not."})]);
    }

    #[test]
    fn incomplete_calls_are_repaired() {
        let item = finish(
            r#"{"type":"function_call","id":"fc_1","call_id":"c","name":"t","arguments":"","x":1}"#,
            "{\"a\":1}",
        );
        assert_eq!(
            item.native.json(),
            r#"{"type":"function_call","id":"fc_1","call_id":"c","name":"t","arguments":"{\"a\":1}","x":1}"#
        );
        let item = finish(r#"{"type":"function_call","call_id":"c","name":"t","arguments":"{\"a\": "}"#, "");
        assert_eq!(item.blocks[0].tool_call().unwrap().invalid_input().as_deref(), Some("{\"a\": "));
        let kept: Value = serde_json::from_str(item.native.json()).unwrap();
        assert_eq!(kept["arguments"], r#"{"INVALID_JSON":"{\"a\": "}"#);
        let item = finish(r#"{"type":"function_call"}"#, "");
        let kept: Value = serde_json::from_str(item.native.json()).unwrap();
        assert_eq!(
            kept,
            json!({"type": "function_call", "call_id": "call_3", "name": "unnamed_tool", "arguments": "{}"})
        );
    }
}
