//! Decides when a session's history is compacted so that it fits into its model's context.
//!
//! State: none.

use std::sync::Arc;

use conjure_conversation::{Compaction, CompactionPolicy, Model, Summarizer};

/// How many fifths of the context a history may fill before it is compacted. The rest is for the next messages.
const FILLED_FIFTHS: u64 = 4;

/// The compaction of a session with this model: as configured, but early enough for the model's context.
///
/// `before` is the session's former model. It summarizes a history of `tokens` that does not fit into the context, unless
/// the configuration names a summarizer. The current model summarizes a history that fits, so that history does not go to
/// the former model's service.
pub(crate) fn compaction_for(
    configured: Option<&Compaction>,
    model: &dyn Model,
    tokens: Option<u64>,
    before: Option<&Arc<dyn Summarizer>>,
) -> Option<Compaction> {
    let Some(context) = model.context_tokens() else { return configured.cloned() };
    let most = context / 5 * FILLED_FIFTHS;
    let policy = match configured.map(|configured| configured.policy) {
        Some(policy) if policy.threshold() <= most => policy,
        Some(policy) => policy.with_lower_threshold(most),
        None => CompactionPolicy::with_threshold(most),
    };
    let before = before.filter(|_| tokens.is_some_and(|tokens| tokens >= context));
    let summarizer = configured.and_then(|configured| configured.summarizer.clone());
    Some(Compaction { policy, summarizer: summarizer.or_else(|| before.cloned()) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use conjure_conversation::{ModelStream, ModelSummarizer, Request};

    struct Sized(Option<u64>);

    impl Model for Sized {
        fn stream(&self, _: Request) -> ModelStream {
            Box::pin(futures_util::stream::empty())
        }

        fn context_tokens(&self) -> Option<u64> {
            self.0
        }
    }

    fn threshold(configured: Option<u64>, context: Option<u64>) -> Option<u64> {
        let configured = configured.map(|tokens| Compaction::from(CompactionPolicy::with_threshold(tokens)));
        let compaction = compaction_for(configured.as_ref(), &Sized(context), None, None);
        compaction.map(|compaction| compaction.policy.threshold())
    }

    #[test]
    fn a_history_fits_into_the_context_that_is_known() {
        assert_eq!(threshold(None, None), None);
        assert_eq!(threshold(Some(150_000), None), Some(150_000));
        assert_eq!(threshold(None, Some(100_000)), Some(80_000));
        assert_eq!(threshold(Some(150_000), Some(100_000)), Some(80_000));
        assert_eq!(threshold(Some(50_000), Some(100_000)), Some(50_000));
    }

    #[test]
    fn the_model_before_summarises_only_what_does_not_fit() {
        let before: Arc<dyn Summarizer> = Arc::new(ModelSummarizer::new(Sized(None)));
        let summarizer = |configured: Option<&Compaction>, tokens| {
            compaction_for(configured, &Sized(Some(10)), tokens, Some(&before)).unwrap().summarizer
        };
        assert!(Arc::ptr_eq(&summarizer(None, Some(10)).unwrap(), &before));
        assert!(summarizer(None, Some(9)).is_none(), "it fits");
        assert!(summarizer(None, None).is_none(), "it was compacted");
        let other: Arc<dyn Summarizer> = Arc::new(ModelSummarizer::new(Sized(None)));
        let policy = Compaction::from(CompactionPolicy::with_threshold(1));
        let configured = Compaction { summarizer: Some(Arc::clone(&other)), ..policy };
        assert!(Arc::ptr_eq(&summarizer(Some(&configured), Some(10)).unwrap(), &other));
    }
}
