//! One request over one connection, to addresses that were checked, with nothing of the environment.
//!
//! Each request has a client of its own, whose only names are those addresses: nothing is dialled that was not checked, and no
//! connection is shared between hosts or tenants. It owns the settings of TLS, which are read from the machine at the first encrypted
//! request; a crash loses nothing.

use std::error::Error;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

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
use crate::blocking::blocking;
use crate::error::{ArtifactError, Retry};

/// The most headers of an answer. Their bytes are bounded by the reader of HTTP, at about 400 KiB.
const MOST_HEADERS: usize = 100;
/// How long one host is dialled, TLS included, where the whole fetch may take longer.
const CONNECT: Duration = Duration::from_secs(10);
/// How much of what a connection says of its failure is shown, in characters.
const LONGEST_REASON: usize = 200;

/// Sends requests.
#[derive(Debug)]
pub(crate) struct Dial {
    /// Authorities beside those that the machine trusts, as DER.
    roots: Vec<Vec<u8>>,
    tls: OnceCell<rustls::ClientConfig>,
}

/// The only name that a request may ask for, and its addresses.
struct Pinned {
    name: String,
    addresses: Vec<SocketAddr>,
}

impl Resolve for Pinned {
    fn resolve(&self, name: Name) -> Resolving {
        let answer: Result<Addrs, Box<dyn Error + Send + Sync>> = if name.as_str() == self.name {
            Ok(Box::new(self.addresses.clone().into_iter()))
        } else {
            Err("this name was not checked".into())
        };
        Box::pin(std::future::ready(answer))
    }
}

impl Dial {
    pub(crate) const fn new(roots: Vec<Vec<u8>>) -> Self {
        Self { roots, tls: OnceCell::const_new() }
    }

    /// The head of the answer. Dropped, it closes the connection.
    pub(crate) async fn get(
        &self,
        url: &WebUrl,
        addresses: Vec<SocketAddr>,
        conditions: HeaderMap,
    ) -> Result<Response, ArtifactError> {
        let tls = if url.is_encrypted() {
            self.tls.get_or_try_init(|| encrypted(self.roots.clone(), url)).await?.clone()
        } else {
            plain().map_err(|error| no_tls(url, &error))?
        };
        let pinned = Pinned { name: url.target().host().to_string(), addresses };
        let client = reqwest::Client::builder()
            .tls_backend_preconfigured(tls)
            .dns_resolver(Arc::new(pinned))
            .http1_only()
            .http1_max_headers(MOST_HEADERS)
            .user_agent(concat!("conjure/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(CONNECT)
            .pool_max_idle_per_host(0)
            // Redirects are followed by whoever checks where they lead.
            .redirect(reqwest::redirect::Policy::none())
            .retry(reqwest::retry::never())
            .referer(false)
            // Whatever else is built into this client: the bytes are counted as they come.
            .no_gzip()
            .no_brotli()
            .no_zstd()
            .no_deflate()
            .no_proxy()
            .build()
            .map_err(|error| failed(url, error))?;
        client
            .get(url.as_url().clone())
            .header(ACCEPT, HeaderValue::from_static("*/*"))
            .header(ACCEPT_ENCODING, HeaderValue::from_static("identity"))
            .headers(conditions)
            .send()
            .await
            .map_err(|error| failed(url, error))
    }
}

/// What a connection died of.
pub(crate) fn failed(url: &WebUrl, error: reqwest::Error) -> ArtifactError {
    let error = &error.without_url();
    if error.is_connect() && error.is_timeout() {
        return ArtifactError::TimedOut {
            what: format!("connecting to `{}`", url.target()),
            waited: CONNECT,
        };
    }
    // What is beneath says the most.
    let deepest = chain(error).last().map(ToString::to_string).unwrap_or_default();
    let detail: String = deepest.chars().take(LONGEST_REASON).flat_map(char::escape_debug).collect();
    let is_certificate = chain(error).any(|error| {
        matches!(error.downcast_ref::<rustls::Error>(), Some(rustls::Error::InvalidCertificate(_)))
    });
    let (what, retry) = match (is_certificate, error.is_connect()) {
        (true, _) => ("the server's certificate is not trusted", Retry::Useless),
        (false, true) => ("the connection failed", Retry::MayHelp),
        (false, false) => ("the connection broke, or what came is no HTTP", Retry::MayHelp),
    };
    ArtifactError::FetchFailed { url: url.shown(), reason: format!("{what}: {detail}"), retry }
}

/// The error, and what is beneath it. What an error of the system carries is not its source, which is the source of that.
fn chain(error: &reqwest::Error) -> impl Iterator<Item = &(dyn Error + 'static)> {
    let first: &(dyn Error + 'static) = error;
    std::iter::successors(Some(first), |&error| {
        let carried = error.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
        carried.map(|carried| carried as &(dyn Error + 'static)).or_else(|| error.source())
    })
}

/// TLS by rustls with `ring`, trusting what the machine trusts and `roots`. The provider is named here, not installed for the whole
/// process: the host may use another one. Reading what the machine trusts takes time and files.
async fn encrypted(roots: Vec<Vec<u8>>, url: &WebUrl) -> Result<rustls::ClientConfig, ArtifactError> {
    let read = blocking(move || {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier = verifier(roots, Arc::clone(&provider))?;
        let builder = rustls::ClientConfig::builder_with_provider(provider);
        let builder = builder.with_safe_default_protocol_versions()?;
        let mut config = builder.dangerous().with_custom_certificate_verifier(verifier).with_no_client_auth();
        // A server of another protocol, which could take a request for its own, hangs up.
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        // What a server gave one tenant to be known by again is not shown it for another.
        config.resumption = Resumption::disabled();
        Ok(config)
    });
    read.await?.map_err(|error: rustls::Error| no_tls(url, &error))
}

/// Never used, but by a client that asks for it.
fn plain() -> Result<rustls::ClientConfig, rustls::Error> {
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

fn no_tls(url: &WebUrl, error: &rustls::Error) -> ArtifactError {
    ArtifactError::FetchFailed {
        url: url.shown(),
        reason: format!(
            "TLS is not to be had: {error}; install the machine's certificates (`ca-certificates`) or configure a root"
        ),
        retry: Retry::Useless,
    }
}
