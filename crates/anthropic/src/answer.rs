//! A complete answer, with the parts of it that a conversation does not keep.

use std::fmt;

use conjure_base::ContainerId;
use conjure_conversation::{AfterAnswer, Block, Response, StopReason, Usage};
use serde::Deserialize;
use serde::de::{self, Deserializer, SeqAccess, Visitor};
use serde_json::value::RawValue;

use crate::accumulate::MOST_BLOCKS;
use crate::block::GrowingBlock;

/// What the service answered.
#[derive(Debug, Clone)]
pub struct Answer {
    /// What the conversation keeps of it.
    pub response: Response,
    /// The stop sequence that was met, where one was.
    pub stop_sequence: Option<String>,
    /// More on why it stopped, as the service wrote it.
    pub stop_details: Option<Box<RawValue>>,
    /// The container that the service's tools ran in, `{"id", "expires_at", ...}`, as it wrote it. Its id is in
    /// the response too, so that the conversation names it in every later request.
    pub container: Option<Box<RawValue>>,
}

/// `usage` on the wire. All of it may be missing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(crate) struct WireUsage {
    input_tokens: Option<u64>,
    output_tokens: Option<u64>,
    cache_creation_input_tokens: Option<u64>,
    cache_read_input_tokens: Option<u64>,
    /// Of the steps that the service took, those that compacted the history: they are not in the other counts.
    #[serde(rename = "iterations", deserialize_with = "compactions")]
    compactions: Option<Step>,
}

/// What one step of an answer used, or several.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
struct Step {
    input_tokens: u64,
    output_tokens: u64,
    cache_creation_input_tokens: u64,
    cache_read_input_tokens: u64,
}

/// Sums the steps of a list that compacted. What has another form is passed over, as all that is not understood.
fn compactions<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Step>, D::Error> {
    #[derive(Deserialize)]
    struct Typed {
        #[serde(rename = "type")]
        kind: String,
        #[serde(flatten)]
        step: Step,
    }
    let list = Option::<Box<RawValue>>::deserialize(deserializer)?;
    let list = list.and_then(|list| serde_json::from_str::<Vec<Box<RawValue>>>(list.get()).ok());
    let steps = list.map(|list| {
        let typed = list.iter().filter_map(|raw| serde_json::from_str::<Typed>(raw.get()).ok());
        let compacting = typed.filter(|typed| typed.kind == "compaction").map(|typed| typed.step);
        compacting.fold(Step::default(), Step::plus)
    });
    Ok(steps)
}

impl Step {
    const fn plus(self, other: Self) -> Self {
        Self {
            input_tokens: self.input_tokens.saturating_add(other.input_tokens),
            output_tokens: self.output_tokens.saturating_add(other.output_tokens),
            cache_creation_input_tokens: self
                .cache_creation_input_tokens
                .saturating_add(other.cache_creation_input_tokens),
            cache_read_input_tokens: self
                .cache_read_input_tokens
                .saturating_add(other.cache_read_input_tokens),
        }
    }
}

impl WireUsage {
    /// Overwrites with what `later` says; what it does not mention stays. Counts are cumulative.
    pub(crate) fn overwrite(&mut self, later: Self) {
        self.input_tokens = later.input_tokens.or(self.input_tokens);
        self.output_tokens = later.output_tokens.or(self.output_tokens);
        self.cache_creation_input_tokens =
            later.cache_creation_input_tokens.or(self.cache_creation_input_tokens);
        self.cache_read_input_tokens = later.cache_read_input_tokens.or(self.cache_read_input_tokens);
        self.compactions = later.compactions.or(self.compactions);
    }

    pub(crate) fn tokens(self) -> Usage {
        let said = Step {
            input_tokens: self.input_tokens.unwrap_or(0),
            output_tokens: self.output_tokens.unwrap_or(0),
            cache_creation_input_tokens: self.cache_creation_input_tokens.unwrap_or(0),
            cache_read_input_tokens: self.cache_read_input_tokens.unwrap_or(0),
        };
        let all = said.plus(self.compactions.unwrap_or_default());
        Usage {
            input_tokens: all.input_tokens,
            output_tokens: all.output_tokens,
            cache_creation_input_tokens: all.cache_creation_input_tokens,
            cache_read_input_tokens: all.cache_read_input_tokens,
            cost_micros: 0,
        }
    }
}

/// A whole message on the wire: the body of an answer that is not streamed, and of `message_start`.
#[derive(Debug, Deserialize)]
pub(crate) struct WireMessage {
    #[serde(default)]
    pub(crate) id: Option<String>,
    #[serde(default)]
    pub(crate) model: Option<String>,
    #[serde(default, deserialize_with = "few_blocks")]
    pub(crate) content: Vec<Box<RawValue>>,
    #[serde(default)]
    pub(crate) stop_reason: Option<String>,
    #[serde(default)]
    pub(crate) stop_sequence: Option<String>,
    #[serde(default)]
    pub(crate) stop_details: Option<Box<RawValue>>,
    #[serde(default)]
    pub(crate) container: Option<Box<RawValue>>,
    #[serde(default)]
    pub(crate) usage: Option<WireUsage>,
}

/// Reads as many blocks as an answer may have: each takes many times the memory that it takes on the wire.
fn few_blocks<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Box<RawValue>>, D::Error> {
    struct Blocks;

    impl<'de> Visitor<'de> for Blocks {
        type Value = Vec<Box<RawValue>>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a list of content blocks")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
            let mut blocks = Vec::new();
            while let Some(block) = list.next_element()? {
                if blocks.len() == MOST_BLOCKS {
                    return Err(de::Error::custom(format!("it has more than {MOST_BLOCKS} content blocks")));
                }
                blocks.push(block);
            }
            Ok(blocks)
        }
    }

    deserializer.deserialize_seq(Blocks)
}

impl WireMessage {
    /// The answer, with content that came as a whole.
    ///
    /// # Errors
    /// Why the content is none.
    pub(crate) fn answer_of(self, content: Vec<Box<RawValue>>) -> Result<Answer, String> {
        let stop = StopReason::from(self.stop_reason.clone());
        let is_cut = stop.consequence() == AfterAnswer::StopWithoutTools;
        let mut blocks = Vec::with_capacity(content.len());
        for (index, raw) in content.into_iter().enumerate() {
            let block = GrowingBlock::start(raw).and_then(|(mut block, _)| {
                block.close();
                block.finish(is_cut)
            });
            blocks.push(block.map_err(|reason| format!("content block {index}: {reason}"))?);
        }
        Ok(self.into_answer(blocks))
    }

    /// The answer with this content.
    pub(crate) fn into_answer(self, content: Vec<Block>) -> Answer {
        #[derive(Deserialize)]
        struct Container {
            id: ContainerId,
        }
        // A container that cannot be named cannot be used again either; a host still sees it as it came.
        let container =
            self.container.as_ref().and_then(|raw| serde_json::from_str::<Container>(raw.get()).ok());
        Answer {
            response: Response {
                id: self.id,
                model: self.model,
                content,
                stop_reason: StopReason::from(self.stop_reason),
                usage: self.usage.unwrap_or_default().tokens(),
                request_id: None,
                container: container.map(|container| container.id),
            },
            stop_sequence: self.stop_sequence,
            stop_details: self.stop_details,
            container: self.container,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_compaction_used_counts_with_the_rest() {
        let used = |iterations: &str| {
            let usage = format!(r#"{{"input_tokens":10,"output_tokens":5,"iterations":{iterations}}}"#);
            let usage = serde_json::from_str::<WireUsage>(&usage).unwrap().tokens();
            (usage.input_tokens, usage.output_tokens, usage.cache_read_input_tokens)
        };
        assert_eq!(
            used(
                r#"[{"type":"compaction","input_tokens":100,"output_tokens":20,"cache_read_input_tokens":7},
                    {"type":"message","input_tokens":10,"output_tokens":5},
                    {"type":"compaction","input_tokens":1,"new":{"a":1}}]"#
            ),
            (111, 25, 7)
        );
        // What it is not is passed over.
        for other in [
            "null",
            "[]",
            "3",
            "{}",
            r#"[1,null,{"type":"compaction","input_tokens":-1},{"input_tokens":9}]"#,
        ] {
            assert_eq!(used(other), (10, 5, 0), "{other}");
        }
        let mut first: WireUsage =
            serde_json::from_str(r#"{"iterations":[{"type":"compaction","input_tokens":4}]}"#).unwrap();
        first.overwrite(serde_json::from_str(r#"{"output_tokens":2}"#).unwrap());
        assert_eq!((first.tokens().input_tokens, first.tokens().output_tokens), (4, 2));
    }
}
