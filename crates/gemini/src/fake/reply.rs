//! [`Reply`]: the reply to one request: an answer, an error, or deliberately invalid bytes.

use std::time::Duration;

use bytes::Bytes;
use conjure_conversation::{Block, Response, StopReason, Usage};
use serde_json::{Value, json};

use super::answer_writer::{Ending, FakeAnswer, Finish};
use super::paced_body::{BodyEnd, BodyTiming};
use super::refusal::Refusal;

/// The default for the number of pieces of a text.
const PIECES: usize = 4;

/// One reply and its timing.
#[derive(Debug, Clone)]
pub struct Reply {
    pub(super) body: ReplyBody,
    pub(super) headers: Vec<(String, String)>,
    pub(super) timing: BodyTiming,
    /// The delay before the head.
    pub(super) delay: Duration,
    /// The answer in blocks, from which its pieces are made.
    response: Option<Box<Response>>,
}

/// The content of a reply.
#[derive(Debug, Clone)]
pub(super) enum ReplyBody {
    /// A model's answer, streamed if the request asks for it.
    Answer(Box<FakeAnswer>),
    Error(Refusal),
    /// These bytes.
    Raw {
        status: u16,
        content_type: Option<String>,
        body: Bytes,
    },
    /// Some bytes, then others for ever.
    Endless {
        beginning: Bytes,
        repeated: Bytes,
    },
    /// No bytes; the connection stays open.
    Silence,
    /// No bytes; the connection closes.
    HangUp,
}

impl Reply {
    fn new(body: ReplyBody) -> Self {
        Self {
            body,
            headers: Vec::new(),
            timing: BodyTiming::default(),
            delay: Duration::ZERO,
            response: None,
        }
    }

    pub(super) fn of_answer(answer: FakeAnswer) -> Self {
        Self::new(ReplyBody::Answer(Box::new(answer)))
    }

    /// A model's answer. Missing `id` and `model` are generated. Blocks that the service has not are left out.
    #[must_use]
    pub fn answer(response: Response) -> Self {
        let answer = FakeAnswer::of_response(&response, PIECES);
        Self { response: Some(Box::new(response)), ..Self::of_answer(answer) }
    }

    /// An answer of these blocks.
    #[must_use]
    pub fn blocks(content: Vec<Block>) -> Self {
        let calls = content.iter().any(|block| block.tool_call().is_some());
        let stop_reason = if calls { StopReason::ToolUse } else { StopReason::EndTurn };
        let usage = Usage { input_tokens: 10, output_tokens: 10, ..Usage::default() };
        Self::answer(Response { content, stop_reason, usage, ..Response::text("") })
    }

    /// An answer of these parts, each in a piece of its own, with this `finishReason`. The value of a `thoughtSignature` is replaced by a
    /// valid one.
    #[must_use]
    pub fn parts(parts: impl IntoIterator<Item = Value>, finish_reason: impl Into<String>) -> Self {
        let usage = Usage { input_tokens: 10, output_tokens: 10, ..Usage::default() };
        let finish = Finish::Reason(finish_reason.into());
        Self::of_answer(FakeAnswer::of_parts(parts.into_iter().collect(), finish, usage))
    }

    /// No answer: the prompt is blocked for this reason.
    #[must_use]
    pub fn blocked(reason: impl Into<String>) -> Self {
        let usage = Usage { input_tokens: 10, ..Usage::default() };
        Self::of_answer(FakeAnswer::of_parts(Vec::new(), Finish::Blocked(reason.into()), usage))
    }

    /// An error instead of an answer.
    #[must_use]
    pub fn error(refusal: Refusal) -> Self {
        Self::new(ReplyBody::Error(refusal))
    }

    /// These bytes.
    #[must_use]
    pub fn raw(status: u16, content_type: impl Into<String>, body: impl Into<Bytes>) -> Self {
        Self::new(ReplyBody::Raw { status, content_type: Some(content_type.into()), body: body.into() })
    }

    /// An HTML page, as a proxy returns it.
    #[must_use]
    pub fn html(status: u16) -> Self {
        let page =
            format!("<html><head><title>{status}</title></head><body><h1>{status}</h1></body></html>\n");
        Self::raw(status, "text/html", page)
    }

    /// Status 200 and no body at all.
    #[must_use]
    pub fn empty() -> Self {
        Self::new(ReplyBody::Raw { status: 200, content_type: None, body: Bytes::new() })
    }

    /// A stream that begins with some bytes and repeats others for ever.
    #[must_use]
    pub fn endless(beginning: impl Into<Bytes>, repeated: impl Into<Bytes>) -> Self {
        Self::new(ReplyBody::Endless { beginning: beginning.into(), repeated: repeated.into() })
    }

    /// A streamed answer whose text never ends.
    #[must_use]
    pub fn endless_text() -> Self {
        let piece = json!({"candidates": [{"content": {"role": "model", "parts": [{"text": "and on "}]}, "index": 0}]});
        Self::endless("", format!("data: {piece}\r\n\r\n"))
    }

    /// No response, ever.
    #[must_use]
    pub fn silence() -> Self {
        Self::new(ReplyBody::Silence)
    }

    /// The connection closes without a response.
    #[must_use]
    pub fn hang_up() -> Self {
        Self::new(ReplyBody::HangUp)
    }

    /// Each text of the answer in at most so many pieces; 4 where this is not said.
    #[must_use]
    pub fn with_pieces(mut self, pieces: usize) -> Self {
        if let (ReplyBody::Answer(answer), Some(response)) = (&mut self.body, &self.response) {
            let mut again = FakeAnswer::of_response(response, pieces);
            again.ending = answer.ending.clone();
            **answer = again;
        }
        self
    }

    /// The streamed answer, but the connection closes after so many pieces.
    #[must_use]
    pub fn cut_after_pieces(mut self, after: usize) -> Self {
        if let ReplyBody::Answer(answer) = &mut self.body {
            answer.ending = Ending::Cut { after };
        }
        self
    }

    /// The streamed answer, but it ends with an error after so many pieces.
    #[must_use]
    pub fn broken_after_pieces(mut self, after: usize, refusal: Refusal) -> Self {
        if let ReplyBody::Answer(answer) = &mut self.body {
            answer.ending = Ending::Broken { after, refusal };
        }
        self
    }

    /// With one more header.
    #[must_use]
    pub fn with_header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    /// After this time.
    #[must_use]
    pub const fn delayed(mut self, delay: Duration) -> Self {
        self.delay = delay;
        self
    }

    /// In pieces of so many bytes, wherever they fall: within events, within characters.
    #[must_use]
    pub const fn in_pieces_of(mut self, bytes: usize) -> Self {
        self.timing.piece = Some(bytes);
        self
    }

    /// With this time between two pieces.
    #[must_use]
    pub const fn dripping(mut self, every: Duration) -> Self {
        self.timing.every = every;
        self
    }

    /// The connection closes after so many bytes of the body.
    #[must_use]
    pub const fn cut_after_bytes(mut self, after: usize) -> Self {
        self.timing.end = BodyEnd::Cut { after };
        self
    }

    /// Nothing more comes after so many bytes of the body, and the connection stays.
    #[must_use]
    pub const fn hanging_after_bytes(mut self, after: usize) -> Self {
        self.timing.end = BodyEnd::Hang { after };
        self
    }

    /// Whether a client that reads all of it has an answer to put into its history.
    pub(super) fn is_answer(&self) -> bool {
        let is_whole = self.timing.end == BodyEnd::Complete;
        is_whole && matches!(&self.body, ReplyBody::Answer(answer) if answer.ending == Ending::Whole)
    }

    /// Whether it is an answer that the client is to ask for the rest of.
    pub(super) fn is_continued(&self) -> bool {
        matches!(&self.body, ReplyBody::Answer(answer) if answer.is_continued())
    }
}
