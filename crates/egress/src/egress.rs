//! The egress of a sandbox: policy, address check, resolver and observers.
//!
//! Only checked addresses are dialled, and each name is resolved once per connection. The name cannot resolve to another address
//! between check and connection (DNS rebinding). Where a name resolves to several addresses, all are checked, and one forbidden
//! address refuses the name. A public name with a private address beside public ones is a mistake or an attack.
//!
//! State: the permits of open connections. A crash frees them.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use conjure_base::{Clock, SystemClock, with_deadline};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;

use crate::address_policy::AddressPolicy;
use crate::dial::dial;
use crate::dial::is_own_address;
use crate::host::Host;
use crate::policy::{EgressPolicy, WebPorts};
use crate::proxy::{self, ProxyLimits};
use crate::refusal::{Refusal, RefusalReason};
use crate::resolver::{DnsResolver, SystemResolver};
use crate::target::Target;

/// The maximum number of open connections, unless the embedder gives its own semaphore.
const DEFAULT_MAX_CONNECTIONS: usize = 256;
/// The smallest useful buffer, in bytes.
const MIN_BUFFER_BYTES: usize = 1 << 10;
/// The maximum number of addresses of a name to try. All of them are checked.
const MAX_ADDRESSES: usize = 8;

/// Callback for allowed and refused connections, which are `tracing` events, too. It must not block.
pub trait EgressObserver: Send + Sync + fmt::Debug {
    /// Called when something was refused, before the client is notified.
    fn refused(&self, refusal: &Refusal);

    /// Called when a connection to `target` was made, at `address`. What is sent through it may still be refused.
    fn connected(&self, target: &Target, address: SocketAddr) {
        let _ = (target, address);
    }
}

/// Outbound connections under a policy. Cheap to clone; clones share the permits of open connections.
///
/// ```
/// use std::sync::Arc;
/// use conjure_egress::{Egress, EgressPolicy};
///
/// # async fn example(listener: tokio::net::TcpListener) -> std::io::Result<()> {
/// let policy = EgressPolicy::Limited("pypi.org,*.pythonhosted.org".parse().expect("the list is written above"));
/// let egress = Egress::new(policy);
/// let (stream, _) = listener.accept().await?;
/// egress.serve(stream).await;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Egress {
    policy: Arc<EgressPolicy>,
    addresses: AddressPolicy,
    resolver: Arc<dyn DnsResolver>,
    observers: Vec<Arc<dyn EgressObserver>>,
    clock: Arc<dyn Clock>,
    connection_permits: Arc<Semaphore>,
    limits: ProxyLimits,
    web_ports: Arc<WebPorts>,
}

impl Egress {
    /// An egress under `policy` with these defaults: public addresses only, the system's resolver, no observer, the default limits,
    /// and at most 256 connections.
    #[must_use]
    pub fn new(policy: EgressPolicy) -> Self {
        Self {
            policy: Arc::new(policy),
            addresses: AddressPolicy::public_only(),
            resolver: Arc::new(SystemResolver::default()),
            observers: Vec::new(),
            clock: Arc::new(SystemClock),
            connection_permits: Arc::new(Semaphore::new(DEFAULT_MAX_CONNECTIONS)),
            limits: ProxyLimits::default(),
            web_ports: Arc::new(WebPorts::default()),
        }
    }

    /// Sets the policy.
    #[must_use]
    pub fn with_policy(mut self, policy: EgressPolicy) -> Self {
        self.policy = Arc::new(policy);
        self
    }

    /// Sets the address policy.
    #[must_use]
    pub fn with_addresses(mut self, addresses: AddressPolicy) -> Self {
        self.addresses = addresses;
        self
    }

    /// Sets the resolver. Several egresses may share one, with its limit: [`SystemResolver`] looks up at most 32 names at the same
    /// time, each on a thread of its own.
    #[must_use]
    pub fn with_resolver(mut self, resolver: Arc<dyn DnsResolver>) -> Self {
        self.resolver = resolver;
        self
    }

    /// Adds an observer.
    #[must_use]
    pub fn with_observer(mut self, observer: Arc<dyn EgressObserver>) -> Self {
        self.observers.push(observer);
        self
    }

    /// Sets the clock.
    #[must_use]
    pub fn with_clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Sets the semaphore that limits the open connections of [`Egress::serve`]. Several egresses may share one.
    #[must_use]
    pub fn with_connection_permits(mut self, permits: Arc<Semaphore>) -> Self {
        self.connection_permits = permits;
        self
    }

    /// Sets timeouts and buffer sizes.
    #[must_use]
    pub fn with_limits(mut self, limits: ProxyLimits) -> Self {
        self.limits = ProxyLimits { buffer_bytes: limits.buffer_bytes.max(MIN_BUFFER_BYTES), ..limits };
        self
    }

    /// Sets the ports on which only HTTP, or only TLS, is allowed.
    #[must_use]
    pub fn with_web_ports(mut self, web_ports: WebPorts) -> Self {
        self.web_ports = Arc::new(web_ports);
        self
    }

    /// The policy.
    #[must_use]
    pub fn policy(&self) -> &EgressPolicy {
        &self.policy
    }

    /// The checked addresses of `target`, at least one. For a client that dials by itself; it must dial no other
    /// address.
    ///
    /// # Errors
    ///
    /// A [`Refusal`]. The observer has been notified of it.
    pub async fn resolve(&self, target: &Target) -> Result<Vec<SocketAddr>, Refusal> {
        self.resolve_checked(target).await.map_err(|reason| self.report_refusal(reason, Some(target)))
    }

    /// Connects to `target`, at a checked address.
    ///
    /// # Errors
    ///
    /// A [`Refusal`] by policy, because the name cannot be resolved, or because no address accepts in time. The
    /// observer has been notified of it.
    pub async fn connect(&self, target: &Target) -> Result<TcpStream, Refusal> {
        self.connect_checked(target).await.map_err(|reason| self.report_refusal(reason, Some(target)))
    }

    /// Serves one client of the proxy: HTTP `CONNECT`, plain HTTP requests, or SOCKS5. The first byte decides which.
    ///
    /// Returns when the connection has ended, with everything closed; the observer has been notified of the result.
    /// Dropping the future at any point drops both connections and ends all work. A stream that ended normally is
    /// shut down before it is dropped. A stream that ended by a reset of the server or by a timeout is not.
    pub async fn serve<S>(&self, stream: S)
    where
        S: AsyncRead + AsyncWrite + Send + Unpin,
    {
        proxy::serve(self, stream).await;
    }

    pub(crate) const fn limits(&self) -> &ProxyLimits {
        &self.limits
    }

    pub(crate) fn clock(&self) -> &Arc<dyn Clock> {
        &self.clock
    }

    pub(crate) const fn connection_permits(&self) -> &Arc<Semaphore> {
        &self.connection_permits
    }

    /// Whether only HTTP/1 is allowed to `target`.
    pub(crate) fn requires_http(&self, target: &Target) -> bool {
        self.policy.is_limited() && self.web_ports.http.contains(&target.port())
    }

    /// Whether only TLS is allowed to `target`.
    pub(crate) fn requires_tls(&self, target: &Target) -> bool {
        self.policy.is_limited() && self.web_ports.https.contains(&target.port())
    }

    /// Connects to `target` as [`Egress::connect`] does, without reporting a refusal.
    pub(crate) async fn connect_checked(&self, target: &Target) -> Result<TcpStream, RefusalReason> {
        let addresses = self.resolve_checked(target).await?;
        let timeout = self.limits.connect_timeout;
        let (stream, address) =
            with_deadline(&*self.clock, self.clock.deadline(timeout), dial(addresses, &*self.clock))
                .await
                .map_err(|_| RefusalReason::ConnectTimedOut { timeout })?
                .map_err(|error| RefusalReason::ConnectFailed { problem: error.kind() })?;
        tracing::debug!(%target, %address, "connected");
        self.observers.iter().for_each(|observer| observer.connected(target, address));
        Ok(stream)
    }

    /// Logs a refusal and notifies the observer.
    pub(crate) fn report_refusal(&self, reason: RefusalReason, target: Option<&Target>) -> Refusal {
        let refusal = Refusal::new(reason, target.cloned());
        match target {
            Some(target) => {
                tracing::info!(host = %target.host(), port = target.port(), reason = %refusal.reason, "refused")
            }
            None => tracing::info!(reason = %refusal.reason, "refused"),
        }
        self.observers.iter().for_each(|observer| observer.refused(&refusal));
        refusal
    }

    /// Resolves `target` as [`Egress::resolve`] does, without reporting a refusal.
    async fn resolve_checked(&self, target: &Target) -> Result<Vec<SocketAddr>, RefusalReason> {
        self.policy.check(target)?;
        let found = match target.host() {
            Host::Address(address) => vec![*address],
            Host::Name(name) => {
                let timeout = self.limits.resolve_timeout;
                with_deadline(&*self.clock, self.clock.deadline(timeout), self.resolver.resolve(name))
                    .await
                    .map_err(|_| RefusalReason::ResolveTimedOut { timeout })?
                    .map_err(|error| RefusalReason::ResolveFailed { problem: error.to_string() })?
            }
        };
        let mut checked: Vec<SocketAddr> = Vec::new();
        for address in found {
            let address = SocketAddr::new(self.check_address(address)?, target.port());
            if !checked.contains(&address) {
                checked.push(address);
            }
        }
        if checked.is_empty() {
            return Err(RefusalReason::ResolveFailed { problem: "it has no address".to_owned() });
        }
        checked.truncate(MAX_ADDRESSES);
        Ok(checked)
    }

    /// The address to dial for `address`. The machine's own addresses are refused, public or not: a sandbox must not
    /// reach services behind the machine's firewall.
    fn check_address(&self, address: IpAddr) -> Result<IpAddr, RefusalReason> {
        let address =
            self.addresses.check(address).map_err(|kind| RefusalReason::NotPublic { address, kind })?;
        if !self.addresses.allows_own_address(address) && is_own_address(address) {
            return Err(RefusalReason::OwnAddress { address });
        }
        Ok(address)
    }
}
