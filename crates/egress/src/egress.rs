//! The one way out: a policy, a check of addresses, a resolver, and what they were told to report to.
//!
//! What is dialled is always an address that was checked, of a name that was resolved once for this connection: between
//! the check and the connection nobody is asked again, so a name cannot be bound to another address in between. Where
//! a name resolves to several addresses, all are checked, and one that may not be dialled refuses the name: a public
//! name with a private address beside the public ones is a mistake or an attack, and neither is mended by picking.
//!
//! It owns no state that outlives a call but the places of the connections that are open; a crash frees them.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use conjure_base::{Clock, SystemClock};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;

use crate::address_policy::AddressPolicy;
use crate::bounds::Bounds;
use crate::dial::{dial, is_own_address};
use crate::host::Host;
use crate::observe::{Observe, Unobserved};
use crate::policy::{Policy, WebPorts};
use crate::proxy;
use crate::refusal::{Reason, Refusal};
use crate::resolve::{Resolve, SystemResolver};
use crate::target::Target;
use crate::within::within;

/// How many connections are open at a time, unless the host gives a semaphore of its own.
const CONNECTIONS: usize = 256;
/// The smallest buffer that is worth its while, in bytes.
const SMALLEST_BUFFER: usize = 1 << 10;
/// How many addresses of a name are tried. All of them are checked.
const ADDRESSES_TRIED: usize = 8;

/// The one way out. Cheap to clone; clones share the places of open connections.
///
/// ```
/// use std::sync::Arc;
/// use conjure_egress::{Egress, Policy};
///
/// # async fn example(listener: tokio::net::TcpListener) -> std::io::Result<()> {
/// let policy = Policy::Limited("pypi.org,*.pythonhosted.org".parse().expect("the list is written above"));
/// let egress = Egress::new(policy);
/// let (stream, _) = listener.accept().await?;
/// egress.serve(stream).await;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Egress {
    policy: Arc<Policy>,
    addresses: AddressPolicy,
    resolver: Arc<dyn Resolve>,
    observer: Arc<dyn Observe>,
    clock: Arc<dyn Clock>,
    places: Arc<Semaphore>,
    bounds: Bounds,
    web_ports: Arc<WebPorts>,
}

impl Egress {
    /// A way out under `policy`: public addresses only, the machine's resolver, nobody who is told, the default
    /// bounds, and 256 connections at a time.
    #[must_use]
    pub fn new(policy: Policy) -> Self {
        Self {
            policy: Arc::new(policy),
            addresses: AddressPolicy::public_only(),
            resolver: Arc::new(SystemResolver::default()),
            observer: Arc::new(Unobserved),
            clock: Arc::new(SystemClock),
            places: Arc::new(Semaphore::new(CONNECTIONS)),
            bounds: Bounds::default(),
            web_ports: Arc::new(WebPorts::default()),
        }
    }

    /// With another policy.
    #[must_use]
    pub fn with_policy(mut self, policy: Policy) -> Self {
        self.policy = Arc::new(policy);
        self
    }

    /// With another check of addresses.
    #[must_use]
    pub fn with_addresses(mut self, addresses: AddressPolicy) -> Self {
        self.addresses = addresses;
        self
    }

    /// With another resolver. Several ways out may share one, and its bounds with it: [`SystemResolver`] looks up 32
    /// names at a time, each on a thread of its own.
    #[must_use]
    pub fn with_resolver(mut self, resolver: Arc<dyn Resolve>) -> Self {
        self.resolver = resolver;
        self
    }

    /// Telling `observer` of what passes and what is refused.
    #[must_use]
    pub fn with_observer(mut self, observer: Arc<dyn Observe>) -> Self {
        self.observer = observer;
        self
    }

    /// With another clock.
    #[must_use]
    pub fn with_clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// With as many connections through [`Egress::serve`] at a time as `places` has permits; several ways out may
    /// share one.
    #[must_use]
    pub fn with_places(mut self, places: Arc<Semaphore>) -> Self {
        self.places = places;
        self
    }

    /// With other bounds.
    #[must_use]
    pub fn with_bounds(mut self, bounds: Bounds) -> Self {
        self.bounds = Bounds { buffer_bytes: bounds.buffer_bytes.max(SMALLEST_BUFFER), ..bounds };
        self
    }

    /// With other ports on which only HTTP, and only TLS, passes.
    #[must_use]
    pub fn with_web_ports(mut self, web_ports: WebPorts) -> Self {
        self.web_ports = Arc::new(web_ports);
        self
    }

    /// What is reached.
    #[must_use]
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// The checked addresses of `target`, for a client that dials by itself and must dial nothing else: the policy is
    /// asked, the name resolved, every address checked. At least one.
    ///
    /// # Errors
    ///
    /// A [`Refusal`], of which the observer has been told.
    pub async fn resolve(&self, target: &Target) -> Result<Vec<SocketAddr>, Refusal> {
        self.look_up(target).await.map_err(|reason| self.refused(reason, Some(target)))
    }

    /// A connection to `target`, to an address that was checked.
    ///
    /// # Errors
    ///
    /// A [`Refusal`], of which the observer has been told: by policy, or because the name cannot be resolved or no
    /// address takes the connection within its bounds.
    pub async fn connect(&self, target: &Target) -> Result<TcpStream, Refusal> {
        self.reach(target).await.map_err(|reason| self.refused(reason, Some(target)))
    }

    /// Serves one client of the proxy: HTTP `CONNECT`, plain HTTP requests, or SOCKS5, told apart by the first byte.
    ///
    /// Returns when the connection is over, with everything closed; what came of it, the observer knows. Nothing runs
    /// on: dropping the future at any point drops both connections. A stream that ended in order was shut down before
    /// it is dropped; one that broke off, by a reset of the server or by a bound, was not.
    pub async fn serve<S>(&self, stream: S)
    where
        S: AsyncRead + AsyncWrite + Send + Unpin,
    {
        proxy::serve(self, stream).await;
    }

    pub(crate) const fn bounds(&self) -> &Bounds {
        &self.bounds
    }

    pub(crate) fn clock(&self) -> &Arc<dyn Clock> {
        &self.clock
    }

    pub(crate) const fn places(&self) -> &Arc<Semaphore> {
        &self.places
    }

    /// Whether only HTTP/1 passes to `target`.
    pub(crate) fn demands_http(&self, target: &Target) -> bool {
        self.policy.is_limited() && self.web_ports.http.contains(&target.port())
    }

    /// Whether only TLS passes to `target`.
    pub(crate) fn demands_tls(&self, target: &Target) -> bool {
        self.policy.is_limited() && self.web_ports.https.contains(&target.port())
    }

    pub(crate) async fn reach(&self, target: &Target) -> Result<TcpStream, Reason> {
        let addresses = self.look_up(target).await?;
        let waited = self.bounds.connect;
        let (stream, address) =
            within(&*self.clock, self.clock.deadline(waited), dial(addresses, &*self.clock))
                .await
                .map_err(|_| Reason::ConnectTimedOut { waited })?
                .map_err(|error| Reason::NotConnected { problem: error.kind() })?;
        tracing::debug!(%target, %address, "connected");
        self.observer.connected(target, address);
        Ok(stream)
    }

    /// Tells everybody of a refusal.
    pub(crate) fn refused(&self, reason: Reason, target: Option<&Target>) -> Refusal {
        let refusal = Refusal::new(reason, target.cloned());
        match target {
            Some(target) => {
                tracing::info!(host = %target.host(), port = target.port(), reason = %refusal.reason, "refused")
            }
            None => tracing::info!(reason = %refusal.reason, "refused"),
        }
        self.observer.refused(&refusal);
        refusal
    }

    async fn look_up(&self, target: &Target) -> Result<Vec<SocketAddr>, Reason> {
        self.policy.check(target)?;
        let found = match target.host() {
            Host::Address(address) => vec![*address],
            Host::Name(name) => {
                let waited = self.bounds.resolve;
                within(&*self.clock, self.clock.deadline(waited), self.resolver.resolve(name))
                    .await
                    .map_err(|_| Reason::ResolveTimedOut { waited })?
                    .map_err(|error| Reason::NotResolved { problem: error.to_string() })?
            }
        };
        let mut checked: Vec<SocketAddr> = Vec::new();
        for address in found {
            let address = SocketAddr::new(self.check(address)?, target.port());
            if !checked.contains(&address) {
                checked.push(address);
            }
        }
        if checked.is_empty() {
            return Err(Reason::NotResolved { problem: "it has no address".to_owned() });
        }
        checked.truncate(ADDRESSES_TRIED);
        Ok(checked)
    }

    /// The address to dial. The machine's own addresses are not, public or not: what it serves behind its firewall is
    /// not for a sandbox.
    fn check(&self, address: IpAddr) -> Result<IpAddr, Reason> {
        let address = self.addresses.check(address).map_err(|kind| Reason::NotPublic { address, kind })?;
        if !self.addresses.allows_own(address) && is_own_address(address) {
            return Err(Reason::OwnAddress { address });
        }
        Ok(address)
    }
}
