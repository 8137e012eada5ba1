//! Writes an answer as the service does: as the events of a stream, as one list, or as one body.

use bytes::Bytes;
use conjure_conversation::{Block, BlockKind, ModelApi, ModelEvent, Response, StopReason, Usage};
use conjure_model_http::fake::{Ending, WireAnswer, split};
use serde_json::{Value, json};

use super::refusal::Refusal;
use super::signature;
use crate::response::finish_reason::CONTINUATION;
use crate::tool_names::wire_name;

/// The token of an answer that can be continued.
pub(super) const TOKEN: &str = "ZmFrZSB0b2tlbg==";

/// An answer of the fake.
#[derive(Debug, Clone)]
pub struct FakeAnswer {
    /// The scripted response from which the parts are made.
    response: Option<Response>,
    /// The parts, each one piece of the stream. Any value of a signature is replaced by the part's valid signature.
    parts: Vec<Value>,
    finish: Finish,
    usage: Usage,
    id: Option<String>,
    model: Option<String>,
}

/// How an answer ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Finish {
    /// With this `finishReason`.
    Reason(String),
    /// The prompt was blocked for this reason, so there is no candidate.
    Blocked(String),
    /// Without a `finishReason`.
    Missing,
}

/// Whether the fake gives ids to calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CallIds {
    /// It gives no ids.
    None,
    /// It gives the ids of the script.
    Scripted,
}

/// The facts that an answer needs and does not have itself.
#[derive(Debug, Clone, Copy)]
pub(super) struct AnswerNames<'a> {
    pub(super) number: u64,
    pub(super) model: &'a str,
    pub(super) ids: CallIds,
}

impl FakeAnswer {
    /// Creates an answer with these parts.
    pub(super) const fn from_parts(parts: Vec<Value>, finish: Finish, usage: Usage) -> Self {
        Self { response: None, parts, finish, usage, id: None, model: None }
    }

    /// Whether the client should request the rest of the answer.
    pub(super) fn is_continued(&self) -> bool {
        matches!(&self.finish, Finish::Reason(reason) if reason == CONTINUATION)
    }

    /// The parts in the form that is sent: with signatures, and with call ids if they are wanted.
    fn sent_parts(&self, ids: CallIds) -> Vec<Value> {
        let mut is_first_call = true;
        let send = |part: &Value| {
            let mut part = part.clone();
            if let Some(call) = part.get_mut("functionCall").and_then(Value::as_object_mut) {
                if ids == CallIds::None {
                    call.remove("id");
                }
                if std::mem::take(&mut is_first_call) {
                    part[signature::MEMBER] = Value::Null;
                }
            }
            if part.get(signature::MEMBER).is_some() {
                part[signature::MEMBER] = signature::signature(&part).into();
            }
            part
        };
        self.parts.iter().map(send).collect()
    }

    /// The last candidate, with these parts.
    fn last_candidate(&self, parts: &[Value]) -> Value {
        let mut candidate = candidate(parts);
        if let Finish::Reason(reason) = &self.finish {
            candidate["finishReason"] = reason.as_str().into();
        }
        if self.is_continued() {
            candidate["continuationToken"] = TOKEN.into();
        }
        candidate
    }

    fn piece(&self, names: AnswerNames<'_>, candidate: Option<Value>, output: u64) -> Value {
        let usage = &self.usage;
        let id = self.id.clone().unwrap_or_else(|| format!("fake_{:06}", names.number));
        let mut piece = json!({
            "usageMetadata": {
                "promptTokenCount": usage.total_input(),
                "candidatesTokenCount": output,
                "totalTokenCount": usage.total_input().saturating_add(output),
            },
            "modelVersion": self.model.as_deref().unwrap_or(names.model),
            "responseId": id,
        });
        if usage.cache_read_input_tokens > 0 {
            piece["usageMetadata"]["cachedContentTokenCount"] = usage.cache_read_input_tokens.into();
        }
        match (&self.finish, candidate) {
            (Finish::Blocked(reason), _) => piece["promptFeedback"] = json!({"blockReason": reason}),
            (_, Some(candidate)) => piece["candidates"] = json!([candidate]),
            (_, None) => {}
        }
        piece
    }

    /// The pieces of a streamed answer, up to the end that `ending` sets.
    fn pieces(&self, ending: &Ending<Refusal>, names: AnswerNames<'_>) -> Vec<Value> {
        if matches!(self.finish, Finish::Blocked(_)) {
            return vec![self.piece(names, None, 0)];
        }
        let parts = self.sent_parts(names.ids);
        let mut pieces: Vec<Value> = parts
            .iter()
            .take(ending.limit())
            .map(|part| self.piece(names, Some(candidate(std::slice::from_ref(part))), 1))
            .collect();
        if *ending == Ending::Whole {
            let empty = [json!({"text": ""})];
            pieces.push(self.piece(names, Some(self.last_candidate(&empty)), self.usage.output_tokens));
        }
        pieces
    }

    /// The events of a stream, each one chunk of the body.
    pub(super) fn events(&self, ending: &Ending<Refusal>, names: AnswerNames<'_>) -> Vec<Bytes> {
        let mut events: Vec<Bytes> =
            self.pieces(ending, names).iter().map(|piece| event(&piece.to_string())).collect();
        if let Ending::Broken { error, .. } = ending {
            events.push(event(&error.body()));
        }
        events
    }

    /// The body of a stream that the client did not request as events: one list.
    pub(super) fn list(&self, names: AnswerNames<'_>) -> String {
        Value::from(self.pieces(&Ending::Whole, names)).to_string()
    }

    /// The body of an answer that is not streamed.
    pub(super) fn body(&self, names: AnswerNames<'_>) -> String {
        let candidate = self.last_candidate(&self.sent_parts(names.ids));
        self.piece(names, Some(candidate), self.usage.output_tokens).to_string()
    }
}

impl WireAnswer for FakeAnswer {
    /// Native parts of this API are sent unchanged.
    fn from_response(response: Response, pieces: usize) -> Self {
        let native = response.native.as_ref().filter(|native| native.origin.api == ModelApi::Gemini);
        let mut parts: Vec<Value> = match native {
            Some(native) => {
                native.items.iter().filter_map(|item| serde_json::from_str(item.json()).ok()).collect()
            }
            None => response.content.iter().flat_map(|block| block_parts(block, pieces)).collect(),
        };
        let has = |parts: &[Value], member: &str| parts.iter().any(|part| part.get(member).is_some());
        if native.is_none() && has(&parts, "thought") && !has(&parts, "functionCall") {
            // If a thinking answer has no calls, its signature is in a part of its own at the end.
            parts.push(json!({"text": "", signature::MEMBER: true}));
        }
        let finish = match &response.stop_reason {
            StopReason::Refusal if parts.is_empty() => Finish::Blocked("PROHIBITED_CONTENT".to_owned()),
            StopReason::Missing => Finish::Missing,
            reason => Finish::Reason(finish_reason(reason)),
        };
        Self {
            id: response.id.clone(),
            model: response.model.clone(),
            usage: response.usage,
            parts,
            finish,
            response: Some(response),
        }
    }

    fn from_partial(events: Vec<ModelEvent>) -> (Self, usize) {
        let part = |event: &ModelEvent| match event {
            ModelEvent::TextDelta { text, .. } => Some(json!({"text": text})),
            ModelEvent::ThinkingDelta { text, .. } => Some(json!({"text": text, "thought": true})),
            // The service sends complete calls only, and this call is incomplete.
            _ => None,
        };
        let parts = events.iter().filter_map(part).collect();
        (Self::from_parts(parts, Finish::Missing, Usage::default()), usize::MAX)
    }

    fn split_into(&mut self, pieces: usize) {
        if let Some(response) = self.response.take() {
            *self = Self::from_response(response, pieces);
        }
    }
}

fn event(data: &str) -> Bytes {
    Bytes::from(format!("data: {data}\r\n\r\n"))
}

fn candidate(parts: &[Value]) -> Value {
    json!({"content": {"role": "model", "parts": parts}, "index": 0})
}

/// The `finishReason` with the same meaning.
fn finish_reason(stop: &StopReason) -> String {
    let reason = match stop {
        StopReason::EndTurn | StopReason::ToolUse | StopReason::StopSequence => "STOP",
        StopReason::MaxTokens | StopReason::ContextWindowExceeded => "MAX_TOKENS",
        StopReason::PauseTurn | StopReason::Compaction => CONTINUATION,
        StopReason::Refusal => "SAFETY",
        StopReason::Unknown(reason) => reason,
        StopReason::Missing => "FINISH_REASON_UNSPECIFIED",
    };
    reason.to_owned()
}

/// The parts of a block. A block that this service does not have gives none.
fn block_parts(block: &Block, pieces: usize) -> Vec<Value> {
    match block.kind() {
        BlockKind::Text(text) => split(text, pieces).map(|text| json!({"text": text})).collect(),
        BlockKind::Thinking(text) => {
            split(text, pieces).map(|text| json!({"text": text, "thought": true})).collect()
        }
        BlockKind::ToolUse(call) => {
            let name = wire_name(&call.name);
            vec![json!({"functionCall": {"id": call.id, "name": name, "args": call.input_value()}})]
        }
        _ => Vec::new(),
    }
}
