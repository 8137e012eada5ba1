//! [`ResponsesDecoder`]: reads the events of a streamed answer of the Responses API.
//!
//! The answer is built from the `item` of each `response.output_item.done`; deltas are previews. An item that is never done is taken from
//! the `output` at the end, or else built from its deltas.
//!
//! Servers leave out ids or indexes. So events are joined by the id of their item, or by `output_index` if there is no id. Unknown events
//! are skipped. An answer ends with `response.completed`, `response.incomplete` or `response.failed`.

use std::collections::HashMap;
use std::sync::Arc;

use conjure_conversation::{
    AfterResponse, ApiErrorKind, BlockKind, ModelEvent, NativeContent, Response, StopReason, Usage,
};
use conjure_model_http::{
    Decoder, DecoderContext, InputCompletion, OutputShown, ServiceError, SseEvent, StreamError,
};
use serde_json::Value;
use serde_json::value::RawValue;

use super::output_item::finish_item;
use super::streamed_item::{StreamedItem, complete_items};
use crate::error_body::service_error;
use crate::object_members::{Members, array_items};
use crate::preview_events::{Preview, TextKind};
use crate::usage::responses_usage;

/// The maximum number of output items in an answer.
const MAX_ITEMS: usize = 10_000;
/// The maximum number of shown parts in one item.
const MAX_PARTS: usize = 10_000;

/// Reads one streamed answer.
#[derive(Debug)]
pub struct ResponsesDecoder {
    context: DecoderContext,
    preview: Preview,
    items: Vec<StreamedItem>,
    by_key: HashMap<ItemKey, usize>,
    id: Option<String>,
    model: Option<String>,
    usage: Option<Usage>,
    /// Whether a text of the answer itself, or a call, was shown.
    has_output: bool,
    end: Option<End>,
}

/// The key by which events name an item.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum ItemKey {
    Id(String),
    Index(u64),
}

/// How the answer ended.
#[derive(Debug, Clone, PartialEq, Eq)]
enum End {
    Completed,
    Incomplete(Option<String>),
    Other(String),
}

impl ResponsesDecoder {
    /// Creates a decoder for the answer of a call.
    #[must_use]
    pub fn new(context: DecoderContext) -> Self {
        Self {
            context,
            preview: Preview::default(),
            items: Vec::new(),
            by_key: HashMap::new(),
            id: None,
            model: None,
            usage: None,
            has_output: false,
            end: None,
        }
    }

    /// Reads the `response` of an event, or an unstreamed answer.
    pub(super) fn end_with(
        &mut self,
        json: &str,
        emit: &mut dyn FnMut(ModelEvent),
    ) -> Result<(), StreamError> {
        let response: Members<'_> = serde_json::from_str(json)
            .map_err(|error| StreamError::protocol(format!("the response is not a JSON object ({error})")))?;
        self.describe(&response);
        let status = response.text("status").unwrap_or_default();
        if status == "failed" {
            let object: Value = serde_json::from_str(json).unwrap_or_default();
            let failed = || ServiceError::new(ApiErrorKind::Api, "the answer failed without a reason");
            return Err(service_error(&object, None).unwrap_or_else(failed).into());
        }
        self.add_output(&response.get("output").map(array_items).unwrap_or_default())?;
        if let Some(usage) = response.get("usage").and_then(|raw| responses_usage(raw.get())) {
            self.usage = Some(usage);
            emit(ModelEvent::UsageReported(usage));
        }
        self.end = Some(match status.as_str() {
            // llama.cpp reports this status for a cut answer too.
            "completed" if self.is_at_limit() => End::Incomplete(Some("max_output_tokens".to_owned())),
            "completed" => End::Completed,
            "incomplete" => End::Incomplete(
                response.object("incomplete_details").and_then(|details| details.text("reason")),
            ),
            other => End::Other(other.to_owned()),
        });
        Ok(())
    }

    /// Adds the items of the final `output` that did not arrive as `output_item.done`.
    fn add_output(&mut self, output: &[&RawValue]) -> Result<(), StreamError> {
        if output.is_empty() {
            return Ok(());
        }
        if self.items.iter().any(|item| item.completed.is_some()) {
            for raw in output {
                let id = serde_json::from_str::<Members<'_>>(raw.get()).ok().and_then(|item| item.text("id"));
                let place = id.and_then(|id| self.by_key.get(&ItemKey::Id(id)).copied());
                if let Some(item) =
                    place.map(|place| &mut self.items[place]).filter(|item| item.completed.is_none())
                {
                    item.completed = Some((*raw).to_owned());
                }
            }
            return Ok(());
        }
        // Nothing was streamed, or the server sends no `output_item.done`.
        self.items.clear();
        self.by_key.clear();
        for (place, raw) in output.iter().enumerate() {
            let item = self.item(None, Some(place as u64))?;
            self.items[item].completed = Some((*raw).to_owned());
        }
        Ok(())
    }

    /// Whether the answer has as many tokens as the request allows.
    fn is_at_limit(&self) -> bool {
        let limit = self.context.max_tokens.map(u64::from);
        self.usage.zip(limit).is_some_and(|(usage, limit)| usage.output_tokens >= limit)
    }

    fn describe(&mut self, response: &Members<'_>) {
        self.id = self.id.take().or_else(|| response.text("id"));
        self.model = self.model.take().or_else(|| response.text("model"));
    }

    /// The position of an item. An unknown item is added.
    fn item(&mut self, id: Option<String>, index: Option<u64>) -> Result<usize, StreamError> {
        let keys = id.map(ItemKey::Id).into_iter().chain(index.map(ItemKey::Index));
        let keys: Vec<ItemKey> = keys.collect();
        let known = keys.iter().find_map(|key| self.by_key.get(key).copied());
        let place = match known {
            Some(place) => place,
            // An event without id and index belongs to the last item.
            None if keys.is_empty() && !self.items.is_empty() => return Ok(self.items.len() - 1),
            None if self.items.len() >= MAX_ITEMS => {
                return Err(StreamError::TooMany { what: "output items", limit: MAX_ITEMS });
            }
            None => {
                self.items.push(StreamedItem { output_index: index, ..StreamedItem::default() });
                self.items.len() - 1
            }
        };
        for key in keys {
            self.by_key.entry(key).or_insert(place);
        }
        Ok(place)
    }

    fn push_event(
        &mut self,
        kind: &str,
        event: &Members<'_>,
        emit: &mut dyn FnMut(ModelEvent),
    ) -> Result<(), StreamError> {
        let index = event.number("output_index");
        let id = || event.text("item_id").filter(|id| !id.is_empty());
        match kind {
            "response.created" | "response.in_progress" | "response.queued" => {
                if let Some(response) = event.object("response") {
                    self.describe(&response);
                }
            }
            "response.output_item.added" | "response.output_item.done" => {
                let Some(raw) = event.get("item") else {
                    return Err(StreamError::protocol(format!("`{kind}` holds no item")));
                };
                let item: Members<'_> = serde_json::from_str(raw.get())
                    .map_err(|error| StreamError::protocol(format!("`{kind}`: {error}")))?;
                let id = item.text("id").filter(|id| !id.is_empty());
                let is_done = kind == "response.output_item.done";
                // An item event without id and index does not belong to the last item: it may begin a new item.
                let place = match (&id, index) {
                    (None, None) => self.unnamed_item(is_done)?,
                    _ => self.item(id, index)?,
                };
                self.start_preview(place, &item, emit);
                let place = &mut self.items[place];
                let target = if is_done { &mut place.completed } else { &mut place.added };
                *target = Some(raw.to_owned());
            }
            _ => {
                if let Some((text, kind, part)) = text_stream(kind) {
                    let place = self.item(id(), index)?;
                    let part = (text, event.number(part).unwrap_or(0));
                    let texts = &mut self.items[place].texts;
                    if texts.len() >= MAX_PARTS {
                        return Err(StreamError::TooMany { what: "parts of an item", limit: MAX_PARTS });
                    }
                    let piece = event.text("delta").unwrap_or_default();
                    self.has_output |= kind == TextKind::Text && !piece.trim().is_empty();
                    let text = texts.entry(part).or_default();
                    text.text.push_str(&piece);
                    self.preview.text(&mut text.place, kind, &piece, emit);
                } else if kind == "response.function_call_arguments.delta" {
                    let place = self.item(id(), index)?;
                    let piece = event.text("delta").unwrap_or_default();
                    self.items[place].arguments.push_str(&piece);
                    if let Some(call) = self.items[place].call {
                        self.preview.input(call, &piece, emit);
                    }
                } else if kind == "response.function_call_arguments.done" {
                    let place = self.item(id(), index)?;
                    if let Some(arguments) = event.text("arguments").filter(|text| !text.is_empty()) {
                        self.items[place].arguments = arguments;
                    }
                }
            }
        }
        Ok(())
    }

    /// The position of an item without id and index. A finished item takes the first one that is not done and has no index. Any other is
    /// added.
    fn unnamed_item(&mut self, is_done: bool) -> Result<usize, StreamError> {
        let open = self.items.iter().position(|item| item.completed.is_none() && item.output_index.is_none());
        match open.filter(|_| is_done) {
            Some(place) => Ok(place),
            None if self.items.len() >= MAX_ITEMS => {
                Err(StreamError::TooMany { what: "output items", limit: MAX_ITEMS })
            }
            None => {
                self.items.push(StreamedItem::default());
                Ok(self.items.len() - 1)
            }
        }
    }

    /// Shows the beginning of a call. For other items, it only shows that there is output.
    fn start_preview(&mut self, place: usize, item: &Members<'_>, emit: &mut dyn FnMut(ModelEvent)) {
        match item.text("type").unwrap_or_default().as_str() {
            "message" | "reasoning" => {}
            "function_call" => {
                if self.items[place].call.is_none() {
                    let name = item.text("name").unwrap_or_default();
                    let call = self.preview.call(self.context.tool_names.own_name(&name), emit);
                    self.items[place].call = Some(call);
                    self.has_output = true;
                }
            }
            _ => self.preview.other(emit),
        }
    }

    fn stop_reason(&self, end: End, has_calls: bool, is_refusal: bool) -> StopReason {
        match end {
            End::Completed if is_refusal => StopReason::Refusal,
            End::Completed if has_calls => StopReason::ToolUse,
            End::Completed => StopReason::EndTurn,
            End::Incomplete(reason) => match reason.as_deref() {
                Some("max_output_tokens") => StopReason::MaxTokens,
                Some("content_filter") => StopReason::Refusal,
                Some(other) => StopReason::Unknown(other.to_owned()),
                None => StopReason::Unknown("incomplete".to_owned()),
            },
            End::Other(status) if status.is_empty() => StopReason::Missing,
            End::Other(status) => StopReason::Unknown(status),
        }
    }
}

/// The text that a delta event continues: its name in the item, its kind, and the member with the number of its part.
fn text_stream(kind: &str) -> Option<(&'static str, TextKind, &'static str)> {
    Some(match kind {
        "response.output_text.delta" => ("text", TextKind::Text, "content_index"),
        "response.refusal.delta" => ("refusal", TextKind::Text, "content_index"),
        "response.reasoning_summary_text.delta" => ("summary", TextKind::Thinking, "summary_index"),
        "response.reasoning_text.delta" => ("reasoning", TextKind::Thinking, "content_index"),
        _ => return None,
    })
}

impl Decoder for ResponsesDecoder {
    fn push(&mut self, event: SseEvent<'_>, emit: &mut dyn FnMut(ModelEvent)) -> Result<(), StreamError> {
        let data = event.data.trim();
        if self.end.is_some() || data.is_empty() || data == "[DONE]" || event.name == "keepalive" {
            return Ok(());
        }
        let members: Members<'_> = match serde_json::from_str(data) {
            Ok(members) => members,
            Err(_) if event.name == "error" => {
                return Err(ServiceError::new(ApiErrorKind::Api, data).into());
            }
            Err(error) => {
                return Err(StreamError::protocol(format!("an event is not a JSON object ({error})")));
            }
        };
        let kind = members.text("type").unwrap_or_else(|| event.name.to_owned());
        match kind.as_str() {
            "response.completed" | "response.incomplete" | "response.failed" | "response.cancelled" => {
                let Some(response) = members.get("response") else {
                    return Err(StreamError::protocol(format!("`{kind}` holds no response")));
                };
                self.end_with(response.get(), emit)
            }
            _ if kind.starts_with("response.") => self.push_event(&kind, &members, emit),
            _ => {
                let object: Value = serde_json::from_str(data).unwrap_or_default();
                // llama.cpp leaves out the type of this event.
                let is_unwrapped = object["message"].is_string() && object["code"].is_number();
                if kind != "error" && event.name != "error" && object["error"].is_null() && !is_unwrapped {
                    return Ok(());
                }
                let unnamed = || ServiceError::new(ApiErrorKind::Api, "the error has no message");
                Err(service_error(&object, None).unwrap_or_else(unnamed).into())
            }
        }
    }

    fn shown(&self) -> OutputShown {
        self.preview.shown()
    }

    fn is_complete(&self) -> bool {
        self.end.is_some()
    }

    fn finish(self) -> Result<Option<Response>, StreamError> {
        let Some(end) = self.end.clone() else { return Ok(None) };
        let mut finished = complete_items(&self.items);
        if finished.iter().all(|(index, ..)| index.is_some()) {
            finished.sort_by_key(|(index, ..)| *index);
        }
        let is_cut = !matches!(end, End::Completed);
        let completion = if is_cut { InputCompletion::Cut } else { InputCompletion::Complete };
        let (mut content, mut items) = (Vec::new(), Vec::new());
        let (mut written, mut is_refusal) = (0u64, false);
        for (place, (_, raw, streamed)) in finished.into_iter().enumerate() {
            let item = finish_item(&raw, streamed, place, completion, &self.context.tool_names)
                .map_err(|reason| StreamError::protocol(format!("output item {place}: {reason}")))?;
            written = written.saturating_add(item.written);
            is_refusal |= item.is_refusal;
            content.extend(item.blocks);
            items.push(item.native);
        }
        let has_calls = content.iter().any(|block| block.tool_call().is_some());
        let has_text = content.iter().any(|block| matches!(block.kind(), BlockKind::Text(_)));
        if self.has_output && !has_calls && !has_text {
            // The shown output is in no item, so the answer is not complete.
            return Ok(None);
        }
        let stop_reason = self.stop_reason(end, has_calls, is_refusal);
        debug_assert!(!is_cut || stop_reason.after_response() == AfterResponse::StopWithoutTools);
        let native = NativeContent { origin: self.context.origin.clone(), items };
        Ok(Some(Response {
            usage: self.context.usage(self.usage, written),
            id: self.id,
            model: self.model,
            content,
            stop_reason,
            request_id: None,
            container: None,
            native: Some(Arc::new(native)),
        }))
    }
}

#[cfg(test)]
mod tests;
