//! [`HttpFetch`]: URLs of the web, fetched as a stranger's wish has to be.
//!
//! - **Checked at the connection, not by the text.** Every hop, redirects included, goes through the rules ([`ArtifactOptions`]) and
//!   the way out ([`Egress`]): the name is resolved once, all of its addresses are checked, and only those are dialled. There is no
//!   proxy of the environment, no cookie, no credential, no referrer.
//! - **Bounded.** One limit of time for waiting, connecting, redirects and body together; bytes are counted as they come, into the store
//!   and not into memory; bodies are taken as they are, so that none grows by unpacking; 256 fetches at a time, 32 of a tenant.
//! - **Nothing is left** of a fetch that failed, was cancelled, or was dropped.
//! - **Kept** for each tenant by itself, for as long as the options say, or the server, if that says less (`Cache-Control`); then the
//!   server is asked whether it has changed. Whoever of a tenant wants what is being fetched waits for the same fetch. No more bytes
//!   are kept of a tenant than the options say, and whoever asks for it: what was used least lately goes first.
//!
//! It owns the memory of what was fetched, which a crash forgets: the contents are in the store, and each URL is fetched once more.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use conjure_base::{Clock, Deadline, TenantId};
use conjure_egress::{Egress, Host, HostError, Policy};
use conjure_store::{Store, Variant};

use super::cache::{Cache, Entry, Key};
use super::dial::Dial;
use super::flight::Flights;
use super::guard::Guard;
use super::hops::{Hops, Landed};
use super::keeping::Keeping;
use super::places::Places;
use super::web_url::WebUrl;
use super::{Fetch, FetchFuture, FetchRequest, Fetched};
use crate::blocking::blocking;
use crate::error::ArtifactError;
use crate::options::{ArtifactOptions, UrlCache, UrlFetch};

/// Fetches URLs of the web over a guarded way out. Clones share what was fetched.
///
/// ```
/// use std::sync::Arc;
///
/// use conjure_artifact::{ArtifactOptions, HttpFetch};
/// use conjure_base::SystemClock;
/// use conjure_egress::{Egress, Policy};
///
/// let options = Arc::new(ArtifactOptions::default());
/// // Any public address, by the options' schemes and without their blocked hosts.
/// let fetch = HttpFetch::new(options, Egress::new(Policy::Full), Arc::new(SystemClock))?;
/// # let _ = fetch;
/// # Ok::<(), conjure_artifact::HttpFetchError>(())
/// ```
#[derive(Clone)]
pub struct HttpFetch {
    inner: Arc<Inner>,
}

struct Inner {
    options: Arc<ArtifactOptions>,
    guard: Guard,
    dial: Dial,
    clock: Arc<dyn Clock>,
    cache: Mutex<Cache>,
    flights: Arc<Flights>,
    places: Places,
}

/// Why URLs cannot be fetched under these options.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HttpFetchError {
    /// A host that is to be blocked is none.
    #[error("`{entry}` among the blocked hosts is no name and no address: {problem}")]
    BlockedHost {
        /// What stands there.
        entry: String,
        /// What is wrong with it.
        problem: HostError,
    },
    /// A scheme that is to be allowed is not one of the web's.
    #[error("`{scheme}` among the allowed schemes cannot be fetched: write `https` or `http`")]
    Scheme {
        /// What stands there.
        scheme: String,
    },
}

/// The kinds of [`HttpFetchError`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum HttpFetchErrorKind {
    /// A host that is to be blocked is none.
    BlockedHost,
    /// A scheme that is to be allowed is not one of the web's.
    Scheme,
}

impl HttpFetchError {
    /// What kind of error it is.
    #[must_use]
    pub const fn kind(&self) -> HttpFetchErrorKind {
        match self {
            Self::BlockedHost { .. } => HttpFetchErrorKind::BlockedHost,
            Self::Scheme { .. } => HttpFetchErrorKind::Scheme,
        }
    }
}

impl HttpFetch {
    /// Fetches under these options, by this way out, whose policy and check of addresses hold besides.
    ///
    /// # Errors
    /// When the options name schemes or hosts that are none.
    pub fn new(
        options: Arc<ArtifactOptions>,
        egress: Egress,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, HttpFetchError> {
        Self::with_roots(options, egress, clock, Vec::new())
    }

    /// The same, trusting these authorities (DER) besides those that the machine trusts.
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
        let guard =
            Guard::new(schemes.collect::<Result<_, _>>()?, blocked.collect::<Result<_, _>>()?, egress);
        Ok(Self {
            inner: Arc::new(Inner {
                options,
                guard,
                dial: Dial::new(roots),
                clock,
                cache: Mutex::default(),
                flights: Arc::default(),
                places: Places::default(),
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
                fetched = self.inner.access(&request) => fetched,
            }
        })
    }

    fn admit(&self, url: &str, network: &Policy) -> Result<(), ArtifactError> {
        self.inner.guard.admit(url, network).map(drop)
    }

    fn kept(&self, tenant: &TenantId) -> u64 {
        self.inner.cache().bytes_of(tenant)
    }

    fn forget(&self, tenant: &TenantId) {
        self.inner.cache().forget(tenant);
    }
}

/// What of a tenant is kept.
#[derive(Debug, Clone, Copy)]
struct Keep {
    /// For how long without asking again, unless the server says less.
    time: Duration,
    /// The most bytes of all its URLs together.
    bytes: u64,
}

impl Inner {
    async fn access(self: &Arc<Self>, request: &FetchRequest<'_>) -> Result<Fetched, ArtifactError> {
        if self.options.url_fetch == UrlFetch::Off {
            return Err(ArtifactError::FetchDisabled);
        }
        let url = self.guard.admit(request.url, request.network)?;
        let UrlCache::For(time) = self.options.cache else {
            return Ok(self.go(request.tenant, &url, request.network, request.store, None).await?.fetched);
        };
        let keep = Keep { time, bytes: self.options.cache_max_size.min(request.cache_bytes) };
        let key = Key {
            tenant: request.tenant.clone(),
            store: request.store.root().to_owned(),
            url: url.as_str().to_owned(),
        };
        let (inner, store, noted) = (Arc::clone(self), request.store.clone(), key.clone());
        let network = request.network.clone();
        Arc::clone(&self.flights)
            .join(key, || async move { inner.by_cache(noted, &url, &network, &store, keep).await })
            .await
    }

    /// What was fetched before, if it is there and still good; else what is fetched now.
    async fn by_cache(
        &self,
        key: Key,
        url: &WebUrl,
        network: &Policy,
        store: &Store,
        keep: Keep,
    ) -> Result<Fetched, ArtifactError> {
        let known = self.cache().get(&key, keep.bytes);
        let is_reached = |known: &Entry| self.guard.admit(&known.landed, network).is_ok();
        let known = match known {
            Some(known) if is_reached(&known) && self.is_there(&known, store).await? => Some(known),
            // Whoever made room in the store has taken it, or a redirect led to where the tenant reaches no more.
            _ => None,
        };
        if let Some(known) = &known
            && !self.clock.remaining(known.fresh_until).is_zero()
        {
            tracing::debug!(host = %url.target().host(), "fetched before");
            return Ok(known.fetched.clone());
        }
        let limit = self.options.url_timeout;
        let begun = self.clock.deadline(limit);
        let landed = self.go(&key.tenant, url, network, store, known.as_ref()).await?;
        let time = match landed.left {
            Keeping::AsConfigured => keep.time,
            // It was made when it was asked for, at the earliest.
            Keeping::AtMost(most) => keep.time.min(most.saturating_sub(self.elapsed(begun, limit))),
            Keeping::Never => {
                self.cache().remove(&key);
                return Ok(landed.fetched);
            }
        };
        let fresh_until = self.clock.deadline(time);
        let Landed { fetched, validators, keeping, url, .. } = landed;
        let (kept, landed) = (fetched.clone(), url.as_str().to_owned());
        let entry = Entry { fetched: kept, validators, landed, keeping, fresh_until };
        self.cache().put(key, entry, keep.bytes);
        Ok(fetched)
    }

    /// Asks the web, and says so in the log, which is told no more of a URL than its host.
    async fn go(
        &self,
        tenant: &TenantId,
        url: &WebUrl,
        network: &Policy,
        store: &Store,
        known: Option<&Entry>,
    ) -> Result<Landed, ArtifactError> {
        let limit = self.options.url_timeout;
        let deadline = self.clock.deadline(limit);
        let (guard, dial, limit_bytes) = (&self.guard, &self.dial, self.options.url_max_size);
        let hops = Hops { guard, dial, network, store, limit: limit_bytes, known };
        let landed = async {
            let _place = self.places.take(tenant).await?;
            hops.follow(url).await
        };
        let landed = tokio::select! {
            biased;
            landed = landed => landed,
            () = self.clock.sleep_until(deadline) => {
                Err(ArtifactError::TimedOut { what: format!("fetching `{}`", url.shown()), waited: limit })
            }
        };
        let host = url.target().host();
        let duration_ms = self.elapsed(deadline, limit).as_millis();
        match &landed {
            Ok(Landed { status, fetched, .. }) => {
                tracing::info!(%host, status, bytes = fetched.content.size, duration_ms, "fetched");
            }
            Err(error) => tracing::info!(%host, kind = ?error.kind(), duration_ms, "not fetched"),
        }
        landed
    }

    fn elapsed(&self, deadline: Deadline, limit: Duration) -> Duration {
        limit.saturating_sub(self.clock.remaining(deadline))
    }

    async fn is_there(&self, known: &Entry, store: &Store) -> Result<bool, ArtifactError> {
        let (store, digest) = (store.clone(), known.fetched.content.digest);
        Ok(blocking(move || store.contains(&digest, Variant::Plain)).await??)
    }

    fn cache(&self) -> std::sync::MutexGuard<'_, Cache> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for HttpFetch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpFetch").field("options", &self.inner.options).finish_non_exhaustive()
    }
}
