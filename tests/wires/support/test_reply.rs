//! [`TestReply`]: what a service replies, said once for all wires.

use conjure::model::{ApiErrorKind, StopReason};
use conjure::tool::ToolCall;
use conjure::{Block, Response, Usage};
use conjure_anthropic::fake as messages;
use conjure_gemini::fake as gemini;
use conjure_openai::fake as openai;
use serde_json::{Value, json};

use crate::support::test_wire::TestWire;

/// What an answer uses: 100 tokens of input and 10 of output.
pub(crate) const USAGE: Usage = Usage {
    input_tokens: 100,
    output_tokens: 10,
    cache_creation_input_tokens: 0,
    cache_read_input_tokens: 0,
    cost_micros: 0,
};

/// One reply.
#[derive(Debug, Clone)]
pub(crate) struct TestReply {
    body: ReplyBody,
    ending: Ending,
    retry_after: Option<String>,
    pieces: usize,
}

#[derive(Debug, Clone)]
enum ReplyBody {
    Answer(Response),
    Error {
        kind: ApiErrorKind,
        message: String,
    },
    /// Nothing, and the connection stays.
    Silence,
}

/// How a streamed answer ends.
#[derive(Debug, Clone)]
enum Ending {
    Whole,
    /// The connection closes.
    Cut(Progress),
    /// An error comes.
    Broken(Progress, ApiErrorKind),
}

/// How far an answer comes before it ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Progress {
    /// The service has begun to answer, and has said nothing.
    Nothing,
    /// It has said the first piece of a text.
    Text,
    /// It has begun a tool call.
    Call,
}

impl TestReply {
    fn new(body: ReplyBody) -> Self {
        Self { body, ending: Ending::Whole, retry_after: None, pieces: 4 }
    }

    /// An answer of these blocks. It stops for its calls if it has any.
    pub(crate) fn blocks(content: Vec<Block>) -> Self {
        let has_calls = content.iter().any(|block| block.tool_call().is_some());
        let stop = if has_calls { StopReason::ToolUse } else { StopReason::EndTurn };
        Self::stopped(stop, content)
    }

    /// An answer of these blocks that stops for this reason.
    pub(crate) fn stopped(stop_reason: StopReason, content: Vec<Block>) -> Self {
        Self::new(ReplyBody::Answer(Response { content, stop_reason, usage: USAGE, ..Response::text("") }))
    }

    pub(crate) fn text(text: &str) -> Self {
        Self::blocks(vec![Block::text(text)])
    }

    /// One call of the tool `note`.
    pub(crate) fn note(id: &str, text: &str) -> Self {
        Self::blocks(vec![note(id, text)])
    }

    pub(crate) fn error(kind: ApiErrorKind, message: &str) -> Self {
        Self::new(ReplyBody::Error { kind, message: message.to_owned() })
    }

    pub(crate) fn silence() -> Self {
        Self::new(ReplyBody::Silence)
    }

    /// The answer whose input has so many tokens.
    pub(crate) fn with_input_tokens(mut self, tokens: u64) -> Self {
        if let ReplyBody::Answer(answer) = &mut self.body {
            answer.usage.input_tokens = tokens;
        }
        self
    }

    /// The answer in this container.
    pub(crate) fn in_container(mut self, id: &str) -> Self {
        if let ReplyBody::Answer(answer) = &mut self.body {
            answer.container = Some(conjure::model::ContainerId::new(id));
        }
        self
    }

    /// The answer with each text in so many pieces.
    pub(crate) fn with_pieces(self, pieces: usize) -> Self {
        Self { pieces, ..self }
    }

    /// The answer, but the connection closes.
    pub(crate) fn cut_after(self, progress: Progress) -> Self {
        Self { ending: Ending::Cut(progress), ..self }
    }

    /// The answer, but an error comes.
    pub(crate) fn broken_after(self, progress: Progress, kind: ApiErrorKind) -> Self {
        Self { ending: Ending::Broken(progress, kind), ..self }
    }

    /// The reply that asks the client to come back after so many milliseconds.
    pub(crate) fn retry_after_ms(self, milliseconds: u64) -> Self {
        Self { retry_after: Some(milliseconds.to_string()), ..self }
    }

    pub(crate) fn for_messages(&self) -> messages::Reply {
        let refusal = |kind: &ApiErrorKind, message: &str| messages::Refusal::new(kind.clone(), message);
        // Pieces of blocks. The start of the message comes before them.
        let pieces = |progress| usize::from(progress != Progress::Nothing);
        let reply = match &self.body {
            ReplyBody::Answer(answer) => messages::Reply::answer(answer.clone()).with_pieces(self.pieces),
            ReplyBody::Error { kind, message } => messages::Reply::error(refusal(kind, message)),
            ReplyBody::Silence => messages::Reply::silence(),
        };
        let reply = match &self.ending {
            Ending::Whole => reply,
            Ending::Cut(progress) => reply.cut_after_pieces(pieces(*progress)),
            Ending::Broken(progress, kind) => {
                reply.error_after_pieces(pieces(*progress), refusal(kind, "it broke"))
            }
        };
        match &self.retry_after {
            Some(wait) => reply.with_header("retry-after-ms", wait),
            None => reply,
        }
    }

    pub(crate) fn for_openai(&self, wire: TestWire) -> openai::Reply {
        // Of Chat: the role, then the first piece. Of Responses: that it is created and in progress, the item, of a text also its part,
        // then the first piece.
        let events = |progress| match (wire, progress) {
            (TestWire::Chat, Progress::Nothing) => 1,
            (TestWire::Chat, _) => 2,
            (_, Progress::Nothing) => 2,
            (_, Progress::Text) => 5,
            (_, Progress::Call) => 4,
        };
        let reply = match &self.body {
            ReplyBody::Answer(answer) => openai::Reply::answer(answer.clone()).with_pieces(self.pieces),
            ReplyBody::Error { kind, message } => {
                openai::Reply::error(openai::FakeError::new(kind, message.as_str()))
            }
            ReplyBody::Silence => openai::Reply::silence(),
        };
        let reply = match &self.ending {
            Ending::Whole => reply,
            Ending::Cut(progress) => reply.cut_after_events(events(*progress)),
            Ending::Broken(progress, kind) => {
                reply.error_after_events(events(*progress), openai::FakeError::new(kind, "it broke"))
            }
        };
        match &self.retry_after {
            Some(wait) => reply.with_header("retry-after-ms", wait),
            None => reply,
        }
    }

    pub(crate) fn for_gemini(&self) -> gemini::Reply {
        let refusal = |kind: &ApiErrorKind, message: &str| gemini::Refusal::new(kind.clone(), message);
        let pieces = |progress| usize::from(progress != Progress::Nothing);
        let reply = match &self.body {
            ReplyBody::Answer(answer) => gemini::Reply::answer(answer.clone()).with_pieces(self.pieces),
            ReplyBody::Error { kind, message } => gemini::Reply::error(refusal(kind, message)),
            ReplyBody::Silence => gemini::Reply::silence(),
        };
        let reply = match &self.ending {
            Ending::Whole => reply,
            Ending::Cut(progress) => reply.cut_after_pieces(pieces(*progress)),
            Ending::Broken(progress, kind) => {
                reply.error_after_pieces(pieces(*progress), refusal(kind, "it broke"))
            }
        };
        match &self.retry_after {
            Some(wait) => reply.with_header("retry-after-ms", wait),
            None => reply,
        }
    }
}

/// A block of this JSON.
pub(crate) fn block(json: &Value) -> Block {
    raw_block(&json.to_string())
}

/// A block with exactly this text.
pub(crate) fn raw_block(json: &str) -> Block {
    Block::from_json(json).unwrap()
}

pub(crate) fn thinking(text: &str) -> Block {
    block(&json!({"type": "thinking", "thinking": text, "signature": "c2lnbmVk"}))
}

pub(crate) fn call(id: &str, name: &str, input: &Value) -> Block {
    let call = ToolCall::new(id, name, input);
    block(&json!({"type": "tool_use", "id": call.id, "name": call.name, "input": input}))
}

/// A call of the tool `note`.
pub(crate) fn note(id: &str, text: &str) -> Block {
    call(id, "note", &json!({"text": text}))
}

/// An image of one pixel.
pub(crate) fn image() -> Block {
    let source = json!({"type": "base64", "media_type": "image/png", "data": PIXEL});
    block(&json!({"type": "image", "source": source}))
}

/// A PNG of one pixel, in base64.
const PIXEL: &str =
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";
