//! DNS rebinding: each connection dials the address that was checked for it.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use conjure_egress::{DnsResolver, HostName, RefusalReason, Target};
use futures_util::future::BoxFuture;
use tokio::net::TcpListener;

use crate::support::{LOOPBACK, Proxy, Server, StaticResolver, egress, limited};

#[derive(Debug)]
struct CountingResolver {
    inner: StaticResolver,
    lookups: AtomicUsize,
}

impl DnsResolver for CountingResolver {
    fn resolve(&self, name: &HostName) -> BoxFuture<'static, io::Result<Vec<IpAddr>>> {
        self.lookups.fetch_add(1, Ordering::Relaxed);
        self.inner.resolve(name)
    }
}

#[tokio::test]
async fn a_name_is_resolved_once_per_connection_and_the_checked_address_is_dialled() {
    let (server, _) = Server::recording("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", "\r\n\r\n").await;
    // A server at a forbidden address listens at the same port, to notice if it is dialled.
    let forbidden = TcpListener::bind(("127.0.0.2", server.port)).await.unwrap();
    let name: HostName = "good.example".parse().unwrap();
    let answers = [LOOPBACK, "127.0.0.2".parse().unwrap(), LOOPBACK].map(|address| vec![address]);
    let inner = StaticResolver::new().with_sequence(name, answers);
    let resolver = Arc::new(CountingResolver { inner, lookups: AtomicUsize::new(0) });
    let list = limited(format!("good.example:{}", server.port));
    let proxy =
        Proxy::start_with(egress(list).with_resolver(Arc::clone(&resolver) as Arc<dyn DnsResolver>)).await;
    let request = format!("GET http://{0}/ HTTP/1.1\r\nHost: {0}\r\n\r\n", server.at("good.example"));

    assert!(proxy.ask(&request).await.starts_with("HTTP/1.1 200 "));
    assert_eq!(resolver.lookups.load(Ordering::Relaxed), 1);
    assert!(proxy.ask(&request).await.starts_with("HTTP/1.1 403 "));
    assert!(proxy.ask(&request).await.starts_with("HTTP/1.1 200 "));
    assert_eq!(resolver.lookups.load(Ordering::Relaxed), 3);
    assert!(matches!(&proxy.reasons()[..], [RefusalReason::NotPublic { .. }]));
    let accepted = tokio::select! {
        biased;
        accepted = forbidden.accept() => Some(accepted),
        () = std::future::ready(()) => None,
    };
    assert!(accepted.is_none(), "an unchecked address was dialled");
}

#[tokio::test]
async fn a_client_that_dials_by_itself_gets_only_checked_addresses() {
    let resolver = StaticResolver::new()
        .with_host(
            "good.example".parse().unwrap(),
            ["1.1.1.1".parse().unwrap(), "::ffff:1.1.1.2".parse().unwrap(), "1.1.1.1".parse().unwrap()],
        )
        .with_host("bad.example".parse().unwrap(), ["1.1.1.1".parse().unwrap(), "127.0.0.2".parse().unwrap()])
        .with_host("empty.example".parse().unwrap(), []);
    let egress = egress(limited("*.example")).with_resolver(Arc::new(resolver));
    let resolve = async |target: &str| egress.resolve(&Target::parse(target).unwrap()).await;
    let addresses = resolve("good.example:443").await.unwrap();
    assert_eq!(addresses, ["1.1.1.1:443".parse().unwrap(), "1.1.1.2:443".parse().unwrap()]);
    assert!(matches!(resolve("bad.example:443").await.unwrap_err().reason, RefusalReason::NotPublic { .. }));
    assert!(matches!(
        resolve("empty.example:443").await.unwrap_err().reason,
        RefusalReason::ResolveFailed { .. }
    ));
    assert_eq!(resolve("elsewhere.org:443").await.unwrap_err().reason, RefusalReason::NameNotListed);
    assert_eq!(resolve("1.1.1.1:443").await.unwrap_err().reason, RefusalReason::AddressNotListed);
}

#[tokio::test]
async fn an_address_that_does_not_answer_is_skipped() {
    let (server, _) = Server::recording("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", "\r\n\r\n").await;
    let allowed = ["127.0.0.1", "127.0.0.4"].map(|address| address.parse::<IpAddr>().unwrap().into());
    let resolver = StaticResolver::new().with_host(
        "good.example".parse().unwrap(),
        ["127.0.0.4", "127.0.0.1"].map(|address| address.parse().unwrap()),
    );
    let egress = egress(limited(format!("good.example:{}", server.port)))
        .with_addresses(conjure_egress::AddressPolicy::public_only().with_allowed(allowed))
        .with_resolver(Arc::new(resolver));
    let proxy = Proxy::start_with(egress).await;
    let request = format!("GET http://{0}/ HTTP/1.1\r\nHost: {0}\r\n\r\n", server.at("good.example"));
    assert!(proxy.ask(&request).await.starts_with("HTTP/1.1 200 "));
    assert_eq!(proxy.recorder.connected()[0].1.ip(), LOOPBACK);
}
