//! [`ClientState`]: the state that all calls of one client share.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard};

use conjure_base::{Clock, Jitter, lock};
use conjure_conversation::{ModelEvent, Response, Usage};

use crate::config::{HttpConfig, HttpConfigError};
use crate::connection::limiter::Limiter;
use crate::connection::transport::Transport;
use crate::prices::Prices;

/// The maximum number of model names without a price. The service chooses these names, so their number must be bounded.
const MAX_MODELS_WITHOUT_PRICE: usize = 16;
/// The maximum length of such a name, in characters.
const MAX_MODEL_CHARS: usize = 100;

/// The state that all calls of one key share.
pub(crate) struct ClientState {
    pub(crate) transport: Transport,
    pub(crate) limiter: Arc<Limiter>,
    pub(crate) jitter: Jitter,
    pub(crate) retries: u32,
    prices: Prices,
    /// The models that responded and have no price, cleaned for display.
    models_without_price: Mutex<BTreeSet<String>>,
}

impl ClientState {
    pub(crate) fn new(config: &HttpConfig, clock: Arc<dyn Clock>) -> Result<Self, HttpConfigError> {
        Ok(Self {
            transport: Transport::new(config, Arc::clone(&clock))?,
            limiter: Arc::new(Limiter::new(clock)),
            jitter: config.seed.map_or_else(Jitter::random, Jitter::seeded),
            retries: config.retries,
            prices: config.prices.clone(),
            models_without_price: Mutex::default(),
        })
    }

    pub(crate) fn lock_models_without_price(&self) -> MutexGuard<'_, BTreeSet<String>> {
        // A panic cannot leave the set inconsistent.
        lock(&self.models_without_price)
    }

    /// Adds the cost and the request id to a response. `requested` is the model that the request named.
    pub(crate) fn complete(&self, response: &mut Response, request_id: Option<String>, requested: &str) {
        response.request_id = request_id.or(response.request_id.take());
        if response.usage.cost_micros > 0 {
            // The service itself reported the cost.
            return;
        }
        let model = response.model.as_deref().unwrap_or(requested);
        match self.prices.for_model(model) {
            Some(prices) => response.usage.cost_micros = prices.cost_micros(&response.usage),
            None => {
                let model = self.transport.errors().clean(model, MAX_MODEL_CHARS);
                let mut unpriced = self.lock_models_without_price();
                if unpriced.len() < MAX_MODELS_WITHOUT_PRICE && !unpriced.contains(&model) {
                    tracing::debug!(model, "the price of this model is unknown; its responses count as free");
                    unpriced.insert(model);
                }
            }
        }
    }

    /// Adds the cost to a usage event.
    pub(crate) fn priced(&self, event: ModelEvent, requested: &str) -> ModelEvent {
        let ModelEvent::UsageReported(usage) = event else { return event };
        let prices = self.prices.for_model(requested);
        let cost_micros = prices.map_or(usage.cost_micros, |prices| prices.cost_micros(&usage));
        ModelEvent::UsageReported(Usage { cost_micros, ..usage })
    }
}
