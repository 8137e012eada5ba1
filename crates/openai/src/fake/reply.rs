//! [`Reply`]: the reply to one request: an answer, an error, or deliberately invalid bytes.

use std::time::Duration;

use bytes::Bytes;
use conjure_conversation::{Block, Response, StopReason, Usage};

use super::error::FakeError;

/// The default for the number of pieces of a text.
const PIECES: usize = 4;

/// One reply and its timing.
#[derive(Debug, Clone)]
pub struct Reply {
    pub(super) body: ReplyBody,
    pub(super) headers: Vec<(String, String)>,
    /// The delay before the head.
    pub(super) delay: Duration,
    /// The size of a chunk in bytes; one event by default.
    pub(super) piece: Option<usize>,
}

/// The content of a reply.
#[derive(Debug, Clone)]
pub(super) enum ReplyBody {
    /// A model's answer, streamed if the request asks for it.
    Answer(Box<FakeAnswer>),
    Error(FakeError),
    /// These bytes.
    Raw {
        status: u16,
        content_type: String,
        body: Bytes,
    },
    /// No bytes; the connection closes.
    HangUp,
    /// No bytes; the connection stays open.
    Silence,
}

/// An answer, and how it is streamed.
#[derive(Debug, Clone)]
pub(super) struct FakeAnswer {
    pub(super) response: Response,
    /// Into how many pieces each text is split.
    pub(super) pieces: usize,
    pub(super) ending: Ending,
    /// Whether the usage is told.
    pub(super) tells_usage: bool,
}

/// How a streamed answer ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Ending {
    Whole,
    /// The connection closes after so many events.
    Cut {
        after: usize,
    },
    /// An error follows so many events.
    Broken {
        after: usize,
        error: FakeError,
    },
}

impl Reply {
    pub(super) fn new(body: ReplyBody) -> Self {
        Self { body, headers: Vec::new(), delay: Duration::ZERO, piece: None }
    }

    /// A model's answer. Thinking, text and calls are written; other blocks are left out. A missing id or model is generated.
    #[must_use]
    pub fn answer(response: Response) -> Self {
        let answer = FakeAnswer { response, pieces: PIECES, ending: Ending::Whole, tells_usage: true };
        Self::new(ReplyBody::Answer(Box::new(answer)))
    }

    /// An answer of these blocks. It stops for its calls if it has any.
    #[must_use]
    pub fn blocks(content: Vec<Block>) -> Self {
        let has_calls = content.iter().any(|block| block.tool_call().is_some());
        Self::answer(Response {
            stop_reason: if has_calls { StopReason::ToolUse } else { StopReason::EndTurn },
            usage: Usage { input_tokens: 10, output_tokens: 10, ..Usage::default() },
            content,
            ..Response::text("")
        })
    }

    /// An error instead of an answer.
    #[must_use]
    pub fn error(error: FakeError) -> Self {
        Self::new(ReplyBody::Error(error))
    }

    /// These bytes.
    #[must_use]
    pub fn raw(status: u16, content_type: impl Into<String>, body: impl Into<Bytes>) -> Self {
        Self::new(ReplyBody::Raw { status, content_type: content_type.into(), body: body.into() })
    }

    /// A stream of these bytes.
    #[must_use]
    pub fn stream(body: impl Into<Bytes>) -> Self {
        Self::raw(200, "text/event-stream", body)
    }

    /// The connection closes without a response.
    #[must_use]
    pub fn hang_up() -> Self {
        Self::new(ReplyBody::HangUp)
    }

    /// No response, ever.
    #[must_use]
    pub fn silence() -> Self {
        Self::new(ReplyBody::Silence)
    }

    /// The answer with each text in at most so many pieces; 4 by default.
    #[must_use]
    pub fn with_pieces(mut self, pieces: usize) -> Self {
        if let ReplyBody::Answer(answer) = &mut self.body {
            answer.pieces = pieces;
        }
        self
    }

    /// The answer without its usage.
    #[must_use]
    pub fn without_usage(mut self) -> Self {
        if let ReplyBody::Answer(answer) = &mut self.body {
            answer.tells_usage = false;
        }
        self
    }

    /// The streamed answer, but the connection closes after so many events.
    #[must_use]
    pub fn cut_after_events(mut self, after: usize) -> Self {
        if let ReplyBody::Answer(answer) = &mut self.body {
            answer.ending = Ending::Cut { after };
        }
        self
    }

    /// The streamed answer, but an error follows so many events.
    #[must_use]
    pub fn broken_after_events(mut self, after: usize, error: FakeError) -> Self {
        if let ReplyBody::Answer(answer) = &mut self.body {
            answer.ending = Ending::Broken { after, error };
        }
        self
    }

    /// The reply with one more header.
    #[must_use]
    pub fn with_header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    /// The reply after this time.
    #[must_use]
    pub const fn delayed(mut self, delay: Duration) -> Self {
        self.delay = delay;
        self
    }

    /// The reply in chunks of so many bytes, wherever they fall.
    #[must_use]
    pub const fn in_pieces_of(mut self, bytes: usize) -> Self {
        self.piece = Some(bytes);
        self
    }

    /// Whether a client that reads all of it has an answer for its history.
    pub(super) fn is_answer(&self) -> bool {
        matches!(&self.body, ReplyBody::Answer(answer) if answer.ending == Ending::Whole)
    }
}

impl FakeAnswer {
    /// The pieces of a text.
    pub(super) fn split<'t>(&self, text: &'t str) -> Vec<&'t str> {
        let size = text.len().div_ceil(self.pieces.max(1)).max(1);
        let mut pieces = Vec::new();
        let mut rest = text;
        while !rest.is_empty() {
            let end = (size..rest.len()).find(|end| rest.is_char_boundary(*end)).unwrap_or(rest.len());
            let (piece, tail) = rest.split_at(end);
            pieces.push(piece);
            rest = tail;
        }
        pieces
    }
}
