use conjure_base::SystemClock;
use tokio::net::TcpListener;

use super::*;

fn addresses(texts: &[&str]) -> Vec<SocketAddr> {
    texts.iter().map(|text| SocketAddr::new(text.parse().unwrap(), 1)).collect()
}

#[test]
fn families_alternate_and_the_first_one_stays_first() {
    let check = |given: &[&str], expected: &[&str]| {
        assert_eq!(alternating(addresses(given)), addresses(expected));
    };
    check(&["::1", "::2", "::3", "1.1.1.1", "1.1.1.2"], &["::1", "1.1.1.1", "::2", "1.1.1.2", "::3"]);
    check(&["1.1.1.1", "::1", "1.1.1.2"], &["1.1.1.1", "::1", "1.1.1.2"]);
    check(&["1.1.1.1"], &["1.1.1.1"]);
    check(&[], &[]);
}

#[tokio::test]
async fn an_address_that_refuses_is_passed_over() {
    let listener = TcpListener::bind("127.0.0.2:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let candidates = ["127.0.0.1", "127.0.0.3", "127.0.0.2"];
    let candidates = candidates.map(|text| SocketAddr::new(text.parse().unwrap(), port)).to_vec();
    let (_stream, address) = dial(candidates, &SystemClock).await.unwrap();
    assert_eq!(address, listener.local_addr().unwrap());
}

#[tokio::test]
async fn when_all_refuse_the_last_one_is_heard() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let error = dial(vec![address], &SystemClock).await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
    assert_eq!(dial(Vec::new(), &SystemClock).await.unwrap_err().kind(), io::ErrorKind::NotFound);
}

#[test]
fn an_own_address_is_told_from_others() {
    assert!(is_own_address("127.0.0.1".parse().unwrap()));
    assert!(!is_own_address("1.1.1.1".parse().unwrap()));
}
