//! Why something was refused, for the host's log, for the observer, and for the client that asked.
//!
//! Text from the client is shown escaped and cut: it goes into logs and terminals. It owns no state.

use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use crate::address::AddressKind;
use crate::target::{Target, TargetError};

/// How much of a client's text is shown, in characters.
const LONGEST_EXCERPT: usize = 120;

/// Text that came from outside, safe to show: escaped, and cut to 120 characters. Of a URL neither its user and
/// password nor its query is shown, which hold secrets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Excerpt(Box<str>);

impl Excerpt {
    pub(crate) fn new(text: impl AsRef<[u8]>) -> Self {
        let text = text.as_ref();
        let cut = &text[..text.len().min(4 * LONGEST_EXCERPT)];
        let text = String::from_utf8_lossy(cut);
        Self(text.chars().take(LONGEST_EXCERPT).flat_map(char::escape_debug).collect())
    }

    /// Of a URL, or a part of one.
    pub(crate) fn of_url(text: &str) -> Self {
        let shown = text.find(['?', '#']).map_or(text, |end| &text[..end]);
        Self::new(shown.rsplit_once('@').map_or(shown, |(_, behind)| behind))
    }
}

impl fmt::Display for Excerpt {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// Why something was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Reason {
    /// The policy is [`crate::Policy::None`].
    #[error("the network is off")]
    NetworkOff,
    /// The name is not on the list.
    #[error("the name is not on the list of allowed hosts")]
    NameNotListed,
    /// The address is not on the list.
    #[error("the address is not on the list of allowed hosts")]
    AddressNotListed,
    /// The host is on the list, with other ports.
    #[error("the host is allowed on other ports only ({})", join(listed))]
    PortNotListed {
        /// The ports it is allowed on, in rising order.
        listed: Vec<u16>,
    },
    /// The address, or one of those that the name resolves to, is not public.
    #[error("`{address}` is {kind}, not a public one")]
    NotPublic {
        /// The address.
        address: IpAddr,
        /// What it is for.
        kind: AddressKind,
    },
    /// The address is one of this machine's own.
    #[error("`{address}` is an address of the machine itself")]
    OwnAddress {
        /// The address.
        address: IpAddr,
    },
    /// What was asked for is no host and port.
    #[error("`{asked}` is no target: {problem}")]
    NoTarget {
        /// What was asked for.
        asked: Excerpt,
        /// What is wrong with it.
        problem: TargetError,
    },
    /// The name has no address, or nobody could be asked.
    #[error("the name cannot be resolved: {problem}")]
    NotResolved {
        /// What the resolver said.
        problem: String,
    },
    /// No answer from the resolver.
    #[error("the name was not resolved within {} s", waited.as_secs())]
    ResolveTimedOut {
        /// How long it was waited for.
        waited: Duration,
    },
    /// No address took the connection.
    #[error("the connection failed: {problem}")]
    NotConnected {
        /// What the last of the addresses said.
        problem: std::io::ErrorKind,
    },
    /// No address took the connection in time.
    #[error("the connection was not made within {} s", waited.as_secs())]
    ConnectTimedOut {
        /// How long it was waited for.
        waited: Duration,
    },
    /// The server name of the TLS handshake is not the name that was asked for.
    #[error("the TLS handshake names the server `{server_name}`")]
    OtherServerName {
        /// The name in the handshake.
        server_name: Excerpt,
    },
    /// The TLS handshake has no server name.
    #[error("the TLS handshake names no server")]
    NoServerName,
    /// The handshake is not to be read.
    #[error("the TLS handshake is malformed: {0}")]
    MalformedHandshake(&'static str),
    /// The handshake's first message is larger than the bound.
    #[error("the first message of the TLS handshake is longer than {limit} bytes")]
    HandshakeTooLong {
        /// The bound, in bytes.
        limit: usize,
    },
    /// The handshake's first message did not come in time.
    #[error("the first message of the TLS handshake was not complete within {} s", waited.as_secs())]
    HandshakeTimedOut {
        /// How long it was waited for.
        waited: Duration,
    },
    /// Something else than TLS on a port where only that passes.
    #[error("only TLS passes on this port")]
    NotTls,
    /// The request's `Host` is not the authority of its URL, or not the host of its tunnel.
    #[error("the `Host` header names `{host}`")]
    OtherHost {
        /// The header's value.
        host: Excerpt,
    },
    /// The request is no HTTP/1 that passes.
    #[error("the HTTP request is malformed: {0}")]
    MalformedRequest(&'static str),
    /// The URL's scheme is not `http`.
    #[error("the scheme of `{url}` is not served")]
    Scheme {
        /// The URL.
        url: Excerpt,
    },
    /// A request for a file, as to a web server.
    #[error("this is a proxy, and `{asked}` is no absolute URL")]
    NoProxyRequest {
        /// The request's target.
        asked: Excerpt,
    },
    /// The request's head is larger than the bound.
    #[error("the head of the HTTP request is longer than {limit} bytes")]
    HeadTooLong {
        /// The bound, in bytes.
        limit: usize,
    },
    /// Nothing, or no whole request, came in time.
    #[error("no whole request came within {} s", waited.as_secs())]
    RequestTimedOut {
        /// How long it was waited for.
        waited: Duration,
    },
    /// The origin answered with something else than HTTP/1.
    #[error("the answer of the server is malformed: {0}")]
    MalformedAnswer(&'static str),
    /// The first byte is of no protocol that is served.
    #[error("the protocol is unknown (its first byte is {first:#04x})")]
    Protocol {
        /// The first byte.
        first: u8,
    },
    /// A SOCKS version that is not served.
    #[error("SOCKS version {version} is not served")]
    SocksVersion {
        /// The version.
        version: u8,
    },
    /// The SOCKS client demands to authenticate.
    #[error("the SOCKS client offers no way to go on without authentication")]
    SocksAuthentication,
    /// A SOCKS command that is not served.
    #[error("the SOCKS command {command} is not served")]
    SocksCommand {
        /// The command: 2 is BIND, 3 is UDP ASSOCIATE.
        command: u8,
    },
    /// A SOCKS address of an unknown type.
    #[error("the SOCKS address type {address_type} is not served")]
    SocksAddressType {
        /// The type.
        address_type: u8,
    },
    /// The SOCKS request is not to be read.
    #[error("the SOCKS request is malformed: {0}")]
    MalformedSocks(&'static str),
    /// As many connections as there may be are open.
    #[error("too many connections are open")]
    TooManyConnections,
}

impl Reason {
    /// How to mend it, as a fragment.
    #[must_use]
    pub const fn hint(&self) -> &'static str {
        match self {
            Self::NetworkOff => "the network policy has to be `limited` or `full`",
            Self::NameNotListed | Self::AddressNotListed => {
                "add the host to the list of allowed hosts, or do without it"
            }
            Self::PortNotListed { .. } => "use such a port, or add `HOST:PORT` to the list of allowed hosts",
            Self::NotPublic { .. } | Self::OwnAddress { .. } => {
                "only public addresses are reached; whoever runs this may allow single ranges besides"
            }
            Self::NoTarget { .. } => "ask for `HOST:PORT`",
            Self::NotResolved { .. } => "check the spelling of the name",
            Self::ResolveTimedOut { .. } | Self::NotConnected { .. } | Self::ConnectTimedOut { .. } => {
                "the server or the way to it is down; try again later"
            }
            Self::OtherServerName { .. } | Self::NoServerName => {
                "ask the proxy for the same name as in the TLS handshake (SNI)"
            }
            Self::MalformedHandshake(_) | Self::HandshakeTooLong { .. } | Self::HandshakeTimedOut { .. } => {
                "use a current TLS client"
            }
            Self::NotTls => "use TLS, or another port that the list of allowed hosts names",
            Self::OtherHost { .. } => "the `Host` header has to name the host that was asked for",
            Self::MalformedRequest(_) | Self::HeadTooLong { .. } | Self::RequestTimedOut { .. } => {
                "send one complete HTTP/1.1 request"
            }
            Self::Scheme { .. } => "use `http://` URLs, and `CONNECT` for everything else",
            Self::NoProxyRequest { .. } => "configure this address as a proxy, not as a server",
            Self::MalformedAnswer(_) => "the server is broken, or speaks another protocol on this port",
            Self::Protocol { .. } | Self::SocksVersion { .. } => "use an HTTP proxy or SOCKS5 (`socks5h://`)",
            Self::SocksAuthentication => "use no user name and no password",
            Self::SocksCommand { .. } => "only CONNECT is served",
            Self::SocksAddressType { .. } | Self::MalformedSocks(_) => "use a current SOCKS5 client",
            Self::TooManyConnections => "close some, or try again later",
        }
    }

    /// The HTTP status that says it.
    #[must_use]
    pub const fn status(&self) -> u16 {
        match self {
            Self::NoTarget { .. }
            | Self::MalformedRequest(_)
            | Self::Scheme { .. }
            | Self::NoProxyRequest { .. }
            | Self::Protocol { .. }
            | Self::MalformedHandshake(_)
            | Self::MalformedSocks(_)
            | Self::SocksVersion { .. }
            | Self::SocksAuthentication
            | Self::SocksCommand { .. }
            | Self::SocksAddressType { .. } => 400,
            Self::RequestTimedOut { .. } | Self::HandshakeTimedOut { .. } => 408,
            Self::HeadTooLong { .. } | Self::HandshakeTooLong { .. } => 431,
            Self::NotResolved { .. } | Self::NotConnected { .. } | Self::MalformedAnswer(_) => 502,
            Self::TooManyConnections => 503,
            Self::ResolveTimedOut { .. } | Self::ConnectTimedOut { .. } => 504,
            _ => 403,
        }
    }

    /// The SOCKS5 reply that says it (RFC 1928, section 6).
    #[must_use]
    pub const fn socks_reply(&self) -> u8 {
        match self {
            Self::NotResolved { .. } | Self::ResolveTimedOut { .. } | Self::ConnectTimedOut { .. } => 4,
            Self::NotConnected { problem } => match problem {
                std::io::ErrorKind::NetworkUnreachable => 3,
                std::io::ErrorKind::HostUnreachable => 4,
                _ => 5,
            },
            Self::SocksCommand { .. } => 7,
            Self::SocksAddressType { .. } => 8,
            Self::MalformedSocks(_) | Self::RequestTimedOut { .. } | Self::TooManyConnections => 1,
            _ => 2,
        }
    }

    /// The error type of a `Proxy-Status` header that says it (RFC 9209, section 2.3).
    pub(crate) const fn proxy_status(&self) -> &'static str {
        match self {
            Self::NotPublic { .. } | Self::OwnAddress { .. } => "destination_ip_prohibited",
            Self::NotResolved { .. } => "dns_error",
            Self::ResolveTimedOut { .. } => "dns_timeout",
            Self::NotConnected { problem: std::io::ErrorKind::ConnectionRefused } => "connection_refused",
            Self::NotConnected { .. } => "destination_ip_unroutable",
            Self::ConnectTimedOut { .. } => "connection_timeout",
            Self::MalformedAnswer(_) => "http_protocol_error",
            Self::TooManyConnections => "connection_limit_reached",
            _ if self.status() == 403 => "http_request_denied",
            _ => "http_request_error",
        }
    }
}

fn join(ports: &[u16]) -> String {
    ports.iter().map(u16::to_string).collect::<Vec<_>>().join(", ")
}

/// Something that was refused, and for whom it was meant.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Refusal {
    /// Why.
    pub reason: Reason,
    /// The host and port that were asked for, where the request got so far as to name them.
    pub target: Option<Target>,
}

impl Refusal {
    pub(crate) const fn new(reason: Reason, target: Option<Target>) -> Self {
        Self { reason, target }
    }

    /// The host that was asked for, in normal form.
    #[must_use]
    pub fn host(&self) -> Option<String> {
        self.target.as_ref().map(|target| target.host().to_string())
    }

    /// The port that was asked for.
    #[must_use]
    pub fn port(&self) -> Option<u16> {
        self.target.as_ref().map(Target::port)
    }
}

/// What, why and how to mend it, in two lines without a line end behind.
impl fmt::Display for Refusal {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.target {
            Some(target) => write!(formatter, "`{target}` was refused: {}", self.reason)?,
            None => write!(formatter, "the request was refused: {}", self.reason)?,
        }
        write!(formatter, "\nhint: {}", self.reason.hint())
    }
}

impl std::error::Error for Refusal {}
