//! The HTTP settings of a model service: address, headers, timeouts, prices.

use conjure_base::Digest;
use conjure_model_http::{HttpConfig, ModelPrices, PlaintextPolicy, Prices, Timeouts, is_secret_header};
use secrecy::{ExposeSecret as _, SecretString};

use crate::config::{Config, ModelSettings};
use crate::models::model_target::{KeyVariable, ModelTarget};

/// A key with the name of its environment variable.
pub(super) type NamedKey<'k> = Option<&'k (String, SecretString)>;

/// The HTTP configuration of a service. `http` already has the header of the key.
pub(super) fn http_config(
    http: HttpConfig,
    target: &ModelTarget,
    config: &Config,
    key: NamedKey<'_>,
) -> HttpConfig {
    let http = match key {
        Some((variable, _)) => http.with_key_name(variable),
        None => http.without_key(),
    };
    let http =
        http.with_plaintext(plaintext(&target.settings, key)).with_timeouts(timeouts_of(target, config));
    let http = http.with_prices(prices(&target.settings));
    let (base_url, query) = split_query(&target.base_url);
    let http = query
        .into_iter()
        .fold(http.with_base_url(base_url), |http, (name, value)| http.with_query(name, value));
    let headers = target.settings.headers.iter();
    headers.fold(http, |http, (name, value)| http.with_header(name, value.as_str().into()))
}

/// Splits an address into its base URL and its query parameters, such as `api-version` of Azure.
fn split_query(url: &str) -> (&str, Vec<(&str, &str)>) {
    let Some((url, query)) = url.split_once('?') else { return (url, Vec::new()) };
    let pairs = query.split('&').filter(|pair| !pair.is_empty());
    (url, pairs.map(|pair| pair.split_once('=').unwrap_or((pair, ""))).collect())
}

/// Whether plain HTTP is allowed. If the server gets no secret, it is allowed everywhere. A secret is sent over plain
/// HTTP only to this machine.
fn plaintext(settings: &ModelSettings, key: NamedKey<'_>) -> PlaintextPolicy {
    if key.is_none() && !settings.headers.iter().any(|(name, value)| is_secret_header(name, value)) {
        PlaintextPolicy::Anywhere
    } else {
        PlaintextPolicy::LoopbackOnly
    }
}

/// The configured timeouts. The idle timeout is at least a fifth of the total timeout.
pub(crate) fn timeouts(config: &Config) -> Timeouts {
    let timeouts = Timeouts::default();
    match config.model_timeout() {
        Some(total) => {
            let idle = timeouts.idle.min(total).max(total / 5);
            Timeouts { connect: timeouts.connect.min(total), idle, total }
        }
        None => timeouts,
    }
}

/// The timeouts of a service. A server without a key is usually the user's own. It may read a long prompt for minutes and
/// send nothing meanwhile, so only the total timeout applies.
fn timeouts_of(target: &ModelTarget, config: &Config) -> Timeouts {
    let timeouts = timeouts(config);
    match target.key {
        KeyVariable::None => Timeouts { idle: timeouts.total, ..timeouts },
        _ => timeouts,
    }
}

/// The configured price, for whatever model responds. Without one, the known prices.
fn prices(settings: &ModelSettings) -> Prices {
    match settings.price {
        None => Prices::default(),
        Some(price) => Prices::none().with_fallback(ModelPrices {
            input: price.input,
            output: price.output,
            cache_write: price.cache_write,
            cache_read: price.cache_read,
        }),
    }
}

/// The digest of a key.
pub(super) fn key_digest(key: NamedKey<'_>) -> Option<Digest> {
    key.map(|(_, key)| Digest::of_bytes(key.expose_secret().as_bytes()))
}

/// The identity of a client: everything that its requests depend on, except the model and its options.
pub(super) fn client_id(target: &ModelTarget, config: &Config, key: NamedKey<'_>) -> Digest {
    let settings = &target.settings;
    let digest = key_digest(key).map(|key| key.to_string());
    let text = format!(
        "{:?}|{:?}|{:?}|{:?}|{:?}|{:?}|{:?}",
        settings.api,
        target.base_url,
        digest,
        settings.headers,
        settings.price,
        config.model_timeout(),
        config.profile(),
    );
    Digest::of_bytes(text.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use conjure_conversation::ModelApi;

    #[test]
    fn a_query_is_taken_off_the_address() {
        assert_eq!(split_query("https://h/v1"), ("https://h/v1", vec![]));
        let query = vec![("api-version", "2025-01-01"), ("x", "")];
        assert_eq!(split_query("https://h/v1?api-version=2025-01-01&x"), ("https://h/v1", query));
    }

    #[test]
    fn plain_http_is_for_servers_that_are_sent_no_secret() {
        let key = ("K".to_owned(), SecretString::from("s"));
        let settings = ModelSettings::new(ModelApi::Chat);
        assert_eq!(plaintext(&settings, None), PlaintextPolicy::Anywhere);
        assert_eq!(plaintext(&settings, Some(&key)), PlaintextPolicy::LoopbackOnly);
        let headers = [("x-token".to_owned(), "blue".to_owned())].into();
        let with_header = ModelSettings { headers, ..settings };
        assert_eq!(plaintext(&with_header, None), PlaintextPolicy::LoopbackOnly);
    }
}
