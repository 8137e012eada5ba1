//! [`WireUsage`]: the usage of an answer as the service reports it, `usageMetadata`.

use conjure_conversation::Usage;
use serde::Deserialize;
use serde_json::value::RawValue;

/// The object `usageMetadata`. It comes with each piece of an answer, and the last one counts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct WireUsage {
    /// The tokens of the whole prompt, including those read from the cache.
    prompt: u64,
    cached: u64,
    /// The tokens of the answer, without its thoughts.
    candidates: u64,
    thoughts: u64,
    /// The tokens that the service's own tools added to the prompt.
    tool_use_prompt: u64,
}

impl WireUsage {
    /// Reads the counts. A count that is missing or is not a number is zero. `None` if all are zero: some servers send zeros in place of a
    /// usage, because no prompt is empty.
    pub(crate) fn read(raw: &RawValue) -> Option<Self> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Counts<'a> {
            #[serde(borrow, default)]
            prompt_token_count: Option<&'a RawValue>,
            #[serde(borrow, default)]
            cached_content_token_count: Option<&'a RawValue>,
            #[serde(borrow, default)]
            candidates_token_count: Option<&'a RawValue>,
            #[serde(borrow, default)]
            thoughts_token_count: Option<&'a RawValue>,
            #[serde(borrow, default)]
            tool_use_prompt_token_count: Option<&'a RawValue>,
        }
        let counts: Counts<'_> = serde_json::from_str(raw.get()).ok()?;
        let count = |raw: Option<&RawValue>| {
            raw.and_then(|raw| serde_json::from_str::<u64>(raw.get()).ok()).unwrap_or(0)
        };
        let usage = Self {
            prompt: count(counts.prompt_token_count),
            cached: count(counts.cached_content_token_count),
            candidates: count(counts.candidates_token_count),
            thoughts: count(counts.thoughts_token_count),
            tool_use_prompt: count(counts.tool_use_prompt_token_count),
        };
        (usage != Self::default()).then_some(usage)
    }

    /// Converts the counts to those of a conversation.
    pub(crate) const fn tokens(self) -> Usage {
        Usage {
            input_tokens: self.prompt.saturating_sub(self.cached).saturating_add(self.tool_use_prompt),
            output_tokens: self.candidates.saturating_add(self.thoughts),
            cache_creation_input_tokens: 0,
            cache_read_input_tokens: self.cached,
            cost_micros: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(json: &str) -> Option<(u64, u64, u64)> {
        let usage = WireUsage::read(&RawValue::from_string(json.to_owned()).unwrap())?.tokens();
        Some((usage.input_tokens, usage.output_tokens, usage.cache_read_input_tokens))
    }

    #[test]
    fn cached_tokens_are_part_of_the_prompt_and_thoughts_are_not_part_of_the_answer() {
        let all = r#"{"promptTokenCount":100,"cachedContentTokenCount":40,"candidatesTokenCount":7,
            "thoughtsTokenCount":20,"toolUsePromptTokenCount":5,"totalTokenCount":132}"#;
        assert_eq!(read(all), Some((65, 27, 40)));
        assert_eq!(read(r#"{"promptTokenCount":10}"#), Some((10, 0, 0)));
        // More cached than there was.
        assert_eq!(read(r#"{"promptTokenCount":1,"cachedContentTokenCount":3}"#), Some((0, 0, 3)));
        assert_eq!(
            read(r#"{"candidatesTokenCount":18446744073709551615,"thoughtsTokenCount":1}"#),
            Some((0, u64::MAX, 0))
        );
    }

    #[test]
    fn invalid_counts_are_skipped_and_zeros_are_no_usage() {
        assert_eq!(
            read(r#"{"promptTokenCount":"x","candidatesTokenCount":-1,"thoughtsTokenCount":2}"#),
            Some((0, 2, 0))
        );
        for nothing in ["{}", "[]", "3", r#"{"promptTokenCount":0,"candidatesTokenCount":null}"#] {
            assert_eq!(read(nothing), None, "{nothing}");
        }
    }
}
