//! The usage of a running model call so far, from its stream: what is charged if the call is aborted.
//!
//! State: the counts of one call, in memory. They end with the call.

use conjure_conversation::{ModelEvent, Usage};

/// How many bytes of output count as one token.
const BYTES_A_TOKEN: u64 = 4;

/// The usage of a call so far.
#[derive(Debug, Default)]
pub(super) struct PartialUsage {
    /// Whether the request was sent, so that the service may bill it.
    is_sent: bool,
    /// Whether the response has begun.
    has_begun: bool,
    /// The usage that the service reported.
    reported: Usage,
    /// How many bytes of the response have arrived.
    output_bytes: u64,
}

/// The estimated usage of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct EstimatedUsage {
    /// The reported usage. If nothing was reported, its input is the reserved input.
    pub(super) reported: Usage,
    /// The tokens of output beyond the reported ones.
    pub(super) unreported_output: u64,
}

impl PartialUsage {
    /// Processes an event of the stream.
    pub(super) fn observe(&mut self, event: &ModelEvent) {
        self.is_sent = true;
        let bytes = match event {
            ModelEvent::TextDelta { text, .. } | ModelEvent::ThinkingDelta { text, .. } => text.len(),
            ModelEvent::ToolInputDelta { partial_json, .. } => partial_json.len(),
            ModelEvent::Started | ModelEvent::ToolUseStarted { .. } => 0,
            ModelEvent::UsageReported(usage) => {
                self.reported = *usage;
                return;
            }
            ModelEvent::Queued => {
                // The former attempt failed, and nothing of it was shown.
                *self = Self::default();
                return;
            }
            _ => return,
        };
        self.has_begun = true;
        self.output_bytes = self.output_bytes.saturating_add(bytes as u64);
    }

    /// The call failed. A failure before the response began is not billed.
    pub(super) const fn failed(&mut self) {
        self.is_sent = self.has_begun;
    }

    /// The estimated usage, if `input` tokens were reserved for the request; `None` if it was not sent.
    pub(super) fn used(&self, input: u64) -> Option<EstimatedUsage> {
        let input_tokens = if self.reported.total_input() == 0 { input } else { self.reported.input_tokens };
        let reported = Usage { input_tokens, ..self.reported };
        let unreported_output =
            self.output_bytes.div_ceil(BYTES_A_TOKEN).saturating_sub(reported.output_tokens);
        self.is_sent.then_some(EstimatedUsage { reported, unreported_output })
    }
}

#[cfg(test)]
mod tests {
    use conjure_conversation::{ModelEvent, Usage};

    use super::{EstimatedUsage, PartialUsage};

    fn partial(events: &[ModelEvent]) -> PartialUsage {
        let mut partial = PartialUsage::default();
        events.iter().for_each(|event| partial.observe(event));
        partial
    }

    fn text(size: usize) -> ModelEvent {
        ModelEvent::TextDelta { index: 0, text: "x".repeat(size) }
    }

    fn only(input_tokens: u64, unreported_output: u64) -> Option<EstimatedUsage> {
        Some(EstimatedUsage { reported: Usage { input_tokens, ..Usage::default() }, unreported_output })
    }

    const REPORTED: Usage = Usage {
        input_tokens: 3,
        output_tokens: 2,
        cache_creation_input_tokens: 20,
        cache_read_input_tokens: 100,
        cost_micros: 9,
    };

    #[test]
    fn what_was_not_sent_has_used_nothing() {
        assert_eq!(partial(&[]).used(50), None);
        assert_eq!(partial(&[ModelEvent::Queued]).used(50), None);
    }

    #[test]
    fn what_was_sent_has_used_what_it_sent_until_the_service_says_more() {
        assert_eq!(partial(&[ModelEvent::Sent]).used(50), only(50, 0));
        let reported = partial(&[ModelEvent::Sent, ModelEvent::UsageReported(REPORTED)]);
        assert_eq!(reported.used(50), Some(EstimatedUsage { reported: REPORTED, unreported_output: 0 }));
        let later = Usage { output_tokens: 7, ..REPORTED };
        let twice = partial(&[ModelEvent::UsageReported(REPORTED), ModelEvent::UsageReported(later)]);
        assert_eq!(
            twice.used(50),
            Some(EstimatedUsage { reported: later, unreported_output: 0 }),
            "the last count stands"
        );
    }

    #[test]
    fn what_was_shown_counts_where_the_service_has_counted_less() {
        let json = ModelEvent::ToolInputDelta { index: 1, partial_json: "{\"a\":1}".to_owned() };
        let thinking = ModelEvent::ThinkingDelta { index: 0, text: "hm".to_owned() };
        assert_eq!(partial(&[ModelEvent::Started, text(8), json, thinking]).used(50), only(50, 5));
        for (bytes, unreported_output) in [(4, 0), (8, 0), (9, 1), (400, 98)] {
            let partial = partial(&[ModelEvent::UsageReported(REPORTED), ModelEvent::Started, text(bytes)]);
            assert_eq!(partial.used(50), Some(EstimatedUsage { reported: REPORTED, unreported_output }));
        }
    }

    #[test]
    fn what_waits_to_be_sent_again_has_used_nothing() {
        let before = [ModelEvent::Sent, ModelEvent::UsageReported(REPORTED), ModelEvent::Queued];
        assert_eq!(partial(&before).used(50), None);
        let again = [before.as_slice(), &[ModelEvent::Sent]].concat();
        assert_eq!(partial(&again).used(50), only(50, 0));
    }

    #[test]
    fn a_failure_is_free_until_an_answer_has_begun() {
        for before in [vec![ModelEvent::Sent], vec![ModelEvent::Sent, ModelEvent::UsageReported(REPORTED)]] {
            let mut refused = partial(&before);
            refused.failed();
            assert_eq!(refused.used(50), None);
        }
        let mut cut = partial(&[ModelEvent::UsageReported(REPORTED), ModelEvent::Started]);
        cut.failed();
        assert_eq!(cut.used(50), Some(EstimatedUsage { reported: REPORTED, unreported_output: 0 }));
        let mut cut = partial(&[text(1)]);
        cut.failed();
        assert_eq!(cut.used(50), only(50, 1));
    }
}
