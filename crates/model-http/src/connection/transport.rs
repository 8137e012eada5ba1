//! [`Transport`]: HTTP exchanges with the service, bounded in time and size. It does not read the process environment.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use conjure_base::{Clock, Deadline, Digest};
use conjure_conversation::ModelErrorKind;
use reqwest::{Method, RequestBuilder, Response, Url};

use crate::calls::attempt_error::{AttemptError, RetryDecision};
use crate::calls::error_builder::ErrorBuilder;
use crate::config::{HttpConfig, HttpConfigError, ResponseLimits, Timeouts};
use crate::connection::idle_timer::IdleTimer;
use crate::connection::tls::tls;

/// The maximum number of bytes that are read of an error body.
const MAX_ERROR_BODY: usize = 64 << 10;
/// The timeout for reading an error body. It is short, because the status already says the most important part.
const ERROR_BODY_TIMEOUT: Duration = Duration::from_secs(5);
/// How long an unused connection is kept. Services close theirs after about the same time.
const POOL_IDLE_TIMEOUT: Duration = Duration::from_secs(55);

/// The HTTP client of one service and key.
#[derive(Debug)]
pub struct Transport {
    http: reqwest::Client,
    /// The base URL, without a trailing slash.
    base: Url,
    /// The query parameters that every URL gets.
    query: Vec<(String, String)>,
    /// A digest that identifies the key.
    key: Digest,
    errors: ErrorBuilder,
    clock: Arc<dyn Clock>,
    timeouts: Timeouts,
    limits: ResponseLimits,
}

/// Which timeout expired.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimeoutKind {
    /// Nothing was transferred for too long.
    Idle,
    /// The time for the whole call has ended.
    Total,
}

impl TimeoutKind {
    /// Whether the time for the whole call has ended.
    #[must_use]
    pub fn is_total(self) -> bool {
        self == Self::Total
    }
}

impl Transport {
    pub(crate) fn new(config: &HttpConfig, clock: Arc<dyn Clock>) -> Result<Self, HttpConfigError> {
        // The key is checked first, so that an invalid key is reported even on a machine without certificates.
        let (base, headers) = (config.service_url()?, config.common_headers()?);
        let mut builder = reqwest::Client::builder()
            .tls_backend_preconfigured(tls(config, &base)?)
            .http1_only()
            // Secret headers are marked as sensitive, so that no log shows them.
            .default_headers(headers)
            .user_agent(concat!("conjure/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(config.timeouts.connect)
            .pool_idle_timeout(POOL_IDLE_TIMEOUT)
            // A redirect would send the key elsewhere. Retries are decided in `ModelCall`.
            .redirect(reqwest::redirect::Policy::none())
            .retry(reqwest::retry::never())
            .no_proxy();
        if let Some(proxy) = &config.proxy {
            builder = builder.proxy(reqwest::Proxy::all(proxy).map_err(|_| HttpConfigError::Proxy)?);
        }
        let http = builder.build().map_err(|error| HttpConfigError::Tls { reason: error.to_string() })?;
        let key = config.exposed_key();
        Ok(Self {
            http,
            base,
            query: config.query().to_vec(),
            key: Digest::of_bytes(format!("conjure key\0{key}").as_bytes()),
            errors: ErrorBuilder::new(config.redactor()),
            clock,
            timeouts: config.timeouts,
            limits: config.limits,
        })
    }

    /// The service's host, for telemetry.
    #[must_use]
    pub fn host(&self) -> &str {
        self.base.host_str().unwrap_or_default()
    }

    /// The service's host, with the port if it is not the default one.
    #[must_use]
    pub fn service(&self) -> String {
        match self.base.port() {
            Some(port) => format!("{}:{port}", self.host()),
            None => self.host().to_owned(),
        }
    }

    /// The base URL of the service.
    #[must_use]
    pub fn base_url(&self) -> &str {
        self.base.as_str()
    }

    /// The salted digest of the key.
    #[must_use]
    pub const fn key_digest(&self) -> Digest {
        self.key
    }

    /// Builds errors without the secrets of this client.
    #[must_use]
    pub const fn errors(&self) -> &ErrorBuilder {
        &self.errors
    }

    /// The clock.
    #[must_use]
    pub const fn clock(&self) -> &Arc<dyn Clock> {
        &self.clock
    }

    /// The timeouts.
    #[must_use]
    pub const fn timeouts(&self) -> &Timeouts {
        &self.timeouts
    }

    /// The size limits.
    #[must_use]
    pub const fn limits(&self) -> &ResponseLimits {
        &self.limits
    }

    /// The URL of an endpoint: the base URL, these path segments (percent-encoded), and the configured query.
    #[must_use]
    pub fn url<'s>(&self, segments: impl IntoIterator<Item = &'s str>) -> Url {
        let mut url = self.base.clone();
        if let Ok(mut path) = url.path_segments_mut() {
            path.pop_if_empty().extend(segments);
        }
        if !self.query.is_empty() {
            url.query_pairs_mut().extend_pairs(&self.query);
        }
        url
    }

    /// Creates a request with the common headers.
    pub fn request(&self, method: Method, url: Url) -> RequestBuilder {
        self.http.request(method, url)
    }

    /// Sends a request and waits for the response head, for `idle` at most and until `deadline`.
    ///
    /// # Errors
    /// [`AttemptError`].
    pub async fn head(
        &self,
        request: RequestBuilder,
        idle: Duration,
        deadline: Deadline,
    ) -> Result<Response, AttemptError> {
        match self.with_timeout(idle, deadline, request.send()).await {
            Ok(Ok(response)) => Ok(response),
            Ok(Err(error)) => Err(self.errors.transport(&error)),
            Err(TimeoutKind::Idle) => Err(AttemptError::timeout(
                format!("the service did not begin to answer within {idle:?}"),
                RetryDecision::Retry,
            )),
            Err(TimeoutKind::Total) => Err(self.too_late()),
        }
    }

    /// The next chunk of a body; `None` at its end.
    ///
    /// # Errors
    /// [`AttemptError`].
    pub async fn chunk(
        &self,
        response: &mut Response,
        deadline: Deadline,
    ) -> Result<Option<Bytes>, AttemptError> {
        self.next_chunk(response, &mut IdleTimer::default(), deadline).await
    }

    /// Like [`Transport::chunk`], with a timer that is reused for the whole body. `deadline` must be the same for all chunks.
    pub(crate) async fn next_chunk(
        &self,
        response: &mut Response,
        timer: &mut IdleTimer,
        deadline: Deadline,
    ) -> Result<Option<Bytes>, AttemptError> {
        let idle = self.timeouts.idle;
        let mut chunk = pin!(response.chunk());
        let mut until = None;
        let read = poll_fn(|context| {
            if let Poll::Ready(chunk) = chunk.as_mut().poll(context) {
                return Poll::Ready(Ok(chunk));
            }
            let until = *until.get_or_insert_with(|| self.clock.deadline(idle).min(deadline));
            let kind = if until == deadline { TimeoutKind::Total } else { TimeoutKind::Idle };
            timer.poll_until(&*self.clock, until, context).map(|()| Err(kind))
        });
        match read.await {
            Ok(Ok(chunk)) => Ok(chunk),
            Ok(Err(error)) => {
                let mut failure = self.errors.transport(&error);
                failure.error.kind = ModelErrorKind::Truncated;
                Err(failure)
            }
            Err(TimeoutKind::Idle) => Err(AttemptError::timeout(
                format!("the service sent nothing for {idle:?} in mid-answer"),
                RetryDecision::Retry,
            )),
            Err(TimeoutKind::Total) => Err(self.too_late()),
        }
    }

    /// Reads the beginning of an error body or an unexpected body.
    pub async fn excerpt(&self, response: &mut Response, deadline: Deadline) -> Vec<u8> {
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
    ///
    /// # Errors
    /// [`AttemptError`]. It also fails if the body is larger than the limit.
    pub async fn body(&self, response: &mut Response, deadline: Deadline) -> Result<Vec<u8>, AttemptError> {
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

    /// The error of a call whose total time has ended.
    #[must_use]
    pub fn too_late(&self) -> AttemptError {
        let message = format!("the call took longer than {:?}", self.timeouts.total);
        AttemptError::timeout(message, RetryDecision::GiveUp)
    }

    /// Runs `future` until the deadline, or until nothing was transferred for `idle`. `moved` counts transferred bytes. It detects
    /// inactivity after `idle` to twice `idle`.
    ///
    /// # Errors
    /// [`TimeoutKind`]: which timeout expired.
    pub async fn with_idle_timeout<F: Future>(
        &self,
        idle: Duration,
        deadline: Deadline,
        moved: impl Fn() -> u64,
        future: F,
    ) -> Result<F::Output, TimeoutKind> {
        let mut future = pin!(future);
        loop {
            let before = moved();
            match self.with_timeout(idle, deadline, future.as_mut()).await {
                Err(TimeoutKind::Idle) if moved() != before => {}
                other => return other,
            }
        }
    }

    /// Runs `future` until `idle` has passed or `deadline` is reached.
    async fn with_timeout<F: Future>(
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
