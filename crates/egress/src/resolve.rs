//! From a name to its addresses: by the machine's own resolver, or from a table.
//!
//! What a resolver answers is not trusted: [`crate::Egress`] checks every address of an answer, and dials only
//! addresses that it has checked. Nothing is cached here; the machine's resolver does that.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::net::{IpAddr, ToSocketAddrs};
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::future::BoxFuture;
use tokio::sync::Semaphore;

use crate::host::HostName;

/// Finds the addresses of a name.
pub trait Resolve: Send + Sync + fmt::Debug {
    /// The addresses of `name`, the preferred one first. The caller bounds the wait, and drops the future when it is
    /// over.
    ///
    /// # Errors
    ///
    /// What the resolver says where the name has no address or nobody could be asked. No addresses at all are
    /// understood as that, too.
    fn resolve(&self, name: &HostName) -> BoxFuture<'static, io::Result<Vec<IpAddr>>>;
}

/// How many names are looked up at a time. The machine's resolver blocks a thread for each, also after the wait for it
/// has ended; without a bound a sandbox could occupy all of them by names whose servers never answer.
const LOOKUPS_AT_A_TIME: usize = 32;

/// The machine's own resolver (`getaddrinfo`), with its settings, `/etc/hosts` included.
#[derive(Debug, Clone)]
pub struct SystemResolver {
    places: Arc<Semaphore>,
}

impl Default for SystemResolver {
    fn default() -> Self {
        Self { places: Arc::new(Semaphore::new(LOOKUPS_AT_A_TIME)) }
    }
}

impl Resolve for SystemResolver {
    fn resolve(&self, name: &HostName) -> BoxFuture<'static, io::Result<Vec<IpAddr>>> {
        let (places, name) = (Arc::clone(&self.places), name.to_string());
        Box::pin(async move {
            let place = places.acquire_owned().await.map_err(io::Error::other)?;
            // The thread cannot be stopped: it keeps its place until the machine's resolver gives up by itself.
            let lookup = tokio::task::spawn_blocking(move || {
                let _place = place;
                (name.as_str(), 0).to_socket_addrs().map(|found| found.map(|found| found.ip()).collect())
            });
            lookup.await.map_err(io::Error::other)?
        })
    }
}

/// Answers from a table, for tests and for hosts that pin the addresses of some names. Clones share the table.
#[derive(Debug, Clone, Default)]
pub struct FixedResolver {
    answers: Arc<Mutex<BTreeMap<HostName, Vec<Vec<IpAddr>>>>>,
}

impl FixedResolver {
    /// A table without names.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Answers `addresses` for `name` from now on.
    #[must_use]
    pub fn with(self, name: HostName, addresses: impl IntoIterator<Item = IpAddr>) -> Self {
        self.with_sequence(name, [addresses.into_iter().collect()])
    }

    /// Answers for `name` in turn, each time it is asked; the last answer stays. This is what a rebinding name does.
    #[must_use]
    pub fn with_sequence(self, name: HostName, answers: impl IntoIterator<Item = Vec<IpAddr>>) -> Self {
        let answers = answers.into_iter().collect();
        self.answers.lock().unwrap_or_else(PoisonError::into_inner).insert(name, answers);
        self
    }
}

impl Resolve for FixedResolver {
    fn resolve(&self, name: &HostName) -> BoxFuture<'static, io::Result<Vec<IpAddr>>> {
        let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        let answer = match answers.get_mut(name) {
            Some(answers) if answers.len() > 1 => Ok(answers.remove(0)),
            Some(answers) => Ok(answers.first().cloned().unwrap_or_default()),
            None => Err(io::Error::new(io::ErrorKind::NotFound, "the name is not in the table")),
        };
        Box::pin(async move { answer })
    }
}

#[cfg(test)]
mod tests;
