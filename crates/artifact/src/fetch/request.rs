//! The contract of fetching: [`Fetch`], its request and its result.

use crate::error::ArtifactError;
use conjure_base::{Deadline, TenantId};
use conjure_conversation::ArtifactContent;
use conjure_egress::EgressPolicy;
use conjure_store::Store;
use futures_util::future::BoxFuture;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// A running fetch.
pub type FetchFuture<'a> = BoxFuture<'a, Result<FetchedContent, ArtifactError>>;

/// Fetches URLs into stores. An embedder can implement it with an HTTP client of its own.
pub trait Fetch: Send + Sync {
    /// Fetches a URL, or returns cached content that is still fresh. A dropped future leaves nothing behind.
    ///
    /// # Errors
    /// `InvalidUri`, `SchemeNotAllowed`, `HostBlocked`, `PrivateAddress`, `FetchDisabled`, `FetchFailed`, `TooLarge`, `TimedOut`,
    /// `Cancelled`, and `Store` when the content cannot be stored.
    fn fetch<'a>(&'a self, request: FetchRequest<'a>) -> FetchFuture<'a>;

    /// Checks without network access whether a URL could be fetched under this network policy. A URL that can never be fetched is
    /// thereby refused when it is registered. The default accepts every URL.
    ///
    /// # Errors
    /// `InvalidUri`, `SchemeNotAllowed`, `HostBlocked`, `FetchDisabled`.
    fn check_url(&self, url: &str, network: &EgressPolicy) -> Result<(), ArtifactError> {
        let _ = (url, network);
        Ok(())
    }

    /// Drops a tenant's cache entries, because the tenant is being deleted. Its store is not touched. The default does nothing.
    fn forget_tenant(&self, tenant: &TenantId) {
        let _ = tenant;
    }
}

/// Returns the current network policy of a tenant.
pub(crate) type NetworkPolicyFn = dyn Fn() -> EgressPolicy + Send + Sync;

/// The default: no restriction.
pub(crate) fn full_network() -> Arc<NetworkPolicyFn> {
    Arc::new(|| EgressPolicy::Full)
}

/// One fetch: the URL, the tenant, and the store for the bytes.
#[derive(Debug, Clone)]
pub struct FetchRequest<'a> {
    /// The URL.
    pub url: &'a str,
    /// The tenant. Cached content is never shared between tenants.
    pub tenant: &'a TenantId,
    /// The store that receives the bytes.
    pub store: &'a Store,
    /// The tenant's network policy, applied to every hop. The policy of the fetcher's own egress applies too.
    pub network: &'a EgressPolicy,
    /// When the fetch is abandoned. [`ArtifactOptions::url_timeout`](crate::ArtifactOptions::url_timeout) applies too.
    pub deadline: Deadline,
    /// Cancels the fetch.
    pub cancel: CancellationToken,
}

/// The content that was fetched from a URL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FetchedContent {
    /// The bytes, in the store.
    pub content: ArtifactContent,
    /// The media type: the server's, unless it is unspecific or the bytes show another one.
    pub content_type: String,
    /// The file's name, from the server's header or the URL; always a valid artifact name.
    pub name: String,
}
