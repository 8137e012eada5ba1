//! [`FakeAnswer`]: an answer of the fake, for both APIs.

use conjure_conversation::{ModelEvent, Response};
use conjure_model_http::fake::{WireAnswer, response_of, split};

/// An answer of the fake.
#[derive(Debug, Clone)]
pub struct FakeAnswer {
    pub(super) response: Response,
    /// The number of pieces in which each text is streamed.
    pieces: usize,
    /// Whether the answer reports its usage.
    pub(super) reports_usage: bool,
}

/// The ids and times of one answer.
#[derive(Debug, Clone, Copy)]
pub(super) struct AnswerNames<'a> {
    pub(super) number: u64,
    pub(super) model: &'a str,
    /// The creation time, in seconds since 1970.
    pub(super) created: u64,
}

impl FakeAnswer {
    /// Splits a text into pieces.
    pub(super) fn split<'t>(&self, text: &'t str) -> impl Iterator<Item = &'t str> + use<'t> {
        split(text, self.pieces)
    }
}

impl WireAnswer for FakeAnswer {
    fn from_response(response: Response, pieces: usize) -> Self {
        Self { response, pieces, reports_usage: true }
    }

    /// A text of four pieces. Two of them are sent, after the event that begins the answer.
    fn from_partial(_shown: Vec<ModelEvent>) -> (Self, usize) {
        let partial = response_of(vec![conjure_conversation::Block::text("It began")]);
        (Self::from_response(partial, 4), 3)
    }

    fn split_into(&mut self, pieces: usize) {
        self.pieces = pieces;
    }
}
