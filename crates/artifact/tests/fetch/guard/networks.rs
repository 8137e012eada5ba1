//! The network of a tenant: no hop leaves it, and cached content from a wider network is not served.

use conjure_artifact::{ArtifactError, ArtifactErrorKind as Kind, Fetch as _, FetchRequest, FetchedContent};
use conjure_egress::EgressPolicy;

use crate::support::{Fixture, TestServer, ok, redirect};

/// These hosts alone, on the port of the site.
fn only(site: &TestServer, hosts: &[&str]) -> EgressPolicy {
    let entries: Vec<_> = hosts.iter().map(|host| format!("{host}:{}", site.port)).collect();
    EgressPolicy::Limited(entries.join(",").parse().unwrap())
}

async fn fetch(
    fixture: &Fixture,
    url: &str,
    network: &EgressPolicy,
) -> Result<FetchedContent, ArtifactError> {
    fixture.fetch.fetch(FetchRequest { network, ..fixture.request(url) }).await
}

#[tokio::test]
async fn targets_outside_the_tenants_policy_are_not_contacted() {
    let site = TestServer::responding(ok("", "there")).await;
    let fixture = Fixture::new();
    let listed = only(&site, &["good.example"]);
    fetch(&fixture, &site.good_url("/"), &listed).await.unwrap();
    for (url, network, kind, text) in [
        (site.url("other.example", "/"), &listed, Kind::HostBlocked, "the host `other.example` is blocked"),
        (site.url("127.0.0.1", "/"), &listed, Kind::HostBlocked, "the host `127.0.0.1` is blocked"),
        (
            "http://good.example:8080/".to_owned(),
            &listed,
            Kind::HostBlocked,
            "the host `good.example:8080` is blocked",
        ),
        (
            site.good_url("/"),
            &EgressPolicy::None,
            Kind::FetchDisabled,
            "URLs are not fetched here: the host has switched it off",
        ),
        // It was fetched when it was listed.
        (
            site.good_url("/"),
            &only(&site, &["other.example"]),
            Kind::HostBlocked,
            "the host `good.example` is blocked",
        ),
    ] {
        let error = fetch(&fixture, &url, network).await.unwrap_err();
        assert_eq!((error.kind(), error.to_string().as_str()), (kind, text), "{url}");
        assert_eq!(fixture.fetch.check_url(&url, network).unwrap_err().kind(), kind, "{url}");
    }
    assert_eq!(site.paths(), ["/"]);
    assert!(fixture.fetch.check_url(&site.good_url("/"), &listed).is_ok());
}

#[tokio::test]
async fn no_redirect_escapes_the_tenants_policy() {
    // The same server, under another name.
    let site = TestServer::answering(|head| match head.path() {
        "/" => redirect(&format!("http://{}/there", head.header("host").unwrap().replace("good", "other"))),
        _ => ok("", "there"),
    })
    .await;
    let fixture = Fixture::new();
    let error = fetch(&fixture, &site.good_url("/"), &only(&site, &["good.example"])).await.unwrap_err();
    assert_eq!(error.kind(), Kind::HostBlocked);
    assert_eq!(site.paths(), ["/"]);
    fixture.is_empty();
    let both = only(&site, &["good.example", "other.example"]);
    assert_eq!(fixture.bytes(&fetch(&fixture, &site.good_url("/"), &both).await.unwrap()), b"there");
    assert_eq!(site.paths(), ["/", "/", "/there"]);
    // It is there, from where the tenant reaches no more.
    let error = fetch(&fixture, &site.good_url("/"), &only(&site, &["good.example"])).await.unwrap_err();
    assert_eq!(error.kind(), Kind::HostBlocked);
    assert_eq!(site.paths(), ["/", "/", "/there", "/"]);
}
