//! Connections: TLS, waits, retries and the rate limit.

pub(crate) mod http_date;
pub(crate) mod idle_timer;
pub(crate) mod limiter;
pub(crate) mod retry;
pub(crate) mod tls;
pub(crate) mod transport;
