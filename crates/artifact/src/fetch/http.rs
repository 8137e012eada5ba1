//! [`HttpFetch`] fetches web URLs that an untrusted party chose.
//!
//! - **Checked at the connection, not by the text.** Every hop is checked against the URL rules ([`ArtifactOptions`]) and the
//!   [`Egress`]. A name is resolved once, all its addresses are checked, and only those are dialled. No proxy from the environment,
//!   no cookies, no credentials and no referrer are used.
//! - **Bounded.** One timeout covers waiting, connecting, redirects and body. Bytes are counted while they stream into the store.
//!   Compressed bodies are refused. At most 256 fetches run at a time, 32 per tenant.
//! - **Clean.** A fetch that failed, was cancelled or was dropped leaves nothing behind.
//! - **Cached** per tenant, for the configured time or the server's (`Cache-Control`), whichever is shorter; then the entry is
//!   revalidated. Concurrent fetches of one URL by one tenant share one request. The least recently used entries are evicted.
//!
//! The cache is in memory. After a crash the contents are still in the store, and each URL is fetched once more.

use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use conjure_base::{Clock, Deadline, TenantId, lock};
use conjure_egress::{Egress, EgressPolicy, Host, HostError};
use conjure_fs::run_blocking;
use conjure_store::{FileMode, Store};

use super::limiter::FetchLimiter;
use super::pinned_client::PinnedClient;
use super::redirects::{FinalResponse, RedirectFollower};
use super::url_rules::UrlRules;
use super::web_url::WebUrl;
use super::{Fetch, FetchFuture, FetchRequest, FetchedContent};
use crate::error::ArtifactError;
use crate::fetch::caching::cache::{Cache, CacheEntry, CacheKey};
use crate::fetch::caching::freshness::Freshness;
use crate::fetch::caching::single_flight::SingleFlight;
use crate::options::{ArtifactOptions, UrlCache, UrlFetch};

/// Fetches web URLs through a checked egress. Clones share the cache.
///
/// ```
/// use std::sync::Arc;
///
/// use conjure_artifact::{ArtifactOptions, HttpFetch};
/// use conjure_base::SystemClock;
/// use conjure_egress::{Egress, EgressPolicy};
///
/// let options = Arc::new(ArtifactOptions::default());
/// // Any public address, with the options' allowed schemes and blocked hosts.
/// let fetch = HttpFetch::new(options, Egress::new(EgressPolicy::Full), Arc::new(SystemClock))?;
/// # let _ = fetch;
/// # Ok::<(), conjure_artifact::HttpFetchError>(())
/// ```
#[derive(Clone)]
pub struct HttpFetch {
    inner: Arc<HttpFetchInner>,
}

struct HttpFetchInner {
    options: Arc<ArtifactOptions>,
    rules: UrlRules,
    client: PinnedClient,
    clock: Arc<dyn Clock>,
    cache: Mutex<Cache>,
    single_flight: Arc<SingleFlight>,
    limiter: FetchLimiter,
}

/// Why URLs cannot be fetched under these options.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HttpFetchError {
    /// An entry of the blocked hosts is not a host.
    #[error("`{entry}` among the blocked hosts is neither a name nor an address: {problem}")]
    BlockedHost {
        /// The entry.
        entry: String,
        /// What is wrong with it.
        problem: HostError,
    },
    /// An allowed scheme is neither `http` nor `https`.
    #[error("`{scheme}` among the allowed schemes cannot be fetched: write `https` or `http`")]
    Scheme {
        /// The entry.
        scheme: String,
    },
}

impl HttpFetch {
    /// Creates a fetcher. The policy and the address check of `egress` apply beside the options.
    ///
    /// # Errors
    /// When the options hold an invalid scheme or host.
    pub fn new(
        options: Arc<ArtifactOptions>,
        egress: Egress,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, HttpFetchError> {
        Self::with_roots(options, egress, clock, Vec::new())
    }

    /// Like [`HttpFetch::new`], trusting these root certificates (DER) beside the machine's own.
    ///
    /// # Errors
    /// As for [`HttpFetch::new`].
    pub fn with_roots(
        options: Arc<ArtifactOptions>,
        egress: Egress,
        clock: Arc<dyn Clock>,
        roots: Vec<Vec<u8>>,
    ) -> Result<Self, HttpFetchError> {
        let schemes = options.allowed_schemes.iter().map(|scheme| {
            let normal = scheme.to_ascii_lowercase();
            match normal.as_str() {
                "http" | "https" => Ok(normal),
                _ => Err(HttpFetchError::Scheme { scheme: scheme.clone() }),
            }
        });
        let blocked = options.blocked_hosts.iter().map(|entry| {
            Host::parse(entry)
                .map_err(|problem| HttpFetchError::BlockedHost { entry: entry.clone(), problem })
        });
        let rules =
            UrlRules::new(schemes.collect::<Result<_, _>>()?, blocked.collect::<Result<_, _>>()?, egress);
        Ok(Self {
            inner: Arc::new(HttpFetchInner {
                options,
                rules,
                client: PinnedClient::new(roots),
                clock,
                cache: Mutex::default(),
                single_flight: Arc::default(),
                limiter: FetchLimiter::default(),
            }),
        })
    }
}

impl Fetch for HttpFetch {
    fn fetch<'a>(&'a self, request: FetchRequest<'a>) -> FetchFuture<'a> {
        Box::pin(async move {
            let clock = &self.inner.clock;
            let waited = clock.remaining(request.deadline);
            tokio::select! {
                biased;
                () = request.cancel.cancelled() => Err(ArtifactError::Cancelled),
                () = clock.sleep_until(request.deadline) => Err(ArtifactError::TimedOut { what: "the fetch".to_owned(), waited }),
                fetched = self.inner.fetch_checked(&request) => fetched,
            }
        })
    }

    fn check_url(&self, url: &str, network: &EgressPolicy) -> Result<(), ArtifactError> {
        self.inner.rules.check(url, network).map(drop)
    }

    fn forget_tenant(&self, tenant: &TenantId) {
        self.inner.cache().remove_tenant(tenant);
    }
}

impl HttpFetchInner {
    async fn fetch_checked(
        self: &Arc<Self>,
        request: &FetchRequest<'_>,
    ) -> Result<FetchedContent, ArtifactError> {
        if self.options.url_fetch == UrlFetch::Off {
            return Err(ArtifactError::FetchDisabled);
        }
        let url = self.rules.check(request.url, request.network)?;
        let UrlCache::For(max_age) = self.options.cache else {
            return Ok(self
                .fetch_uncached(request.tenant, &url, request.network, request.store, None)
                .await?
                .fetched);
        };
        let key = CacheKey {
            tenant: request.tenant.clone(),
            store: request.store.root().to_owned(),
            url: url.as_str().to_owned(),
        };
        let (inner, store, cache_key) = (Arc::clone(self), request.store.clone(), key.clone());
        let network = request.network.clone();
        Arc::clone(&self.single_flight)
            .join_or_start(key, || async move {
                inner.cached_or_fetch(cache_key, &url, &network, &store, max_age).await
            })
            .await
    }

    /// Returns the cached content if it is fresh and still stored, else fetches or revalidates it. An entry is used without
    /// revalidation for `max_age`, unless the server says less.
    async fn cached_or_fetch(
        &self,
        key: CacheKey,
        url: &WebUrl,
        network: &EgressPolicy,
        store: &Store,
        max_age: Duration,
    ) -> Result<FetchedContent, ArtifactError> {
        let known = self.cache().get(&key);
        let is_reached = |known: &CacheEntry| self.rules.check(&known.final_url, network).is_ok();
        let known = match known {
            Some(known) if is_reached(&known) && self.is_stored(&known, store).await? => Some(known),
            // The store has dropped the content, or the tenant's network policy no longer allows the final URL.
            _ => None,
        };
        if let Some(known) = &known
            && !self.clock.remaining(known.fresh_until).is_zero()
        {
            tracing::debug!(host = %url.target().host(), "fetched before");
            return Ok(known.fetched.clone());
        }
        let limit = self.options.url_timeout;
        let fetch_deadline = self.clock.deadline(limit);
        let response = self.fetch_uncached(&key.tenant, url, network, store, known.as_ref()).await?;
        let time = match response.freshness_left {
            Freshness::Default => max_age,
            // The response was generated when it was requested, at the earliest.
            Freshness::MaxAge(server_max_age) => {
                max_age.min(server_max_age.saturating_sub(self.elapsed(fetch_deadline, limit)))
            }
            Freshness::NoStore => {
                self.cache().remove(&key);
                return Ok(response.fetched);
            }
        };
        let fresh_until = self.clock.deadline(time);
        let FinalResponse { fetched, validators, freshness, url, .. } = response;
        let final_url = url.as_str().to_owned();
        let entry = CacheEntry { fetched: fetched.clone(), validators, final_url, freshness, fresh_until };
        self.cache().put(key, entry);
        Ok(fetched)
    }

    /// Fetches over the network. Logs the host only, not the URL.
    async fn fetch_uncached(
        &self,
        tenant: &TenantId,
        url: &WebUrl,
        network: &EgressPolicy,
        store: &Store,
        known: Option<&CacheEntry>,
    ) -> Result<FinalResponse, ArtifactError> {
        let limit = self.options.url_timeout;
        let deadline = self.clock.deadline(limit);
        let (rules, client, limit_bytes) = (&self.rules, &self.client, self.options.url_max_size);
        let redirects = RedirectFollower { rules, client, network, store, limit: limit_bytes, known };
        let response = async {
            let _permit = self.limiter.acquire(tenant).await?;
            redirects.follow(url).await
        };
        let response = tokio::select! {
            biased;
            response = response => response,
            () = self.clock.sleep_until(deadline) => {
                Err(ArtifactError::TimedOut { what: format!("fetching `{}`", url.redacted()), waited: limit })
            }
        };
        let host = url.target().host();
        let duration_ms = self.elapsed(deadline, limit).as_millis();
        match &response {
            Ok(FinalResponse { status, fetched, .. }) => {
                tracing::info!(%host, status, bytes = fetched.content.size, duration_ms, "fetched");
            }
            Err(error) => tracing::info!(%host, kind = ?error.kind(), duration_ms, "not fetched"),
        }
        response
    }

    fn elapsed(&self, deadline: Deadline, limit: Duration) -> Duration {
        limit.saturating_sub(self.clock.remaining(deadline))
    }

    async fn is_stored(&self, known: &CacheEntry, store: &Store) -> Result<bool, ArtifactError> {
        let (store, digest) = (store.clone(), known.fetched.content.digest);
        Ok(run_blocking(move || store.contains(&digest, FileMode::Plain)).await??)
    }

    fn cache(&self) -> std::sync::MutexGuard<'_, Cache> {
        lock(&self.cache)
    }
}

impl fmt::Debug for HttpFetch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpFetch").field("options", &self.inner.options).finish_non_exhaustive()
    }
}
