//! A model that runs the commands in the user's message. So its responses are the same before and after a restart.
//!
//! The program of a turn is JSON in the user's words: a list of answers, each a list of calls, each a tool's name and its
//! input. When they are over it is done. Words that begin with `by the way` are no program, and other words are repeated.

use std::sync::{Arc, Mutex};

use conjure::model::{BlockKind, ModelErrorKind, ModelEvent, ModelStream, Role};
use conjure::tool::{Authorization, ToolCall};
use conjure::{Block, Model, ModelError, Request, Response, StopReason, Usage};
use conjure_conversation::pairing;
use futures_util::{StreamExt as _, stream};
use serde_json::{Value, json};

/// The requests that the model received.
#[derive(Debug, Clone, Default)]
pub(crate) struct SentRequests {
    requests: Arc<Mutex<Vec<Request>>>,
}

impl SentRequests {
    pub(crate) fn model(&self) -> impl Model + use<> {
        Program(self.clone())
    }

    /// Each request was one that a service accepts.
    pub(crate) fn check(&self) {
        for request in &*self.requests.lock().unwrap() {
            pairing::check(&request.messages).unwrap();
        }
    }

    pub(crate) fn requests(&self) -> Vec<Request> {
        self.requests.lock().unwrap().clone()
    }

    pub(crate) fn last(&self) -> Request {
        self.requests().pop().unwrap()
    }
}

/// A call of `bash_tool`.
pub(crate) fn bash(command: &str) -> Value {
    json!(["bash_tool", {"command": command, "description": "as it was asked"}])
}

/// A call that is denied.
pub(crate) fn forbidden() -> Value {
    bash("echo forbidden >> effects")
}

/// A call that needs approval.
pub(crate) fn asking(command: &str) -> Value {
    bash(&format!("{command} # may I?"))
}

pub(crate) fn review(call: &ToolCall) -> Authorization {
    match call.input.get() {
        input if input.contains("forbidden") => Authorization::Deny { reason: "never".to_owned() },
        input if input.contains("may I?") => Authorization::Ask { reason: "it asks".to_owned() },
        _ => Authorization::Allow,
    }
}

struct Program(SentRequests);

impl Model for Program {
    fn stream(&self, request: Request) -> ModelStream {
        let answer = answer(&request);
        self.0.requests.lock().unwrap().push(request);
        let answer = answer.ok_or_else(|| ModelError::new(ModelErrorKind::Protocol, "nothing was said"));
        let hm = || ModelEvent::TextDelta { index: 0, text: "hm".to_owned() };
        let before = stream::iter([ModelEvent::Started, hm(), hm()].map(Ok)).then(|event| async move {
            // As a network would, it lets others have their turn.
            tokio::task::yield_now().await;
            event
        });
        before.chain(stream::iter([answer.map(|answer| ModelEvent::Finished(Box::new(answer)))])).boxed()
    }
}

fn answer(request: &Request) -> Option<Response> {
    let command = request.messages.iter().enumerate().rev().find_map(|(index, message)| {
        let message_text = message.content.iter().rev().find_map(|block| match block.kind() {
            BlockKind::Text(text) if message.role == Role::User && !text.starts_with("by the way") => {
                Some(text.clone())
            }
            _ => None,
        });
        message_text.map(|message_text| (index, message_text))
    });
    let (index, message_text) = command?;
    let round = request.messages.iter().skip(index).filter(|message| message.role == Role::Assistant).count();
    let (content, stop_reason) = match serde_json::from_str::<Vec<Vec<(String, Value)>>>(&message_text) {
        Err(_) => (vec![Block::text(format!("heard: {message_text}"))], StopReason::EndTurn),
        Ok(program) => match program.get(round) {
            None => (vec![Block::text("done")], StopReason::EndTurn),
            Some(calls) => {
                let calls = calls.iter().enumerate().map(|(number, (name, input))| {
                    let id = format!("call_{index}_{round}_{number}");
                    Block::tool_use(id, name, input)
                });
                (calls.collect(), StopReason::ToolUse)
            }
        },
    };
    Some(Response {
        usage: Usage { input_tokens: 100, output_tokens: 10, ..Usage::default() },
        ..Response::new(content, stop_reason)
    })
}
