//! [`WaitingCalls`]: calls that servers of an older revision keep open while the user is asked.
//!
//! A server of the newest revision ends its call with a question, so no state is kept for it here.

use std::collections::VecDeque;
use std::sync::Mutex;

use conjure_base::{lock, random_bits};
use conjure_conversation::{InputAnswer, InputQuestion, InputRequest, ProvidedInput};
use conjure_sandbox::ProcessCall;

use super::running_calls::{CallProgress, OpenCall};

/// The maximum number of waiting calls. If there are more, the oldest one is cancelled.
const MAX_WAITING: usize = 16;

/// The prefix of the recorded state of such a question. The call's random id follows.
const WAITING: &str = "conjure-waiting-call:";

/// The id of the question.
const QUESTION: &str = "question";

/// The calls of a connection that wait for the user. They end with the connection.
#[derive(Default)]
pub(in crate::client) struct WaitingCalls(Mutex<VecDeque<WaitingCall>>);

struct WaitingCall {
    /// The recorded state, which identifies this call.
    state: String,
    call: OpenCall,
    /// Keeps the sandbox of the server's program running.
    _process: Option<ProcessCall>,
}

impl WaitingCalls {
    /// Keeps a call open until its question is answered. Returns the request to record. Fails if the machine has no entropy.
    pub(in crate::client) fn insert(
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

    /// Whether these answers are for a waiting call.
    pub(in crate::client) fn is_for_waiting(input: &ProvidedInput) -> bool {
        input.state.as_ref().is_some_and(|state| state.starts_with(WAITING))
    }

    /// Sends these answers to the waiting call, and returns that call. `None` if it no longer waits.
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
