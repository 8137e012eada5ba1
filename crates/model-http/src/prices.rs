//! [`Prices`]: the token prices of models. The embedder can replace the table.
//!
//! The default table is [`KNOWN_MODELS`](crate::KNOWN_MODELS). Responses of other models cost 0 until the embedder sets prices for them.

use std::collections::BTreeMap;

use conjure_conversation::Usage;

/// Prices of one model, in millionths of a dollar per million tokens (so that 3 dollars are 3,000,000).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ModelPrices {
    /// Input that is neither read from the cache nor written to it.
    pub input: u64,
    /// Output.
    pub output: u64,
    /// Input written to the cache.
    pub cache_write: u64,
    /// Input read from the cache.
    pub cache_read: u64,
}

/// Prices by a model's name, without its version: `claude-haiku-4-5` also stands for `claude-haiku-4-5-20251001`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prices {
    models: BTreeMap<String, ModelPrices>,
    /// The prices of a model that is not in the table.
    fallback: Option<ModelPrices>,
}

impl Prices {
    /// No prices: everything costs 0.
    #[must_use]
    pub const fn none() -> Self {
        Self { models: BTreeMap::new(), fallback: None }
    }

    /// A table with these prices only.
    pub fn new<N: Into<String>>(prices: impl IntoIterator<Item = (N, ModelPrices)>) -> Self {
        let models = prices.into_iter().map(|(name, prices)| (name.into(), prices)).collect();
        Self { models, fallback: None }
    }

    /// The same table with one model's prices set.
    #[must_use]
    pub fn with_model(mut self, model: impl Into<String>, prices: ModelPrices) -> Self {
        self.models.insert(model.into(), prices);
        self
    }

    /// The same table with these prices for every model that is not in it.
    #[must_use]
    pub const fn with_fallback(mut self, prices: ModelPrices) -> Self {
        self.fallback = Some(prices);
        self
    }

    /// The prices of a model, if they are known.
    #[must_use]
    pub fn for_model(&self, model: &str) -> Option<&ModelPrices> {
        self.models
            .iter()
            .filter(|(name, _)| is_version_of(model, name))
            .max_by_key(|(name, _)| name.len())
            .map(|(_, prices)| prices)
            .or(self.fallback.as_ref())
    }
}

impl ModelPrices {
    /// The cost of this usage, in millionths of a dollar, rounded up.
    #[must_use]
    pub fn cost_micros(&self, usage: &Usage) -> u64 {
        let cost = |tokens: u64, price: u64| u128::from(tokens) * u128::from(price);
        let parts = [
            cost(usage.input_tokens, self.input),
            cost(usage.output_tokens, self.output),
            cost(usage.cache_creation_input_tokens, self.cache_write),
            cost(usage.cache_read_input_tokens, self.cache_read),
        ];
        let sum = parts.into_iter().fold(0u128, u128::saturating_add);
        u64::try_from(sum.div_ceil(1_000_000)).unwrap_or(u64::MAX)
    }
}

/// Whether `name` is `model`, alone or followed by a version: a date, `-latest`, `-preview`, or any text after `@` or `:`.
pub(crate) fn is_version_of(name: &str, model: &str) -> bool {
    let Some(rest) = name.strip_prefix(model) else { return false };
    let is_date = |text: &str| {
        text.bytes().filter(u8::is_ascii_digit).count() >= 4
            && text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-')
    };
    match rest.strip_prefix('-') {
        Some(version) => matches!(version, "latest" | "preview") || is_date(version),
        None => rest.is_empty() || rest.starts_with(['@', ':']),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_token_has_its_price() {
        let usage = Usage {
            input_tokens: 1_000_000,
            output_tokens: 100_000,
            cache_creation_input_tokens: 10_000,
            cache_read_input_tokens: 1_000_000,
            cost_micros: 0,
        };
        let prices = Prices::default();
        let sonnet = prices.for_model("claude-sonnet-4-5-20250929").unwrap();
        assert_eq!(sonnet.cost_micros(&usage), 3_000_000 + 1_500_000 + 37_500 + 300_000);
        let one = Usage { cache_read_input_tokens: 1, ..Usage::default() };
        assert_eq!(sonnet.cost_micros(&one), 1, "rounded up");
    }

    #[test]
    fn no_usage_overflows() {
        let all = Usage { input_tokens: u64::MAX, output_tokens: u64::MAX, ..Usage::default() };
        let dear = ModelPrices { input: u64::MAX, output: u64::MAX, cache_write: 0, cache_read: 0 };
        assert_eq!(dear.cost_micros(&all), u64::MAX);
    }

    #[test]
    fn a_version_has_the_price_of_its_model() {
        let price = |input| ModelPrices { input, output: 2, cache_write: 3, cache_read: 4 };
        let (a, b) = (price(1), price(2));
        let prices = Prices::new([("m-4", a), ("m-4-5", b)]);
        assert_eq!(prices.for_model("m-4-1"), None);
        assert_eq!(prices.for_model("m-4-5-2025"), Some(&b));
        assert_eq!(prices.for_model("m-4:free"), Some(&a));
        assert_eq!(prices.for_model("m-40"), None);
        let prices = prices.with_fallback(a);
        assert_eq!((prices.for_model("m-40"), prices.for_model("m-4-5")), (Some(&a), Some(&b)));
        assert_eq!(Prices::none().for_model("m-4"), None);
    }
}
