//! The network of one session: it is at most as wide as the configuration permits, and survives the process.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::time::Duration;

use conjure::artifact::{AddressPolicy, Egress, EgressPolicy, RegistrationSource};
use conjure::config::ExecutorKind;
use conjure::runtime::RuntimeOptions;
use conjure::sandbox::{Jail, NetworkPolicy};
use conjure::session::ForkPoint;
use conjure::{Clock as _, Runtime, RuntimeError, Session, Settings, SystemClock};

use crate::runtime::fixture::{Fixture, ask, soon, spec, tenant};
use crate::runtime::network::fetch::{NumberedServer, permissive_settings};

/// Two servers of this machine, and jails that may dial private addresses, so that the lists alone decide.
struct TwoServers {
    one: NumberedServer,
    other: NumberedServer,
}

impl TwoServers {
    async fn start() -> Self {
        Self {
            one: NumberedServer::responding(|_| "this is one".to_owned()).await,
            other: NumberedServer::responding(|_| "this is another".to_owned()).await,
        }
    }

    fn options(&self, fixture: &Fixture) -> RuntimeOptions {
        let addresses =
            AddressPolicy::public_only().with_allowed([std::net::IpAddr::from([127, 0, 0, 1]).into()]);
        let path = BTreeMap::from([(OsString::from("PATH"), OsString::from("/usr/local/bin:/usr/bin:/bin"))]);
        let egress = Egress::new(EgressPolicy::None).with_addresses(addresses);
        fixture
            .options()
            .fetch(self.one.fetch(fixture))
            .connector("jail", Jail::new(path).with_egress(egress))
    }

    /// The output of a command that reads from both servers.
    async fn answers(&self, session: &Session) -> [String; 2] {
        let read = async |web: &NumberedServer| {
            let host = web.host();
            let command = format!(
                "$ exec 3<>/dev/tcp/127.0.0.1/3128 && printf 'GET http://{host}/ HTTP/1.1\\r\\nHost: {host}\\r\\nConnection: close\\r\\n\\r\\n' >&3; cat <&3"
            );
            ask(session, &command).await
        };
        [read(&self.one).await, read(&self.other).await]
    }
}

fn list(hosts: &[String]) -> NetworkPolicy {
    NetworkPolicy::Limited(hosts.to_vec())
}

fn jails(network: NetworkPolicy) -> Option<Fixture> {
    if !test_support::has_user_namespaces() {
        test_support::skip("this machine permits no jail", "unprivileged user namespaces are needed");
        return None;
    }
    Some(Fixture::with(ExecutorKind::Jail, Settings { network: Some(network), ..permissive_settings() }))
}

/// Both servers have the same address, and one of their ports is listed.
const REFUSED: &str = "was refused: the host is allowed on other ports only";
const UNLISTED: &str = "was refused: the address is not on the list of allowed hosts";

#[cfg(not(engines))]
#[tokio::test]
async fn a_session_reaches_its_own_hosts_only_also_after_a_restart_and_in_a_fork() {
    let Some(fixture) = jails(NetworkPolicy::Full) else { return };
    let servers = TwoServers::start().await;
    let runtime = Runtime::spawn(servers.options(&fixture)).await.unwrap();
    let limited = runtime.open(spec().network(list(&[servers.one.host()]))).await.unwrap();
    let [one, other] = servers.answers(&limited).await;
    assert!(one.contains("this is one"), "{one}");
    assert!(other.contains(REFUSED), "{other}");
    // Fetches of the host for the session use the same list.
    assert_eq!(limited.artifacts().resolve(&servers.one.url()).await.unwrap().size, 11);
    let error = limited.artifacts().resolve(&servers.other.url()).await.unwrap_err();
    assert!(error.to_string().contains("127.0.0.1"), "{error}");
    limited.artifacts().register("late", RegistrationSource::url(servers.other.url())).await.unwrap_err();
    assert_eq!(servers.other.request_count(), 0);

    let free = runtime.open(spec()).await.unwrap();
    let [one, other] = servers.answers(&free).await;
    assert!(one.contains("this is one") && other.contains("this is another"), "{one} {other}");
    let none = runtime.open(spec().network(NetworkPolicy::None)).await.unwrap();
    let [one, other] = servers.answers(&none).await;
    assert!(one.contains(UNLISTED) && other.contains(UNLISTED), "{one} {other}");
    runtime.shutdown(soon()).await.unwrap();

    let runtime = Runtime::spawn(servers.options(&fixture)).await.unwrap();
    let resumed = runtime.session(&tenant("acme"), limited.id()).await.unwrap();
    let fork = runtime.fork(&tenant("acme"), limited.id(), ForkPoint::End).await.unwrap();
    for session in [&resumed, &fork] {
        let [one, other] = servers.answers(session).await;
        assert!(one.contains("this is one"), "{one}");
        assert!(other.contains(REFUSED), "{other}");
    }
    runtime.shutdown(soon()).await.unwrap();
}

#[cfg(not(engines))]
#[tokio::test]
async fn no_session_reaches_more_than_the_configuration_permits() {
    let servers = TwoServers::start().await;
    let Some(fixture) = jails(list(&[servers.one.host()])) else { return };
    let runtime = Runtime::spawn(servers.options(&fixture)).await.unwrap();
    for network in [NetworkPolicy::Full, list(&[servers.one.host(), servers.other.host()])] {
        let session = runtime.open(spec().network(network)).await.unwrap();
        let [one, other] = servers.answers(&session).await;
        assert!(one.contains("this is one"), "{one}");
        assert!(other.contains(REFUSED), "{other}");
    }
    runtime.shutdown(soon()).await.unwrap();
    // Without a network there is no proxy at all.
    let Some(fixture) = jails(NetworkPolicy::None) else { return };
    let runtime = Runtime::spawn(servers.options(&fixture)).await.unwrap();
    let session = runtime.open(spec().network(list(&[servers.one.host()]))).await.unwrap();
    let [one, _] = servers.answers(&session).await;
    assert!(one.contains("Connection refused"), "{one}");
    runtime.shutdown(SystemClock.deadline(Duration::from_secs(60))).await.unwrap();
}

#[cfg(not(engines))]
#[tokio::test]
async fn a_sandbox_without_limits_and_an_invalid_list_are_rejected() {
    let fixture = Fixture::new(ExecutorKind::Local);
    let runtime = Runtime::spawn(fixture.options()).await.unwrap();
    let hosts = |host: &str| list(&[host.to_owned()]);
    for network in [hosts("example.com"), NetworkPolicy::None] {
        let error = runtime.open(spec().network(network)).await.unwrap_err();
        let RuntimeError::Network { reason } = &error else { panic!("{error}") };
        assert!(reason.contains("`local`") && reason.contains("`jail`"), "{reason}");
    }
    let error = runtime.open(spec().network(hosts("https://example.com/"))).await.unwrap_err();
    assert!(error.to_string().contains("`https://example.com/`"), "{error}");
    // Without a sandbox there is nothing to limit but fetches.
    runtime.open(spec().without_sandbox().without_skills().network(hosts("example.com"))).await.unwrap();
    let listed = runtime.sessions(&tenant("acme"), None, 10).await.unwrap();
    assert_eq!(listed.sessions.len(), 1, "nothing is left of the others");
    runtime.shutdown(soon()).await.unwrap();
}
