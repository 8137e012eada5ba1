//! [`WaitingCalls`]: calls that servers of an older revision hold open while a person is asked.
//!
//! Servers of the newest revision end their call with a question, and nothing is kept for it here.

use std::collections::VecDeque;
use std::sync::Mutex;

use conjure_base::{lock, random_bits};
use conjure_conversation::{InputAnswer, InputQuestion, InputRequest, ProvidedInput};
use conjure_sandbox::ProcessCall;

use super::running_calls::{CallProgress, OpenCall};

/// The most calls that wait. The oldest one is given up for a further one.
const MAX_WAITING: usize = 16;

/// What the recorded state of such a question begins with. The name of the call follows.
const WAITING: &str = "conjure-waiting-call:";

/// The id of the question.
const QUESTION: &str = "question";

/// The calls of a connection that wait for a person. They end with it.
#[derive(Default)]
pub(in crate::client) struct WaitingCalls(Mutex<VecDeque<WaitingCall>>);

struct WaitingCall {
    /// Its name, which is recorded with the question.
    state: String,
    call: OpenCall,
    /// Keeps the sandbox of the server's program running.
    _process: Option<ProcessCall>,
}

impl WaitingCalls {
    /// Holds a call open until its question is answered. Returns what is recorded; an error if the machine has no entropy, as text.
    pub(in crate::client) fn keep(
        &self,
        asked_by: &str,
        question: InputQuestion,
        call: OpenCall,
        process: Option<ProcessCall>,
    ) -> Result<InputRequest, String> {
        let bits = random_bits().map_err(|error| format!("asks, and no id can be made: {error}"))?;
        let state = format!("{WAITING}{bits:032x}");
        let mut waiting = lock(&self.0);
        waiting.push_back(WaitingCall { state: state.clone(), call, _process: process });
        let given_up = if waiting.len() > MAX_WAITING { waiting.pop_front() } else { None };
        drop(waiting);
        drop(given_up);
        let questions = [(QUESTION.to_owned(), question)].into();
        Ok(InputRequest { asked_by: asked_by.to_owned(), questions, state: Some(state) })
    }

    /// Whether these answers are for a call that waits here.
    pub(in crate::client) fn is_for_waiting(input: &ProvidedInput) -> bool {
        input.state.as_ref().is_some_and(|state| state.starts_with(WAITING))
    }

    /// The call that these answers are for, with its answer; `None` if it does not wait any more.
    pub(in crate::client) fn answer(
        &self,
        input: ProvidedInput,
        progress: &CallProgress,
    ) -> Option<OpenCall> {
        let mut waiting = lock(&self.0);
        let at = waiting.iter().position(|call| Some(&call.state) == input.state.as_ref())?;
        let mut call = waiting.remove(at)?.call;
        drop(waiting);
        let answer = input.answers.into_values().next().unwrap_or(InputAnswer::Cancel);
        call.answer(answer, progress);
        Some(call)
    }
}
