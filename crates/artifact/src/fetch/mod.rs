//! Fetches the content of URLs on behalf of a model.
//!
//! [`Fetch`] is the contract. [`HttpFetch`] implements it for HTTP, behind the feature `fetch`.

mod caching;
mod request;

#[cfg(feature = "fetch")]
mod body;
#[cfg(feature = "fetch")]
mod file_name;
#[cfg(feature = "fetch")]
mod http;
#[cfg(feature = "fetch")]
mod limiter;
#[cfg(feature = "fetch")]
mod pinned_client;
#[cfg(feature = "fetch")]
mod redirects;
#[cfg(feature = "fetch")]
mod response;
#[cfg(feature = "fetch")]
mod url_rules;
#[cfg(feature = "fetch")]
mod web_url;

pub use request::{Fetch, FetchFuture, FetchRequest, FetchedContent};
pub(crate) use request::{NetworkPolicyFn, full_network};

#[cfg(feature = "fetch")]
pub use http::{HttpFetch, HttpFetchError};
