//! A host and a port: requested by a client, then checked, resolved and dialled. This module has no state.

use std::fmt;
use std::num::NonZeroU16;

use crate::host::{Host, HostError};

/// The error of parsing a text that is not a target.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TargetError {
    /// The host is invalid.
    #[error(transparent)]
    Host(#[from] HostError),
    /// The port is not a number from 1 to 65535.
    #[error("the port is no number from 1 to 65535")]
    Port,
    /// The port is missing.
    #[error("the port is missing: write `HOST:PORT`")]
    PortMissing,
    /// The text has a user name, as in `user@host`.
    #[error("there is a user name in front of the host: remove it")]
    UserName,
    /// An IPv6 address has no brackets, so the port cannot be separated from the address.
    #[error("the IPv6 address has no brackets: write `[ADDRESS]:PORT`")]
    Brackets,
}

/// A host in normal form and a port. Its text form is `HOST:PORT`, with brackets around an IPv6 address.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Target {
    host: Host,
    port: NonZeroU16,
}

impl Target {
    /// The target with this host and port.
    #[must_use]
    pub const fn new(host: Host, port: NonZeroU16) -> Self {
        Self { host, port }
    }

    /// Parses `HOST:PORT`, the form of a `CONNECT` request (RFC 9110, section 9.3.6).
    ///
    /// # Errors
    ///
    /// [`TargetError`] says what is wrong with the text.
    ///
    /// ```
    /// use conjure_egress::Target;
    ///
    /// assert_eq!(Target::parse("Example.COM.:443")?.to_string(), "example.com:443");
    /// # Ok::<(), conjure_egress::TargetError>(())
    /// ```
    pub fn parse(text: &str) -> Result<Self, TargetError> {
        let (host, port) = split_host_port(text)?;
        Ok(Self { host, port: port.ok_or(TargetError::PortMissing)? })
    }

    /// Parses `HOST` or `HOST:PORT`, as in a `Host` header or a URL.
    ///
    /// # Errors
    ///
    /// [`TargetError`] says what is wrong with the text.
    pub fn parse_with_default_port(text: &str, default_port: NonZeroU16) -> Result<Self, TargetError> {
        let (host, port) = split_host_port(text)?;
        Ok(Self { host, port: port.unwrap_or(default_port) })
    }

    /// The host.
    #[must_use]
    pub const fn host(&self) -> &Host {
        &self.host
    }

    /// The port.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.port.get()
    }
}

impl fmt::Display for Target {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}:{}", self.host, self.port)
    }
}

/// Parses a host and an optional port.
pub(crate) fn split_host_port(text: &str) -> Result<(Host, Option<NonZeroU16>), TargetError> {
    if text.contains('@') {
        return Err(TargetError::UserName);
    }
    let (host, port) = if text.starts_with('[') {
        let end = text.find(']').ok_or(HostError::NotIpv6)?;
        match &text[end + 1..] {
            "" => (text, None),
            rest => (&text[..=end], Some(rest.strip_prefix(':').ok_or(HostError::NotIpv6)?)),
        }
    } else {
        match text.split_once(':') {
            None => (text, None),
            Some((_, port)) if port.contains(':') => return Err(TargetError::Brackets),
            Some((host, port)) => (host, Some(port)),
        }
    };
    let host = if host.is_empty() { Err(HostError::Empty) } else { Host::parse(host) }?;
    Ok((host, port.map(parse_port).transpose()?))
}

/// Parses one to five digits: `parse` alone would also accept a sign.
fn parse_port(text: &str) -> Result<NonZeroU16, TargetError> {
    if text.len() > 5 || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(TargetError::Port);
    }
    text.parse().map_err(|_| TargetError::Port)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: &str) {
        let read = match Target::parse_with_default_port(text, NonZeroU16::MIN) {
            Ok(target) => target.to_string(),
            Err(error) => format!("{error:?}"),
        };
        assert_eq!(read, expected, "{text:?}");
    }

    #[test]
    fn a_target_is_a_host_and_a_port() {
        check("Example.com:443", "example.com:443");
        check("example.com", "example.com:1");
        check("example.com.:0443", "example.com:443");
        check("127.1:80", "127.0.0.1:80");
        check("[::1]:80", "[::1]:80");
        check("[::1]", "[::1]:1");
        check("[::ffff:127.0.0.1]:80", "127.0.0.1:80");
    }

    #[test]
    fn an_invalid_target_gives_the_reason() {
        check("", "Host(Empty)");
        check(":80", "Host(Empty)");
        check("a:", "Port");
        check("a:0", "Port");
        check("a:65536", "Port");
        check("a:+80", "Port");
        check("a:80 ", "Port");
        check("a:8\u{660}", "Port");
        check("a:000080", "Port");
        check("::1:80", "Brackets");
        check("::1", "Brackets");
        check("[::1", "Host(NotIpv6)");
        check("[::1]80", "Host(NotIpv6)");
        check("[::1%25lo]:80", "Host(Zone)");
        check("good.example@evil.example:80", "UserName");
        check("a/b:80", "Host(Character('/'))");
        assert_eq!(Target::parse("a"), Err(TargetError::PortMissing));
    }
}
