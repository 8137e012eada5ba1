//! An HTTP client pinned to checked addresses: one request over one connection.
//!
//! Each request gets a client of its own that resolves to the checked addresses only. So no unchecked address is dialled, and no
//! connection is shared between hosts or tenants. The process environment is not read. The TLS settings are read from the machine at
//! the first encrypted request.

use std::error::Error;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use conjure_fs::run_blocking;
use reqwest::Response;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::header::{ACCEPT, ACCEPT_ENCODING, HeaderMap, HeaderValue};
use rustls::client::Resumption;
use rustls::client::danger::ServerCertVerifier;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::CertificateDer;
use rustls_platform_verifier::Verifier;
use tokio::sync::OnceCell;

use super::web_url::WebUrl;
use crate::error::{ArtifactError, Retryable};

/// The maximum number of headers of a response. The HTTP parser bounds their bytes at about 400 KiB.
const MAX_HEADERS: usize = 100;
/// The timeout for connecting to one host, TLS included.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// The longest reason of a connection error, in characters.
const MAX_REASON_CHARS: usize = 200;

/// Sends requests to checked addresses.
#[derive(Debug)]
pub(crate) struct PinnedClient {
    /// Root certificates (DER) beside the machine's own.
    roots: Vec<Vec<u8>>,
    tls: OnceCell<rustls::ClientConfig>,
}

/// A resolver that knows one name and its checked addresses.
struct PinnedDns {
    name: String,
    addresses: Vec<SocketAddr>,
}

impl Resolve for PinnedDns {
    fn resolve(&self, name: Name) -> Resolving {
        let result: Result<Addrs, Box<dyn Error + Send + Sync>> = if name.as_str() == self.name {
            Ok(Box::new(self.addresses.clone().into_iter()))
        } else {
            Err("this name was not checked".into())
        };
        Box::pin(std::future::ready(result))
    }
}

impl PinnedClient {
    pub(crate) const fn new(roots: Vec<Vec<u8>>) -> Self {
        Self { roots, tls: OnceCell::const_new() }
    }

    /// Sends a GET request and returns the response head. Dropping the response closes the connection.
    pub(crate) async fn get(
        &self,
        url: &WebUrl,
        addresses: Vec<SocketAddr>,
        conditions: HeaderMap,
    ) -> Result<Response, ArtifactError> {
        let tls = if url.is_encrypted() {
            self.tls.get_or_try_init(|| tls_config(self.roots.clone(), url)).await?.clone()
        } else {
            unused_tls_config().map_err(|error| tls_error(url, &error))?
        };
        let pinned = PinnedDns { name: url.target().host().to_string(), addresses };
        let client = reqwest::Client::builder()
            .tls_backend_preconfigured(tls)
            .dns_resolver(Arc::new(pinned))
            .http1_only()
            .http1_max_headers(MAX_HEADERS)
            .user_agent(concat!("conjure/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(CONNECT_TIMEOUT)
            .pool_max_idle_per_host(0)
            // `RedirectFollower` checks and follows redirects.
            .redirect(reqwest::redirect::Policy::none())
            .retry(reqwest::retry::never())
            .referer(false)
            // The bytes are counted as they arrive, so nothing may be decompressed.
            .no_gzip()
            .no_brotli()
            .no_zstd()
            .no_deflate()
            .no_proxy()
            .build()
            .map_err(|error| connection_error(url, error))?;
        client
            .get(url.as_url().clone())
            .header(ACCEPT, HeaderValue::from_static("*/*"))
            .header(ACCEPT_ENCODING, HeaderValue::from_static("identity"))
            .headers(conditions)
            .send()
            .await
            .map_err(|error| connection_error(url, error))
    }
}

/// Converts a transport error.
pub(crate) fn connection_error(url: &WebUrl, error: reqwest::Error) -> ArtifactError {
    let error = &error.without_url();
    if error.is_connect() && error.is_timeout() {
        return ArtifactError::TimedOut {
            what: format!("connecting to `{}`", url.target()),
            waited: CONNECT_TIMEOUT,
        };
    }
    // The innermost cause says the most.
    let deepest = error_chain(error).last().map(ToString::to_string).unwrap_or_default();
    let detail: String = deepest.chars().take(MAX_REASON_CHARS).flat_map(char::escape_debug).collect();
    let is_certificate = error_chain(error).any(|error| {
        matches!(error.downcast_ref::<rustls::Error>(), Some(rustls::Error::InvalidCertificate(_)))
    });
    let (description, retry) = match (is_certificate, error.is_connect()) {
        (true, _) => ("the server's certificate is not trusted", Retryable::No),
        (false, true) => ("the connection failed", Retryable::Yes),
        (false, false) => ("the connection broke, or the response is not HTTP", Retryable::Yes),
    };
    ArtifactError::FetchFailed { url: url.redacted(), reason: format!("{description}: {detail}"), retry }
}

/// The error and its causes. The error inside an [`std::io::Error`] is not its `source()`, so it is visited separately.
fn error_chain(error: &reqwest::Error) -> impl Iterator<Item = &(dyn Error + 'static)> {
    let first: &(dyn Error + 'static) = error;
    std::iter::successors(Some(first), |&error| {
        let carried = error.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
        carried.map(|carried| carried as &(dyn Error + 'static)).or_else(|| error.source())
    })
}

/// TLS by rustls with `ring`, trusting the machine's certificates and `roots`. The crypto provider is not installed process-wide,
/// because the embedder may use another one. Reading the machine's certificates blocks.
async fn tls_config(roots: Vec<Vec<u8>>, url: &WebUrl) -> Result<rustls::ClientConfig, ArtifactError> {
    let read = run_blocking(move || {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier = verifier(roots, Arc::clone(&provider))?;
        let builder = rustls::ClientConfig::builder_with_provider(provider);
        let builder = builder.with_safe_default_protocol_versions()?;
        let mut config = builder.dangerous().with_custom_certificate_verifier(verifier).with_no_client_auth();
        // A server of another protocol hangs up instead of misreading the request.
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        // A session ticket would let a server link tenants.
        config.resumption = Resumption::disabled();
        Ok(config)
    });
    read.await?.map_err(|error: rustls::Error| tls_error(url, &error))
}

/// A configuration for plain HTTP; the client requires one.
fn unused_tls_config() -> Result<rustls::ClientConfig, rustls::Error> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder =
        rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    Ok(builder.with_root_certificates(rustls::RootCertStore::empty()).with_no_client_auth())
}

fn verifier(
    roots: Vec<Vec<u8>>,
    provider: Arc<CryptoProvider>,
) -> Result<Arc<dyn ServerCertVerifier>, rustls::Error> {
    Ok(if roots.is_empty() {
        Arc::new(Verifier::new(provider)?)
    } else {
        Arc::new(Verifier::new_with_extra_roots(roots.into_iter().map(CertificateDer::from), provider)?)
    })
}

fn tls_error(url: &WebUrl, error: &rustls::Error) -> ArtifactError {
    ArtifactError::FetchFailed {
        url: url.redacted(),
        reason: format!(
            "TLS cannot be set up: {error}; install the machine's certificates (`ca-certificates`) or configure a root"
        ),
        retry: Retryable::No,
    }
}
