//! [`GeminiDecoder`]: builds an answer from the pieces of a stream, each a complete `GenerateContentResponse`.
//!
//! A stream has no last event. It ends with the body, and is complete if there was a `finishReason`, or if the prompt was blocked. The
//! decoder's memory is bounded by the bytes that the client accepts, and by the number of parts.

use std::sync::Arc;

use conjure_conversation::{ModelEvent, NativeContent, Response, StopReason};
use conjure_model_http::{Decoder, DecoderContext, OutputShown, ServiceError, SseEvent, StreamError};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::call_ids::CallIds;
use crate::response::answer_parts::AnswerParts;
use crate::response::error_body::{read_error, read_members};
use crate::response::finish_reason::{AnswerContent, CONTINUATION, stop_reason};
use crate::response::usage::WireUsage;

/// The maximum number of parts in one piece, and in one answer.
const MAX_PARTS: usize = 10_000;

/// One piece of a stream, or an unstreamed answer.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Piece<'a> {
    #[serde(borrow, default)]
    candidates: Option<Vec<&'a RawValue>>,
    #[serde(default)]
    prompt_feedback: Option<PromptFeedback>,
    #[serde(borrow, default)]
    usage_metadata: Option<&'a RawValue>,
    #[serde(default)]
    model_version: Option<String>,
    #[serde(default)]
    response_id: Option<String>,
    #[serde(borrow, default)]
    error: Option<&'a RawValue>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Candidate<'a> {
    #[serde(default)]
    index: Option<u64>,
    #[serde(borrow, default)]
    content: Option<Content<'a>>,
    #[serde(default)]
    finish_reason: Option<String>,
    #[serde(default)]
    finish_message: Option<String>,
    #[serde(borrow, default)]
    continuation_token: Option<&'a RawValue>,
}

#[derive(Debug, Deserialize)]
struct Content<'a> {
    #[serde(borrow, default)]
    parts: Option<Vec<&'a RawValue>>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct PromptFeedback {
    #[serde(default)]
    block_reason: Option<String>,
    #[serde(default)]
    block_reason_message: Option<String>,
}

/// Collects the pieces of one answer.
#[derive(Debug)]
pub struct GeminiDecoder {
    context: DecoderContext,
    response_id: Option<String>,
    model_version: Option<String>,
    parts: AnswerParts,
    usage: Option<WireUsage>,
    finish_reason: Option<String>,
    finish_message: Option<String>,
    /// Why the prompt was blocked.
    block_reason: Option<String>,
    /// The latest continuation token. Only the last one of an answer is valid.
    continuation_token: Option<Box<RawValue>>,
    shown: OutputShown,
}

impl GeminiDecoder {
    /// Creates a decoder for the answer of a call.
    #[must_use]
    pub fn new(mut context: DecoderContext) -> Self {
        Self {
            response_id: None,
            model_version: None,
            parts: AnswerParts::new(std::mem::take(&mut context.tool_names)),
            context,
            usage: None,
            finish_reason: None,
            finish_message: None,
            block_reason: None,
            continuation_token: None,
            shown: OutputShown::Nothing,
        }
    }

    /// Adds one piece, as JSON text.
    pub(crate) fn push_json(
        &mut self,
        json: &str,
        emit: &mut dyn FnMut(ModelEvent),
    ) -> Result<(), StreamError> {
        // Some answers, mostly errors, come in a list of one element.
        if json.trim_start().starts_with('[') {
            if let Some(error) = read_error(None, json) {
                return Err(error.into());
            }
            let pieces: Vec<&RawValue> = serde_json::from_str(json).map_err(|error| unreadable(&error))?;
            return pieces.into_iter().try_for_each(|piece| self.push_object(piece.get(), emit));
        }
        self.push_object(json, emit)
    }

    fn push_object(&mut self, json: &str, emit: &mut dyn FnMut(ModelEvent)) -> Result<(), StreamError> {
        let piece: Piece<'_> = match serde_json::from_str(json) {
            Ok(piece) => piece,
            // If the piece reports an error, that error counts more than the invalid form of the rest.
            Err(error) => {
                return Err(read_error(None, json).map_or_else(|| unreadable(&error), StreamError::from));
            }
        };
        if let Some(error) = piece.error.and_then(|error| read_members(None, error.get())) {
            return Err(error.into());
        }
        self.response_id = piece.response_id.filter(|id| !id.is_empty()).or(self.response_id.take());
        self.model_version = piece.model_version.or(self.model_version.take());
        if let Some(usage) = piece.usage_metadata.and_then(WireUsage::read)
            && self.usage != Some(usage)
        {
            self.usage = Some(usage);
            emit(ModelEvent::UsageReported(usage.tokens()));
        }
        if let Some(PromptFeedback { block_reason: Some(reason), block_reason_message }) =
            piece.prompt_feedback
        {
            self.block_reason = Some(with_message(&reason, block_reason_message.as_deref()));
        }
        for candidate in piece.candidates.into_iter().flatten() {
            let candidate: Candidate<'_> =
                serde_json::from_str(candidate.get()).map_err(|error| unreadable(&error))?;
            // The service sends several candidates only if the request asks for them. The first one is the answer.
            if candidate.index.is_none_or(|index| index == 0) {
                return self.push_candidate(candidate, emit);
            }
        }
        Ok(())
    }

    fn push_candidate(
        &mut self,
        candidate: Candidate<'_>,
        emit: &mut dyn FnMut(ModelEvent),
    ) -> Result<(), StreamError> {
        let parts = candidate.content.and_then(|content| content.parts).unwrap_or_default();
        let shown = &mut self.shown;
        for part in parts {
            self.parts.push(part, &mut |event| emit_output(shown, event, emit))?;
            if self.parts.count() > MAX_PARTS {
                return Err(StreamError::TooMany { what: "parts", limit: MAX_PARTS });
            }
        }
        self.finish_reason =
            candidate.finish_reason.filter(|reason| !reason.is_empty()).or(self.finish_reason.take());
        self.finish_message = candidate.finish_message.or(self.finish_message.take());
        if let Some(token) = candidate.continuation_token.filter(|token| token.get().starts_with('"')) {
            self.continuation_token = Some(token.to_owned());
        }
        Ok(())
    }
}

impl Decoder for GeminiDecoder {
    fn push(&mut self, event: SseEvent<'_>, emit: &mut dyn FnMut(ModelEvent)) -> Result<(), StreamError> {
        let data = event.data.trim();
        // The service sends no such end, but gateways add the end of another API.
        if data.is_empty() || data == "[DONE]" {
            return Ok(());
        }
        if event.name == "error" {
            let error = read_error(None, data).or_else(|| read_members(None, data));
            return Err(error.unwrap_or_else(|| unnamed_error(data)).into());
        }
        self.push_json(data, emit)
    }

    fn shown(&self) -> OutputShown {
        self.shown
    }

    /// Always false. Usage and signatures may follow the finish reason, and the body ends by itself.
    fn is_complete(&self) -> bool {
        false
    }

    fn finish(mut self) -> Result<Option<Response>, StreamError> {
        let (stop, notice) = match (&self.finish_reason, &self.block_reason) {
            (Some(reason), _) => {
                let content = match (&self.continuation_token, self.parts.has_calls()) {
                    (_, true) => AnswerContent::Calls,
                    (Some(_), false) if !self.parts.is_blank() => AnswerContent::Continued,
                    (_, false) => AnswerContent::NoCalls,
                };
                let stop = stop_reason(reason, content);
                let notice = match &stop {
                    StopReason::Refusal | StopReason::Unknown(_) => {
                        let reason = with_message(reason, self.finish_message.as_deref());
                        Some(format!("[The service ended this answer: {reason}]"))
                    }
                    _ => None,
                };
                (stop, notice)
            }
            (None, Some(reason)) => {
                (StopReason::Refusal, Some(format!("[The service refused to answer: {reason}]")))
            }
            (None, None) => return Ok(None),
        };
        let token = self.continuation_token.take().filter(|_| {
            stop == StopReason::PauseTurn
                && self
                    .finish_reason
                    .as_deref()
                    .is_some_and(|reason| reason.eq_ignore_ascii_case(CONTINUATION))
        });
        let answer_size = self.parts.size() as u64;
        let ids = CallIds::new(self.context.turn, self.context.call);
        let (mut content, items) = self.parts.finish(&ids, self.response_id.as_deref(), token.as_deref())?;
        content.extend(notice.map(conjure_conversation::Block::text));
        let usage = self.context.usage(self.usage.map(WireUsage::tokens), answer_size);
        let native = NativeContent { origin: self.context.origin, items };
        Ok(Some(Response {
            id: self.response_id,
            model: self.model_version,
            content,
            stop_reason: stop,
            usage,
            request_id: None,
            container: None,
            native: (!native.items.is_empty()).then(|| Arc::new(native)),
        }))
    }
}

/// Emits `Started` before the first output.
fn emit_output(shown: &mut OutputShown, event: ModelEvent, emit: &mut dyn FnMut(ModelEvent)) {
    if *shown == OutputShown::Nothing {
        *shown = OutputShown::Something;
        emit(ModelEvent::Started);
    }
    if event != ModelEvent::Started {
        emit(event);
    }
}

fn with_message(reason: &str, message: Option<&str>) -> String {
    match message.map(str::trim).filter(|message| !message.is_empty()) {
        Some(message) => format!("{reason}: {message}"),
        None => reason.to_owned(),
    }
}

fn unreadable(error: &serde_json::Error) -> StreamError {
    StreamError::protocol(format!("a piece of the answer cannot be read: {error}"))
}

/// The error for a text of an unknown form, which becomes the message.
fn unnamed_error(data: &str) -> ServiceError {
    let text: String = data.chars().take(500).collect();
    ServiceError::new(conjure_conversation::ApiErrorKind::Api, text)
}

#[cfg(test)]
mod tests;
