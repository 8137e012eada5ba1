//! TLS with rustls and `ring`. It trusts the machine's certificates and the configured roots.
//!
//! The crypto provider is not installed process-wide, because the embedder may use another one.

use std::sync::Arc;

use reqwest::Url;
use rustls::client::danger::ServerCertVerifier;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::CertificateDer;

use crate::config::{HttpConfig, HttpConfigError};

/// The TLS configuration of a client of this service.
pub(crate) fn tls(config: &HttpConfig, url: &Url) -> Result<rustls::ClientConfig, HttpConfigError> {
    let failed = |error: rustls::Error| HttpConfigError::Tls { reason: error.to_string() };
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = rustls::ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(failed)?;
    let is_plain_proxy = config.proxy.as_ref().is_none_or(|proxy| !proxy.starts_with("https:"));
    if url.scheme() == "http" && is_plain_proxy {
        // Plain HTTP does not use the certificates, so a machine without any can still reach its loopback.
        return Ok(builder.with_root_certificates(rustls::RootCertStore::empty()).with_no_client_auth());
    }
    let verifier = verifier(config, provider).map_err(|error| HttpConfigError::Tls {
        reason: format!(
            "{error}; install the machine's certificates (`ca-certificates`) or configure a root"
        ),
    })?;
    Ok(builder.dangerous().with_custom_certificate_verifier(verifier).with_no_client_auth())
}

fn verifier(
    config: &HttpConfig,
    provider: Arc<CryptoProvider>,
) -> Result<Arc<dyn ServerCertVerifier>, rustls::Error> {
    use rustls_platform_verifier::Verifier;
    let roots = config.roots.iter().map(|der| CertificateDer::from(der.clone()));
    Ok(if config.roots.is_empty() {
        Arc::new(Verifier::new(provider)?)
    } else {
        Arc::new(Verifier::new_with_extra_roots(roots, provider)?)
    })
}
