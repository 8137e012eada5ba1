use conjure_base::SystemClock;
use tokio::net::TcpSocket;

use super::*;

/// A socket for each of these addresses of the machine, at one port that is free at all of them. None listens.
fn reserved_sockets<const COUNT: usize>(addresses: [&str; COUNT]) -> [(TcpSocket, SocketAddr); COUNT] {
    loop {
        let mut port = 0;
        let bound = addresses.map(|address| {
            let socket = TcpSocket::new_v4().unwrap();
            socket.bind(SocketAddr::new(address.parse().unwrap(), port)).ok()?;
            let address = socket.local_addr().unwrap();
            port = address.port();
            Some((socket, address))
        });
        if bound.iter().all(Option::is_some) {
            return bound.map(Option::unwrap);
        }
    }
}

fn addresses(texts: &[&str]) -> Vec<SocketAddr> {
    texts.iter().map(|text| SocketAddr::new(text.parse().unwrap(), 1)).collect()
}

#[test]
fn families_alternate_and_the_first_one_stays_first() {
    let check = |input: &[&str], expected: &[&str]| {
        assert_eq!(interleave_families(addresses(input)), addresses(expected));
    };
    check(&["::1", "::2", "::3", "1.1.1.1", "1.1.1.2"], &["::1", "1.1.1.1", "::2", "1.1.1.2", "::3"]);
    check(&["1.1.1.1", "::1", "1.1.1.2"], &["1.1.1.1", "::1", "1.1.1.2"]);
    check(&["1.1.1.1"], &["1.1.1.1"]);
    check(&[], &[]);
}

#[tokio::test]
async fn an_address_that_refuses_is_skipped() {
    let [first, second, (third, address)] = reserved_sockets(["127.0.0.1", "127.0.0.3", "127.0.0.2"]);
    let _listener = third.listen(1).unwrap();
    let (_stream, found) = dial(vec![first.1, second.1, address], &SystemClock).await.unwrap();
    assert_eq!(found, address);
}

#[tokio::test]
async fn when_all_addresses_refuse_the_last_error_is_returned() {
    let [(_socket, address)] = reserved_sockets(["127.0.0.1"]);
    let error = dial(vec![address], &SystemClock).await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
    assert_eq!(dial(Vec::new(), &SystemClock).await.unwrap_err().kind(), io::ErrorKind::NotFound);
}

#[test]
fn own_addresses_are_recognised() {
    assert!(is_own_address("127.0.0.1".parse().unwrap()));
    assert!(!is_own_address("1.1.1.1".parse().unwrap()));
}
