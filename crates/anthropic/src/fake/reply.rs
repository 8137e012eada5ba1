//! [`Reply`]: the reply to one request: a response, an error, or deliberately invalid bytes.

use std::time::Duration;

use bytes::Bytes;
use conjure_conversation::{Block, ModelEvent, Response, StopReason, Usage};
use serde_json::Value;

use super::compaction;
use super::refusal::Refusal;
use super::response_writer::{Ending, FakeResponse, ProducedFile};

/// The default for the number of deltas of a text.
const PIECES: usize = 4;

/// One reply and its timing.
#[derive(Debug, Clone)]
pub struct Reply {
    pub(super) body: ReplyBody,
    pub(super) headers: Vec<(String, String)>,
    pub(super) request_id: Option<String>,
    pub(super) timing: ReplyTiming,
}

/// The content of a reply.
#[derive(Debug, Clone)]
pub(super) enum ReplyBody {
    /// A model's response, streamed if the request asks for it.
    Answer(Box<FakeResponse>),
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

/// The timing and end of a body.
#[derive(Debug, Clone, Default)]
pub(super) struct ReplyTiming {
    /// The delay before the head.
    pub(super) delay: Duration,
    /// The size of a chunk in bytes; one event by default.
    pub(super) piece: Option<usize>,
    /// The delay between two chunks.
    pub(super) every: Duration,
    pub(super) end: BodyEnd,
}

/// How a body ends.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum BodyEnd {
    #[default]
    Complete,
    /// The connection closes after `after` bytes.
    Cut { after: usize },
    /// The body stalls after `after` bytes; the connection stays open.
    Hang { after: usize },
}

impl Reply {
    fn new(said: ReplyBody) -> Self {
        Self { body: said, headers: Vec::new(), request_id: None, timing: ReplyTiming::default() }
    }

    /// A model's response. Missing `id`, `model` and `request_id` are generated.
    #[must_use]
    pub fn answer(response: Response) -> Self {
        let request_id = response.request_id.clone();
        Self { request_id, ..Self::new(ReplyBody::Answer(Box::new(FakeResponse::new(response, PIECES)))) }
    }

    /// A response of these blocks. It stops with `tool_use` if it contains a tool call, else with `end_turn`.
    #[must_use]
    pub fn blocks(content: Vec<Block>) -> Self {
        let calls = content.iter().any(|block| block.tool_call().is_some());
        let stop_reason = if calls { StopReason::ToolUse } else { StopReason::EndTurn };
        Self::answer(Response {
            id: None,
            model: None,
            content,
            stop_reason,
            usage: Usage { input_tokens: 10, output_tokens: 10, ..Usage::default() },
            request_id: None,
            container: None,
            native: None,
        })
    }

    /// An error instead of a response.
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

    /// A streamed response whose text never ends.
    #[must_use]
    pub fn endless_text() -> Self {
        let beginning = concat!(
            "event: message_start\n",
            r#"data: {"type":"message_start","message":{"model":"fake","id":"msg_endless","type":"message","#,
            r#""role":"assistant","content":[],"stop_reason":null,"stop_sequence":null,"#,
            r#""usage":{"input_tokens":10,"output_tokens":1}}}"#,
            "\n\nevent: content_block_start\n",
            r#"data: {"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}"#,
            "\n\n",
        );
        let repeated = concat!(
            "event: content_block_delta\n",
            r#"data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"and on "}}"#,
            "\n\n",
        );
        Self::endless(beginning, repeated)
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
        if let ReplyBody::Answer(answer) = &mut self.body {
            **answer = FakeResponse {
                container: answer.container.take(),
                ending: answer.ending.clone(),
                compaction: answer.compaction,
                produced: std::mem::take(&mut answer.produced),
                ..FakeResponse::new(answer.response.clone(), pieces)
            };
        }
        self
    }

    /// The answer with this `container`.
    #[must_use]
    pub fn with_container(mut self, container: Value) -> Self {
        if let ReplyBody::Answer(answer) = &mut self.body {
            answer.container = Some(container);
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

    /// The streamed answer, but it ends with an `error` event after so many pieces.
    #[must_use]
    pub fn broken_after_pieces(mut self, after: usize, refusal: Refusal) -> Self {
        if let ReplyBody::Answer(answer) = &mut self.body {
            answer.ending = Ending::Broken { after, refusal };
        }
        self
    }

    /// The streamed answer, but the JSON of its last call's input stops after so many of its pieces, as it does where
    /// `max_tokens` is reached within it.
    #[must_use]
    pub fn with_unfinished_input(mut self, pieces: usize) -> Self {
        if let ReplyBody::Answer(answer) = &mut self.body {
            let call = answer.response.content.iter().rposition(|block| block.tool_call().is_some());
            let mut kept = 0;
            answer.deltas.retain(|delta| {
                let is_its =
                    matches!(delta, ModelEvent::ToolInputDelta { index, .. } if Some(*index) == call);
                kept += usize::from(is_its);
                !is_its || kept <= pieces
            });
        }
        self
    }

    /// With one more header: `retry-after` (seconds or a date), `retry-after-ms`, `x-should-retry`, …
    #[must_use]
    pub fn with_header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    /// Under this `request-id`.
    #[must_use]
    pub fn with_request_id(mut self, id: impl Into<String>) -> Self {
        self.request_id = Some(id.into());
        self
    }

    /// After this time.
    #[must_use]
    pub const fn delayed(mut self, delay: Duration) -> Self {
        self.timing.delay = delay;
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

    /// The answer, which makes these files when it is played.
    pub(super) fn producing(mut self, produced: Vec<ProducedFile>) -> Self {
        if let ReplyBody::Answer(answer) = &mut self.body {
            answer.produced = produced;
        }
        self
    }

    /// The same answer, behind the service's own summary of so many messages.
    pub(super) fn behind_compaction(mut self, messages: usize) -> Self {
        if let ReplyBody::Answer(answer) = self.body {
            self.body = ReplyBody::Answer(Box::new(compaction::behind(messages, *answer)));
        }
        self
    }

    /// Whether a client that reads all of it has an answer to put into its history.
    pub(super) fn is_answer(&self) -> bool {
        let is_whole = self.timing.end == BodyEnd::Complete;
        is_whole && matches!(&self.body, ReplyBody::Answer(answer) if answer.ending == Ending::Whole)
    }

    /// How many blocks it adds to a history.
    pub(super) fn blocks_added(&self) -> usize {
        match &self.body {
            ReplyBody::Answer(answer) => answer.response.content.len(),
            _ => 0,
        }
    }
}
