//! The options of a server.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use conjure_base::TenantId;
use conjure_runtime::ServeSettings;

use crate::http::TlsCertificate;
use crate::metrics::Metrics;

/// The options of a [`Server`](crate::Server).
#[derive(Debug, Clone)]
pub struct ServerOptions {
    pub(crate) listen: SocketAddr,
    pub(crate) tenant: TenantId,
    pub(crate) body_limit: usize,
    pub(crate) connections: usize,
    pub(crate) shutdown_time: Duration,
    pub(crate) serve: ServeSettings,
    pub(crate) metrics: Option<Metrics>,
    pub(crate) tls: Option<TlsCertificate>,
}

impl ServerOptions {
    /// The default options for this address. While there are no keys, everything belongs to this tenant.
    #[must_use]
    pub const fn new(listen: SocketAddr, tenant: TenantId) -> Self {
        Self {
            listen,
            tenant,
            body_limit: 32 << 20,
            connections: 4_096,
            shutdown_time: Duration::from_secs(10),
            serve: ServeSettings {
                models: BTreeMap::new(),
                skills: BTreeMap::new(),
                requests_per_minute: None,
                private_mcp_servers: None,
                certificate: None,
                private_key: None,
            },
            metrics: None,
            tls: None,
        }
    }

    /// Sets the maximum size of a request's body in bytes, except for files. The default is 32 MiB, as in the vendor's API.
    #[must_use]
    pub const fn body_limit(mut self, bytes: usize) -> Self {
        self.body_limit = bytes;
        self
    }

    /// Sets the maximum number of open connections. The default is 4,096. Further connections wait to be accepted.
    #[must_use]
    pub const fn connections(mut self, most: usize) -> Self {
        self.connections = most;
        self
    }

    /// Sets which models and skills clients may name in addition to the configured ones. The default is none.
    #[must_use]
    pub fn serve(mut self, settings: ServeSettings) -> Self {
        self.serve = settings;
        self
    }

    /// Serves these metrics at `GET /metrics`.
    #[must_use]
    pub fn metrics(mut self, metrics: Metrics) -> Self {
        self.metrics = Some(metrics);
        self
    }

    /// Enables TLS with this certificate. By default, connections are not encrypted. The certificate files in the settings are not read.
    #[must_use]
    pub fn tls(mut self, certificate: TlsCertificate) -> Self {
        self.tls = Some(certificate);
        self
    }

    /// Sets how long requests may take to finish after the server is stopped. The default is 10 seconds.
    #[must_use]
    pub const fn shutdown_time(mut self, time: Duration) -> Self {
        self.shutdown_time = time;
        self
    }
}
