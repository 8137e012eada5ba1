//! Which addresses are public, and what the other addresses are for.
//!
//! The tables follow the IANA registries of special-purpose addresses. They also list the addresses at which clouds serve
//! credentials. An address that is not known to be public is refused: in IPv6 these are all but `2000::/3` and the
//! well-known prefix of NAT64. An address that contains an IPv4 address is also checked as that address. This module has no
//! state.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The purpose of an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum AddressKind {
    /// A public address of the internet.
    Public,
    /// `0.0.0.0/8` and `::`: the machine itself.
    Unspecified,
    /// `127.0.0.0/8` and `::1`.
    Loopback,
    /// `10.0.0.0/8`, `172.16.0.0/12`, `192.168.0.0/16`, `fc00::/7`, `64:ff9b:1::/48`.
    Private,
    /// `100.64.0.0/10`: between a provider and its customers.
    Shared,
    /// `169.254.0.0/16` and `fe80::/10`.
    LinkLocal,
    /// `fec0::/10`.
    SiteLocal,
    /// An address at which a cloud serves a machine's credentials and settings.
    Metadata,
    /// `224.0.0.0/4` and `ff00::/8`.
    Multicast,
    /// `255.255.255.255`.
    Broadcast,
    /// Addresses for examples in documents.
    Documentation,
    /// `198.18.0.0/15` and `2001:2::/48`.
    Benchmarking,
    /// `2001:10::/28` and `2001:20::/28`: identifiers of keys, not locations.
    Orchid,
    /// IPv4-IPv6 transition mechanisms: `2001::/32`, `::ffff:0:0:0/96`, `::/96`, `192.88.99.0/24`.
    Transition,
    /// All other addresses that the registries reserve.
    Reserved,
}

impl fmt::Display for AddressKind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Public => "a public address",
            Self::Unspecified => "the unspecified address, which is the machine itself",
            Self::Loopback => "a loopback address",
            Self::Private => "a private address",
            Self::Shared => "an address of a provider's own network",
            Self::LinkLocal => "a link-local address",
            Self::SiteLocal => "a site-local address",
            Self::Metadata => "a cloud's metadata address",
            Self::Multicast => "a multicast address",
            Self::Broadcast => "the broadcast address",
            Self::Documentation => "an address for documents",
            Self::Benchmarking => "an address for benchmarks",
            Self::Orchid => "an identifier (ORCHID), not an address",
            Self::Transition => "an address of an IPv4-IPv6 transition mechanism",
            Self::Reserved => "a reserved address",
        })
    }
}

/// Single addresses, which are looked up before the ranges.
const METADATA_V4: [Ipv4Addr; 10] = [
    // Amazon, Google, Azure, DigitalOcean, OpenStack and most others.
    Ipv4Addr::new(169, 254, 169, 254),
    // Amazon: name service and time, containers, pods.
    Ipv4Addr::new(169, 254, 169, 253),
    Ipv4Addr::new(169, 254, 169, 123),
    Ipv4Addr::new(169, 254, 170, 2),
    Ipv4Addr::new(169, 254, 170, 23),
    // Scaleway, Tencent.
    Ipv4Addr::new(169, 254, 42, 42),
    Ipv4Addr::new(169, 254, 0, 23),
    // Azure's wire server, which lies in public space.
    Ipv4Addr::new(168, 63, 129, 16),
    // Alibaba, Oracle.
    Ipv4Addr::new(100, 100, 100, 200),
    Ipv4Addr::new(192, 0, 0, 192),
];

const METADATA_V6: [Ipv6Addr; 6] = [
    // Amazon: metadata, name service, pods.
    Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254),
    Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x253),
    Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x23),
    // Google, Oracle, Scaleway.
    Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254),
    Ipv6Addr::new(0xfd00, 0xc1, 0, 0, 0, 0, 0xa9fe, 0xa9fe),
    Ipv6Addr::new(0xfd00, 0x42, 0, 0, 0, 0, 0, 0x42),
];

const RANGES_V4: [(Ipv4Addr, u32, AddressKind); 16] = [
    (Ipv4Addr::new(0, 0, 0, 0), 8, AddressKind::Unspecified),
    (Ipv4Addr::new(10, 0, 0, 0), 8, AddressKind::Private),
    (Ipv4Addr::new(100, 64, 0, 0), 10, AddressKind::Shared),
    (Ipv4Addr::new(127, 0, 0, 0), 8, AddressKind::Loopback),
    (Ipv4Addr::new(169, 254, 0, 0), 16, AddressKind::LinkLocal),
    (Ipv4Addr::new(172, 16, 0, 0), 12, AddressKind::Private),
    (Ipv4Addr::new(192, 0, 0, 0), 24, AddressKind::Reserved),
    (Ipv4Addr::new(192, 0, 2, 0), 24, AddressKind::Documentation),
    (Ipv4Addr::new(192, 88, 99, 0), 24, AddressKind::Transition),
    (Ipv4Addr::new(192, 168, 0, 0), 16, AddressKind::Private),
    (Ipv4Addr::new(198, 18, 0, 0), 15, AddressKind::Benchmarking),
    (Ipv4Addr::new(198, 51, 100, 0), 24, AddressKind::Documentation),
    (Ipv4Addr::new(203, 0, 113, 0), 24, AddressKind::Documentation),
    (Ipv4Addr::new(224, 0, 0, 0), 4, AddressKind::Multicast),
    (Ipv4Addr::new(255, 255, 255, 255), 32, AddressKind::Broadcast),
    (Ipv4Addr::new(240, 0, 0, 0), 4, AddressKind::Reserved),
];

/// The first range that contains an address decides.
const RANGES_V6: [(Ipv6Addr, u32, AddressKind); 15] = [
    (Ipv6Addr::UNSPECIFIED, 128, AddressKind::Unspecified),
    (Ipv6Addr::LOCALHOST, 128, AddressKind::Loopback),
    // IPv4-compatible, and IPv4-translated (SIIT).
    (Ipv6Addr::UNSPECIFIED, 96, AddressKind::Transition),
    (Ipv6Addr::new(0, 0, 0, 0, 0xffff, 0, 0, 0), 96, AddressKind::Transition),
    (Ipv6Addr::new(0x64, 0xff9b, 1, 0, 0, 0, 0, 0), 48, AddressKind::Private),
    // Teredo.
    (Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0), 32, AddressKind::Transition),
    (Ipv6Addr::new(0x2001, 2, 0, 0, 0, 0, 0, 0), 48, AddressKind::Benchmarking),
    (Ipv6Addr::new(0x2001, 0x10, 0, 0, 0, 0, 0, 0), 28, AddressKind::Orchid),
    (Ipv6Addr::new(0x2001, 0x20, 0, 0, 0, 0, 0, 0), 28, AddressKind::Orchid),
    (Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0), 23, AddressKind::Reserved),
    (Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0), 32, AddressKind::Documentation),
    (Ipv6Addr::new(0x3fff, 0, 0, 0, 0, 0, 0, 0), 20, AddressKind::Documentation),
    (Ipv6Addr::new(0xfc00, 0, 0, 0, 0, 0, 0, 0), 7, AddressKind::Private),
    (Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0), 10, AddressKind::LinkLocal),
    (Ipv6Addr::new(0xfec0, 0, 0, 0, 0, 0, 0, 0), 10, AddressKind::SiteLocal),
];

/// The purpose of `address`.
///
/// ```
/// use conjure_egress::{AddressKind, address_kind};
///
/// assert_eq!(address_kind("::ffff:169.254.169.254".parse()?), AddressKind::Metadata);
/// assert_eq!(address_kind("1.1.1.1".parse()?), AddressKind::Public);
/// # Ok::<(), std::net::AddrParseError>(())
/// ```
#[must_use]
pub fn address_kind(address: IpAddr) -> AddressKind {
    match address.to_canonical() {
        IpAddr::V4(address) => kind_v4(address),
        IpAddr::V6(address) => kind_v6(address),
    }
}

fn kind_v4(address: Ipv4Addr) -> AddressKind {
    if METADATA_V4.contains(&address) {
        return AddressKind::Metadata;
    }
    let holds = |base: Ipv4Addr, bits| (u32::from(base) ^ u32::from(address)).leading_zeros() >= bits;
    RANGES_V4
        .into_iter()
        .find(|(base, bits, _)| holds(*base, *bits))
        .map_or(AddressKind::Public, |(_, _, kind)| kind)
}

fn kind_v6(address: Ipv6Addr) -> AddressKind {
    if METADATA_V6.contains(&address) {
        return AddressKind::Metadata;
    }
    let holds = |base: Ipv6Addr, bits| (u128::from(base) ^ u128::from(address)).leading_zeros() >= bits;
    if let Some((_, _, kind)) = RANGES_V6.into_iter().find(|(base, bits, _)| holds(*base, *bits)) {
        return kind;
    }
    let parts = address.segments();
    let ipv4 = |high: u16, low: u16| kind_v4(Ipv4Addr::from(u32::from(high) << 16 | u32::from(low)));
    match parts {
        // NAT64: how an IPv6-only host reaches IPv4.
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] => ipv4(high, low),
        // 6to4.
        [0x2002, high, low, ..] if ipv4(high, low) != AddressKind::Public => ipv4(high, low),
        // ISATAP.
        [.., 0 | 0x200, 0x5efe, high, low] if ipv4(high, low) != AddressKind::Public => ipv4(high, low),
        [0xff00..=0xffff, ..] => AddressKind::Multicast,
        [0x2000..=0x3fff, ..] => AddressKind::Public,
        _ => AddressKind::Reserved,
    }
}

#[cfg(test)]
mod tests;
