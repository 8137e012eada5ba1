//! [`Transport`]: HTTP exchanges with the service, bounded in time and size. The process environment is not used.

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

use crate::attempt_error::{AttemptError, ErrorBuilder, RetryDecision, timeout};
use crate::config::{ApiProfile, Config, ConfigError, ResponseLimits, Timeouts};

/// The most bytes of an error body that are read.
const MAX_ERROR_BODY: usize = 64 << 10;
/// The timeout for an error body. Its status says the most already.
const ERROR_BODY_TIMEOUT: Duration = Duration::from_secs(5);
/// How long an unused connection is kept. The service closes them after about the same time.
const POOL_IDLE_TIMEOUT: Duration = Duration::from_secs(55);

/// The HTTP client of one service and key.
#[derive(Debug)]
pub(crate) struct Transport {
    http: reqwest::Client,
    /// The base URL, to which `/v1` is appended.
    base: Url,
    profile: ApiProfile,
    /// A digest that identifies the key.
    key: Digest,
    /// The headers of every request. The key is marked as sensitive, so that no log shows it.
    headers: HeaderMap,
    pub(crate) errors: ErrorBuilder,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) timeouts: Timeouts,
    pub(crate) limits: ResponseLimits,
}

/// Which timeout expired.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TimeoutKind {
    Idle,
    Total,
}

impl TimeoutKind {
    /// Whether the whole call has timed out.
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
            ApiProfile::Beta => (HeaderName::from_static("x-api-key"), key.to_owned()),
            ApiProfile::Current => (AUTHORIZATION, format!("Bearer {key}")),
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
            .pool_idle_timeout(POOL_IDLE_TIMEOUT)
            // A redirect would send the key elsewhere. Retries are decided in `ModelCall`.
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
            key: Digest::of_bytes(format!("conjure key\0{key}").as_bytes()),
            headers,
            errors: ErrorBuilder::new(key),
            clock,
            timeouts: config.timeouts,
            limits: config.limits,
        })
    }

    /// The service's host, for telemetry.
    pub(crate) fn host(&self) -> &str {
        self.base.host_str().unwrap_or_default()
    }

    /// The API profile.
    pub(crate) const fn profile(&self) -> ApiProfile {
        self.profile
    }

    /// The base URL of the service.
    pub(crate) fn service(&self) -> &str {
        self.base.as_str()
    }

    /// The salted digest of the key.
    pub(crate) const fn key(&self) -> Digest {
        self.key
    }

    /// The URL of an endpoint: `/v1` and these path segments, which are encoded.
    pub(crate) fn url<'s>(&self, segments: impl IntoIterator<Item = &'s str>) -> Url {
        let mut url = self.base.clone();
        if let Ok(mut path) = url.path_segments_mut() {
            path.pop_if_empty().push("v1").extend(segments);
        }
        url
    }

    /// Creates a request with the common headers.
    pub(crate) fn request(&self, method: Method, url: Url) -> RequestBuilder {
        self.http.request(method, url).headers(self.headers.clone())
    }

    /// Sends JSON and waits for the response head, at most `idle` and until `deadline`.
    pub(crate) async fn send(
        &self,
        url: Url,
        body: Bytes,
        betas: Option<&HeaderValue>,
        idle: Duration,
        deadline: Deadline,
    ) -> Result<Response, AttemptError> {
        let mut request = self.request(Method::POST, url).header(CONTENT_TYPE, "application/json").body(body);
        if let Some(betas) = betas {
            request = request.header("anthropic-beta", betas);
        }
        self.head(request, idle, deadline).await
    }

    /// Sends a request and waits for the response head, at most `idle` and until `deadline`.
    pub(crate) async fn head(
        &self,
        request: RequestBuilder,
        idle: Duration,
        deadline: Deadline,
    ) -> Result<Response, AttemptError> {
        match self.within(idle, deadline, request.send()).await {
            Ok(Ok(response)) => Ok(response),
            Ok(Err(error)) => Err(self.errors.transport(&error)),
            Err(TimeoutKind::Idle) => Err(timeout(
                format!("the service did not begin to answer within {idle:?}"),
                RetryDecision::Retry,
            )),
            Err(TimeoutKind::Total) => Err(self.too_late()),
        }
    }

    /// The next chunk of a body; `None` at its end.
    pub(crate) async fn chunk(
        &self,
        response: &mut Response,
        deadline: Deadline,
    ) -> Result<Option<Bytes>, AttemptError> {
        let idle = self.timeouts.idle;
        match self.within(idle, deadline, response.chunk()).await {
            Ok(Ok(chunk)) => Ok(chunk),
            Ok(Err(error)) => {
                let mut failure = self.errors.transport(&error);
                failure.error.kind = ModelErrorKind::Truncated;
                Err(failure)
            }
            Err(TimeoutKind::Idle) => Err(timeout(
                format!("the service sent nothing for {idle:?} in mid-answer"),
                RetryDecision::Retry,
            )),
            Err(TimeoutKind::Total) => Err(self.too_late()),
        }
    }

    /// The beginning of an error body or an unexpected body.
    pub(crate) async fn excerpt(&self, response: &mut Response, deadline: Deadline) -> Vec<u8> {
        let mut body = Vec::new();
        let deadline = self.clock.deadline(ERROR_BODY_TIMEOUT).min(deadline);
        while let Ok(Some(chunk)) = self.chunk(response, deadline).await {
            let left = MAX_ERROR_BODY - body.len();
            body.extend_from_slice(&chunk[..chunk.len().min(left)]);
            if body.len() == MAX_ERROR_BODY {
                break;
            }
        }
        body
    }

    /// Reads a whole body.
    pub(crate) async fn body(
        &self,
        response: &mut Response,
        deadline: Deadline,
    ) -> Result<Vec<u8>, AttemptError> {
        let mut body = Vec::new();
        while let Some(chunk) = self.chunk(response, deadline).await? {
            if body.len().saturating_add(chunk.len()) > self.limits.total {
                return Err(self.too_large());
            }
            body.extend_from_slice(&chunk);
        }
        Ok(body)
    }

    pub(crate) fn too_large(&self) -> AttemptError {
        let message = format!("the answer is larger than {} bytes", self.limits.total);
        AttemptError::new(ModelErrorKind::Protocol, message, RetryDecision::GiveUp)
    }

    pub(crate) fn too_late(&self) -> AttemptError {
        timeout(format!("the call took longer than {:?}", self.timeouts.total), RetryDecision::GiveUp)
    }

    /// Runs `future` until the deadline, or until nothing was transferred for `idle`. `moved` counts transferred bytes. Inactivity is
    /// detected after `idle` to twice `idle`.
    pub(crate) async fn with_idle_timeout<F: Future>(
        &self,
        idle: Duration,
        deadline: Deadline,
        moved: impl Fn() -> u64,
        future: F,
    ) -> Result<F::Output, TimeoutKind> {
        let mut future = pin!(future);
        loop {
            let before = moved();
            match self.within(idle, deadline, future.as_mut()).await {
                Err(TimeoutKind::Idle) if moved() != before => {}
                other => return other,
            }
        }
    }

    /// Runs `future` until `idle` has passed or `deadline` is reached.
    async fn within<F: Future>(
        &self,
        idle: Duration,
        deadline: Deadline,
        future: F,
    ) -> Result<F::Output, TimeoutKind> {
        let idle = self.clock.deadline(idle);
        let first = idle.min(deadline);
        tokio::select! {
            biased;
            output = future => Ok(output),
            () = self.clock.sleep_until(first) => Err(if first == deadline { TimeoutKind::Total } else { TimeoutKind::Idle }),
        }
    }
}

/// TLS by rustls with `ring`, trusting the machine's certificates and the configured roots. The crypto provider is not installed
/// process-wide, because the embedder may use another one.
fn tls(config: &Config, url: &Url) -> Result<rustls::ClientConfig, ConfigError> {
    let failed = |error: rustls::Error| ConfigError::Tls { reason: error.to_string() };
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = rustls::ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(failed)?;
    let is_plain_proxy = config.proxy.as_ref().is_none_or(|proxy| !proxy.starts_with("https:"));
    if url.scheme() == "http" && is_plain_proxy {
        // Not used for plain HTTP, so a machine without certificates can still reach its loopback.
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
