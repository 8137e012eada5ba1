//! What the fake answers one request with: words, an error, or something that no service should say.

use std::time::Duration;

use bytes::Bytes;
use conjure_conversation::{Block, ModelEvent, Response, StopReason, Usage};
use serde_json::Value;

use super::compaction;
use super::hosted::Produced;
use super::refusal::Refusal;
use super::stream::{Answer, Ending};

/// Into how many pieces a text is split unless it is said.
const PIECES: usize = 4;

/// One answer, and how it travels.
#[derive(Debug, Clone)]
pub struct Reply {
    pub(super) said: Said,
    pub(super) headers: Vec<(String, String)>,
    pub(super) request_id: Option<String>,
    pub(super) pace: Pace,
}

/// What is said.
#[derive(Debug, Clone)]
pub(super) enum Said {
    /// A model's answer, streamed or whole as the request asks.
    Answer(Box<Answer>),
    Error(Refusal),
    /// These bytes.
    Raw {
        status: u16,
        content_type: Option<String>,
        body: Bytes,
    },
    /// These bytes, and then the others for ever.
    Endless {
        beginning: Bytes,
        repeated: Bytes,
    },
    /// Nothing; the connection stays.
    Silence,
    /// Nothing; the connection closes.
    HangUp,
}

/// How a body travels.
#[derive(Debug, Clone, Default)]
pub(super) struct Pace {
    /// Before the head.
    pub(super) delay: Duration,
    /// The size of a piece in bytes; an event where it is not said.
    pub(super) piece: Option<usize>,
    /// Between two pieces.
    pub(super) every: Duration,
    pub(super) end: End,
}

/// How a body ends.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum End {
    #[default]
    Whole,
    /// The connection closes after so many bytes.
    Cut { after: usize },
    /// Nothing more comes after so many bytes, and the connection stays.
    Hang { after: usize },
}

impl Reply {
    fn new(said: Said) -> Self {
        Self { said, headers: Vec::new(), request_id: None, pace: Pace::default() }
    }

    /// A model's answer. Its `id`, `model` and `request_id` are made up where they are absent.
    #[must_use]
    pub fn answer(response: Response) -> Self {
        let request_id = response.request_id.clone();
        Self { request_id, ..Self::new(Said::Answer(Box::new(Answer::new(response, PIECES)))) }
    }

    /// An answer of these blocks that stops with `tool_use` when there is a call in it, else with `end_turn`.
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
        })
    }

    /// An error instead of an answer.
    #[must_use]
    pub fn error(refusal: Refusal) -> Self {
        Self::new(Said::Error(refusal))
    }

    /// These bytes.
    #[must_use]
    pub fn raw(status: u16, content_type: impl Into<String>, body: impl Into<Bytes>) -> Self {
        Self::new(Said::Raw { status, content_type: Some(content_type.into()), body: body.into() })
    }

    /// A page, as a proxy on the way answers.
    #[must_use]
    pub fn html(status: u16) -> Self {
        let page =
            format!("<html><head><title>{status}</title></head><body><h1>{status}</h1></body></html>\n");
        Self::raw(status, "text/html", page)
    }

    /// Status 200 and no body at all.
    #[must_use]
    pub fn empty() -> Self {
        Self::new(Said::Raw { status: 200, content_type: None, body: Bytes::new() })
    }

    /// A stream that begins with some bytes and goes on with others for ever.
    #[must_use]
    pub fn endless(beginning: impl Into<Bytes>, repeated: impl Into<Bytes>) -> Self {
        Self::new(Said::Endless { beginning: beginning.into(), repeated: repeated.into() })
    }

    /// A streamed answer whose text never ends.
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

    /// No answer, ever.
    #[must_use]
    pub fn silence() -> Self {
        Self::new(Said::Silence)
    }

    /// The connection closes without an answer.
    #[must_use]
    pub fn hang_up() -> Self {
        Self::new(Said::HangUp)
    }

    /// Each text of the answer in at most so many pieces; 4 where this is not said.
    #[must_use]
    pub fn with_pieces(mut self, pieces: usize) -> Self {
        if let Said::Answer(answer) = &mut self.said {
            **answer = Answer {
                container: answer.container.take(),
                ending: answer.ending.clone(),
                compaction: answer.compaction,
                produced: std::mem::take(&mut answer.produced),
                ..Answer::new(answer.response.clone(), pieces)
            };
        }
        self
    }

    /// The answer with this `container`.
    #[must_use]
    pub fn with_container(mut self, container: Value) -> Self {
        if let Said::Answer(answer) = &mut self.said {
            answer.container = Some(container);
        }
        self
    }

    /// The streamed answer, but the connection closes after so many pieces.
    #[must_use]
    pub fn cut_after_pieces(mut self, after: usize) -> Self {
        if let Said::Answer(answer) = &mut self.said {
            answer.ending = Ending::Cut { after };
        }
        self
    }

    /// The streamed answer, but it ends with an `error` event after so many pieces.
    #[must_use]
    pub fn broken_after_pieces(mut self, after: usize, refusal: Refusal) -> Self {
        if let Said::Answer(answer) = &mut self.said {
            answer.ending = Ending::Broken { after, refusal };
        }
        self
    }

    /// The streamed answer, but the JSON of its last call's input stops after so many of its pieces, as it does where
    /// `max_tokens` is reached within it.
    #[must_use]
    pub fn with_unfinished_input(mut self, pieces: usize) -> Self {
        if let Said::Answer(answer) = &mut self.said {
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
        self.pace.delay = delay;
        self
    }

    /// In pieces of so many bytes, wherever they fall: within events, within characters.
    #[must_use]
    pub const fn in_pieces_of(mut self, bytes: usize) -> Self {
        self.pace.piece = Some(bytes);
        self
    }

    /// With this time between two pieces.
    #[must_use]
    pub const fn dripping(mut self, every: Duration) -> Self {
        self.pace.every = every;
        self
    }

    /// The connection closes after so many bytes of the body.
    #[must_use]
    pub const fn cut_after_bytes(mut self, after: usize) -> Self {
        self.pace.end = End::Cut { after };
        self
    }

    /// Nothing more comes after so many bytes of the body, and the connection stays.
    #[must_use]
    pub const fn hanging_after_bytes(mut self, after: usize) -> Self {
        self.pace.end = End::Hang { after };
        self
    }

    /// The answer, which makes these files when it is played.
    pub(super) fn producing(mut self, produced: Vec<Produced>) -> Self {
        if let Said::Answer(answer) = &mut self.said {
            answer.produced = produced;
        }
        self
    }

    /// The same answer, behind the service's own summary of so many messages.
    pub(super) fn behind_compaction(mut self, messages: usize) -> Self {
        if let Said::Answer(answer) = self.said {
            self.said = Said::Answer(Box::new(compaction::behind(messages, *answer)));
        }
        self
    }

    /// Whether a client that reads all of it has an answer to put into its history.
    pub(super) fn is_answer(&self) -> bool {
        let is_whole = self.pace.end == End::Whole;
        is_whole && matches!(&self.said, Said::Answer(answer) if answer.ending == Ending::Whole)
    }

    /// How many blocks it adds to a history.
    pub(super) fn blocks_added(&self) -> usize {
        match &self.said {
            Said::Answer(answer) => answer.response.content.len(),
            _ => 0,
        }
    }
}
