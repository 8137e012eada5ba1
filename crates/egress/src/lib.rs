//! Outbound connections for sandboxes: resolve, check, and dial the checked address; and a proxy that does this for
//! clients.
//!
//! A sandbox has no network interface. It reaches other hosts through a proxy, [`Egress::serve`], which speaks HTTP
//! (`CONNECT` and plain requests) and SOCKS5 over any byte stream. The proxy runs outside the sandbox, so nothing in the
//! sandbox has to be trusted. [`Egress`] asks the [`EgressPolicy`], resolves the name itself, checks every address by the
//! [`AddressPolicy`], and dials a checked address. [`Egress::resolve`] and [`Egress::connect`] apply the same checks to fetches
//! that the embedding application makes for a model.
//!
//! [`Host`], [`Target`], [`AllowList`] and [`AddressPolicy`] do no I/O and can be used alone.
//!
//! Nothing outlives a call. The only state is that of open connections, which a crash or a dropped future closes. One
//! exception: a lookup by the system's resolver cannot be stopped. The number of such lookups is limited.

mod address;
mod address_policy;
mod allow_list;
mod dial;
mod egress;
mod host;
mod policy;
mod proxy;
mod refusal;
mod resolver;
mod target;

pub use address::{AddressKind, address_kind};
pub use address_policy::{AddressPolicy, AddressRange, AddressRangeError};
pub use allow_list::{AllowEntry, AllowList, AllowListError, AllowListMatch, DEFAULT_PORTS};
pub use egress::{Egress, EgressObserver};
pub use host::{Host, HostError, HostName};
pub use policy::{EgressPolicy, WebPorts};
pub use proxy::{ClientHello, HelloError, HelloReader, ProxyLimits};
pub use refusal::{EscapedExcerpt, Refusal, RefusalReason};
pub use resolver::{DnsResolver, SystemResolver};
pub use target::{Target, TargetError};
