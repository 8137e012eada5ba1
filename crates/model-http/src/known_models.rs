//! The models whose context size and prices are known.
//!
//! The numbers are the vendors' list prices of November 2026, from a public catalogue. They were not checked against the vendors' pages, so
//! check them before you bill by them. Surcharges for long contexts, regions, batches and priority are not included.

use crate::prices::{ModelPrices, Prices, is_version_of};

/// A model whose context size and prices are known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KnownModel {
    /// The service's name of the model. A version, such as `-2025-08-07`, may follow.
    pub name: &'static str,
    /// The maximum number of input tokens.
    pub context_tokens: u64,
    /// Its prices.
    pub prices: ModelPrices,
}

/// A row of the table. Prices are in dollars per million tokens: input, output, and input read from the cache. Input written to the cache
/// costs as much as other input.
const fn model(
    name: &'static str,
    context_tokens: u64,
    input: f64,
    output: f64,
    cache_read: f64,
) -> KnownModel {
    priced(name, context_tokens, [input, output, cache_read, input])
}

/// A row of a model that charges a quarter more than input for writing to the cache.
const fn cached(
    name: &'static str,
    context_tokens: u64,
    input: f64,
    output: f64,
    cache_read: f64,
) -> KnownModel {
    priced(name, context_tokens, [input, output, cache_read, input * 1.25])
}

const fn priced(
    name: &'static str,
    context_tokens: u64,
    [input, output, cache_read, cache_write]: [f64; 4],
) -> KnownModel {
    let prices = ModelPrices {
        input: micros(input),
        output: micros(output),
        cache_read: micros(cache_read),
        cache_write: micros(cache_write),
    };
    KnownModel { name, context_tokens, prices }
}

/// Converts dollars to millionths of a dollar.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "prices are small and positive")]
const fn micros(dollars: f64) -> u64 {
    (dollars * 1_000_000.0 + 0.5) as u64
}

/// All known models.
pub const KNOWN_MODELS: &[KnownModel] = &[
    cached("claude-fable-5", 1_000_000, 10.0, 50.0, 1.0),
    cached("claude-fable-5-1", 1_000_000, 10.0, 50.0, 0.25),
    cached("claude-haiku-4-5", 200_000, 1.0, 5.0, 0.1),
    cached("claude-haiku-5-5", 1_000_000, 0.1, 0.5, 0.01),
    cached("claude-mythos-5", 1_000_000, 10.0, 50.0, 1.0),
    cached("claude-mythos-5-1", 1_000_000, 10.0, 50.0, 0.25),
    cached("claude-opus-4-5", 200_000, 5.0, 25.0, 0.5),
    cached("claude-opus-4-6", 1_000_000, 5.0, 25.0, 0.5),
    cached("claude-opus-4-7", 1_000_000, 5.0, 25.0, 0.5),
    cached("claude-opus-4-8", 1_000_000, 5.0, 25.0, 0.5),
    cached("claude-opus-5", 1_000_000, 5.0, 25.0, 0.5),
    cached("claude-opus-5-5", 1_000_000, 4.0, 20.0, 0.2),
    cached("claude-sonnet-4-5", 200_000, 3.0, 15.0, 0.3),
    cached("claude-sonnet-4-6", 1_000_000, 3.0, 15.0, 0.3),
    cached("claude-sonnet-5", 1_000_000, 2.0, 10.0, 0.2),
    cached("claude-sonnet-5-5", 1_000_000, 2.0, 10.0, 0.1),
    model("deepseek-chat", 131_072, 0.28, 0.42, 0.028),
    model("deepseek-reasoner", 131_072, 0.28, 0.42, 0.028),
    model("deepseek-v4-flash", 1_000_000, 0.3, 1.2, 0.006),
    model("deepseek-v4-pro", 1_000_000, 1.32, 3.96, 0.044),
    model("gemini-2.5-flash", 1_048_576, 0.3, 2.5, 0.03),
    model("gemini-2.5-flash-lite", 1_048_576, 0.1, 0.4, 0.01),
    model("gemini-2.5-pro", 1_048_576, 1.25, 10.0, 0.125),
    model("gemini-3-flash-preview", 1_048_576, 0.5, 3.0, 0.05),
    model("gemini-3.1-flash-lite", 1_048_576, 0.25, 1.5, 0.025),
    model("gemini-3.1-pro-preview", 1_048_576, 2.0, 12.0, 0.2),
    model("gemini-3.5-flash", 1_048_576, 1.5, 9.0, 0.15),
    model("gemini-3.5-flash-lite", 1_048_576, 0.3, 2.5, 0.03),
    model("gemini-3.6-flash", 1_048_576, 0.75, 3.75, 0.075),
    model("gemini-3.7-flash", 1_048_576, 0.75, 3.75, 0.075),
    model("gemini-3.8-flash", 1_048_576, 0.75, 3.75, 0.075),
    model("gemini-4-argon", 1_048_576, 2.0, 10.0, 0.1),
    model("gemini-4-hydrogen", 1_048_576, 1.5, 7.5, 0.075),
    model("gpt-4.1", 1_047_576, 2.0, 8.0, 0.5),
    model("gpt-4.1-mini", 1_047_576, 0.4, 1.6, 0.1),
    model("gpt-4.1-nano", 1_047_576, 0.1, 0.4, 0.025),
    model("gpt-4o", 128_000, 2.5, 10.0, 1.25),
    model("gpt-4o-mini", 128_000, 0.15, 0.6, 0.075),
    model("gpt-5", 272_000, 1.25, 10.0, 0.125),
    model("gpt-5-mini", 272_000, 0.25, 2.0, 0.025),
    model("gpt-5-nano", 272_000, 0.05, 0.4, 0.005),
    model("gpt-5.1", 272_000, 1.25, 10.0, 0.125),
    model("gpt-5.2", 272_000, 1.75, 14.0, 0.175),
    model("gpt-5.4", 1_050_000, 2.5, 15.0, 0.25),
    model("gpt-5.4-mini", 272_000, 0.75, 4.5, 0.075),
    model("gpt-5.4-nano", 272_000, 0.2, 1.25, 0.02),
    model("gpt-5.5", 1_050_000, 5.0, 30.0, 0.5),
    cached("gpt-5.6", 922_000, 4.0, 20.0, 0.4),
    cached("gpt-5.6-luna", 922_000, 0.2, 1.2, 0.02),
    cached("gpt-5.6-sol", 922_000, 4.0, 20.0, 0.4),
    cached("gpt-5.6-terra", 922_000, 2.0, 12.0, 0.2),
    cached("gpt-6-astra", 922_000, 10.0, 50.0, 1.0),
    cached("gpt-6-luna", 922_000, 0.1, 0.5, 0.01),
    cached("gpt-6-sol", 922_000, 2.0, 10.0, 0.2),
    cached("gpt-6.1-sol", 922_000, 2.0, 10.0, 0.1),
    cached("gpt-6.1-terra", 922_000, 1.0, 5.0, 0.05),
    model("o3", 200_000, 2.0, 8.0, 0.5),
    model("o3-mini", 200_000, 1.1, 4.4, 0.55),
    model("o4-mini", 200_000, 1.1, 4.4, 0.275),
    model("mistral-large-latest", 262_144, 0.5, 1.5, 0.05),
    model("mistral-medium-latest", 262_144, 1.5, 7.5, 0.15),
    model("mistral-small-latest", 262_144, 0.15, 0.6, 0.015),
];

/// The known model of this name, without the version that may follow it.
#[must_use]
pub fn known_model(name: &str) -> Option<&'static KnownModel> {
    KNOWN_MODELS.iter().find(|known| is_version_of(name, known.name))
}

impl Default for Prices {
    /// The prices of [`KNOWN_MODELS`].
    fn default() -> Self {
        Self::new(KNOWN_MODELS.iter().map(|known| (known.name, known.prices)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_sorted_by_vendor_and_unique() {
        let mut names: Vec<_> = KNOWN_MODELS.iter().map(|known| known.name).collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
        for known in KNOWN_MODELS {
            assert!(known.context_tokens >= 100_000 && known.prices.input > 0, "{known:?}");
            assert!(known.prices.cache_read <= known.prices.input, "{known:?}");
        }
    }

    #[test]
    fn a_version_matches_only_its_model() {
        let name = |name| known_model(name).map(|known| known.name);
        assert_eq!(name("gpt-5"), Some("gpt-5"));
        assert_eq!(name("gpt-5-2025-08-07"), Some("gpt-5"));
        assert_eq!(name("gpt-5-mini"), Some("gpt-5-mini"));
        assert_eq!(name("claude-haiku-4-5-20251001"), Some("claude-haiku-4-5"));
        assert_eq!(name("claude-opus-5-7"), None, "a later model is not the one before");
        assert_eq!(name("gpt-5-search-api"), None);
        assert_eq!(name("gpt-50"), None);
    }

    #[test]
    fn prices_are_millionths_of_a_dollar() {
        let sonnet = known_model("claude-sonnet-4-5").unwrap().prices;
        let expected =
            ModelPrices { input: 3_000_000, output: 15_000_000, cache_read: 300_000, cache_write: 3_750_000 };
        assert_eq!(sonnet, expected);
    }
}
