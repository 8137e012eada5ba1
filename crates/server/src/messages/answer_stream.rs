//! Converts a model's stream to a stream of the Messages API.
//!
//! Text is sent as it arrives. Tool calls are sent when the response is complete, because their ids are not known before. Everything sent
//! must be a prefix of the response; otherwise the stream ends with an error.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::time::Duration;

use axum::response::sse::{Event as Record, KeepAlive, Sse};
use axum::response::{IntoResponse as _, Response};
use conjure_conversation::{ModelError, ModelErrorKind, ModelEvent, ModelStream, Response as Answer, Usage};
use futures_util::{StreamExt as _, stream};
use serde_json::{Value, json};

use super::answer::{AnswerBlock, MessageAnswer, answer_blocks, stop_reason, text_delta, usage_json};
use super::failure::failure;
use crate::http::ApiError;

/// The interval of pings on a silent stream.
const HEARTBEAT: Duration = Duration::from_secs(15);

/// Streams the answer. Waits for the first output of the model, so that an immediate failure still has its own HTTP status.
///
/// # Errors
/// The error of a call that fails before its first output.
pub(crate) async fn stream_answer(
    answer: MessageAnswer,
    mut calls: ModelStream,
) -> Result<Response, ApiError> {
    let mut usage = Usage::default();
    let first = loop {
        match calls.next().await {
            Some(Ok(ModelEvent::UsageReported(reported))) => usage = reported,
            Some(Ok(ModelEvent::Queued | ModelEvent::Sent | ModelEvent::Started)) => {}
            Some(Ok(event)) => break event,
            Some(Err(error)) => return Err(failure(&error)),
            None => return Err(failure(&truncated())),
        }
    };
    let mut answer_stream =
        AnswerStream { progress: AnswerProgress::default(), ready: VecDeque::new(), calls, is_over: false };
    answer_stream.ready.push_back(record(json!({"type": "message_start", "message": answer.start(&usage)})));
    answer_stream.read(Ok(first));
    let records = stream::unfold(answer_stream, |mut answer_stream| async move {
        loop {
            if let Some(record) = answer_stream.ready.pop_front() {
                return Some((Ok::<_, Infallible>(record), answer_stream));
            }
            if answer_stream.is_over {
                return None;
            }
            let event = answer_stream.calls.next().await.unwrap_or_else(|| Err(truncated()));
            answer_stream.read(event);
        }
    });
    let ping = record(json!({"type": "ping"}));
    Ok(Sse::new(records).keep_alive(KeepAlive::new().interval(HEARTBEAT).event(ping)).into_response())
}

fn truncated() -> ModelError {
    ModelError::new(ModelErrorKind::Truncated, "the model's answer ended too early")
}

fn record(body: Value) -> Record {
    let name = body["type"].as_str().unwrap_or_default().to_owned();
    Record::default().event(name).data(body.to_string())
}

struct AnswerStream {
    progress: AnswerProgress,
    ready: VecDeque<Record>,
    calls: ModelStream,
    is_over: bool,
}

impl AnswerStream {
    fn read(&mut self, event: Result<ModelEvent, ModelError>) {
        let bodies = match event {
            Ok(ModelEvent::TextDelta { index, text }) => self.progress.text(index, &text),
            Ok(ModelEvent::ToolUseStarted { .. }) => {
                self.progress.is_waiting = true;
                Vec::new()
            }
            Ok(ModelEvent::Finished(answer)) => {
                self.is_over = true;
                self.progress.finish(&answer)
            }
            Ok(_) => Vec::new(),
            Err(error) => {
                self.is_over = true;
                let body = serde_json::to_value(failure(&error).body(None));
                vec![body.unwrap_or_else(|_| json!({"type": "error"}))]
            }
        };
        self.ready.extend(bodies.into_iter().map(record));
    }
}

/// The part of an answer that the client has received.
#[derive(Debug, Default)]
struct AnswerProgress {
    /// The texts of its blocks. The last block is open.
    texts: Vec<String>,
    /// The model's own index of the open block.
    open: Option<usize>,
    /// Whitespace at the start of a block. It is not sent yet, because the final response may not have it.
    blank: String,
    /// Set when a tool call begins. Everything after it is sent at the end.
    is_waiting: bool,
}

impl AnswerProgress {
    fn text(&mut self, index: usize, text: &str) -> Vec<Value> {
        if self.is_waiting || self.open.is_some_and(|open| index < open) {
            self.is_waiting = true;
            return Vec::new();
        }
        let mut records = Vec::new();
        if self.open != Some(index) {
            let text = std::mem::take(&mut self.blank) + text;
            if text.trim().is_empty() {
                self.blank = text;
                return records;
            }
            let place = self.texts.len();
            if self.open.is_some() {
                records.push(stop(place - 1));
            }
            self.open = Some(index);
            self.texts.push(String::new());
            records.push(start(place, &AnswerBlock::Text(String::new())));
            records.extend(self.more(&text));
        } else {
            records.extend(self.more(text));
        }
        records
    }

    /// Appends to the open text.
    fn more(&mut self, text: &str) -> Option<Value> {
        let place = self.texts.len().checked_sub(1)?;
        self.texts[place].push_str(text);
        (!text.is_empty()).then(|| delta(place, text_delta(text)))
    }

    /// Sends the rest of the response.
    fn finish(&mut self, answer: &Answer) -> Vec<Value> {
        let mut records = Vec::new();
        let count = self.texts.len();
        let mut blocks = 0;
        for (place, block) in answer_blocks(&answer.content).enumerate() {
            blocks += 1;
            match (self.texts.get(place), &block) {
                (None, _) => {
                    records.push(start(place, &block));
                    records.push(delta(place, block.delta()));
                    records.push(stop(place));
                }
                // All blocks before the last one have been sent completely.
                (Some(sent), AnswerBlock::Text(text)) if place + 1 < count && sent == text => {}
                (Some(sent), AnswerBlock::Text(text)) if place + 1 == count && text.starts_with(sent) => {
                    let rest = &text[sent.len()..];
                    records.extend((!rest.is_empty()).then(|| delta(place, text_delta(rest))));
                    records.push(stop(place));
                }
                _ => return vec![differs()],
            }
        }
        if blocks < count {
            return vec![differs()];
        }
        records.push(json!({
            "type": "message_delta",
            "delta": {"stop_reason": stop_reason(&answer.stop_reason), "stop_sequence": null},
            "usage": usage_json(&answer.usage),
        }));
        records.push(json!({"type": "message_stop"}));
        records
    }
}

fn start(place: usize, block: &AnswerBlock) -> Value {
    json!({"type": "content_block_start", "index": place, "content_block": block.start()})
}

fn delta(place: usize, delta: Value) -> Value {
    json!({"type": "content_block_delta", "index": place, "delta": delta})
}

fn stop(place: usize) -> Value {
    json!({"type": "content_block_stop", "index": place})
}

fn differs() -> Value {
    let message = "the model's answer differs from what was sent before; send the request again";
    json!({"type": "error", "error": {"type": "api_error", "message": message}})
}

#[cfg(test)]
mod tests {
    use conjure_conversation::Block;

    use super::*;

    fn answer(blocks: &[&str]) -> Answer {
        let content = blocks.iter().map(|json| Block::from_json(*json).unwrap()).collect();
        Answer { content, ..Answer::text("") }
    }

    fn kinds(records: &[Value]) -> Vec<&str> {
        records.iter().map(|record| record["type"].as_str().unwrap()).collect()
    }

    #[test]
    fn texts_are_told_as_they_arrive_and_calls_at_the_end() {
        let mut progress = AnswerProgress::default();
        assert!(progress.text(0, "\n").is_empty(), "a blank text may not be one");
        let first = progress.text(0, "Hel");
        assert_eq!(kinds(&first), ["content_block_start", "content_block_delta"]);
        assert_eq!(first[1]["delta"]["text"], "\nHel");
        assert_eq!(kinds(&progress.text(0, "lo")), ["content_block_delta"]);
        assert_eq!(
            kinds(&progress.text(2, "More")),
            ["content_block_stop", "content_block_start", "content_block_delta"]
        );
        progress.is_waiting = true;
        assert!(progress.text(4, "Later").is_empty());
        let call = r#"{"type":"tool_use","id":"c1","name":"t","input":{"a":1}}"#;
        let thought = r#"{"type":"thinking","thinking":"hm"}"#;
        let texts =
            [r#"{"type":"text","text":"\nHello"}"#, thought, r#"{"type":"text","text":"More of it"}"#, call];
        let rest = progress.finish(&answer(&texts));
        assert_eq!(
            kinds(&rest),
            [
                "content_block_delta",
                "content_block_stop",
                "content_block_start",
                "content_block_delta",
                "content_block_stop",
                "message_delta",
                "message_stop"
            ]
        );
        assert_eq!((rest[0]["index"].as_u64(), &rest[0]["delta"]["text"]), (Some(1), &Value::from(" of it")));
        assert_eq!(
            (rest[2]["index"].as_u64(), &rest[2]["content_block"]["id"]),
            (Some(2), &Value::from("c1"))
        );
        assert_eq!(rest[3]["delta"]["partial_json"], r#"{"a":1}"#);
    }

    #[test]
    fn an_answer_that_differs_ends_with_an_error() {
        let mut progress = AnswerProgress::default();
        progress.text(0, "Hello");
        assert_eq!(kinds(&progress.finish(&answer(&[r#"{"type":"text","text":"Bye"}"#]))), ["error"]);
        assert_eq!(kinds(&progress.finish(&answer(&[]))), ["error"]);
    }
}
