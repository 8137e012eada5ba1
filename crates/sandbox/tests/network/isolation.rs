//! What a sandbox must not have: interfaces, names, routes; and under `none` not even a proxy.

use std::sync::Arc;

use conjure_base::SystemClock;
use conjure_egress::{Egress, EgressPolicy};
use conjure_sandbox::{ExecutionContext, NetworkPolicy, Sandbox, SandboxErrorKind};

use crate::connector_fixture::ConnectorFixture;
use crate::support::soon;
use crate::web::{allowing, plain_server};

/// Tries every way that needs no proxy, and says how each failed.
const ATTEMPTS: &str = r#"
import errno, socket
for family, address in ((socket.AF_INET, "1.1.1.1"), (socket.AF_INET6, "2606:4700:4700::1111"),
                        (socket.AF_INET, "10.0.0.1"), (socket.AF_INET, "169.254.169.254")):
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
        with socket.socket(family, kind) as attempt:
            try:
                attempt.connect((address, 53))
                attempt.send(b"out")
                print("REACHED", address)
            except OSError as error:
                print(errno.errorcode[error.errno])
try:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as attempt:
        attempt.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
        attempt.sendto(b"out", ("255.255.255.255", 53))
        print("REACHED everybody")
except OSError as error:
    print(errno.errorcode[error.errno])
for name in ("example.com", "good.example"):
    try:
        socket.getaddrinfo(name, 443)
        print("RESOLVED", name)
    except socket.gaierror as error:
        print("no name")
"#;

#[tokio::test]
async fn no_packet_bypasses_the_proxy_under_any_policy() {
    for network in [NetworkPolicy::None, allowing(&["example.com"], &[443]), NetworkPolicy::Full] {
        let Some(fixture) = plain_server(network.clone()).await else { return };
        // The names of all interfaces, each after two lines of headings.
        let interfaces = fixture.bash("sed -n 's/^ *\\([^ ]*\\):.*/\\1/p' /proc/net/dev").await;
        assert_eq!(interfaces, "lo\n", "{network:?}");
        assert_eq!(fixture.bash("tail -n +2 /proc/net/route").await, "", "{network:?}");
        if fixture.has("python3").await {
            let output = fixture.python(ATTEMPTS, &[]).await;
            let lines: Vec<&str> = output.lines().collect();
            assert_eq!(lines, [&["ENETUNREACH"; 9][..], &["no name"; 2]].concat(), "{network:?}");
        }
    }
}

#[tokio::test]
async fn without_a_network_no_proxy_runs_or_is_configured() {
    let Some(fixture) = plain_server(NetworkPolicy::None).await else { return };
    assert_eq!(fixture.bash("cat /proc/net/tcp /proc/net/tcp6 | grep -c ' 0A ' || true").await, "0\n");
    assert_eq!(fixture.bash("env | grep -ci proxy || true").await, "0\n");
    let refused = fixture.bash("(exec 3<>/dev/tcp/127.0.0.1/3128) 2>&1 || true").await;
    assert!(refused.contains("Connection refused"), "{refused}");
}

#[tokio::test]
async fn commands_find_the_proxy_and_cannot_replace_it() {
    let Some(fixture) = plain_server(allowing(&["example.com"], &[443])).await else { return };
    let named = fixture.bash("echo $http_proxy $HTTPS_PROXY $all_proxy $no_proxy $NODE_USE_ENV_PROXY").await;
    let url = "http://127.0.0.1:3128";
    assert_eq!(named, format!("{url} {url} {url} localhost,127.0.0.1 1\n"));
    // One listener, on loopback only.
    let listening = fixture.bash("cat /proc/net/tcp /proc/net/tcp6 | awk '$4 == \"0A\" { print $2 }'").await;
    assert_eq!(listening, "0100007F:0C38\n");
    if fixture.has("python3").await {
        let taken = r#"
import errno, socket
for address in ("127.0.0.1", "0.0.0.0"):
    for option in (None, socket.SO_REUSEADDR, socket.SO_REUSEPORT):
        with socket.socket() as attempt:
            if option:
                attempt.setsockopt(socket.SOL_SOCKET, option, 1)
            try:
                attempt.bind((address, 3128))
                attempt.listen()
                print("TAKEN")
            except OSError as error:
                print(errno.errorcode[error.errno])
"#;
        let output = fixture.python(taken, &[]).await;
        assert_eq!(output.lines().collect::<Vec<_>>(), ["EADDRINUSE"; 6]);
    }
}

#[tokio::test]
async fn invalid_hosts_are_rejected_before_anything_is_created() {
    let Some(connector_fixture) = ConnectorFixture::new() else { return };
    let workspace = tempfile::tempdir().unwrap();
    let network = NetworkPolicy::Limited(vec!["good.example".to_owned(), "https://example.com/".to_owned()]);
    let context = ExecutionContext { network, ..ExecutionContext::new(workspace.path()) };
    let connector = connector_fixture.connector(Egress::new(EgressPolicy::None));
    let opened = Sandbox::open(&*connector, &context, Arc::new(SystemClock), soon(120)).await;
    let error = opened.unwrap_err();
    assert_eq!(error.kind(), SandboxErrorKind::BadRequest);
    assert!(error.to_string().contains("`https://example.com/`"), "{error}");
}
