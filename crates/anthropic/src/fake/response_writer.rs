//! Writes a response as the service does: as a stream of events or as one body.
//!
//! Fields are in the service's order, and blocks keep their text byte for byte. Fields that deltas stream begin empty.

use std::iter::Peekable;
use std::slice::Iter;

use bytes::Bytes;
use conjure_base::ContainerId;
use conjure_conversation::{Block, BlockKind, ModelEvent, Response, Usage};
use serde_json::Value;

use super::refusal::Refusal;
use conjure_model_http::fake::{Ending, split};
use conjure_model_http::{RawObject, quoted};

/// The expiry time of a container of which only the id is given.
const EXPIRES_AT: &str = "2099-01-01T00:00:00Z";

/// The placeholder for the call id in scripted blocks.
pub(super) const CALL_PLACEHOLDER: &str = "{{call}}";

/// A response.
#[derive(Debug, Clone)]
pub struct FakeResponse {
    pub(super) response: Response,
    /// The `container` of the answer, if it has one.
    pub(super) container: Option<Value>,
    /// The pieces in which the blocks are streamed, in order.
    pub(super) deltas: Vec<ModelEvent>,
    /// The usage of a compaction at the start of the response.
    pub(super) compaction: Option<Usage>,
    /// The files that the response produces.
    pub(super) produced: Vec<ProducedFile>,
}

/// A file that a turn produces when it is played.
#[derive(Debug, Clone)]
pub(super) struct ProducedFile {
    pub(super) placeholder: String,
    pub(super) name: String,
    pub(super) content: Bytes,
}

/// The ids of a response.
#[derive(Debug, Clone, Copy)]
pub(super) struct ResponseIds<'a> {
    pub(super) number: u64,
    pub(super) model: &'a str,
    pub(super) request: &'a str,
}

impl FakeResponse {
    /// Creates an answer of these blocks, with each text in at most `pieces` pieces.
    pub(super) fn new(response: Response, pieces: usize) -> Self {
        let deltas = deltas(&response.content, pieces);
        let produced = Vec::new();
        Self { response, container: None, deltas, compaction: None, produced }
    }

    /// Fills in the placeholders: the id of the call, and the ids of the files.
    pub(super) fn name(&mut self, call: &str, files: &[(String, String)]) {
        let content =
            self.response.content.iter().map(|block| fill_placeholders(block, call, files)).collect();
        self.response.content = content;
    }

    /// The id of the container that the answer names.
    pub(super) fn container_id(&self) -> Option<String> {
        let of_json = self.container.as_ref().and_then(|container| container["id"].as_str());
        of_json.or(self.response.container.as_ref().map(ContainerId::as_str)).map(str::to_owned)
    }

    /// The body of an answer that is not streamed.
    pub(super) fn body(&self, names: ResponseIds<'_>) -> String {
        let blocks: Vec<&str> = self.response.content.iter().map(Block::json).collect();
        let container = self.container();
        format!(
            "{{\"model\":{},\"id\":{},\"type\":\"message\",\"role\":\"assistant\",\"content\":[{}],\
             \"stop_reason\":{},\"stop_sequence\":null{container},\"usage\":{}}}",
            quoted(self.model(names)),
            quoted(&self.id(names)),
            blocks.join(","),
            self.stop_reason(),
            usage(
                &self.response.usage,
                self.response.usage.output_tokens,
                &format!("{},\"service_tier\":\"standard\"", self.iterations()),
            ),
        )
    }

    /// The events of a streamed answer, each one chunk of the body.
    pub(super) fn events(&self, ending: &Ending<Refusal>, names: ResponseIds<'_>) -> Vec<Bytes> {
        let mut writer = Writer { events: Vec::new(), left: ending.limit() };
        writer.event(
            "message_start",
            &format!(
                "{{\"type\":\"message_start\",\"message\":{{\"model\":{},\"id\":{},\"type\":\"message\",\
                 \"role\":\"assistant\",\"content\":[],\"stop_reason\":null,\"stop_sequence\":null,\"usage\":{}}}}}",
                quoted(self.model(names)),
                quoted(&self.id(names)),
                usage(&self.response.usage, 1, ",\"service_tier\":\"standard\""),
            ),
        );
        // The answer ends early only if `ending` says so.
        let _ = writer.blocks(&self.response.content, &self.deltas);
        match ending {
            Ending::Whole => self.finish(&mut writer),
            Ending::Cut { .. } => {}
            Ending::Broken { error, .. } => writer.event("error", &error.body(names.request)),
        }
        writer.events
    }

    fn finish(&self, writer: &mut Writer) {
        let container = self.container();
        writer.event(
            "message_delta",
            &format!(
                "{{\"type\":\"message_delta\",\"delta\":{{\"stop_reason\":{},\"stop_sequence\":null{container}}},\
                 \"usage\":{}}}",
                self.stop_reason(),
                usage(&self.response.usage, self.response.usage.output_tokens, &self.iterations()),
            ),
        );
        writer.event("message_stop", "{\"type\":\"message_stop\"}");
    }

    /// The field `iterations` of the usage, with a comma before it; empty if there is only one step.
    fn iterations(&self) -> String {
        let step = |kind: &str, usage: &Usage| {
            serde_json::json!({
                "type": kind, "input_tokens": usage.input_tokens, "output_tokens": usage.output_tokens,
                "cache_creation_input_tokens": usage.cache_creation_input_tokens,
                "cache_read_input_tokens": usage.cache_read_input_tokens,
            })
        };
        let Some(compaction) = &self.compaction else { return String::new() };
        format!(
            ",\"iterations\":[{},{}]",
            step("compaction", compaction),
            step("message", &self.response.usage)
        )
    }

    /// The field `container` with a comma before it; empty without a container. It is the given JSON, or has the id in the response.
    fn container(&self) -> String {
        let from_id = || {
            let id = self.response.container.as_ref()?;
            Some(serde_json::json!({"id": id, "expires_at": EXPIRES_AT, "skills": null}))
        };
        let container = self.container.clone().or_else(from_id);
        container.map(|container| format!(",\"container\":{container}")).unwrap_or_default()
    }

    fn stop_reason(&self) -> String {
        self.response.stop_reason.as_wire().map_or_else(|| "null".to_owned(), quoted)
    }

    fn model<'a>(&'a self, names: ResponseIds<'a>) -> &'a str {
        self.response.model.as_deref().unwrap_or(names.model)
    }

    fn id(&self, names: ResponseIds<'_>) -> String {
        self.response.id.clone().unwrap_or_else(|| format!("msg_fake_{:06}", names.number))
    }
}

/// The JSON of the cumulative token counts.
fn usage(usage: &Usage, output: u64, more: &str) -> String {
    format!(
        "{{\"input_tokens\":{},\"cache_creation_input_tokens\":{},\"cache_read_input_tokens\":{},\
         \"output_tokens\":{output}{more}}}",
        usage.input_tokens, usage.cache_creation_input_tokens, usage.cache_read_input_tokens,
    )
}

struct Writer {
    events: Vec<Bytes>,
    /// How many more deltas may be written.
    left: usize,
}

impl Writer {
    fn event(&mut self, name: &str, data: &str) {
        self.events.push(Bytes::from(format!("event: {name}\ndata: {data}\n\n")));
    }

    /// Writes a delta event. Like the service, it pads the data with spaces.
    fn delta(&mut self, index: usize, delta: &str) {
        let spaces = self.events.len() % 7;
        self.event(
            "content_block_delta",
            &format!(
                "{{\"type\":\"content_block_delta\",\"index\":{index},\"delta\":{delta}{:spaces$}}}",
                ""
            ),
        );
    }

    /// Counts one written piece. Returns `None` if the answer ends with it.
    fn count(&mut self) -> Option<()> {
        self.left = self.left.saturating_sub(1);
        (self.left > 0).then_some(())
    }

    /// Writes all blocks. Returns `None` if the answer ends before they do.
    fn blocks(&mut self, content: &[Block], deltas: &[ModelEvent]) -> Option<()> {
        let mut deltas = deltas.iter().peekable();
        for (index, block) in content.iter().enumerate() {
            self.block(index, block, &mut deltas)?;
        }
        Some(())
    }

    fn block(
        &mut self,
        index: usize,
        block: &Block,
        deltas: &mut Peekable<Iter<'_, ModelEvent>>,
    ) -> Option<()> {
        if self.left == 0 {
            return None;
        }
        let mut start: RawObject = serde_json::from_str(block.json()).unwrap_or_default();
        let growth = DeltaKind::of(block, &mut start);
        self.event(
            "content_block_start",
            &format!(
                "{{\"type\":\"content_block_start\",\"index\":{index},\"content_block\":{}}}",
                start.to_json()
            ),
        );
        if index == 0 {
            self.event("ping", "{\"type\": \"ping\"}");
        }
        if matches!(growth, DeltaKind::Input { .. }) {
            self.delta(index, "{\"type\":\"input_json_delta\",\"partial_json\":\"\"}");
        }
        while let Some(delta) = deltas.next_if(|delta| delta_index(delta) == index) {
            let delta = match delta {
                ModelEvent::TextDelta { text, .. } => {
                    format!("{{\"type\":\"text_delta\",\"text\":{}}}", quoted(text))
                }
                ModelEvent::ThinkingDelta { text, .. } => {
                    format!("{{\"type\":\"thinking_delta\",\"thinking\":{}}}", quoted(text))
                }
                ModelEvent::ToolInputDelta { partial_json, .. } => {
                    format!("{{\"type\":\"input_json_delta\",\"partial_json\":{}}}", quoted(partial_json))
                }
                // The start of a call counts as a piece, as in a script, and was written above.
                _ => {
                    self.count()?;
                    continue;
                }
            };
            self.delta(index, &delta);
            self.count()?;
        }
        for delta in growth.rest() {
            self.delta(index, &delta);
        }
        self.event("content_block_stop", &format!("{{\"type\":\"content_block_stop\",\"index\":{index}}}"));
        Some(())
    }
}

/// What a block streams after the pieces of its text.
enum DeltaKind {
    /// The citations of a text, each raw JSON.
    Text {
        citations: Vec<String>,
    },
    Thinking {
        signature: String,
    },
    /// The complete input, if it is not streamed in pieces.
    Input {
        whole: Option<String>,
    },
    /// The content of a compaction, raw JSON.
    Compaction {
        content: String,
    },
    None,
}

impl DeltaKind {
    /// Empties the fields that deltas fill, and returns what they contained.
    fn of(block: &Block, start: &mut RawObject) -> Self {
        let raw = |start: &RawObject, name: &str| start.get(name).map(str::to_owned);
        match block.kind() {
            BlockKind::Text(_) => {
                start.set("text", "\"\"".to_owned());
                let citations = raw(start, "citations").unwrap_or_default();
                let citations: Vec<Box<serde_json::value::RawValue>> =
                    serde_json::from_str(&citations).unwrap_or_default();
                if !citations.is_empty() {
                    start.set("citations", "[]".to_owned());
                }
                Self::Text { citations: citations.iter().map(|raw| raw.get().to_owned()).collect() }
            }
            BlockKind::Thinking(_) => {
                let signature = raw(start, "signature").unwrap_or_else(|| "\"\"".to_owned());
                start.set("thinking", "\"\"".to_owned());
                start.set("signature", "\"\"".to_owned());
                Self::Thinking { signature }
            }
            BlockKind::ToolUse(_) => {
                start.set("input", "{}".to_owned());
                Self::Input { whole: None }
            }
            BlockKind::Other(kind) if kind == "server_tool_use" || kind == "mcp_tool_use" => {
                let whole = raw(start, "input");
                start.set("input", "{}".to_owned());
                Self::Input { whole }
            }
            BlockKind::Other(kind) if kind == "compaction" => match raw(start, "content") {
                Some(content) => {
                    start.set("content", "null".to_owned());
                    Self::Compaction { content }
                }
                None => Self::None,
            },
            _ => Self::None,
        }
    }

    /// The deltas that follow the pieces.
    fn rest(self) -> Vec<String> {
        match self {
            Self::Text { citations } => citations
                .into_iter()
                .map(|citation| format!("{{\"type\":\"citations_delta\",\"citation\":{citation}}}"))
                .collect(),
            Self::Thinking { signature } => {
                vec![format!("{{\"type\":\"signature_delta\",\"signature\":{signature}}}")]
            }
            Self::Input { whole: Some(input) } => {
                vec![format!("{{\"type\":\"input_json_delta\",\"partial_json\":{}}}", quoted(&input))]
            }
            Self::Compaction { content } => {
                vec![format!("{{\"type\":\"compaction_delta\",\"content\":{content}}}")]
            }
            Self::Input { whole: None } | Self::None => Vec::new(),
        }
    }
}

fn delta_index(event: &ModelEvent) -> usize {
    match event {
        ModelEvent::TextDelta { index, .. }
        | ModelEvent::ThinkingDelta { index, .. }
        | ModelEvent::ToolUseStarted { index, .. }
        | ModelEvent::ToolInputDelta { index, .. } => *index,
        _ => usize::MAX,
    }
}

/// Splits the text of these blocks into pieces.
pub(super) fn deltas(content: &[Block], pieces: usize) -> Vec<ModelEvent> {
    let mut deltas = Vec::new();
    for (index, block) in content.iter().enumerate() {
        match block.kind() {
            BlockKind::Text(text) => {
                deltas.extend(
                    split(text, pieces).map(|text| ModelEvent::TextDelta { index, text: text.to_owned() }),
                );
            }
            BlockKind::Thinking(text) => {
                deltas.extend(
                    split(text, pieces)
                        .map(|text| ModelEvent::ThinkingDelta { index, text: text.to_owned() }),
                );
            }
            BlockKind::ToolUse(call) => {
                deltas.push(ModelEvent::ToolUseStarted { index, name: call.name.clone() });
                let input = split(call.input.get(), pieces);
                deltas.extend(
                    input.map(|json| ModelEvent::ToolInputDelta { index, partial_json: json.to_owned() }),
                );
            }
            _ => {}
        }
    }
    deltas
}

/// Fills in the ids of the call and of the produced files.
fn fill_placeholders(block: &Block, call: &str, files: &[(String, String)]) -> Block {
    if !block.json().contains("{{") {
        return block.clone();
    }
    let json = files.iter().fold(block.json().replace(CALL_PLACEHOLDER, call), |json, (placeholder, id)| {
        json.replace(placeholder.as_str(), id)
    });
    Block::from_json(json).unwrap_or_else(|_| block.clone())
}
