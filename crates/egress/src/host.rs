//! The host part of a target in one normal form: a name in lower-case ASCII, or an address.
//!
//! Two spellings of one host must never be told apart by one check and not by the next, so everything that compares,
//! resolves or dials works on [`Host`], never on text. The rules are those of the WHATWG URL Standard, section "host
//! parsing", made stricter: international names become punycode (UTS #46), one trailing dot is dropped, and whatever
//! ends in a number is an IPv4 address in any of its spellings (`127.1`, `0x7f.0.0.1`, `017700000001`, `2130706433`)
//! or nothing. No percent-encoding is decoded, and IPv6 zones are refused. It owns no state.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use idna::AsciiDenyList;

/// The longest name, in bytes, without a trailing dot (RFC 1035, section 2.3.4).
const LONGEST_NAME: usize = 253;
/// The longest label of a name, in bytes.
const LONGEST_LABEL: usize = 63;
/// The longest text that is looked at, in bytes. International text is longer than the name that it stands for.
const LONGEST_TEXT: usize = 1_024;

/// Why a text is no host.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HostError {
    /// There is nothing, or nothing but a dot.
    #[error("the host is empty")]
    Empty,
    /// More than 253 bytes.
    #[error("the host is longer than {LONGEST_NAME} bytes")]
    TooLong,
    /// Two dots in a row, or a dot in front.
    #[error("the host has an empty label: remove the doubled or leading dot")]
    EmptyLabel,
    /// A label of more than 63 bytes.
    #[error("a label of the host is longer than {LONGEST_LABEL} bytes")]
    LabelTooLong,
    /// A label that begins or ends with a hyphen.
    #[error("a label of the host begins or ends with a hyphen")]
    Hyphen,
    /// A character that no host has.
    #[error("the host has the character {0:?}: only letters, digits, `-`, `_` and `.` make a name")]
    Character(char),
    /// An international name that UTS #46 does not allow.
    #[error("the host is no valid international name (UTS #46)")]
    International,
    /// It ends in a number and is no IPv4 address.
    #[error("the host ends in a number and is no IPv4 address")]
    NotIpv4,
    /// It has brackets or colons and is no IPv6 address.
    #[error("the host is no IPv6 address")]
    NotIpv6,
    /// An address where only a name will do.
    #[error("an address stands where only a name will do")]
    NotAName,
    /// An IPv6 address with a zone, such as `fe80::1%eth0`.
    #[error("the IPv6 address has a zone: a zone names an interface of the host, and none is reached")]
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

    /// Whether this name lies below `parent`, at any depth. A name does not lie below itself.
    #[must_use]
    pub fn is_below(&self, parent: &Self) -> bool {
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

/// Whom to reach: a name, or an address.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Host {
    /// A name, which has to be resolved.
    Name(HostName),
    /// An address. An IPv4-mapped IPv6 address (`::ffff:a.b.c.d`) is the IPv4 address here, as it is on the wire.
    Address(IpAddr),
}

impl Host {
    /// Reads a host: a name, an IPv4 address in any spelling, or an IPv6 address, with brackets or without.
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
        if text.len() > LONGEST_TEXT {
            return Err(HostError::TooLong);
        }
        if let Some(rest) = text.strip_prefix('[') {
            return ipv6(rest.strip_suffix(']').ok_or(HostError::NotIpv6)?);
        }
        if text.contains(':') {
            return ipv6(text);
        }
        check_ascii(text)?;
        let ascii = idna::domain_to_ascii_cow(text.as_bytes(), AsciiDenyList::URL)
            .map_err(|_| HostError::International)?;
        // The mapping may have made other characters of it.
        check_ascii(&ascii)?;
        let name = ascii.strip_suffix('.').unwrap_or(&ascii);
        if name.is_empty() {
            return Err(HostError::Empty);
        }
        if name.len() > LONGEST_NAME {
            return Err(HostError::TooLong);
        }
        let labels: Vec<&str> = name.split('.').collect();
        if labels.last().is_some_and(|label| is_number(label)) {
            return ipv4(&labels).map(|address| Self::Address(address.into())).ok_or(HostError::NotIpv4);
        }
        for label in labels {
            check_label(label)?;
        }
        Ok(Self::Name(HostName(name.into())))
    }

    /// The name, where it is one.
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

/// As in a URL: an IPv6 address has brackets.
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

/// Characters beyond ASCII are left to IDNA.
fn check_ascii(text: &str) -> Result<(), HostError> {
    let known = |character: char| {
        !character.is_ascii() || character.is_ascii_alphanumeric() || matches!(character, '-' | '_' | '.')
    };
    text.chars().find(|character| !known(*character)).map_or(Ok(()), |odd| Err(HostError::Character(odd)))
}

fn check_label(label: &str) -> Result<(), HostError> {
    if label.is_empty() {
        Err(HostError::EmptyLabel)
    } else if label.len() > LONGEST_LABEL {
        Err(HostError::LabelTooLong)
    } else if label.starts_with('-') || label.ends_with('-') {
        Err(HostError::Hyphen)
    } else {
        Ok(())
    }
}

fn ipv6(text: &str) -> Result<Host, HostError> {
    if text.contains('%') {
        return Err(HostError::Zone);
    }
    let address: Ipv6Addr = text.parse().map_err(|_| HostError::NotIpv6)?;
    Ok(Host::from(IpAddr::V6(address)))
}

/// Whether a name that ends with this label is an IPv4 address or nothing.
fn is_number(label: &str) -> bool {
    (!label.is_empty() && label.bytes().all(|byte| byte.is_ascii_digit())) || number(label).is_some()
}

/// One part of an IPv4 address: decimal, octal with a leading `0`, or hexadecimal with a leading `0x`.
fn number(part: &str) -> Option<u64> {
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
    // More digits than fit are a number all the same, and too large a one.
    Some(u64::from_str_radix(digits, radix).unwrap_or(u64::MAX))
}

/// One to four parts; the last one fills what is left.
fn ipv4(parts: &[&str]) -> Option<Ipv4Addr> {
    let (last, front) = parts.split_last()?;
    if front.len() > 3 {
        return None;
    }
    let mut value = 0;
    for part in front {
        value = value << 8 | number(part).filter(|part| *part <= 255)?;
    }
    let bits = 8 * (4 - front.len());
    let last = number(last).filter(|last| *last < 1 << bits)?;
    u32::try_from(value << bits | last).ok().map(Ipv4Addr::from)
}

#[cfg(test)]
mod tests;
