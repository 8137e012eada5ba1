//! [`ChatDecoder`]: reads the chunks of a streamed Chat Completions answer.
//!
//! Every member except `choices` may be missing. Unknown chunks, comments and keep-alive events are skipped. The answer is complete with
//! `[DONE]`, or at the end of the body if there was a `finish_reason`.

use std::sync::Arc;

use conjure_conversation::{
    AfterResponse, ApiErrorKind, ModelEvent, NativeContent, Response, StopReason, Usage,
};
use conjure_model_http::{
    Decoder, DecoderContext, InputCompletion, OutputShown, ServiceError, SseEvent, StreamError,
};
use serde_json::Value;

use super::assistant_message::AssistantMessage;
use crate::error_body::{is_error_object, service_error};
use crate::object_members::{Members, array_items};
use crate::usage::chat_usage;

/// Reads one streamed answer.
#[derive(Debug)]
pub struct ChatDecoder {
    context: DecoderContext,
    message: AssistantMessage,
    id: Option<String>,
    model: Option<String>,
    finish_reason: Option<String>,
    usage: Option<Usage>,
    is_done: bool,
}

impl ChatDecoder {
    /// Creates a decoder for the answer of a call.
    #[must_use]
    pub fn new(mut context: DecoderContext) -> Self {
        Self {
            message: AssistantMessage::new(std::mem::take(&mut context.tool_names)),
            context,
            id: None,
            model: None,
            finish_reason: None,
            usage: None,
            is_done: false,
        }
    }

    /// Reads a chunk, or an unstreamed answer, which has a `message` in place of a `delta`.
    pub(super) fn push_object(
        &mut self,
        json: &str,
        emit: &mut dyn FnMut(ModelEvent),
    ) -> Result<(), StreamError> {
        let chunk: Members<'_> = serde_json::from_str(json)
            .map_err(|error| StreamError::protocol(format!("a chunk is not a JSON object ({error})")))?;
        if chunk.get("error").is_some() || (chunk.get("choices").is_none() && chunk.get("message").is_some())
        {
            self.refuse_error(json)?;
        }
        self.id = self.id.take().or_else(|| chunk.text("id").filter(|id| !id.is_empty()));
        self.model = self.model.take().or_else(|| chunk.text("model").filter(|model| !model.is_empty()));
        for choice in chunk.get("choices").map(array_items).unwrap_or_default() {
            let Ok(choice) = serde_json::from_str::<Members<'_>>(choice.get()) else {
                return Err(StreamError::protocol("a choice is not an object"));
            };
            // The request asks for one answer, so only the first choice counts.
            if choice.number("index").unwrap_or(0) == 0 {
                self.push_choice(&choice, emit)?;
            }
        }
        // Groq has the usage elsewhere.
        let usage = chunk.get("usage").or_else(|| chunk.object("x_groq")?.get("usage"));
        if let Some(usage) = usage.and_then(|raw| chat_usage(raw.get()))
            && self.usage != Some(usage)
        {
            self.usage = Some(usage);
            emit(ModelEvent::UsageReported(usage));
        }
        Ok(())
    }

    fn push_choice(
        &mut self,
        choice: &Members<'_>,
        emit: &mut dyn FnMut(ModelEvent),
    ) -> Result<(), StreamError> {
        if let Some(delta) = choice.object("delta").or_else(|| choice.object("message")) {
            self.message.push(&delta, emit)?;
        }
        if let Some(error) = choice.get("error") {
            self.refuse_error(&format!("{{\"error\":{}}}", error.get()))?;
        }
        // Some servers write an empty reason before the answer has ended.
        match choice.text("finish_reason").filter(|reason| !reason.is_empty()) {
            Some(reason) if reason == "error" => {
                let message = "it ended the answer with the reason `error`";
                Err(ServiceError::new(ApiErrorKind::Api, message).into())
            }
            Some(reason) => {
                self.finish_reason = Some(reason);
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// Fails if an object reports an error.
    fn refuse_error(&self, json: &str) -> Result<(), StreamError> {
        let object: Value =
            serde_json::from_str(json).map_err(|error| StreamError::protocol(error.to_string()))?;
        match service_error(&object, None).filter(|_| is_error_object(&object)) {
            Some(error) => Err(error.into()),
            None => Ok(()),
        }
    }

    /// Why the answer ended. Complete calls count more than the reason, because servers write `stop` or a reason of their own after calls.
    /// An exception is a reason that says that the answer was cut or filtered.
    fn stop_reason(&self) -> StopReason {
        let finished = || {
            if self.message.is_refusal() {
                StopReason::Refusal
            } else if self.message.has_calls() {
                StopReason::ToolUse
            } else {
                StopReason::EndTurn
            }
        };
        match self.finish_reason.as_deref() {
            Some("length") => StopReason::MaxTokens,
            Some("model_length") => StopReason::ContextWindowExceeded,
            Some("content_filter") => StopReason::Refusal,
            Some("stop" | "tool_calls" | "function_call" | "eos_token") => finished(),
            Some(_) if self.message.has_complete_calls() => finished(),
            Some(other) => StopReason::Unknown(other.to_owned()),
            // `[DONE]` alone ends the answer too.
            None if self.message.has_calls() || self.message.has_text() => finished(),
            None => StopReason::Missing,
        }
    }
}

impl Decoder for ChatDecoder {
    fn push(&mut self, event: SseEvent<'_>, emit: &mut dyn FnMut(ModelEvent)) -> Result<(), StreamError> {
        let data = event.data.trim();
        if self.is_done || data.is_empty() || event.name == "keepalive" {
            return Ok(());
        }
        if data == "[DONE]" {
            self.is_done = true;
            return Ok(());
        }
        if event.name == "error" {
            let object = serde_json::from_str(data).unwrap_or_else(|_| Value::from(data));
            if let Some(error) = service_error(&object, None) {
                return Err(error.into());
            }
        }
        self.push_object(data, emit)
    }

    fn shown(&self) -> OutputShown {
        self.message.shown()
    }

    fn is_complete(&self) -> bool {
        self.is_done
    }

    fn finish(self) -> Result<Option<Response>, StreamError> {
        if !self.is_done && self.finish_reason.is_none() {
            return Ok(None);
        }
        let stop_reason = self.stop_reason();
        let end = match stop_reason.after_response() {
            AfterResponse::StopWithoutTools => InputCompletion::Cut,
            _ => InputCompletion::Complete,
        };
        let message = self.message.finish(end)?;
        let usage = self.context.usage(self.usage, message.written);
        let native = NativeContent { origin: self.context.origin, items: vec![message.native] };
        Ok(Some(Response {
            id: self.id,
            model: self.model,
            content: message.content,
            stop_reason,
            usage,
            request_id: None,
            container: None,
            native: Some(Arc::new(native)),
        }))
    }
}

#[cfg(test)]
mod tests;
