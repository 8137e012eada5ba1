//! The network policy of a sandbox: nothing, a list of hosts, or everything public. This module has no state.

use crate::allow_list::{AllowList, AllowListMatch};
use crate::host::Host;
use crate::refusal::RefusalReason;
use crate::target::Target;

/// The network policy of a sandbox.
///
/// Each policy also restricts what may be sent (80 and 443 stand for the ports of [`WebPorts`]):
///
/// | what the client sends through a tunnel (CONNECT, SOCKS5) | `Limited` | `Full` |
/// |---|---|---|
/// | TLS whose server name is the requested name | allowed | allowed |
/// | TLS with another server name | refused | refused |
/// | TLS without a server name, to a name | refused | allowed |
/// | TLS to an address: no server name, or that address as one | allowed | allowed |
/// | TLS to an address, with any other server name | refused | allowed |
/// | an encrypted ClientHello | the outer name counts | the outer name counts |
/// | anything but TLS on 443 | refused | allowed |
/// | anything but HTTP/1 on 80, or HTTP with another `Host` | refused | allowed |
/// | anything but TLS on another port | allowed | allowed |
///
/// Each connection forwards one plain request, or one HTTP request in a tunnel to such a port. The request must be for the
/// requested host. `Upgrade` is dropped, so a WebSocket needs TLS there.
///
/// Only the first message of TLS is checked; the encrypted part cannot be read. An allowed name therefore allows
/// every site that its servers answer for. These can include other sites of the same content delivery network: the
/// client selects them by a `Host` or an encrypted server name that differs from the outer one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum EgressPolicy {
    /// No target. The default.
    #[default]
    None,
    /// The hosts of this list. Only their names are resolved, so that no other name can carry data out.
    Limited(AllowList),
    /// Every public address, on every port, under every name.
    Full,
}

impl EgressPolicy {
    /// Whether `target` may be requested. Its addresses are checked later, when they are known.
    ///
    /// # Errors
    ///
    /// The reason, where it may not.
    pub fn check(&self, target: &Target) -> Result<(), RefusalReason> {
        match self {
            Self::None => Err(RefusalReason::NetworkOff),
            Self::Full => Ok(()),
            Self::Limited(list) => match (list.lookup(target), target.host()) {
                (AllowListMatch::Listed, _) => Ok(()),
                (AllowListMatch::OtherPorts(ports), _) => Err(RefusalReason::PortNotListed { listed: ports }),
                (AllowListMatch::NotListed, Host::Name(_)) => Err(RefusalReason::NameNotListed),
                (AllowListMatch::NotListed, Host::Address(_)) => Err(RefusalReason::AddressNotListed),
            },
        }
    }

    /// Whether the `Limited` column of the table applies.
    pub(crate) const fn is_limited(&self) -> bool {
        matches!(self, Self::Limited(_))
    }
}

/// The ports on which [`EgressPolicy::Limited`] allows only one protocol.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WebPorts {
    /// Only HTTP/1, for the requested host. 80 by default.
    pub http: Vec<u16>,
    /// Only TLS. 443 by default.
    pub https: Vec<u16>,
}

impl Default for WebPorts {
    fn default() -> Self {
        Self { http: vec![80], https: vec![443] }
    }
}
