//! One HTTP exchange with the service: sent once, bounded in time and size, with the key and nothing of the
//! environment.
//!
//! It owns the pool of connections; a crash loses them, and the service sees them close.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use conjure_base::{Clock, Deadline, Digest};
use conjure_conversation::ModelErrorKind;
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Method, RequestBuilder, Response, Url};
use rustls::client::danger::ServerCertVerifier;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::CertificateDer;

use crate::config::{AnswerLimits, Config, ConfigError, Profile, Timeouts};
use crate::failure::{Failure, Next, Reporter, timeout};

/// How much of an error's body is read, in bytes.
const LONGEST_ERROR_BODY: usize = 64 << 10;
/// How long the body of an error is awaited: its status has said the most already.
const ERROR_BODY_WAIT: Duration = Duration::from_secs(5);
/// How long an unused connection is kept; the service closes them after about as long.
const POOL_IDLE: Duration = Duration::from_secs(55);

/// The way to one service under one key.
#[derive(Debug)]
pub(crate) struct Transport {
    http: reqwest::Client,
    /// Where `/v1` lies.
    base: Url,
    profile: Profile,
    /// What tells this key from others, and says nothing of it.
    key: Digest,
    /// Those of every request. The key's value is marked as sensitive, so that no log shows it.
    headers: HeaderMap,
    pub(crate) reporter: Reporter,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) timeouts: Timeouts,
    pub(crate) limits: AnswerLimits,
}

/// Which wait of a call ended it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Expired {
    Idle,
    Total,
}

impl Expired {
    /// Whether there is no time left for another attempt either.
    pub(crate) fn is_total(self) -> bool {
        self == Self::Total
    }
}

impl Transport {
    pub(crate) fn new(config: &Config, clock: Arc<dyn Clock>) -> Result<Self, ConfigError> {
        let base = config.service_url()?;
        let key = config.checked_key()?;
        let mut headers = HeaderMap::new();
        let (name, value) = match config.profile {
            Profile::Beta => (HeaderName::from_static("x-api-key"), key.to_owned()),
            Profile::Current => (AUTHORIZATION, format!("Bearer {key}")),
        };
        let mut value = HeaderValue::try_from(value).map_err(|_| ConfigError::Key)?;
        value.set_sensitive(true);
        headers.insert(name, value);
        headers.insert("anthropic-version", HeaderValue::from_static(config.profile.version()));
        let mut builder = reqwest::Client::builder()
            .tls_backend_preconfigured(tls(config, &base)?)
            .http1_only()
            .user_agent(concat!("conjure/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(config.timeouts.connect)
            .pool_idle_timeout(POOL_IDLE)
            // A redirect would carry the key elsewhere; a repeated call is decided on here and nowhere else.
            .redirect(reqwest::redirect::Policy::none())
            .retry(reqwest::retry::never())
            .no_proxy();
        if let Some(proxy) = &config.proxy {
            builder = builder.proxy(reqwest::Proxy::all(proxy).map_err(|_| ConfigError::Proxy)?);
        }
        let http = builder.build().map_err(|error| ConfigError::Tls { reason: error.to_string() })?;
        Ok(Self {
            http,
            base,
            profile: config.profile,
            key: Digest::of(format!("conjure key\0{key}").as_bytes()),
            headers,
            reporter: Reporter::new(key),
            clock,
            timeouts: config.timeouts,
            limits: config.limits,
        })
    }

    /// The service's host, for telemetry.
    pub(crate) fn host(&self) -> &str {
        self.base.host_str().unwrap_or_default()
    }

    /// Which form of the interface is spoken.
    pub(crate) const fn profile(&self) -> Profile {
        self.profile
    }

    /// The service: the address that `/v1` is appended to.
    pub(crate) fn service(&self) -> &str {
        self.base.as_str()
    }

    /// The digest of the key, and of a word before it, so that it is no digest that anybody else has of it.
    pub(crate) const fn key(&self) -> Digest {
        self.key
    }

    /// The address of an endpoint: `/v1` and these segments, each of which may hold any character.
    pub(crate) fn url<'s>(&self, segments: impl IntoIterator<Item = &'s str>) -> Url {
        let mut url = self.base.clone();
        if let Ok(mut path) = url.path_segments_mut() {
            path.pop_if_empty().push("v1").extend(segments);
        }
        url
    }

    /// A request to this address with the headers of every request.
    pub(crate) fn request(&self, method: Method, url: Url) -> RequestBuilder {
        self.http.request(method, url).headers(self.headers.clone())
    }

    /// Sends JSON to this address and waits for the head of the answer, at most `idle` and until `deadline`.
    pub(crate) async fn send(
        &self,
        url: Url,
        body: Bytes,
        betas: Option<&HeaderValue>,
        idle: Duration,
        deadline: Deadline,
    ) -> Result<Response, Failure> {
        let mut request = self.request(Method::POST, url).header(CONTENT_TYPE, "application/json").body(body);
        if let Some(betas) = betas {
            request = request.header("anthropic-beta", betas);
        }
        self.head(request, idle, deadline).await
    }

    /// Sends a request and waits for the head of the answer, at most `idle` and until `deadline`.
    pub(crate) async fn head(
        &self,
        request: RequestBuilder,
        idle: Duration,
        deadline: Deadline,
    ) -> Result<Response, Failure> {
        match self.within(idle, deadline, request.send()).await {
            Ok(Ok(response)) => Ok(response),
            Ok(Err(error)) => Err(self.reporter.transport(&error)),
            Err(Expired::Idle) => {
                Err(timeout(format!("the service did not begin to answer within {idle:?}"), Next::Retry))
            }
            Err(Expired::Total) => Err(self.too_late()),
        }
    }

    /// The next piece of a body; nothing at its end.
    pub(crate) async fn chunk(
        &self,
        response: &mut Response,
        deadline: Deadline,
    ) -> Result<Option<Bytes>, Failure> {
        let idle = self.timeouts.idle;
        match self.within(idle, deadline, response.chunk()).await {
            Ok(Ok(chunk)) => Ok(chunk),
            Ok(Err(error)) => {
                let mut failure = self.reporter.transport(&error);
                failure.error.kind = ModelErrorKind::Truncated;
                Err(failure)
            }
            Err(Expired::Idle) => {
                Err(timeout(format!("the service sent nothing for {idle:?} in mid-answer"), Next::Retry))
            }
            Err(Expired::Total) => Err(self.too_late()),
        }
    }

    /// The body of an error, or of what is not an answer: its beginning, as far as it comes.
    pub(crate) async fn excerpt(&self, response: &mut Response, deadline: Deadline) -> Vec<u8> {
        let mut body = Vec::new();
        let deadline = self.clock.deadline(ERROR_BODY_WAIT).earlier(deadline);
        while let Ok(Some(chunk)) = self.chunk(response, deadline).await {
            let left = LONGEST_ERROR_BODY - body.len();
            body.extend_from_slice(&chunk[..chunk.len().min(left)]);
            if body.len() == LONGEST_ERROR_BODY {
                break;
            }
        }
        body
    }

    /// A whole body.
    pub(crate) async fn body(&self, response: &mut Response, deadline: Deadline) -> Result<Vec<u8>, Failure> {
        let mut body = Vec::new();
        while let Some(chunk) = self.chunk(response, deadline).await? {
            if body.len().saturating_add(chunk.len()) > self.limits.total {
                return Err(self.too_large());
            }
            body.extend_from_slice(&chunk);
        }
        Ok(body)
    }

    pub(crate) fn too_large(&self) -> Failure {
        let message = format!("the answer is larger than {} bytes", self.limits.total);
        Failure::new(ModelErrorKind::Protocol, message, Next::GiveUp)
    }

    pub(crate) fn too_late(&self) -> Failure {
        timeout(format!("the call took longer than {:?}", self.timeouts.total), Next::GiveUp)
    }

    /// What `future` gives, unless the deadline passes, or nothing moves for `idle`: `moved` counts what does. What moved
    /// last may have moved at the beginning of such a time, so it is noticed after twice as long at the latest.
    pub(crate) async fn moving<F: Future>(
        &self,
        idle: Duration,
        deadline: Deadline,
        moved: impl Fn() -> u64,
        future: F,
    ) -> Result<F::Output, Expired> {
        let mut future = pin!(future);
        loop {
            let before = moved();
            match self.within(idle, deadline, future.as_mut()).await {
                Err(Expired::Idle) if moved() != before => {}
                other => return other,
            }
        }
    }

    /// What `future` gives, unless one of the waits ends before.
    async fn within<F: Future>(
        &self,
        idle: Duration,
        deadline: Deadline,
        future: F,
    ) -> Result<F::Output, Expired> {
        let idle = self.clock.deadline(idle);
        let first = idle.earlier(deadline);
        tokio::select! {
            biased;
            output = future => Ok(output),
            () = self.clock.sleep_until(first) => Err(if first == deadline { Expired::Total } else { Expired::Idle }),
        }
    }
}

/// TLS by rustls with `ring`, trusting what the machine trusts and the roots of the configuration. The provider is
/// named here, not installed for the whole process: the host may use another one.
fn tls(config: &Config, url: &Url) -> Result<rustls::ClientConfig, ConfigError> {
    let failed = |error: rustls::Error| ConfigError::Tls { reason: error.to_string() };
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = rustls::ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(failed)?;
    let is_plain_proxy = config.proxy.as_ref().is_none_or(|proxy| !proxy.starts_with("https:"));
    if url.scheme() == "http" && is_plain_proxy {
        // Never used: a machine without certificates can still reach its loopback.
        return Ok(builder.with_root_certificates(rustls::RootCertStore::empty()).with_no_client_auth());
    }
    let verifier = verifier(config, provider).map_err(|error| ConfigError::Tls {
        reason: format!(
            "{error}; install the machine's certificates (`ca-certificates`) or configure a root"
        ),
    })?;
    Ok(builder.dangerous().with_custom_certificate_verifier(verifier).with_no_client_auth())
}

fn verifier(
    config: &Config,
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
