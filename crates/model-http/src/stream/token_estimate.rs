//! [`TokenEstimator`]: estimates the usage of an answer if the service reported none.
//!
//! Limits and compaction need token counts. At first a token counts as 4 bytes. After the service has reported a usage, a token counts as
//! many bytes as it had in that request.

use std::sync::atomic::{AtomicU64, Ordering};

use conjure_conversation::Usage;

/// The bytes per token until a usage is reported.
const DEFAULT_BYTES_PER_TOKEN: f64 = 4.0;
/// The plausible range of reported bytes per token. Images and templates can distort the ratio of a short request.
const PLAUSIBLE: std::ops::RangeInclusive<f64> = 1.0..=16.0;
/// The estimated tokens of an image.
const IMAGE_TOKENS: u64 = 1_000;

/// The size of a request, from which its tokens are estimated.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RequestSize {
    /// Bytes of text, without the data of images.
    pub text_bytes: u64,
    /// The number of images and files.
    pub images: u64,
}

/// Estimates tokens from bytes. All calls of a model share one estimator.
#[derive(Debug, Default)]
pub struct TokenEstimator {
    /// The last reported ratio, as the bits of an `f64`; 0 if there is none.
    bytes_per_token: AtomicU64,
}

impl TokenEstimator {
    /// The usage that the service reported, or an estimate from the sizes of the request and the answer. A reported usage improves later
    /// estimates.
    #[must_use]
    pub fn usage(&self, size: RequestSize, reported: Option<Usage>, answer_bytes: u64) -> Usage {
        match reported.filter(|reported| reported.total() > 0) {
            Some(reported) => {
                self.learn(size, &reported);
                reported
            }
            None => self.estimate(size, answer_bytes),
        }
    }

    fn learn(&self, size: RequestSize, reported: &Usage) {
        let tokens = reported.total_input().saturating_sub(size.images.saturating_mul(IMAGE_TOKENS));
        if tokens == 0 {
            return;
        }
        let ratio = as_f64(size.text_bytes) / as_f64(tokens);
        if PLAUSIBLE.contains(&ratio) {
            self.bytes_per_token.store(ratio.to_bits(), Ordering::Relaxed);
        }
    }

    fn estimate(&self, size: RequestSize, answer_bytes: u64) -> Usage {
        Usage {
            input_tokens: self
                .tokens(size.text_bytes)
                .saturating_add(size.images.saturating_mul(IMAGE_TOKENS)),
            output_tokens: self.tokens(answer_bytes),
            ..Usage::default()
        }
    }

    fn tokens(&self, bytes: u64) -> u64 {
        let reported = f64::from_bits(self.bytes_per_token.load(Ordering::Relaxed));
        let ratio = if reported > 0.0 { reported } else { DEFAULT_BYTES_PER_TOKEN };
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

    fn reported(input_tokens: u64) -> Usage {
        Usage { input_tokens, ..Usage::default() }
    }

    #[test]
    fn a_token_is_four_bytes_until_the_service_reports_otherwise() {
        let estimator = TokenEstimator::default();
        let usage = estimator.estimate(RequestSize { text_bytes: 4001, images: 2 }, 8);
        assert_eq!((usage.input_tokens, usage.output_tokens), (1001 + 2000, 2));
        estimator.learn(size(3000), &reported(1500));
        let usage = estimator.estimate(size(4000), 8);
        assert_eq!((usage.input_tokens, usage.output_tokens), (2000, 4));
        // Cached input is input.
        let cached = Usage { input_tokens: 10, cache_read_input_tokens: 990, ..Usage::default() };
        estimator.learn(size(3000), &cached);
        assert_eq!(estimator.estimate(size(3000), 0).input_tokens, 1000);
    }

    #[test]
    fn a_reported_usage_counts_and_zeros_report_nothing() {
        let estimator = TokenEstimator::default();
        assert_eq!(estimator.usage(size(3000), Some(reported(1500)), 8), reported(1500));
        for none in [None, Some(Usage::default())] {
            let usage = estimator.usage(size(4000), none, 8);
            assert_eq!((usage.input_tokens, usage.output_tokens), (2000, 4));
        }
    }

    #[test]
    fn impossible_usage_is_ignored() {
        let estimator = TokenEstimator::default();
        for (bytes, tokens) in [(4000, 0), (4000, 1), (10, 4000), (0, 0), (u64::MAX, 1)] {
            estimator.learn(size(bytes), &reported(tokens));
            assert_eq!(estimator.estimate(size(400), 0).input_tokens, 100, "{bytes} bytes, {tokens} tokens");
        }
        assert_eq!(TokenEstimator::default().estimate(size(u64::MAX), 0).output_tokens, 0);
    }
}
