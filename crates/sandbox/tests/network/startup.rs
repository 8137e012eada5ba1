//! Hosts that are permitted while the program of a sandbox starts up, and not later.

use conjure_egress::WebPorts;
use conjure_sandbox::{ExecutionContext, NetworkPolicy, SandboxNetwork};

use crate::outside::Server;
use crate::web::{HELLO, Web, allowing, sandbox_with};

const ASK: &str = r"
import sys, urllib.error, urllib.request
try:
    print(urllib.request.urlopen(sys.argv[1], timeout=60).read().decode(), end='')
except urllib.error.HTTPError as error:
    print(error.code, end='')
";

/// The response of a server with this name to the sandbox.
async fn ask(web: &Web, host: &str, server: &Server) -> String {
    web.python(ASK, &[&format!("http://{}/", server.at(host))]).await
}

#[tokio::test]
async fn startup_hosts_are_refused_before_and_after_startup() {
    for later in [&[][..], &["other.example"]] {
        let (server, _) = Server::recording(HELLO, "\r\n\r\n").await;
        let ports = WebPorts { http: vec![server.port], https: Vec::new() };
        let network = SandboxNetwork::new();
        let policy = match later {
            [] => NetworkPolicy::None,
            hosts => allowing(hosts, &[server.port]),
        };
        let context = |context| ExecutionContext {
            network: policy,
            startup_network: allowing(&["good.example"], &[server.port]),
            sandbox_network: Some(network.clone()),
            ..context
        };
        let Some(web) = sandbox_with(context, ports, &[]).await else { return };
        if !web.has("python3").await {
            return;
        }
        let other = if later.is_empty() { "403" } else { "hello, all" };
        assert_eq!(ask(&web, "good.example", &server).await, "403");
        // A second start is as the first.
        for start in 1..=2 {
            let startup = network.begin_startup();
            assert_eq!(ask(&web, "good.example", &server).await, "hello, all", "{start}, {later:?}");
            assert_eq!(ask(&web, "other.example", &server).await, other, "{start}, {later:?}");
            drop(startup);
            let before = network.refusal_count();
            assert_eq!(ask(&web, "good.example", &server).await, "403", "{start}, {later:?}");
            assert_eq!(ask(&web, "other.example", &server).await, other, "{start}, {later:?}");
            let refused = network.refusals_since(before);
            assert!(refused[0].contains("`good.example:"), "{refused:?}");
        }
    }
}
