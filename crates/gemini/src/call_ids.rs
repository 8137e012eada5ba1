//! [`CallIds`]: makes ids for calls that have none from the service.

use conjure_base::{Digest, TurnId};

/// The length of the digest in an id, in hexadecimal digits. The id is short enough for every other service.
const DIGEST_DIGITS: usize = 24;

/// Makes ids for the calls of one answer. The ids are the same in every run, and unique in a session.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CallIds {
    turn: TurnId,
    call: u32,
}

impl CallIds {
    /// Creates the ids for the answer to this model call.
    pub(crate) const fn new(turn: TurnId, call: u32) -> Self {
        Self { turn, call }
    }

    /// The id of the call at this position among the calls of the answer. `response` is the service's id of the answer, if it has one.
    pub(crate) fn id(&self, response: Option<&str>, index: usize) -> String {
        let response = response.unwrap_or_default();
        let hash_input = format!("gemini call\0{response}\0{}\0{}\0{index}", self.turn.number(), self.call);
        format!("call_{}", &Digest::of_bytes(hash_input.as_bytes()).to_hex()[..DIGEST_DIGITS])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_differ_by_answer_turn_call_and_place_and_are_the_same_again() {
        let first = CallIds::new(TurnId::FIRST, 1);
        let all = [
            first.id(Some("r"), 0),
            first.id(Some("r"), 1),
            first.id(Some("s"), 0),
            first.id(None, 0),
            CallIds::new(TurnId::FIRST, 2).id(None, 0),
            CallIds::new(TurnId::FIRST.next(), 1).id(None, 0),
        ];
        let different: std::collections::BTreeSet<_> = all.iter().collect();
        assert_eq!(different.len(), all.len());
        assert_eq!(first.id(Some("r"), 0), all[0]);
        assert_eq!(all[0].len(), 29);
    }
}
