//! [`HeldCalls`]: calls that servers of an older revision hold open while a person is asked.
//!
//! Servers of the newest revision end their call with a question, and nothing is kept for it here.

use std::collections::VecDeque;
use std::sync::Mutex;

use conjure_base::{lock, random_bits};
use conjure_conversation::{InputAnswer, InputQuestion, InputRequest, ProvidedInput};
use conjure_sandbox::ProcessCall;

use super::running_calls::{CallProgress, OpenCall};

/// The most calls that are held. The oldest one is given up for a further one.
const MAX_HELD: usize = 16;

/// What the recorded state of such a question begins with. The name of the held call follows.
const HELD: &str = "conjure-held-call:";

/// The id of the question.
const QUESTION: &str = "question";

/// The held calls of a connection. They end with it.
#[derive(Default)]
pub(in crate::client) struct HeldCalls(Mutex<VecDeque<HeldCall>>);

struct HeldCall {
    /// Its name, which is recorded with the question.
    state: String,
    call: OpenCall,
    /// Keeps the sandbox of the server's program running.
    _process: Option<ProcessCall>,
}

impl HeldCalls {
    /// Holds a call open until its question is answered. Returns what is recorded; an error if the machine has no entropy, as text.
    pub(in crate::client) fn hold(
        &self,
        asked_by: &str,
        question: InputQuestion,
        call: OpenCall,
        process: Option<ProcessCall>,
    ) -> Result<InputRequest, String> {
        let bits = random_bits().map_err(|error| format!("asks, and no id can be made: {error}"))?;
        let state = format!("{HELD}{bits:032x}");
        let mut held = lock(&self.0);
        held.push_back(HeldCall { state: state.clone(), call, _process: process });
        let given_up = if held.len() > MAX_HELD { held.pop_front() } else { None };
        drop(held);
        drop(given_up);
        let questions = [(QUESTION.to_owned(), question)].into();
        Ok(InputRequest { asked_by: asked_by.to_owned(), questions, state: Some(state) })
    }

    /// Whether these answers are for a held call.
    pub(in crate::client) fn is_for_held(input: &ProvidedInput) -> bool {
        input.state.as_ref().is_some_and(|state| state.starts_with(HELD))
    }

    /// The held call that these answers are for, with its answer; `None` if it is not held any more.
    pub(in crate::client) fn answer(
        &self,
        input: ProvidedInput,
        progress: &CallProgress,
    ) -> Option<OpenCall> {
        let mut held = lock(&self.0);
        let at = held.iter().position(|held| Some(&held.state) == input.state.as_ref())?;
        let mut call = held.remove(at)?.call;
        drop(held);
        let answer = input.answers.into_values().next().unwrap_or(InputAnswer::Cancel);
        call.answer(answer, progress);
        Some(call)
    }
}
