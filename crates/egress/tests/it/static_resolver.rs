//! A resolver with a static table.

use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};

use conjure_egress::{DnsResolver, HostName};
use futures_util::future::BoxFuture;

/// The answers for each name. Clones share the table.
#[derive(Debug, Clone, Default)]
pub(crate) struct StaticResolver(Arc<Mutex<BTreeMap<HostName, Vec<Vec<IpAddr>>>>>);

impl StaticResolver {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// Sets the addresses of `name`.
    pub(crate) fn with_host(self, name: HostName, addresses: impl IntoIterator<Item = IpAddr>) -> Self {
        self.with_sequence(name, [addresses.into_iter().collect()])
    }

    /// Sets successive answers for `name`: each lookup takes the next one, and the last one stays. A DNS rebinding
    /// attack behaves like this.
    pub(crate) fn with_sequence(
        self,
        name: HostName,
        answers: impl IntoIterator<Item = Vec<IpAddr>>,
    ) -> Self {
        self.0.lock().unwrap().insert(name, answers.into_iter().collect());
        self
    }
}

impl DnsResolver for StaticResolver {
    fn resolve(&self, name: &HostName) -> BoxFuture<'static, io::Result<Vec<IpAddr>>> {
        let answer = match self.0.lock().unwrap().get_mut(name) {
            Some(answers) if answers.len() > 1 => Ok(answers.remove(0)),
            Some(answers) => Ok(answers.first().cloned().unwrap_or_default()),
            None => Err(io::Error::new(io::ErrorKind::NotFound, "the name is not in the table")),
        };
        Box::pin(async { answer })
    }
}
