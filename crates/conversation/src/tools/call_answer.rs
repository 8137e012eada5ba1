//! The answers to a tool call from outside, as digests that recognise a repeated answer.

use std::collections::BTreeMap;

use conjure_base::Digest;

use crate::events::call_outcome::Decision;
use crate::tools::input_request::{InputAnswer, InputAnswers};
use crate::tools::tool::ResultContent;

/// The digests of the answers to a call.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct CallAnswers {
    pub(crate) decision: Option<Digest>,
    pub(crate) result: Option<Digest>,
    /// By the round in which the call asked for input.
    pub(crate) inputs: BTreeMap<u32, Digest>,
}

pub(crate) fn decision_digest(decision: &Decision) -> Digest {
    digest_of(decision)
}

pub(crate) fn result_digest(content: &[ResultContent], is_error: bool) -> Digest {
    digest_of(&(content, is_error))
}

/// The digest of answers. A question without an answer counts as cancelled, so cancelled ones are left out.
pub(crate) fn input_digest(answers: &InputAnswers) -> Digest {
    let given = answers.iter().filter(|(_, answer)| **answer != InputAnswer::Cancel);
    digest_of(&given.collect::<Vec<_>>())
}

fn digest_of(answer: &impl serde::Serialize) -> Digest {
    #[expect(clippy::expect_used, reason = "texts, numbers and lists always serialise")]
    let json = serde_json::to_vec(answer).expect("an answer serialises");
    Digest::of_bytes(&json)
}
