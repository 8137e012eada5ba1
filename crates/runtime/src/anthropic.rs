//! The client of the Messages API (feature `anthropic`), and how a [`Config`](crate::Config) configures it.
//!
//! One [`Client`] belongs to one key. Create it once and share it, because it holds the rate limiter of the key and the
//! connections. [`Client::messages`] returns a [`Model`](conjure_conversation::Model) for [`run_loop`](crate::run_loop).
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use conjure::anthropic::{self, Client, ModelPrices, Prices};
//!
//! // Where the service is, its profile and its bounds come from the configuration; the key comes from the host,
//! // and so may the prices.
//! let gateway = Some("http://localhost:8080".to_owned());
//! let settings = conjure::Settings { max_tokens: Some(2000), base_url: gateway, ..conjure::Settings::default() };
//! let config = conjure::Config::from_layers(settings, &conjure::ProcessEnv::default(), None)?;
//! let price = ModelPrices { input: 1_000_000, output: 5_000_000, cache_write: 1_250_000, cache_read: 100_000 };
//! let prices = Prices::default().with_model("my-model", price);
//! let client = Client::new(&anthropic::config(&config, "sk-…".replace('…', "1").into()).with_prices(prices))?;
//! let model = client.messages(anthropic::options(&config, "my-model"))?;
//! assert_eq!(model.options().max_tokens(), 2000);
//! # Ok(())
//! # }
//! ```

pub use conjure_anthropic::hosted;
pub use conjure_anthropic::{
    ApiProfile, Caching, Client, Config, ConfigError, DEFAULT_BASE_URL, HttpConfigError, Messages,
    ModelOptions, ModelPrices, PassthroughBody, PassthroughRequest, PassthroughResponse, PlaintextPolicy,
    Prices, ResponseLimits, Timeouts,
};
pub use secrecy::SecretString;

use crate::config::ApiProfile as ConfiguredProfile;
use crate::models::timeouts;

/// The client configuration for this key.
#[must_use]
pub fn config(configured: &crate::Config, key: SecretString) -> Config {
    let profile = match configured.profile() {
        ConfiguredProfile::Beta => ApiProfile::Beta,
        ConfiguredProfile::Current => ApiProfile::Current,
    };
    let config =
        Config::new(key).with_profile(profile).with_http(|http| http.with_timeouts(timeouts(configured)));
    match configured.base_url() {
        Some(url) => config.with_base_url(url),
        None => config,
    }
}

/// The options for this model, from the configuration.
#[must_use]
pub fn options(configured: &crate::Config, model: impl Into<String>) -> ModelOptions {
    let options = ModelOptions::new(model);
    let options = match configured.max_tokens() {
        Some(max_tokens) => options.with_max_tokens(max_tokens),
        None => options,
    };
    match configured.service_compaction() {
        Some(tokens) => options.with_compaction(tokens),
        None => options,
    }
}
