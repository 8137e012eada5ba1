//! The questions of a tool to a person during a call, and the answers (the "elicitation" of MCP).
//!
//! A call that asks ends its run. The questions are recorded, and nothing runs for the call until they are answered. Then the tool
//! runs again, with the answers and the state that it left with its questions.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// How often one call may ask. A call that asks more often ends with an error.
pub const INPUT_ROUNDS: u32 = 10;

/// The questions of a tool in the middle of a call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InputRequest {
    /// Who asks: the name of the server of the tool.
    pub asked_by: String,
    /// The questions by their ids.
    pub questions: BTreeMap<String, InputQuestion>,
    /// The state that the tool gets back with the answers. It is in no session event, and the model does not see it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
}

/// One question to a person. Its texts come from the tool, so they are not trusted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InputQuestion {
    /// The text of the question.
    pub message: String,
    /// How the person answers.
    #[serde(flatten)]
    pub form: InputForm,
}

/// How a question is answered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "mode", rename_all = "snake_case")]
#[non_exhaustive]
pub enum InputForm {
    /// By the fields of a form.
    Form {
        /// A JSON Schema of an object of simple values: the fields.
        requested_schema: Value,
    },
    /// On a web page. The person opens it, and what is entered there goes to the tool's server alone.
    Url {
        /// The address.
        url: String,
    },
}

/// The answer to one question.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "action", rename_all = "snake_case")]
pub enum InputAnswer {
    /// The person has answered.
    Accept {
        /// The fields of the form; absent for a page.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        content: Option<Value>,
    },
    /// The person does not want to answer.
    Decline,
    /// The person has not decided. A question without an answer counts as cancelled.
    Cancel,
}

/// The answers by the ids of their questions.
pub type InputAnswers = BTreeMap<String, InputAnswer>;

/// What a call gets when it runs again: the answers, and the state that it left with its questions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProvidedInput {
    /// The answers. Each question has one.
    pub answers: InputAnswers,
    /// The state.
    pub state: Option<String>,
}

impl InputRequest {
    /// These answers, with a cancelled one for each question that has none; `None` if an answer has no question.
    pub(crate) fn complete(&self, mut answers: InputAnswers) -> Option<InputAnswers> {
        if answers.keys().any(|id| !self.questions.contains_key(id)) {
            return None;
        }
        for id in self.questions.keys() {
            answers.entry(id.clone()).or_insert(InputAnswer::Cancel);
        }
        Some(answers)
    }

    /// The same answer to every question.
    #[must_use]
    pub fn answer_all(&self, answer: &InputAnswer) -> InputAnswers {
        self.questions.keys().map(|id| (id.clone(), answer.clone())).collect()
    }
}
