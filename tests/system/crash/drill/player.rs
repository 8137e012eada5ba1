//! The model of a drill: what it says follows from the turn, and what it has done leaves a line that can be told from all
//! others of its session.

use std::time::Duration;

use conjure::model::{ModelErrorKind, ModelEvent, ModelStream};
use conjure::tool::{Authorization, ToolCall};
use conjure::{Block, Clock as _, Model, ModelError, Request, Response, StopReason, SystemClock, Usage};
use conjure_conversation::pairing;
use futures_util::{FutureExt as _, StreamExt as _, stream};
use serde_json::{Value, json};

use super::fixture::{SKILL, TOKEN};
use super::log_lines::LogLine;
use super::random::Random;

/// The file in each workspace to which each call with an effect appends its line.
pub(crate) const EFFECTS: &str = "effects";

/// In a command that a person is asked for, and in one that is denied.
const ASK: &str = ": ask;";
const NEVER: &str = ": never;";

/// The model of a drill.
#[derive(Debug, Clone)]
pub(crate) struct Player {
    random: Random,
}

impl Player {
    pub(crate) const fn new(random: Random) -> Self {
        Self { random }
    }

    fn answer(&self, request: &Request) -> (Vec<Block>, StopReason) {
        let turn = self.random.fork(request.turn.number());
        let rounds = u32::try_from(turn.clone().below(4)).unwrap_or(0);
        if request.call > rounds {
            return (vec![Block::text("It is done.")], StopReason::EndTurn);
        }
        let mut random = turn.fork(u64::from(request.call));
        let calls = (0..=random.below(3)).map(|index| {
            let id = format!("t{}c{}p{index}", request.turn.number(), request.call);
            let (name, input) = call(&id, random.below(14));
            json!({"type": "tool_use", "id": id, "name": name, "input": input}).to_string()
        });
        (calls.filter_map(|json| Block::from_json(json).ok()).collect(), StopReason::ToolUse)
    }
}

/// A tool and its input; its effect bears the call's id.
fn call(id: &str, which: u64) -> (&'static str, Value) {
    let effect = format!("echo {id} >> {EFFECTS}");
    let command = match which {
        0 => return ("view", json!({"path": ".", "description": "look around"})),
        1 => {
            let path = format!("made/{id}");
            return ("create_file", json!({"path": path, "file_text": id, "description": "make it"}));
        }
        2 => format!("{ASK} {effect}"),
        3 => format!("{NEVER} {effect}"),
        4 | 5 => format!("sleep 0.03; {effect}; sleep 0.03"),
        // Its background processes end with its sandbox.
        6 => format!("setsid sleep 1000 > /dev/null 2>&1 & {effect}"),
        // As the skill was when the session was opened.
        7 | 8 => format!("sh /mnt/skills/{SKILL}/scripts/run.sh {id}"),
        // It has the variable, and nobody else sees it.
        9 => format!("test -n \"${TOKEN}\" && {effect} && printenv {TOKEN}"),
        _ => effect,
    };
    ("bash_tool", json!({"command": command, "description": "leave a line"}))
}

/// The line that a call leaves once, where it leaves one.
pub(crate) fn line_of(call: &ToolCall) -> Option<String> {
    let input = call.input_value();
    let command = input.get("command")?.as_str()?;
    let (_, remainder) = command.split_once("echo ").or_else(|| command.split_once("run.sh "))?;
    remainder.split(' ').next().map(str::to_owned)
}

/// The rules for tool calls.
pub(crate) fn review(call: &ToolCall) -> Authorization {
    let input = call.input.get();
    if input.contains(ASK) {
        Authorization::Ask { reason: "it asks for it".to_owned() }
    } else if input.contains(NEVER) {
        Authorization::Deny { reason: "never".to_owned() }
    } else {
        Authorization::Allow
    }
}

impl Model for Player {
    fn stream(&self, request: Request) -> ModelStream {
        if let Err(error) = pairing::check(&request.messages) {
            LogLine::Invalid(format!(
                "the request {} of turn {}: {error}",
                request.call,
                request.turn.number()
            ))
            .say();
            let refused = ModelError::new(ModelErrorKind::Protocol, error.to_string());
            return stream::iter([Err(refused)]).boxed();
        }
        let (content, stop_reason) = self.answer(&request);
        let usage = Usage { input_tokens: 10, output_tokens: 10, ..Usage::default() };
        let answer = Response { usage, ..Response::new(content, stop_reason) };
        let hm = ModelEvent::TextDelta { index: 0, text: "hm".to_owned() };
        let finish = async move {
            // It takes a moment, so that some kills meet it.
            SystemClock.sleep_until(SystemClock.deadline(Duration::from_millis(2))).await;
            Ok(ModelEvent::Finished(Box::new(answer)))
        };
        stream::iter([Ok(ModelEvent::Started), Ok(hm)]).chain(finish.into_stream()).boxed()
    }
}
