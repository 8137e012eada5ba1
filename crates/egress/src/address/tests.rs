use proptest::prelude::*;

use super::*;

fn check(kind: AddressKind, addresses: &[&str]) {
    for text in addresses {
        assert_eq!(address_kind(text.parse().unwrap()), kind, "{text}");
    }
}

#[test]
fn public_addresses_are_public_to_the_edges_of_the_ranges_between_them() {
    check(
        AddressKind::Public,
        &[
            "1.0.0.0",
            "8.8.8.8",
            "9.255.255.255",
            "11.0.0.0",
            "100.63.255.255",
            "100.128.0.0",
            "126.255.255.255",
            "128.0.0.0",
            "169.253.255.255",
            "169.255.0.0",
            "172.15.255.255",
            "172.32.0.0",
            "192.0.1.0",
            "192.0.3.0",
            "192.167.255.255",
            "192.169.0.0",
            "198.17.255.255",
            "198.20.0.0",
            "223.255.255.255",
            "2000::",
            "2606:4700:4700::1111",
            "2001:200::",
            "2001:db9::",
            "3ffe:ffff::",
            "3fff:1000::",
            "64:ff9b::8.8.8.8",
            "2002:808:808::1",
            "::ffff:8.8.8.8",
            "2a00::5efe:808:808",
        ],
    );
}

#[test]
fn each_non_public_address_has_its_kind() {
    check(AddressKind::Unspecified, &["0.0.0.0", "0.1.2.3", "0.255.255.255", "::", "::ffff:0.0.0.0"]);
    check(
        AddressKind::Loopback,
        &["127.0.0.1", "127.255.255.255", "::1", "::ffff:127.0.0.1", "64:ff9b::127.0.0.1"],
    );
    check(
        AddressKind::Private,
        &[
            "10.0.0.0",
            "10.255.255.255",
            "172.16.0.0",
            "172.31.255.255",
            "192.168.0.0",
            "192.168.255.255",
            "fc00::",
            "fdff:ffff::1",
            "::ffff:10.1.2.3",
            "64:ff9b::10.0.0.1",
            "64:ff9b:1::8.8.8.8",
            "2002:a00:1::1",
            "2002:c0a8:101::1",
            "2a00::5efe:10.0.0.1",
            "2a00::200:5efe:192.168.1.1",
        ],
    );
    check(AddressKind::Shared, &["100.64.0.0", "100.127.255.255", "::ffff:100.64.0.1"]);
    check(AddressKind::LinkLocal, &["169.254.0.0", "169.254.255.255", "fe80::1", "febf:ffff::1"]);
    check(AddressKind::SiteLocal, &["fec0::1", "feff::1"]);
    check(AddressKind::Multicast, &["224.0.0.1", "239.255.255.255", "ff02::1", "ff0e::1"]);
    check(AddressKind::Broadcast, &["255.255.255.255"]);
    check(
        AddressKind::Documentation,
        &["192.0.2.1", "198.51.100.1", "203.0.113.255", "2001:db8::1", "3fff:fff::1"],
    );
    check(AddressKind::Benchmarking, &["198.18.0.0", "198.19.255.255", "2001:2::1"]);
    check(AddressKind::Orchid, &["2001:10::1", "2001:2f::1"]);
    check(
        AddressKind::Transition,
        &["192.88.99.1", "2001::1", "2001:0:808:808::1", "::8.8.8.8", "::127.0.0.1", "::ffff:0:8.8.8.8"],
    );
    check(
        AddressKind::Reserved,
        &[
            "192.0.0.1",
            "240.0.0.1",
            "254.255.255.255",
            "100::1",
            "2001:1ff::1",
            "4000::1",
            "5f00::1",
            "fe00::1",
            "64:ff9b:0:1::1",
        ],
    );
}

#[test]
fn metadata_addresses_of_the_clouds_are_known_in_every_form() {
    check(
        AddressKind::Metadata,
        &[
            "169.254.169.254",
            "168.63.129.16",
            "100.100.100.200",
            "192.0.0.192",
            "169.254.170.2",
            "fd00:ec2::254",
            "fd20:ce::254",
            "::ffff:169.254.169.254",
            "::ffff:a9fe:a9fe",
            "64:ff9b::169.254.169.254",
            "2002:a9fe:a9fe::1",
        ],
    );
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn an_address_that_carries_another_is_public_only_if_that_is(value in any::<u32>(), rest in any::<u64>()) {
        let inner = Ipv4Addr::from(value);
        let [high, low] = [(value >> 16) as u16, value as u16];
        let public = address_kind(inner.into()) == AddressKind::Public;
        let mapped = inner.to_ipv6_mapped();
        let nat64 = Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, high, low);
        let six_to_four = Ipv6Addr::from(
            u128::from(Ipv6Addr::new(0x2002, high, low, 0x1234, 0, 0, 0, 0)) | u128::from(rest),
        );
        prop_assert_eq!(address_kind(mapped.into()), address_kind(inner.into()));
        prop_assert_eq!(address_kind(nat64.into()), address_kind(inner.into()));
        prop_assert!(public || address_kind(six_to_four.into()) != AddressKind::Public);
        prop_assert!(address_kind(inner.to_ipv6_compatible().into()) != AddressKind::Public);
    }

    #[test]
    fn nothing_outside_of_global_unicast_is_public(value in any::<u128>()) {
        let address = Ipv6Addr::from(value);
        if address_kind(address.into()) == AddressKind::Public {
            prop_assert!(value >> 125 == 1 || address.to_ipv4_mapped().is_some() || value >> 32 == 0x64_ff9b << 64);
        }
    }

    #[test]
    fn the_standard_library_agrees_where_it_knows(value in any::<u32>()) {
        let address = Ipv4Addr::from(value);
        if address.is_private() || address.is_loopback() || address.is_link_local() || address.is_broadcast()
            || address.is_documentation() || address.is_multicast() || address.is_unspecified()
        {
            prop_assert!(address_kind(address.into()) != AddressKind::Public);
        }
    }
}
