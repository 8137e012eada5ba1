//! Connections to servers over HTTP. Every address is checked before it is dialled, redirects are not followed, and the environment's
//! proxies are not used.

use std::collections::HashMap;
use std::error::Error;
use std::net::SocketAddr;
use std::num::NonZeroU16;
use std::str::FromStr as _;
use std::sync::Arc;
use std::time::Duration;

use conjure_egress::{AddressPolicy, AddressRange, Egress, EgressPolicy, Host, Target};
use reqwest::Url;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::header::{AUTHORIZATION, HeaderName, HeaderValue};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use rustls_platform_verifier::Verifier;
use secrecy::{ExposeSecret as _, SecretString};
use tokio::sync::OnceCell;

use crate::config::{AddressScope, HttpServer};

/// The timeout for connecting to the host, including TLS.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// The maximum size of a server's message, in bytes.
const MAX_MESSAGE_BYTES: usize = 32 << 20;

/// The TLS configuration. The trusted certificates of the machine are read at the first connection.
static TLS: OnceCell<rustls::ClientConfig> = OnceCell::const_new();

/// A client for the host of `url`. It checks every address before it is dialled, and follows no redirects.
///
/// # Errors
/// The reason why the address may not be dialled, as text.
pub(in crate::client) async fn checked_client(
    url: &Url,
    scope: AddressScope,
) -> Result<reqwest::Client, String> {
    let target = target(url)?;
    let egress = egress(&target, scope)?;
    // The resolver is not called for an IP address in the URL, so it is checked here.
    egress.resolve(&target).await.map_err(|refusal| refusal.to_string())?;
    reqwest::Client::builder()
        .tls_backend_preconfigured(TLS.get_or_try_init(tls).await?.clone())
        .dns_resolver(Arc::new(CheckedDns { egress, port: target.port() }))
        .user_agent(concat!("conjure/", env!("CARGO_PKG_VERSION")))
        .connect_timeout(CONNECT_TIMEOUT)
        // A redirect could send the headers to an unchecked address.
        .redirect(reqwest::redirect::Policy::none())
        .referer(false)
        .no_proxy()
        .build()
        .map_err(|error| error.to_string())
}

/// The transport to a server, with this bearer token. It has sent nothing yet.
///
/// # Errors
/// The reason, as text: a wrong URL or header, or an address that may not be dialled.
pub(in crate::client) async fn transport(
    server: &HttpServer,
    token: Option<&SecretString>,
) -> Result<StreamableHttpClientTransport<reqwest::Client>, String> {
    let url = Url::parse(&server.url).map_err(|error| format!("its address is no URL: {error}"))?;
    let client = checked_client(&url, server.addresses).await?;
    let mut headers = HashMap::new();
    if let Some(token) = token {
        let value = HeaderValue::from_str(&format!("Bearer {}", token.expose_secret()));
        let mut value = value.map_err(|_| "its token cannot be sent as a header".to_owned())?;
        value.set_sensitive(true);
        headers.insert(AUTHORIZATION, value);
    }
    for (name, value) in &server.headers {
        let wrong = |what: &str| format!("the {what} of its header `{}` cannot be sent", name.escape_debug());
        let mut value = HeaderValue::from_str(value).map_err(|_| wrong("value"))?;
        value.set_sensitive(true);
        headers.insert(HeaderName::from_str(name).map_err(|_| wrong("name"))?, value);
    }
    let mut config = StreamableHttpClientTransportConfig::with_uri(server.url.as_str());
    config.custom_headers = headers;
    config.max_sse_event_size = MAX_MESSAGE_BYTES;
    config.max_json_response_size = MAX_MESSAGE_BYTES;
    Ok(StreamableHttpClientTransport::with_client(client, config))
}

/// The host and port of a URL.
fn target(url: &Url) -> Result<Target, String> {
    if !matches!(url.scheme(), "http" | "https") {
        return Err(format!(
            "its address begins with `{}:`, and `https:` or `http:` is needed",
            url.scheme()
        ));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err("its address has a user name or password; send a header instead".to_owned());
    }
    let host = url.host_str().ok_or("its address has no host")?;
    let host =
        Host::parse(host.trim_start_matches('[').trim_end_matches(']')).map_err(|error| error.to_string())?;
    let port = url.port_or_known_default().and_then(NonZeroU16::new).ok_or("its address has no port")?;
    Ok(Target::new(host, port))
}

/// The addresses that may be dialled for this server.
fn egress(target: &Target, scope: AddressScope) -> Result<Egress, String> {
    let allowed = match (scope, target.host()) {
        (AddressScope::PublicOnly, _) => Vec::new(),
        (AddressScope::AsWritten, Host::Address(address)) => vec![AddressRange::from(*address)],
        (AddressScope::AsWritten, Host::Name(name)) if name.as_str() == "localhost" => {
            let ranges = ["127.0.0.0/8", "::1"].map(AddressRange::from_str);
            ranges.into_iter().collect::<Result<_, _>>().map_err(|error| error.to_string())?
        }
        (AddressScope::AsWritten, Host::Name(_)) => Vec::new(),
    };
    let addresses = AddressPolicy::public_only().with_allowed(allowed);
    Ok(Egress::new(EgressPolicy::Full).with_addresses(addresses))
}

/// Resolves names to checked addresses, at each connection.
struct CheckedDns {
    egress: Egress,
    port: u16,
}

impl Resolve for CheckedDns {
    fn resolve(&self, name: Name) -> Resolving {
        let (egress, port) = (self.egress.clone(), self.port);
        Box::pin(async move {
            let refused = |error: Box<dyn Error + Send + Sync>| error;
            let host = Host::parse(name.as_str()).map_err(|error| refused(error.into()))?;
            let port = NonZeroU16::new(port).ok_or_else(|| refused("the port is 0".into()))?;
            let checked = egress.resolve(&Target::new(host, port)).await;
            let addresses: Vec<SocketAddr> =
                checked.map_err(|refusal| refused(refusal.to_string().into()))?;
            Ok(Box::new(addresses.into_iter()) as Addrs)
        })
    }
}

/// A TLS configuration with `ring` that trusts the machine's certificates.
async fn tls() -> Result<rustls::ClientConfig, String> {
    let read = conjure_fs::run_blocking(|| {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier = Arc::new(Verifier::new(Arc::clone(&provider))?);
        let builder =
            rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
        Ok(builder.dangerous().with_custom_certificate_verifier(verifier).with_no_client_auth())
    });
    let read = read.await.map_err(|error| error.to_string())?;
    read.map_err(|error: rustls::Error| {
        format!("TLS cannot be set up: {error}; install the machine's certificates (`ca-certificates`)")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn refused(url: &str, scope: AddressScope) -> Option<String> {
        let server = HttpServer { url: url.to_owned(), headers: [].into(), addresses: scope };
        transport(&server, None).await.err()
    }

    #[tokio::test]
    async fn private_addresses_are_dialled_only_where_the_operator_wrote_them() {
        for url in
            ["http://127.0.0.1:9/mcp", "http://[::1]:9/mcp", "http://localhost:9/mcp", "http://10.0.0.1/mcp"]
        {
            assert_eq!(refused(url, AddressScope::AsWritten).await, None, "{url}");
            assert!(refused(url, AddressScope::PublicOnly).await.is_some(), "{url}");
        }
        // The address of clouds' metadata is given to nobody by a name.
        assert!(refused("http://169.254.169.254/mcp", AddressScope::PublicOnly).await.is_some());
    }

    #[tokio::test]
    async fn an_address_that_is_none_is_told() {
        for (url, part) in [
            ("nonsense", "no URL"),
            ("ftp://example.com/mcp", "`ftp:`"),
            ("http://user:secret@127.0.0.1/mcp", "user name or password"),
        ] {
            let reason = refused(url, AddressScope::AsWritten).await.unwrap();
            assert!(reason.contains(part) && !reason.contains("secret"), "{url}: {reason}");
        }
    }
}
