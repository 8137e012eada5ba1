//! What a network reaches: nothing, the hosts of a list, or anything public. It owns no state.

use crate::allow_list::{AllowList, Listing};
use crate::host::Host;
use crate::refusal::Reason;
use crate::target::Target;

/// What a network reaches.
///
/// What passes is held to, under each of them (443 and 80 are the ports of [`WebPorts`]):
///
/// | what the client sends through a tunnel (CONNECT, SOCKS5) | `Limited` | `Full` |
/// |---|---|---|
/// | TLS whose server name is the name that was asked for | passes | passes |
/// | TLS with another server name | refused | refused |
/// | TLS without a server name, to a name | refused | passes |
/// | TLS to an address: no server name, or that address as one | passes | passes |
/// | TLS to an address, with any other server name | refused | passes |
/// | an encrypted ClientHello | the outer name counts | the outer name counts |
/// | something else than TLS on 443 | refused | passes |
/// | something else than HTTP/1 on 80, or HTTP with another `Host` | refused | passes |
/// | anything but TLS on another port | passes | passes |
///
/// Plain requests, and HTTP in a tunnel on such a port, are passed on one for each connection, for the host that was
/// asked for, and without `Upgrade`: a WebSocket needs TLS there.
///
/// Of TLS the first message counts, and within it nothing is seen: who allows a name allows whatever its servers are
/// willing to serve under it (other sites of the same content network among them, by a `Host` or an encrypted server
/// name that differs from the outer one).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Policy {
    /// Nothing. The default.
    #[default]
    None,
    /// The hosts of this list. Their names are resolved; no other name is, so that names carry nothing out.
    Limited(AllowList),
    /// Every public address, on every port, under every name.
    Full,
}

impl Policy {
    /// Whether `target` may be asked for. Its addresses are checked later, once they are known.
    ///
    /// # Errors
    ///
    /// The reason, where it may not.
    pub fn check(&self, target: &Target) -> Result<(), Reason> {
        match self {
            Self::None => Err(Reason::NetworkOff),
            Self::Full => Ok(()),
            Self::Limited(list) => match (list.look_up(target), target.host()) {
                (Listing::Listed, _) => Ok(()),
                (Listing::OtherPorts(ports), _) => Err(Reason::PortNotListed { listed: ports }),
                (Listing::Unlisted, Host::Name(_)) => Err(Reason::NameNotListed),
                (Listing::Unlisted, Host::Address(_)) => Err(Reason::AddressNotListed),
            },
        }
    }

    /// Whether what passes is held to the protocols of a list of names.
    pub(crate) const fn is_limited(&self) -> bool {
        matches!(self, Self::Limited(_))
    }
}

/// The ports on which, under [`Policy::Limited`], only the protocol passes that they stand for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WebPorts {
    /// Only HTTP/1, for the host that was asked for. 80 by default.
    pub http: Vec<u16>,
    /// Only TLS. 443 by default.
    pub https: Vec<u16>,
}

impl Default for WebPorts {
    fn default() -> Self {
        Self { http: vec![80], https: vec![443] }
    }
}
