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
    /// Listens on this address. While there are no keys, everything belongs to this tenant.
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

    /// The most bytes of a request's body, files excepted; by default 32 MiB, as at the vendor.
    #[must_use]
    pub const fn body_limit(mut self, bytes: usize) -> Self {
        self.body_limit = bytes;
        self
    }

    /// The most connections at once; by default 4,096. Others wait to be accepted.
    #[must_use]
    pub const fn connections(mut self, most: usize) -> Self {
        self.connections = most;
        self
    }

    /// Which models and skills clients may name beside the configured ones; none by default.
    #[must_use]
    pub fn serve(mut self, settings: ServeSettings) -> Self {
        self.serve = settings;
        self
    }

    /// Shows these metrics by `GET /metrics`.
    #[must_use]
    pub fn metrics(mut self, metrics: Metrics) -> Self {
        self.metrics = Some(metrics);
        self
    }

    /// Speaks TLS with this certificate; by default, connections are not encrypted. The files that the settings name are not read.
    #[must_use]
    pub fn tls(mut self, certificate: TlsCertificate) -> Self {
        self.tls = Some(certificate);
        self
    }

    /// How long requests may take to end once the server is told to stop; by default 10 seconds.
    #[must_use]
    pub const fn shutdown_time(mut self, time: Duration) -> Self {
        self.shutdown_time = time;
        self
    }
}
