//! DNS resolvers: the interface, and the system's own.
//!
//! Answers of a resolver are not trusted: [`crate::Egress`] checks every address of an answer and dials only checked
//! addresses. Nothing is cached here, because the system's resolver has a cache.

use std::fmt;
use std::io;
use std::net::{IpAddr, ToSocketAddrs};
use std::sync::Arc;

use futures_util::future::BoxFuture;
use tokio::sync::Semaphore;

use crate::host::HostName;

/// Resolves a name to its addresses.
pub trait DnsResolver: Send + Sync + fmt::Debug {
    /// The addresses of `name`, the preferred one first. The caller sets a timeout, after which it drops the future.
    ///
    /// # Errors
    ///
    /// An error when the name has no address, or when no resolver can be reached. An empty list means the same.
    fn resolve(&self, name: &HostName) -> BoxFuture<'static, io::Result<Vec<IpAddr>>>;
}

/// The maximum number of simultaneous lookups. The system's resolver blocks one thread per lookup, also after the
/// caller's timeout. Without a maximum, a sandbox could block all threads with names whose servers never answer.
const MAX_LOOKUPS: usize = 32;

/// The system's resolver (`getaddrinfo`) with its settings, `/etc/hosts` included.
#[derive(Debug, Clone)]
pub struct SystemResolver {
    lookup_permits: Arc<Semaphore>,
}

impl Default for SystemResolver {
    fn default() -> Self {
        Self { lookup_permits: Arc::new(Semaphore::new(MAX_LOOKUPS)) }
    }
}

impl DnsResolver for SystemResolver {
    fn resolve(&self, name: &HostName) -> BoxFuture<'static, io::Result<Vec<IpAddr>>> {
        let (permits, name) = (Arc::clone(&self.lookup_permits), name.to_string());
        Box::pin(async move {
            let permit = permits.acquire_owned().await.map_err(io::Error::other)?;
            // The thread cannot be stopped: it keeps its permit until the system's resolver gives up.
            let lookup = tokio::task::spawn_blocking(move || {
                let _permit = permit;
                (name.as_str(), 0).to_socket_addrs().map(|found| found.map(|found| found.ip()).collect())
            });
            lookup.await.map_err(io::Error::other)?
        })
    }
}

#[cfg(test)]
mod tests;
