//! Fetching what a URL leads to, on behalf of a model.
//!
//! The contract is here, and [`HttpFetch`], which keeps it for HTTP, behind the feature `fetch`.

#[cfg(feature = "fetch")]
mod answer;
#[cfg(feature = "fetch")]
mod body;
#[cfg(feature = "fetch")]
mod cache;
#[cfg(feature = "fetch")]
mod dial;
#[cfg(feature = "fetch")]
mod file_name;
#[cfg(feature = "fetch")]
mod flight;
#[cfg(feature = "fetch")]
mod guard;
#[cfg(feature = "fetch")]
mod hops;
#[cfg(feature = "fetch")]
mod http;
#[cfg(feature = "fetch")]
mod keeping;
#[cfg(feature = "fetch")]
mod places;
#[cfg(feature = "fetch")]
mod ports;
#[cfg(feature = "fetch")]
mod web_url;

use std::sync::Arc;

use conjure_base::{Deadline, TenantId};
use conjure_conversation::ArtifactContent;
use conjure_egress::Policy;
use conjure_store::Store;
use futures_util::future::BoxFuture;
use tokio_util::sync::CancellationToken;

use crate::error::ArtifactError;

#[cfg(feature = "fetch")]
pub use http::{HttpFetch, HttpFetchError, HttpFetchErrorKind};

/// A fetch that is under way.
pub type FetchFuture<'a> = BoxFuture<'a, Result<Fetched, ArtifactError>>;

/// Fetches URLs into stores. A host can implement it for a way out of its own.
pub trait Fetch: Send + Sync {
    /// Fetches a URL, or finds that what is there already is still good. The future may be dropped; nothing is left then.
    ///
    /// # Errors
    /// `InvalidUri`, `SchemeNotAllowed`, `HostBlocked`, `PrivateAddress`, `FetchDisabled`, `FetchFailed`, `TooLarge`, `TimedOut`,
    /// `Cancelled`, and `Store` when it cannot be kept.
    fn fetch<'a>(&'a self, request: FetchRequest<'a>) -> FetchFuture<'a>;

    /// Whether a URL would be asked for at all on behalf of a tenant that reaches so much of the network, as far as that is known without
    /// asking anybody: so a URL that can never be fetched is told when it is registered. The default knows nothing.
    ///
    /// # Errors
    /// `InvalidUri`, `SchemeNotAllowed`, `HostBlocked`, `FetchDisabled`.
    fn admit(&self, url: &str, network: &Policy) -> Result<(), ArtifactError> {
        let _ = (url, network);
        Ok(())
    }

    /// How many bytes are kept for a tenant of what was fetched, each URL's by themselves. The default keeps nothing.
    fn kept(&self, tenant: &TenantId) -> u64 {
        let _ = tenant;
        0
    }

    /// Forgets what was fetched for a tenant: it is being deleted. What lies in its store is not touched. The default knows nothing.
    fn forget(&self, tenant: &TenantId) {
        let _ = tenant;
    }
}

/// Says what of the network a tenant reaches just now.
pub(crate) type NetworkOf = dyn Fn() -> Policy + Send + Sync;

/// For whom nothing else is said.
pub(crate) fn whole_network() -> Arc<NetworkOf> {
    Arc::new(|| Policy::Full)
}

/// What is to be fetched, for whom, and where to.
#[derive(Debug, Clone)]
pub struct FetchRequest<'a> {
    /// The URL.
    pub url: &'a str,
    /// For which tenant: nothing that one has fetched is another's.
    pub tenant: &'a TenantId,
    /// Where the bytes go.
    pub store: &'a Store,
    /// The most bytes that may be kept for the tenant, those of all its URLs together, so that nobody is asked again; 0: none. Where
    /// more are kept by now, as the tenant may have less than before, what was used least lately goes. The host's own limit holds
    /// beside it.
    pub cache_bytes: u64,
    /// What of the network is reached for the tenant, redirects included. What the host's own way out refuses is refused besides.
    pub network: &'a Policy,
    /// When it ends, done or not; the host's own limit holds beside it.
    pub deadline: Deadline,
    /// Calls it off.
    pub cancel: CancellationToken,
}

/// What a URL led to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fetched {
    /// The bytes, in the store.
    pub content: ArtifactContent,
    /// The media type: what the server said, unless that says nothing or the bytes show another.
    pub content_type: String,
    /// The file's name, by the server's word or the URL; it is fit for an artifact's name.
    pub name: String,
}
