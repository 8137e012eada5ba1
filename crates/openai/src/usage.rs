//! Reads the usage of both APIs. Their input count includes tokens that were read from the cache and written to it.

use conjure_conversation::Usage;
use serde_json::Value;

/// The counts of a `usage` object of Chat Completions; `None` if it has none. Cached input is counted separately, by OpenAI's field names
/// or DeepSeek's.
pub(crate) fn chat_usage(json: &str) -> Option<Usage> {
    let usage: Value = serde_json::from_str(json).ok()?;
    let details = &usage["prompt_tokens_details"];
    reported_usage(
        &usage["prompt_tokens"],
        &usage["completion_tokens"],
        details["cached_tokens"].as_u64().or_else(|| usage["prompt_cache_hit_tokens"].as_u64()),
        details["cache_write_tokens"].as_u64(),
    )
}

/// The counts of a `usage` object of the Responses API; `None` if it has none.
pub(crate) fn responses_usage(json: &str) -> Option<Usage> {
    let usage: Value = serde_json::from_str(json).ok()?;
    let details = &usage["input_tokens_details"];
    reported_usage(
        &usage["input_tokens"],
        &usage["output_tokens"],
        details["cached_tokens"].as_u64(),
        details["cache_write_tokens"].as_u64(),
    )
}

/// The canonical counts. The uncached input is all input without the cached tokens. `None` if there is neither input nor output.
fn reported_usage(input: &Value, output: &Value, cached: Option<u64>, written: Option<u64>) -> Option<Usage> {
    let (cached, written) = (cached.unwrap_or(0), written.unwrap_or(0));
    if !input.is_u64() && !output.is_u64() {
        return None;
    }
    Some(Usage {
        input_tokens: input.as_u64().unwrap_or(0).saturating_sub(cached).saturating_sub(written),
        output_tokens: output.as_u64().unwrap_or(0),
        cache_creation_input_tokens: written,
        cache_read_input_tokens: cached,
        cost_micros: 0,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_responses_api_has_other_names_for_the_same() {
        let json = r#"{"input_tokens":100,"input_tokens_details":{"cached_tokens":60,"cache_write_tokens":30},
            "output_tokens":7,"output_tokens_details":{"reasoning_tokens":5},"total_tokens":107}"#;
        let usage = responses_usage(json).unwrap();
        assert_eq!((usage.input_tokens, usage.total_input(), usage.output_tokens), (10, 100, 7));
        assert_eq!(responses_usage("{}"), None);
    }

    #[test]
    fn cached_and_written_input_is_taken_from_all_input() {
        for (json, expected) in [
            (
                r#"{"prompt_tokens":100,"completion_tokens":7,"total_tokens":107,
                    "prompt_tokens_details":{"cached_tokens":60,"cache_write_tokens":30},
                    "completion_tokens_details":{"reasoning_tokens":5}}"#,
                Some((10, 7, 30, 60)),
            ),
            (
                r#"{"prompt_tokens":100,"completion_tokens":7,"prompt_cache_hit_tokens":64}"#,
                Some((36, 7, 0, 64)),
            ),
            (r#"{"prompt_tokens":10,"prompt_tokens_details":{"cached_tokens":60}}"#, Some((0, 0, 0, 60))),
            (r#"{"prompt_tokens":10,"prompt_tokens_details":null}"#, Some((10, 0, 0, 0))),
            ("{}", None),
            (r#"{"prompt_tokens":-1,"completion_tokens":"7"}"#, None),
            ("7", None),
        ] {
            let usage = chat_usage(json).map(|usage| {
                (
                    usage.input_tokens,
                    usage.output_tokens,
                    usage.cache_creation_input_tokens,
                    usage.cache_read_input_tokens,
                )
            });
            assert_eq!(usage, expected, "{json}");
        }
    }
}
