//! [`WireMessage`]: a message as it is on the wire.

use std::fmt;

use conjure_base::ContainerId;
use conjure_conversation::{AfterResponse, Block, Response, StopReason, Usage};
use serde::Deserialize;
use serde::de::{self, Deserializer, SeqAccess, Visitor};
use serde_json::value::RawValue;

use crate::response::block::PartialBlock;

/// The maximum number of content blocks in a response. Real responses have a handful, and dozens with tools of the service.
pub(crate) const MAX_BLOCKS: usize = 10_000;

/// `usage` on the wire. Every field is optional.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(crate) struct WireUsage {
    input_tokens: Option<u64>,
    output_tokens: Option<u64>,
    cache_creation_input_tokens: Option<u64>,
    cache_read_input_tokens: Option<u64>,
    /// The usage of compaction steps, which is not part of the other counts.
    #[serde(rename = "iterations", deserialize_with = "compactions")]
    compactions: Option<UsageStep>,
}

/// The usage of one or several steps of a response.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
struct UsageStep {
    input_tokens: u64,
    output_tokens: u64,
    cache_creation_input_tokens: u64,
    cache_read_input_tokens: u64,
}

/// Sums the compaction steps of a list. It ignores entries of another form.
fn compactions<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<UsageStep>, D::Error> {
    #[derive(Deserialize)]
    struct Typed {
        #[serde(rename = "type")]
        kind: String,
        #[serde(flatten)]
        step: UsageStep,
    }
    let list = Option::<Box<RawValue>>::deserialize(deserializer)?;
    let list = list.and_then(|list| serde_json::from_str::<Vec<Box<RawValue>>>(list.get()).ok());
    let steps = list.map(|list| {
        let typed = list.iter().filter_map(|raw| serde_json::from_str::<Typed>(raw.get()).ok());
        let compacting = typed.filter(|typed| typed.kind == "compaction").map(|typed| typed.step);
        compacting.fold(UsageStep::default(), UsageStep::plus)
    });
    Ok(steps)
}

impl UsageStep {
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
    /// Overwrites the fields that `newer` has. Counts are cumulative.
    pub(crate) fn overwrite(&mut self, newer: Self) {
        self.input_tokens = newer.input_tokens.or(self.input_tokens);
        self.output_tokens = newer.output_tokens.or(self.output_tokens);
        self.cache_creation_input_tokens =
            newer.cache_creation_input_tokens.or(self.cache_creation_input_tokens);
        self.cache_read_input_tokens = newer.cache_read_input_tokens.or(self.cache_read_input_tokens);
        self.compactions = newer.compactions.or(self.compactions);
    }

    pub(crate) fn tokens(self) -> Usage {
        let own = UsageStep {
            input_tokens: self.input_tokens.unwrap_or(0),
            output_tokens: self.output_tokens.unwrap_or(0),
            cache_creation_input_tokens: self.cache_creation_input_tokens.unwrap_or(0),
            cache_read_input_tokens: self.cache_read_input_tokens.unwrap_or(0),
        };
        let all = own.plus(self.compactions.unwrap_or_default());
        Usage {
            input_tokens: all.input_tokens,
            output_tokens: all.output_tokens,
            cache_creation_input_tokens: all.cache_creation_input_tokens,
            cache_read_input_tokens: all.cache_read_input_tokens,
            cost_micros: 0,
        }
    }
}

/// A message on the wire: the body of a response without streaming, and of `message_start`.
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
    pub(crate) container: Option<Box<RawValue>>,
    #[serde(default)]
    pub(crate) usage: Option<WireUsage>,
}

/// Deserializes at most [`MAX_BLOCKS`] blocks, because a block in memory takes many times its size on the wire.
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
                if blocks.len() == MAX_BLOCKS {
                    return Err(de::Error::custom(format!("it has more than {MAX_BLOCKS} content blocks")));
                }
                blocks.push(block);
            }
            Ok(blocks)
        }
    }

    deserializer.deserialize_seq(Blocks)
}

impl WireMessage {
    /// Builds the response from complete content blocks.
    ///
    /// # Errors
    /// Why a block is invalid.
    pub(crate) fn with_content(self, content: Vec<Box<RawValue>>) -> Result<Response, String> {
        let stop = StopReason::from(self.stop_reason.clone());
        let is_cut = stop.after_response() == AfterResponse::StopWithoutTools;
        let mut blocks = Vec::with_capacity(content.len());
        for (index, raw) in content.into_iter().enumerate() {
            let block = PartialBlock::start(raw).and_then(|(mut block, _)| {
                block.close();
                block.finish(is_cut)
            });
            blocks.push(block.map_err(|reason| format!("content block {index}: {reason}"))?);
        }
        Ok(self.into_response(blocks))
    }

    /// Builds the response with this content.
    pub(crate) fn into_response(self, content: Vec<Block>) -> Response {
        #[derive(Deserialize)]
        struct Container {
            id: ContainerId,
        }
        // A container without an id cannot be reused.
        let container = self.container.and_then(|raw| serde_json::from_str::<Container>(raw.get()).ok());
        Response {
            id: self.id,
            model: self.model,
            content,
            stop_reason: StopReason::from(self.stop_reason),
            usage: self.usage.unwrap_or_default().tokens(),
            request_id: None,
            container: container.map(|container| container.id),
            native: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compaction_usage_is_added_to_the_total() {
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
