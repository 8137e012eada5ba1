//! Connections: TLS, timeouts, retries and the rate limiter.

pub(crate) mod idle_timer;
pub(crate) mod limiter;
pub(crate) mod retry_policy;
pub(crate) mod tls;
pub(crate) mod transport;
