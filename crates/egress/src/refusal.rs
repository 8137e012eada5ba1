//! Why a connection was refused, for the log, for the observer, and for the client.
//!
//! Text from the client is escaped and truncated, since it appears in logs and terminals. This module has no state.

use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use crate::address::AddressKind;
use crate::target::{Target, TargetError};

/// The maximum length of an excerpt of a client's text, in characters.
const MAX_EXCERPT_CHARS: usize = 120;

/// Client text that is safe to show: escaped, and truncated to 120 characters. For a URL, it omits the user, the
/// password and the query, which may be secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EscapedExcerpt(Box<str>);

impl EscapedExcerpt {
    pub(crate) fn new(text: impl AsRef<[u8]>) -> Self {
        let text = text.as_ref();
        let cut = &text[..text.len().min(4 * MAX_EXCERPT_CHARS)];
        let text = String::from_utf8_lossy(cut);
        Self(text.chars().take(MAX_EXCERPT_CHARS).flat_map(char::escape_debug).collect())
    }

    /// An excerpt of a URL, or of a part of one.
    pub(crate) fn from_url(text: &str) -> Self {
        let shown = text.find(['?', '#']).map_or(text, |end| &text[..end]);
        Self::new(shown.rsplit_once('@').map_or(shown, |(_, behind)| behind))
    }
}

impl fmt::Display for EscapedExcerpt {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// Why a connection was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RefusalReason {
    /// The policy is [`crate::EgressPolicy::None`].
    #[error("the network is off")]
    NetworkOff,
    /// The name is not on the allow list.
    #[error("the name is not on the list of allowed hosts")]
    NameNotListed,
    /// The address is not on the allow list.
    #[error("the address is not on the list of allowed hosts")]
    AddressNotListed,
    /// The host is on the allow list with other ports.
    #[error("the host is allowed on other ports only ({})", join_ports(listed))]
    PortNotListed {
        /// The allowed ports, in ascending order.
        listed: Vec<u16>,
    },
    /// The address, or one of the addresses of the name, is not public.
    #[error("`{address}` is {kind}, not a public one")]
    NotPublic {
        /// The address.
        address: IpAddr,
        /// Its kind.
        kind: AddressKind,
    },
    /// The address belongs to this machine.
    #[error("`{address}` is an address of the machine itself")]
    OwnAddress {
        /// The address.
        address: IpAddr,
    },
    /// The requested target is not a host and port.
    #[error("`{requested}` is no target: {problem}")]
    InvalidTarget {
        /// The requested target.
        requested: EscapedExcerpt,
        /// What is wrong with it.
        problem: TargetError,
    },
    /// The name has no address, or no resolver could be reached.
    #[error("the name cannot be resolved: {problem}")]
    ResolveFailed {
        /// The error of the resolver.
        problem: String,
    },
    /// The resolver did not answer in time.
    #[error("the name was not resolved within {} s", timeout.as_secs())]
    ResolveTimedOut {
        /// The timeout.
        timeout: Duration,
    },
    /// No address accepted the connection.
    #[error("the connection failed: {problem}")]
    ConnectFailed {
        /// The error of the last attempt.
        problem: std::io::ErrorKind,
    },
    /// No address accepted the connection in time.
    #[error("the connection was not made within {} s", timeout.as_secs())]
    ConnectTimedOut {
        /// The timeout.
        timeout: Duration,
    },
    /// The server name of the TLS handshake is not the requested name.
    #[error("the TLS handshake names the server `{server_name}`")]
    ServerNameMismatch {
        /// The name in the handshake.
        server_name: EscapedExcerpt,
    },
    /// The TLS handshake has no server name.
    #[error("the TLS handshake names no server")]
    NoServerName,
    /// The TLS handshake cannot be parsed.
    #[error("the TLS handshake is malformed: {0}")]
    MalformedHandshake(&'static str),
    /// The first message of the TLS handshake is longer than the limit.
    #[error("the first message of the TLS handshake is longer than {limit} bytes")]
    HandshakeTooLong {
        /// The limit, in bytes.
        limit: usize,
    },
    /// The first message of the TLS handshake was not complete in time.
    #[error("the first message of the TLS handshake was not complete within {} s", timeout.as_secs())]
    HandshakeTimedOut {
        /// The timeout.
        timeout: Duration,
    },
    /// The client does not speak TLS, on a port where only TLS is allowed.
    #[error("only TLS passes on this port")]
    NotTls,
    /// The `Host` header is not the authority of the URL, or not the host of the tunnel.
    #[error("the `Host` header names `{host}`")]
    HostMismatch {
        /// The header's value.
        host: EscapedExcerpt,
    },
    /// The HTTP request cannot be parsed, or is not allowed.
    #[error("the HTTP request is malformed: {0}")]
    MalformedRequest(&'static str),
    /// The scheme of the URL is not `http`.
    #[error("the scheme of `{url}` is not served")]
    UnsupportedScheme {
        /// The URL.
        url: EscapedExcerpt,
    },
    /// The request is one for a web server, not for a proxy.
    #[error("this is a proxy, and `{requested}` is no absolute URL")]
    NotProxyRequest {
        /// The request's target.
        requested: EscapedExcerpt,
    },
    /// The head of the HTTP request is longer than the limit.
    #[error("the head of the HTTP request is longer than {limit} bytes")]
    HeadTooLong {
        /// The limit, in bytes.
        limit: usize,
    },
    /// No complete request arrived in time.
    #[error("no whole request came within {} s", timeout.as_secs())]
    RequestTimedOut {
        /// The timeout.
        timeout: Duration,
    },
    /// The server's response is not valid HTTP/1.
    #[error("the answer of the server is malformed: {0}")]
    MalformedResponse(&'static str),
    /// The first byte belongs to no supported protocol.
    #[error("the protocol is unknown (its first byte is {first:#04x})")]
    UnknownProtocol {
        /// The first byte.
        first: u8,
    },
    /// The SOCKS version is not supported.
    #[error("SOCKS version {version} is not served")]
    SocksVersion {
        /// The version.
        version: u8,
    },
    /// The SOCKS client requires authentication.
    #[error("the SOCKS client offers no way to go on without authentication")]
    SocksAuthentication,
    /// The SOCKS command is not supported.
    #[error("the SOCKS command {command} is not served")]
    SocksCommand {
        /// The command: 2 is BIND, 3 is UDP ASSOCIATE.
        command: u8,
    },
    /// The SOCKS address type is not supported.
    #[error("the SOCKS address type {address_type} is not served")]
    SocksAddressType {
        /// The type.
        address_type: u8,
    },
    /// The SOCKS request cannot be parsed.
    #[error("the SOCKS request is malformed: {0}")]
    MalformedSocks(&'static str),
    /// The maximum number of connections are open.
    #[error("too many connections are open")]
    TooManyConnections,
}

impl RefusalReason {
    /// A hint how to fix the problem, as a sentence fragment.
    #[must_use]
    pub const fn hint(&self) -> &'static str {
        match self {
            Self::NetworkOff => "the network policy has to be `limited` or `full`",
            Self::NameNotListed | Self::AddressNotListed => {
                "add the host to the list of allowed hosts, or do without it"
            }
            Self::PortNotListed { .. } => "use such a port, or add `HOST:PORT` to the list of allowed hosts",
            Self::NotPublic { .. } | Self::OwnAddress { .. } => {
                "only public addresses are allowed; the operator can allow single ranges"
            }
            Self::InvalidTarget { .. } => "ask for `HOST:PORT`",
            Self::ResolveFailed { .. } => "check the spelling of the name",
            Self::ResolveTimedOut { .. } | Self::ConnectFailed { .. } | Self::ConnectTimedOut { .. } => {
                "the server or the way to it is down; try again later"
            }
            Self::ServerNameMismatch { .. } | Self::NoServerName => {
                "ask the proxy for the same name as in the TLS handshake (SNI)"
            }
            Self::MalformedHandshake(_) | Self::HandshakeTooLong { .. } | Self::HandshakeTimedOut { .. } => {
                "use a current TLS client"
            }
            Self::NotTls => "use TLS, or another port that the list of allowed hosts names",
            Self::HostMismatch { .. } => "the `Host` header has to name the host that was asked for",
            Self::MalformedRequest(_) | Self::HeadTooLong { .. } | Self::RequestTimedOut { .. } => {
                "send one complete HTTP/1.1 request"
            }
            Self::UnsupportedScheme { .. } => "use `http://` URLs, and `CONNECT` for everything else",
            Self::NotProxyRequest { .. } => "configure this address as a proxy, not as a server",
            Self::MalformedResponse(_) => "the server is broken, or speaks another protocol on this port",
            Self::UnknownProtocol { .. } | Self::SocksVersion { .. } => {
                "use an HTTP proxy or SOCKS5 (`socks5h://`)"
            }
            Self::SocksAuthentication => "use no user name and no password",
            Self::SocksCommand { .. } => "only CONNECT is served",
            Self::SocksAddressType { .. } | Self::MalformedSocks(_) => "use a current SOCKS5 client",
            Self::TooManyConnections => "close some, or try again later",
        }
    }

    /// The HTTP status code.
    #[must_use]
    pub const fn status(&self) -> u16 {
        match self {
            Self::InvalidTarget { .. }
            | Self::MalformedRequest(_)
            | Self::UnsupportedScheme { .. }
            | Self::NotProxyRequest { .. }
            | Self::UnknownProtocol { .. }
            | Self::MalformedHandshake(_)
            | Self::MalformedSocks(_)
            | Self::SocksVersion { .. }
            | Self::SocksAuthentication
            | Self::SocksCommand { .. }
            | Self::SocksAddressType { .. } => 400,
            Self::RequestTimedOut { .. } | Self::HandshakeTimedOut { .. } => 408,
            Self::HeadTooLong { .. } | Self::HandshakeTooLong { .. } => 431,
            Self::ResolveFailed { .. } | Self::ConnectFailed { .. } | Self::MalformedResponse(_) => 502,
            Self::TooManyConnections => 503,
            Self::ResolveTimedOut { .. } | Self::ConnectTimedOut { .. } => 504,
            _ => 403,
        }
    }

    /// The SOCKS5 reply code (RFC 1928, section 6).
    #[must_use]
    pub const fn socks_reply(&self) -> u8 {
        match self {
            Self::ResolveFailed { .. } | Self::ResolveTimedOut { .. } | Self::ConnectTimedOut { .. } => 4,
            Self::ConnectFailed { problem } => match problem {
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

    /// The error type of a `Proxy-Status` header (RFC 9209, section 2.3).
    pub(crate) const fn proxy_status(&self) -> &'static str {
        match self {
            Self::NotPublic { .. } | Self::OwnAddress { .. } => "destination_ip_prohibited",
            Self::ResolveFailed { .. } => "dns_error",
            Self::ResolveTimedOut { .. } => "dns_timeout",
            Self::ConnectFailed { problem: std::io::ErrorKind::ConnectionRefused } => "connection_refused",
            Self::ConnectFailed { .. } => "destination_ip_unroutable",
            Self::ConnectTimedOut { .. } => "connection_timeout",
            Self::MalformedResponse(_) => "http_protocol_error",
            Self::TooManyConnections => "connection_limit_reached",
            _ if self.status() == 403 => "http_request_denied",
            _ => "http_request_error",
        }
    }
}

fn join_ports(ports: &[u16]) -> String {
    ports.iter().map(u16::to_string).collect::<Vec<_>>().join(", ")
}

/// A refused connection and its target.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Refusal {
    /// Why it was refused.
    pub reason: RefusalReason,
    /// The requested host and port; `None` when the request was refused before its target was known.
    pub target: Option<Target>,
}

impl Refusal {
    pub(crate) const fn new(reason: RefusalReason, target: Option<Target>) -> Self {
        Self { reason, target }
    }

    /// The requested host, in normal form.
    #[must_use]
    pub fn host(&self) -> Option<String> {
        self.target.as_ref().map(|target| target.host().to_string())
    }

    /// The requested port.
    #[must_use]
    pub fn port(&self) -> Option<u16> {
        self.target.as_ref().map(Target::port)
    }
}

/// What was refused, why, and how to fix it: two lines, without a line break at the end.
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
