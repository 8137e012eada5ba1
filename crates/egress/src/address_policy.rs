//! Which addresses may be dialled: public ones, and ranges that the embedder allows.
//!
//! The list of ranges is the only state, and never changes.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use crate::address::{AddressKind, address_kind};

/// A range of addresses, such as `10.1.0.0/16`, or a single address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AddressRange {
    base: IpAddr,
    bits: u32,
}

/// The error of parsing a text that is not a range of addresses.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is no range of addresses: write `10.1.0.0/16`, `fd12::/16` or a single address")]
pub struct AddressRangeError {
    text: String,
}

impl AddressRange {
    /// Whether the range contains `address`.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        let common = match (self.base, address) {
            (IpAddr::V4(base), IpAddr::V4(address)) => (u32::from(base) ^ u32::from(address)).leading_zeros(),
            (IpAddr::V6(base), IpAddr::V6(address)) => {
                (u128::from(base) ^ u128::from(address)).leading_zeros()
            }
            _ => return false,
        };
        common >= self.bits
    }

    const fn is_single(&self) -> bool {
        self.bits == width(self.base)
    }
}

impl From<IpAddr> for AddressRange {
    fn from(address: IpAddr) -> Self {
        let base = address.to_canonical();
        Self { base, bits: width(base) }
    }
}

/// Bits after the prefix must be zero: `10.0.0.1/8` is more likely a mistake than a range.
impl FromStr for AddressRange {
    type Err = AddressRangeError;

    fn from_str(text: &str) -> Result<Self, AddressRangeError> {
        let error = || AddressRangeError { text: text.chars().take(64).collect() };
        let Some((base, bits)) = text.split_once('/') else {
            return text.parse::<IpAddr>().map(Self::from).map_err(|_| error());
        };
        let base: IpAddr = base.parse().map_err(|_| error())?;
        let bits: u32 = bits.parse().ok().filter(|bits| *bits <= width(base)).ok_or_else(error)?;
        let rest = match base {
            IpAddr::V4(base) => u32::from(base).checked_shl(bits).map(u128::from),
            IpAddr::V6(base) => u128::from(base).checked_shl(bits),
        };
        if rest.unwrap_or(0) != 0 {
            return Err(error());
        }
        Ok(Self { base, bits })
    }
}

impl fmt::Display for AddressRange {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.base, self.bits)
    }
}

const fn width(address: IpAddr) -> u32 {
    match address {
        IpAddr::V4(_) => u32::BITS,
        IpAddr::V6(_) => u128::BITS,
    }
}

/// Which addresses may be dialled: public ones by default.
///
/// An embedder that must reach private addresses lists their ranges. A test with a server on loopback does so, too.
/// The list of allowed *hosts* never allows a private address.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AddressPolicy {
    allowed: Vec<AddressRange>,
}

impl AddressPolicy {
    /// Only public addresses.
    #[must_use]
    pub const fn public_only() -> Self {
        Self { allowed: Vec::new() }
    }

    /// Allows these addresses as well, whatever their kind.
    ///
    /// Two kinds of addresses must be listed one by one: a cloud's metadata address, and this machine's own address (except
    /// loopback). A wide range that happens to contain one of them does not expose the machine's credentials or services.
    #[must_use]
    pub fn with_allowed(mut self, ranges: impl IntoIterator<Item = AddressRange>) -> Self {
        self.allowed.extend(ranges);
        self
    }

    /// The address to dial for `address`: the same, or the IPv4 address of an IPv4-mapped one.
    ///
    /// # Errors
    ///
    /// The kind of the address, where it may not be dialled.
    ///
    /// ```
    /// use conjure_egress::{AddressKind, AddressPolicy};
    ///
    /// let policy = AddressPolicy::public_only().with_allowed(["10.1.0.0/16".parse()?]);
    /// assert!(policy.check("10.1.2.3".parse()?).is_ok());
    /// assert_eq!(policy.check("10.2.0.1".parse()?), Err(AddressKind::Private));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn check(&self, address: IpAddr) -> Result<IpAddr, AddressKind> {
        let address = address.to_canonical();
        match address_kind(address) {
            AddressKind::Public => Ok(address),
            _ if self.allows(address) => Ok(address),
            kind => Err(kind),
        }
    }

    fn allows(&self, address: IpAddr) -> bool {
        match address_kind(address) {
            AddressKind::Metadata => self.lists_exactly(address),
            _ => self.allowed.iter().any(|range| range.contains(address)),
        }
    }

    /// Whether `address` is listed as a single address, not by a range that contains it.
    fn lists_exactly(&self, address: IpAddr) -> bool {
        self.allowed.iter().any(|range| range.is_single() && range.contains(address))
    }

    /// Whether `address`, which may be dialled, may also be one of this machine's own addresses. A wide range that happens to
    /// contain it does not allow that. A range of loopback addresses does, since it can mean nothing else.
    pub(crate) fn allows_own_address(&self, address: IpAddr) -> bool {
        address_kind(address) == AddressKind::Loopback || self.lists_exactly(address)
    }
}

#[cfg(test)]
mod tests;
