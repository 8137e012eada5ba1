//! How long a server's sandbox permits the network of the start-up.

use std::sync::Arc;
use std::time::Duration;

use conjure_base::Redactor;
use conjure_mcp::{McpServer, McpServerSpec, McpServers, McpTransport};
use conjure_sandbox::SandboxNetwork;

use crate::support::{Session, spec};

/// A server whose sandbox has this network.
fn servers(session: &Session, spec: McpServerSpec, network: &SandboxNetwork) -> McpServers {
    let server = McpServer::new(spec, Some(Arc::clone(&session.executor)), None);
    let server = server.with_sandbox_network(network.clone());
    McpServers::new(vec![server.into()], Some(Arc::clone(&session.executor)), &Redactor::default())
}

/// Waits until the program starts up, or until it does not.
async fn until_startup(network: &SandboxNetwork, goes_on: bool) {
    let changed = async {
        while network.is_starting_up() != goes_on {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), changed).await.unwrap();
}

#[tokio::test]
async fn the_startup_lasts_until_the_first_answer() {
    let dir = tempfile::tempdir().unwrap();
    let gate = dir.path().join("go");
    let session = Session::start([]).await;
    let network = SandboxNetwork::new();
    let servers = servers(&session, spec("slow", &["--wait-for", gate.to_str().unwrap()]), &network);
    assert!(!network.is_starting_up());
    tokio::join!(servers.wait_required(), async {
        until_startup(&network, true).await;
        std::fs::write(&gate, "").unwrap();
    });
    assert!(servers.failures().is_empty(), "{:?}", servers.failures());
    assert!(!network.is_starting_up());
}

#[tokio::test]
async fn the_startup_ends_with_a_start_that_fails_and_with_one_that_is_given_up() {
    let session = Session::start([]).await;
    let network = SandboxNetwork::new();
    let mut failing = spec("failing", &[]);
    let McpTransport::Stdio(program) = &mut failing.transport else { unreachable!() };
    program.command = "false".to_owned();
    let failing = servers(&session, failing, &network);
    failing.wait_required().await;
    assert_eq!(failing.failures().len(), 1);
    // It is started again after a while.
    until_startup(&network, false).await;
    drop(failing);

    let network = SandboxNetwork::new();
    let silent = servers(&session, spec("silent", &["--wait-for", "/no/such/file"]), &network);
    tokio::select! {
        () = silent.wait_required() => {}
        () = until_startup(&network, true) => {}
    }
    assert!(network.is_starting_up());
    drop(silent);
    until_startup(&network, false).await;
}
