//! [`StreamedItem`]: an output item while its events arrive.
//!
//! The item is complete with `output_item.done`. Without that event, a message or a call is built from its deltas. Reasoning is not,
//! because its service refuses reasoning that it has not finished.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use conjure_model_http::{RawObject, quoted};
use serde_json::value::RawValue;

use crate::object_members::{Members, array_items};
use crate::preview_events::ShownText;

/// An item under construction.
#[derive(Debug, Default)]
pub(super) struct StreamedItem {
    pub(super) output_index: Option<u64>,
    /// The item as `output_item.added` announced it.
    pub(super) added: Option<Box<RawValue>>,
    /// The complete item, once it is done.
    pub(super) completed: Option<Box<RawValue>>,
    /// The texts from deltas, by their name and their position in the item.
    pub(super) texts: HashMap<(&'static str, u64), StreamedText>,
    /// The number of the call among the previewed blocks.
    pub(super) call: Option<usize>,
    /// The arguments from deltas.
    pub(super) arguments: String,
}

/// A text of an item, with its preview state.
#[derive(Debug, Default)]
pub(super) struct StreamedText {
    pub(super) text: String,
    pub(super) place: ShownText,
}

/// The output of an item: a text for the user, or a call. Two items with the same output are the same item.
#[derive(Debug, PartialEq, Eq, Hash)]
enum ItemOutput {
    Text(String),
    Call(String),
}

/// The complete items of an answer, each with its index and the arguments from deltas. An item that is not done is built from its deltas.
pub(super) fn complete_items(items: &[StreamedItem]) -> Vec<(Option<u64>, Cow<'_, RawValue>, &str)> {
    let are_all_completed = items.iter().all(|item| item.completed.is_some());
    let completed = items.iter().filter_map(|item| item.completed.as_deref());
    // Some servers give one item several ids, so its deltas look like those of another item.
    let completed: HashSet<ItemOutput> =
        if are_all_completed { HashSet::new() } else { completed.filter_map(output).collect() };
    let complete = items.iter().filter_map(|item| {
        let raw = match &item.completed {
            Some(completed) => Cow::Borrowed(&**completed),
            None => Cow::Owned(
                item.build().filter(|built| output(built).is_none_or(|it| !completed.contains(&it)))?,
            ),
        };
        Some((item.output_index, raw, item.arguments.as_str()))
    });
    complete.collect()
}

impl StreamedItem {
    /// Builds the item from its deltas: a message with a text, or a call with a name.
    fn build(&self) -> Option<Box<RawValue>> {
        let kind = self.added.as_deref().and_then(kind).unwrap_or_else(|| "message".to_owned());
        let mut texts: Vec<_> = self
            .texts
            .iter()
            .filter(|((name, _), streamed)| {
                matches!(*name, "text" | "refusal") && !streamed.text.trim().is_empty()
            })
            .collect();
        texts.sort_by_key(|((name, part), _)| (*part, *name));
        let mut object = match &self.added {
            Some(added) => serde_json::from_str(added.get()).ok()?,
            None => RawObject::default(),
        };
        match kind.as_str() {
            "message" if !texts.is_empty() => {
                let parts = texts.into_iter().map(|((name, _), streamed)| match *name {
                    "refusal" => format!(r#"{{"type":"refusal","refusal":{}}}"#, quoted(&streamed.text)),
                    _ => format!(
                        r#"{{"type":"output_text","text":{},"annotations":[]}}"#,
                        quoted(&streamed.text)
                    ),
                });
                let parts: Vec<String> = parts.collect();
                object.set("type", quoted("message"));
                object.set("role", quoted("assistant"));
                object.set("content", format!("[{}]", parts.join(",")));
            }
            // The arguments are added later, as for a finished call without them.
            "function_call" if object.text("name").is_some_and(|name| !name.is_empty()) => {}
            _ => return None,
        }
        if object.get("status").is_some() {
            object.set("status", quoted("completed"));
        }
        RawValue::from_string(object.to_json()).ok()
    }
}

fn kind(item: &RawValue) -> Option<String> {
    serde_json::from_str::<Members<'_>>(item.get()).ok()?.text("type")
}

fn output(item: &RawValue) -> Option<ItemOutput> {
    let members: Members<'_> = serde_json::from_str(item.get()).ok()?;
    match members.text("type")?.as_str() {
        "message" => {
            let parts = members.get("content").map(array_items).unwrap_or_default();
            let parts = parts.iter().filter_map(|part| serde_json::from_str::<Members<'_>>(part.get()).ok());
            let texts = parts.filter_map(|part| part.text("refusal").or_else(|| part.text("text")));
            Some(ItemOutput::Text(texts.collect()))
        }
        "function_call" => Some(ItemOutput::Call(members.text("call_id")?)),
        _ => None,
    }
}
