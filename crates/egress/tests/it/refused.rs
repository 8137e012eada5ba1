//! Refusals that no spelling and no protocol circumvents.

use std::sync::Arc;

use conjure_egress::{AddressKind, AddressPolicy, AllowList, EgressPolicy, RefusalReason};

use crate::support::{Proxy, Server, StaticResolver, limited, resolver, unused_port, without_timeouts};

/// Requests `host:port` in each protocol. Returns how each was refused: the status, the SOCKS reply, the reasons.
async fn refused(proxy: &Proxy, host: &str, port: u16) -> RefusalReason {
    let before = proxy.reasons().len();
    let connect = proxy.ask(format!("CONNECT {host}:{port} HTTP/1.1\r\n\r\n")).await;
    let plain = proxy.ask(format!("GET http://{host}:{port}/ HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n")).await;
    let bare = host.trim_matches(['[', ']']);
    let length = u8::try_from(bare.len()).unwrap();
    let request = [&[5, 1, 0, 5, 1, 0, 3, length], bare.as_bytes(), &port.to_be_bytes()].concat();
    let socks: Vec<u8> = proxy.ask(request).await.chars().map(|reply| u8::try_from(reply).unwrap()).collect();
    let reasons = proxy.reasons().split_off(before);
    assert_eq!(reasons.len(), 3, "{host}: {reasons:?}");
    assert!(reasons.iter().all(|reason| *reason == reasons[0]), "{host}: {reasons:?}");
    let reason = reasons[0].clone();
    for answer in [connect, plain] {
        assert!(answer.starts_with(&format!("HTTP/1.1 {} ", reason.status())), "{host}: {answer}");
        assert!(
            answer.contains(&format!("was refused: {reason}\nhint: {}\n", reason.hint())),
            "{host}: {answer}"
        );
    }
    assert_eq!(socks, [5, 0, 5, reason.socks_reply(), 0, 1, 0, 0, 0, 0, 0, 0], "{host}");
    reason
}

#[tokio::test]
async fn no_spelling_of_a_private_address_is_allowed() {
    // Any host may be requested, and only public addresses are dialled.
    let proxy = Proxy::start_with(without_timeouts(EgressPolicy::Full)).await;
    for (kind, hosts) in [
        (
            AddressKind::Loopback,
            &[
                "127.0.0.1",
                "127.0.0.1.",
                "127.1",
                "2130706433",
                "0x7f000001",
                "0x7f.1",
                "017700000001",
                "0177.0.0.1",
                "127.255.255.254",
                "[::1]",
                "[0:0:0:0:0:0:0:1]",
                "[::ffff:127.0.0.1]",
                "[::ffff:7f00:1]",
                "[64:ff9b::127.0.0.1]",
                "[2002:7f00:1::]",
            ][..],
        ),
        (AddressKind::Unspecified, &["0", "0.0.0.0", "0x0", "[::]", "[::ffff:0.0.0.0]"]),
        (
            AddressKind::Private,
            &["10.0.0.1", "0xa.1", "012.1", "172.16.0.1", "192.168.1.1", "[fd00::1]", "[::ffff:10.0.0.1]"],
        ),
        (AddressKind::LinkLocal, &["169.254.1.1", "[fe80::1]"]),
        (
            AddressKind::Metadata,
            &[
                "169.254.169.254",
                "2852039166",
                "0xa9fea9fe",
                "0251.0376.0251.0376",
                "[::ffff:169.254.169.254]",
                "[fd00:ec2::254]",
            ],
        ),
        (AddressKind::Shared, &["100.64.0.1"]),
        (AddressKind::Multicast, &["224.0.0.1", "[ff02::1]"]),
        (AddressKind::Broadcast, &["255.255.255.255", "4294967295"]),
        (AddressKind::Transition, &["[::127.0.0.1]", "[2001::1]", "[::ffff:0:127.0.0.1]"]),
    ] {
        for host in hosts {
            match refused(&proxy, host, 80).await {
                RefusalReason::NotPublic { kind: found, .. } => assert_eq!(found, kind, "{host}"),
                other => panic!("{host}: {other:?}"),
            }
        }
    }
    for host in ["[fe80::1%25eth0]", "1.2.3.4.5", "256.256.256.256", "a..b", "a%00b"] {
        let answer = proxy.ask(format!("CONNECT {host}:80 HTTP/1.1\r\n\r\n")).await;
        assert!(answer.starts_with("HTTP/1.1 400 ") && answer.contains("is no target"), "{host}: {answer}");
    }
    assert!(proxy.recorder.connected().is_empty());
}

#[tokio::test]
async fn a_name_with_an_address_that_is_not_public_is_refused_whole() {
    let names: [(&str, &[&str]); 8] = [
        ("loopback.example", &["127.0.0.1"]),
        ("private.example", &["10.0.0.1"]),
        ("metadata.example", &["169.254.169.254"]),
        ("mapped.example", &["::ffff:192.168.0.1"]),
        ("unique-local.example", &["fd00::1"]),
        ("mixed.example", &["1.1.1.1", "2606:4700::1111", "10.0.0.1"]),
        ("mixed-first.example", &["10.0.0.1", "1.1.1.1"]),
        (
            "behind-many.example",
            &[
                "1.1.1.1",
                "1.1.1.2",
                "1.1.1.3",
                "1.1.1.4",
                "1.1.1.5",
                "1.1.1.6",
                "1.1.1.7",
                "1.1.1.8",
                "1.1.1.9",
                "127.0.0.1",
            ],
        ),
    ];
    let resolver = names.into_iter().fold(StaticResolver::new(), |resolver, (name, addresses)| {
        resolver.with_host(name.parse().unwrap(), addresses.iter().map(|address| address.parse().unwrap()))
    });
    for policy in [EgressPolicy::Full, limited("*.example")] {
        let proxy =
            Proxy::start_with(without_timeouts(policy).with_resolver(Arc::new(resolver.clone()))).await;
        for (name, _) in names {
            let reason = refused(&proxy, name, 443).await;
            assert!(matches!(reason, RefusalReason::NotPublic { .. }), "{name}: {reason:?}");
        }
        assert!(proxy.recorder.connected().is_empty());
    }
}

#[tokio::test]
async fn unlisted_hosts_are_refused_and_not_resolved() {
    let (server, received) = Server::recording("", "never").await;
    let port = server.port;
    let list = format!("good.example:{port}, *.wild.example, 127.0.0.1:1");
    let proxy = Proxy::start(limited(list)).await;
    for host in
        ["evil.example", "good.example.evil.example", "notgood.example", "www.good.example", "wild.example"]
    {
        assert_eq!(refused(&proxy, host, port).await, RefusalReason::NameNotListed, "{host}");
    }
    let other_ports = |ports: &[u16]| RefusalReason::PortNotListed { listed: ports.to_vec() };
    assert_eq!(refused(&proxy, "good.example", 443).await, other_ports(&[port]));
    assert_eq!(refused(&proxy, "a.wild.example", 22).await, other_ports(&[80, 443]));
    // The name is allowed, but not the address to which it resolves.
    assert_eq!(refused(&proxy, "127.0.0.1", port).await, other_ports(&[1]));
    assert_eq!(refused(&proxy, "1.1.1.1", 443).await, RefusalReason::AddressNotListed);
    assert!(proxy.recorder.connected().is_empty() && received.all().is_empty());
    // A listed name that cannot be resolved shows that the others were not looked up.
    let reason = refused(&proxy, "a.wild.example", 443).await;
    assert!(matches!(reason, RefusalReason::ResolveFailed { .. }), "{reason:?}");
}

#[tokio::test]
async fn a_listed_address_that_is_not_public_is_refused_all_the_same() {
    let egress =
        without_timeouts(limited("127.0.0.1, 169.254.169.254, [::1]")).with_resolver(Arc::new(resolver()));
    let proxy = Proxy::start_with(egress).await;
    for host in ["127.0.0.1", "169.254.169.254", "[::1]"] {
        let reason = refused(&proxy, host, 80).await;
        assert!(matches!(reason, RefusalReason::NotPublic { .. }), "{host}: {reason:?}");
    }
}

#[tokio::test]
async fn without_a_network_everything_is_refused() {
    for policy in [EgressPolicy::None, EgressPolicy::default(), EgressPolicy::Limited(AllowList::default())] {
        let expected = if policy == EgressPolicy::None {
            RefusalReason::NetworkOff
        } else {
            RefusalReason::NameNotListed
        };
        let proxy = Proxy::start(policy).await;
        assert_eq!(refused(&proxy, "good.example", 443).await, expected);
    }
}

#[tokio::test]
async fn an_unreachable_server_is_distinguished_from_a_refused_one() {
    let (_held, port) = unused_port();
    let proxy = Proxy::start(EgressPolicy::Full).await;
    let reason = refused(&proxy, "good.example", port).await;
    assert_eq!(reason, RefusalReason::ConnectFailed { problem: std::io::ErrorKind::ConnectionRefused });
    assert_eq!((reason.status(), reason.socks_reply()), (502, 5));
    let reason = refused(&proxy, "nowhere.example", port).await;
    assert_eq!((reason.status(), reason.socks_reply()), (502, 4), "{reason:?}");
}

#[tokio::test]
async fn a_refusal_names_target_reason_and_hint() {
    let proxy = Proxy::start(limited("good.example")).await;
    let answer = proxy.ask("CONNECT Evil.Example.:443 HTTP/1.1\r\n\r\n").await;
    assert_eq!(
        answer.replace("\r\n", "\n"),
        "HTTP/1.1 403 Forbidden\nContent-Type: text/plain; charset=utf-8\nContent-Length: 152\n\
         Proxy-Status: conjure; error=http_request_denied\nConnection: close\n\n\
         conjure: `evil.example:443` was refused: the name is not on the list of allowed hosts\n\
         hint: add the host to the list of allowed hosts, or do without it\n"
    );
    let refusal = proxy.recorder.first().await;
    assert_eq!((refusal.host().as_deref(), refusal.port()), (Some("evil.example"), Some(443)));
}

#[tokio::test]
async fn other_protocols_and_commands_are_refused_in_their_protocol() {
    let proxy = Proxy::start(EgressPolicy::Full).await;
    assert_eq!(proxy.ask([4, 1, 0, 80, 1, 1, 1, 1, 0]).await, "\0[\0\0\0\0\0\0");
    assert_eq!(proxy.ask([5, 1, 2]).await, "\u{5}\u{ff}");
    assert_eq!(
        proxy.ask([5, 1, 0, 5, 2, 0, 1, 1, 1, 1, 1, 0, 80]).await,
        "\u{5}\0\u{5}\u{7}\0\u{1}\0\0\0\0\0\0"
    );
    assert_eq!(
        proxy.ask([5, 1, 0, 5, 3, 0, 1, 0, 0, 0, 0, 0, 0]).await,
        "\u{5}\0\u{5}\u{7}\0\u{1}\0\0\0\0\0\0"
    );
    assert_eq!(proxy.ask([5, 1, 0, 5, 1, 0, 9, 0]).await, "\u{5}\0\u{5}\u{8}\0\u{1}\0\0\0\0\0\0");
    assert_eq!(proxy.ask([5, 1, 0, 5, 1, 0]).await, "\u{5}\0\u{5}\u{1}\0\u{1}\0\0\0\0\0\0");
    assert!(proxy.ask([22, 3, 1, 0, 1]).await.starts_with("HTTP/1.1 400 "));
    assert!(proxy.ask("\r\n\r\n").await.contains("the protocol is unknown (its first byte is 0x0d)"));
    assert!(
        proxy.ask("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await.contains("configure this address as a proxy")
    );
    assert_eq!(proxy.ask("").await, "");
    assert_eq!(proxy.reasons().len(), 9);
}

/// An address of this machine that is not loopback, where it has one.
fn local_address() -> Option<std::net::IpAddr> {
    // Nothing is sent: the kernel only returns the source address.
    let socket = std::net::UdpSocket::bind("0.0.0.0:0").unwrap();
    let local = socket.connect("192.0.2.1:9").and_then(|()| socket.local_addr()).map(|address| address.ip());
    if local.is_err() {
        test_support::not_applicable("this machine has no address but loopback");
    }
    local.ok()
}

#[tokio::test]
async fn a_wide_range_does_not_include_the_machines_own_address() {
    let Some(own) = local_address() else { return };
    let addresses = AddressPolicy::public_only().with_allowed(["0.0.0.0/0".parse().unwrap()]);
    let resolver = StaticResolver::new().with_host("own.example".parse().unwrap(), [own]);
    let egress =
        without_timeouts(EgressPolicy::Full).with_addresses(addresses).with_resolver(Arc::new(resolver));
    let proxy = Proxy::start_with(egress).await;
    for host in ["own.example", &own.to_string()] {
        assert_eq!(refused(&proxy, host, 80).await, RefusalReason::OwnAddress { address: own });
    }
}
