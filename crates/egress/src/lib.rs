//! The one guarded way out of a sandbox: resolve, refuse, pin, dial; and the proxy in front of it.
//!
//! A sandbox has no network interface. What it wants to reach it asks of a proxy, [`Egress::serve`], which speaks
//! HTTP (`CONNECT` and plain requests) and SOCKS5 over any byte stream, and runs in the host, where nothing of the
//! sandbox has to be trusted. [`Egress`] asks the [`Policy`], resolves the name itself, checks every address by the
//! [`AddressPolicy`], and dials an address that it has checked. [`Egress::resolve`] and [`Egress::connect`] are the
//! same guard for the host's own fetches on behalf of a model.
//!
//! [`Host`], [`Target`], [`AllowList`] and [`AddressPolicy`] are pure, and usable alone.
//!
//! A crash or a dropped future leaves nothing: there is no state but that of open connections, and no task is started
//! that outlives a call (but a lookup of the machine's resolver, which cannot be stopped and is bounded in number).

mod address;
mod address_policy;
mod allow_list;
mod bounds;
mod dial;
mod egress;
mod host;
mod observe;
mod policy;
mod proxy;
mod refusal;
mod resolve;
mod target;
mod within;

pub use address::{AddressKind, address_kind};
pub use address_policy::{AddressPolicy, AddressRange, AddressRangeError};
pub use allow_list::{AllowEntry, AllowList, AllowListError, DEFAULT_PORTS, Listing};
pub use bounds::Bounds;
pub use egress::Egress;
pub use host::{Host, HostError, HostName};
pub use observe::{Observe, Unobserved};
pub use policy::{Policy, WebPorts};
pub use proxy::{ClientHello, HelloError, HelloReader};
pub use refusal::{Excerpt, Reason, Refusal};
pub use resolve::{FixedResolver, Resolve, SystemResolver};
pub use target::{Target, TargetError};
