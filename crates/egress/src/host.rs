//! The host part of a target in one normal form: a lower-case ASCII name, or an address.
//!
//! All checks must see the same host, however it was spelled. So comparing, resolving and dialling work on [`Host`], never on
//! text. The rules are those of the WHATWG URL Standard, section "host parsing", with some stricter ones. International names
//! become punycode (UTS #46), and one trailing dot is dropped. A text that ends in a number is an IPv4 address in any of its
//! spellings (`127.1`, `0x7f.0.0.1`, `017700000001`, `2130706433`), or invalid. Percent-encoding is not decoded, and IPv6 zones
//! are refused. This module has no state.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use idna::AsciiDenyList;

/// The maximum length of a name without a trailing dot (RFC 1035, section 2.3.4).
const MAX_NAME_BYTES: usize = 253;
/// The maximum length of a label.
const MAX_LABEL_BYTES: usize = 63;
/// The maximum length of a text that is parsed. An international name is longer than its ASCII form.
const MAX_TEXT_BYTES: usize = 1_024;

/// The error of parsing a text that is not a host.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HostError {
    /// The text is empty, or only a dot.
    #[error("the host is empty")]
    Empty,
    /// The name has more than 253 bytes.
    #[error("the host is longer than {MAX_NAME_BYTES} bytes")]
    TooLong,
    /// The name has two dots in a row, or a leading dot.
    #[error("the host has an empty label: remove the doubled or leading dot")]
    EmptyLabel,
    /// A label has more than 63 bytes.
    #[error("a label of the host is longer than {MAX_LABEL_BYTES} bytes")]
    LabelTooLong,
    /// A label starts or ends with a hyphen.
    #[error("a label of the host begins or ends with a hyphen")]
    Hyphen,
    /// The text contains a character that no host has.
    #[error("the host has the character {0:?}: only letters, digits, `-`, `_` and `.` make a name")]
    Character(char),
    /// The international name is not valid by UTS #46.
    #[error("the host is no valid international name (UTS #46)")]
    International,
    /// The text ends in a number and is not an IPv4 address.
    #[error("the host ends in a number and is no IPv4 address")]
    NotIpv4,
    /// The text has brackets or colons and is not an IPv6 address.
    #[error("the host is no IPv6 address")]
    NotIpv6,
    /// An address was given where a name is needed.
    #[error("an address stands where only a name will do")]
    NotAName,
    /// The IPv6 address has a zone, as in `fe80::1%eth0`.
    #[error("the IPv6 address has a zone: a zone names a network interface, which cannot be used here")]
    Zone,
}

/// A name in normal form: lower-case ASCII, no trailing dot, 1 to 253 bytes, and not a spelling of an address.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostName(Box<str>);

impl HostName {
    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether this name is a subdomain of `parent`, at any depth. A name is not a subdomain of itself.
    #[must_use]
    pub fn is_subdomain_of(&self, parent: &Self) -> bool {
        self.0.strip_suffix(parent.as_str()).is_some_and(|front| front.len() > 1 && front.ends_with('.'))
    }
}

impl fmt::Display for HostName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl FromStr for HostName {
    type Err = HostError;

    fn from_str(text: &str) -> Result<Self, HostError> {
        match Host::parse(text)? {
            Host::Name(name) => Ok(name),
            Host::Address(_) => Err(HostError::NotAName),
        }
    }
}

/// A name or an address.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Host {
    /// A name, which has to be resolved.
    Name(HostName),
    /// An address. An IPv4-mapped IPv6 address (`::ffff:a.b.c.d`) is stored as the IPv4 address, as it is on the wire.
    Address(IpAddr),
}

impl Host {
    /// Parses a name, an IPv4 address in any spelling, or an IPv6 address with or without brackets.
    ///
    /// # Errors
    ///
    /// [`HostError`] says what is wrong with the text.
    ///
    /// ```
    /// use conjure_egress::Host;
    ///
    /// assert_eq!(Host::parse("Bücher.Example.")?.to_string(), "xn--bcher-kva.example");
    /// assert_eq!(Host::parse("0x7f.1")?.to_string(), "127.0.0.1");
    /// assert_eq!(Host::parse("[::FFFF:10.0.0.1]")?.to_string(), "10.0.0.1");
    /// # Ok::<(), conjure_egress::HostError>(())
    /// ```
    pub fn parse(text: &str) -> Result<Self, HostError> {
        if text.len() > MAX_TEXT_BYTES {
            return Err(HostError::TooLong);
        }
        if let Some(rest) = text.strip_prefix('[') {
            return parse_ipv6(rest.strip_suffix(']').ok_or(HostError::NotIpv6)?);
        }
        if text.contains(':') {
            return parse_ipv6(text);
        }
        check_ascii(text)?;
        let ascii = idna::domain_to_ascii_cow(text.as_bytes(), AsciiDenyList::URL)
            .map_err(|_| HostError::International)?;
        // The mapping may have produced other characters.
        check_ascii(&ascii)?;
        let name = ascii.strip_suffix('.').unwrap_or(&ascii);
        if name.is_empty() {
            return Err(HostError::Empty);
        }
        if name.len() > MAX_NAME_BYTES {
            return Err(HostError::TooLong);
        }
        let labels: Vec<&str> = name.split('.').collect();
        if labels.last().is_some_and(|label| is_number(label)) {
            return parse_ipv4(&labels)
                .map(|address| Self::Address(address.into()))
                .ok_or(HostError::NotIpv4);
        }
        for label in labels {
            check_label(label)?;
        }
        Ok(Self::Name(HostName(name.into())))
    }

    /// The name; `None` for an address.
    #[must_use]
    pub fn name(&self) -> Option<&HostName> {
        match self {
            Self::Name(name) => Some(name),
            Self::Address(_) => None,
        }
    }
}

impl From<IpAddr> for Host {
    fn from(address: IpAddr) -> Self {
        Self::Address(address.to_canonical())
    }
}

/// Written as in a URL: an IPv6 address has brackets.
impl fmt::Display for Host {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => name.fmt(formatter),
            Self::Address(IpAddr::V4(address)) => address.fmt(formatter),
            Self::Address(IpAddr::V6(address)) => write!(formatter, "[{address}]"),
        }
    }
}

impl FromStr for Host {
    type Err = HostError;

    fn from_str(text: &str) -> Result<Self, HostError> {
        Self::parse(text)
    }
}

/// Checks the ASCII characters. The others are left to IDNA.
fn check_ascii(text: &str) -> Result<(), HostError> {
    let known = |character: char| {
        !character.is_ascii() || character.is_ascii_alphanumeric() || matches!(character, '-' | '_' | '.')
    };
    text.chars().find(|character| !known(*character)).map_or(Ok(()), |odd| Err(HostError::Character(odd)))
}

fn check_label(label: &str) -> Result<(), HostError> {
    if label.is_empty() {
        Err(HostError::EmptyLabel)
    } else if label.len() > MAX_LABEL_BYTES {
        Err(HostError::LabelTooLong)
    } else if label.starts_with('-') || label.ends_with('-') {
        Err(HostError::Hyphen)
    } else {
        Ok(())
    }
}

fn parse_ipv6(text: &str) -> Result<Host, HostError> {
    if text.contains('%') {
        return Err(HostError::Zone);
    }
    let address: Ipv6Addr = text.parse().map_err(|_| HostError::NotIpv6)?;
    Ok(Host::from(IpAddr::V6(address)))
}

/// Whether a name that ends with this label must be an IPv4 address.
fn is_number(label: &str) -> bool {
    (!label.is_empty() && label.bytes().all(|byte| byte.is_ascii_digit())) || parse_number(label).is_some()
}

/// Parses one part of an IPv4 address: decimal, octal with a leading `0`, or hexadecimal with a leading `0x`.
fn parse_number(part: &str) -> Option<u64> {
    let (digits, radix) = match part.as_bytes() {
        [] => return None,
        [b'0', b'x' | b'X', ..] => (&part[2..], 16),
        [b'0', _, ..] => (&part[1..], 8),
        _ => (part, 10),
    };
    if digits.is_empty() {
        return Some(0);
    }
    if !digits.bytes().all(|byte| char::from(byte).is_digit(radix)) {
        return None;
    }
    // A number with more digits than fit is too large, but still a number.
    Some(u64::from_str_radix(digits, radix).unwrap_or(u64::MAX))
}

/// Parses one to four parts; the last one fills the remaining bytes.
fn parse_ipv4(parts: &[&str]) -> Option<Ipv4Addr> {
    let (last, front) = parts.split_last()?;
    if front.len() > 3 {
        return None;
    }
    let mut value = 0;
    for part in front {
        value = value << 8 | parse_number(part).filter(|part| *part <= 255)?;
    }
    let bits = 8 * (4 - front.len());
    let last = parse_number(last).filter(|last| *last < 1 << bits)?;
    u32::try_from(value << bits | last).ok().map(Ipv4Addr::from)
}

#[cfg(test)]
mod tests;
