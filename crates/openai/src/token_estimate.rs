//! [`TokenEstimator`]: the usage of an answer whose service told none.
//!
//! Limits and compaction need counts. A token is taken for 4 bytes, until the model tells one usage; then for as many bytes as it had in
//! that request.

use std::sync::atomic::{AtomicU64, Ordering};

use conjure_conversation::Usage;

/// How many bytes a token has, as long as nothing is known.
const DEFAULT_BYTES_PER_TOKEN: f64 = 4.0;
/// What a service can sensibly tell, in bytes per token. Images and templates can distort a short request.
const PLAUSIBLE: std::ops::RangeInclusive<f64> = 1.0..=16.0;
/// What an image counts, in tokens.
pub(crate) const IMAGE_TOKENS: u64 = 1_000;

/// The size of a request, to estimate its tokens from.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct RequestSize {
    /// Bytes of text, without the data of images.
    pub(crate) text_bytes: u64,
    /// How many images it has.
    pub(crate) images: u64,
}

/// Estimates tokens from bytes. All calls of a model share one.
#[derive(Debug, Default)]
pub(crate) struct TokenEstimator {
    /// The bits of the last ratio that the model has told, as `f64`; 0 where there is none.
    bytes_per_token: AtomicU64,
}

impl TokenEstimator {
    /// Learns from a usage that the service told about a request of this size.
    pub(crate) fn learn(&self, size: RequestSize, told: &Usage) {
        let tokens = told.total_input().saturating_sub(size.images.saturating_mul(IMAGE_TOKENS));
        if tokens == 0 {
            return;
        }
        let ratio = as_f64(size.text_bytes) / as_f64(tokens);
        if PLAUSIBLE.contains(&ratio) {
            self.bytes_per_token.store(ratio.to_bits(), Ordering::Relaxed);
        }
    }

    /// The estimated usage of a request of this size and an answer of so many bytes.
    pub(crate) fn estimate(&self, size: RequestSize, answer_bytes: u64) -> Usage {
        Usage {
            input_tokens: self
                .tokens(size.text_bytes)
                .saturating_add(size.images.saturating_mul(IMAGE_TOKENS)),
            output_tokens: self.tokens(answer_bytes),
            ..Usage::default()
        }
    }

    fn tokens(&self, bytes: u64) -> u64 {
        let told = f64::from_bits(self.bytes_per_token.load(Ordering::Relaxed));
        let ratio = if told > 0.0 { told } else { DEFAULT_BYTES_PER_TOKEN };
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a count of bytes is not negative, and a cast from a float saturates"
        )]
        let tokens = (as_f64(bytes) / ratio).ceil() as u64;
        tokens
    }
}

#[expect(clippy::cast_precision_loss, reason = "an estimate needs no more than 53 bits")]
const fn as_f64(count: u64) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn size(text_bytes: u64) -> RequestSize {
        RequestSize { text_bytes, images: 0 }
    }

    fn told(input_tokens: u64) -> Usage {
        Usage { input_tokens, ..Usage::default() }
    }

    #[test]
    fn a_token_is_four_bytes_until_the_model_tells_otherwise() {
        let estimator = TokenEstimator::default();
        let usage = estimator.estimate(RequestSize { text_bytes: 4001, images: 2 }, 8);
        assert_eq!((usage.input_tokens, usage.output_tokens), (1001 + 2000, 2));
        estimator.learn(size(3000), &told(1500));
        let usage = estimator.estimate(size(4000), 8);
        assert_eq!((usage.input_tokens, usage.output_tokens), (2000, 4));
        // Cached input is input.
        let cached = Usage { input_tokens: 10, cache_read_input_tokens: 990, ..Usage::default() };
        estimator.learn(size(3000), &cached);
        assert_eq!(estimator.estimate(size(3000), 0).input_tokens, 1000);
    }

    #[test]
    fn what_cannot_be_is_not_learnt() {
        let estimator = TokenEstimator::default();
        for (bytes, tokens) in [(4000, 0), (4000, 1), (10, 4000), (0, 0), (u64::MAX, 1)] {
            estimator.learn(size(bytes), &told(tokens));
            assert_eq!(estimator.estimate(size(400), 0).input_tokens, 100, "{bytes} bytes, {tokens} tokens");
        }
        assert_eq!(TokenEstimator::default().estimate(size(u64::MAX), 0).output_tokens, 0);
    }
}
