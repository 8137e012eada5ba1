//! A sandbox whose names are on loopback, servers there, and scripts to run in it.

use std::sync::{Arc, Mutex};

use base64::Engine;
use conjure_egress::{Egress, EgressObserver, EgressPolicy, Refusal, Target, WebPorts};
use conjure_sandbox::{
    Command, CommandEnd, CommandOutcome, Connector, ExecutionContext, Executor, NetworkPolicy, Sandbox,
    SandboxError,
};
use tempfile::TempDir;

use crate::connector_fixture::ConnectorFixture;
use crate::outside::{Server, egress, tls_server};
use crate::support::{PatientClock, options, soon, text};

/// The response of every server that responds at once.
pub(crate) const HELLO: &str = "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello, all";

/// The recorded refusals.
#[derive(Debug, Default)]
pub(crate) struct Notes(Mutex<Vec<String>>);

impl Notes {
    pub(crate) fn refusals(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }
}

impl EgressObserver for Notes {
    fn refused(&self, refusal: &Refusal) {
        self.0.lock().unwrap().push(refusal.to_string());
    }

    fn connected(&self, _: &Target, _: std::net::SocketAddr) {}
}

pub(crate) struct Web {
    pub(crate) sandbox: Sandbox,
    pub(crate) notes: Arc<Notes>,
    _workspace: TempDir,
    /// Goes last.
    _place: ConnectorFixture,
}

/// A sandbox under this policy; `None` where this machine has none. `root.pem` in its workspace is the authority that
/// `certificate` names.
pub(crate) async fn sandbox(network: NetworkPolicy, ports: WebPorts, certificate: &[u8]) -> Option<Web> {
    sandbox_with(|workspace| ExecutionContext { network, ..workspace }, ports, certificate).await
}

/// The same under what this makes of a context without network.
pub(crate) async fn sandbox_with(
    context: impl FnOnce(ExecutionContext) -> ExecutionContext,
    ports: WebPorts,
    certificate: &[u8],
) -> Option<Web> {
    let connector_fixture = ConnectorFixture::new()?;
    let notes = Arc::new(Notes::default());
    let pattern: Egress = egress(EgressPolicy::None)
        .with_observer(Arc::clone(&notes) as Arc<dyn EgressObserver>)
        .with_web_ports(ports);
    let workspace = tempfile::tempdir().unwrap();
    std::fs::write(workspace.path().join("root.pem"), pem(certificate)).unwrap();
    let context = context(ExecutionContext::new(workspace.path()));
    let connector: Box<dyn Connector> = connector_fixture.connector(pattern);
    let sandbox = Sandbox::open(&*connector, &context, Arc::new(PatientClock), soon(120)).await.unwrap();
    Some(Web { sandbox, notes, _workspace: workspace, _place: connector_fixture })
}

/// A sandbox under this policy, with nothing to reach.
pub(crate) async fn plain_server(network: NetworkPolicy) -> Option<Web> {
    sandbox(network, WebPorts::default(), &[]).await
}

/// A server of HTTP and one of HTTPS, and a sandbox that may reach them as `good.example` and below.
pub(crate) async fn web() -> Option<(Web, Server, Server)> {
    let (root, secure) = tls_server(&["good.example", "*.good.example", "other.example"]).await;
    let (plain, _) = Server::recording(HELLO, "\r\n\r\n").await;
    let ports = WebPorts { http: vec![plain.port], https: vec![secure.port] };
    let hosts = ["good.example", "*.good.example"];
    let web = sandbox(allowing(&hosts, &[plain.port, secure.port]), ports, &root).await?;
    Some((web, plain, secure))
}

pub(crate) fn allowing(hosts: &[&str], ports: &[u16]) -> NetworkPolicy {
    let entries = hosts.iter().flat_map(|host| ports.iter().map(move |port| format!("{host}:{port}")));
    NetworkPolicy::Limited(entries.collect())
}

fn pem(certificate: &[u8]) -> String {
    let encoded = base64::engine::general_purpose::STANDARD.encode(certificate);
    let lines: Vec<&str> =
        (0..encoded.len()).step_by(64).map(|at| &encoded[at..encoded.len().min(at + 64)]).collect();
    format!("-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n", lines.join("\n"))
}

impl Web {
    pub(crate) async fn run(&self, argv: &[&str]) -> Result<CommandOutcome, SandboxError> {
        self.sandbox.run(Command::new(argv.iter().copied()), options()).await
    }

    /// The output of a script, which must succeed.
    pub(crate) async fn bash(&self, script: &str) -> String {
        let outcome = self.run(&["bash", "-c", script]).await.unwrap();
        let output = text(&outcome);
        assert_eq!(outcome.end, CommandEnd::Exited(0), "{output}");
        output
    }

    /// The output of a Python script, which uses only the standard library.
    pub(crate) async fn python(&self, program: &str, arguments: &[&str]) -> String {
        let outcome = self.run(&[&["python3", "-c", program], arguments].concat()).await.unwrap();
        let output = text(&outcome);
        assert_eq!(outcome.end, CommandEnd::Exited(0), "{output}");
        output
    }

    /// True if the sandbox has this program.
    pub(crate) async fn has(&self, program: &str) -> bool {
        let found = self.run(&["bash", "-c", &format!("command -v {program}")]).await.unwrap();
        if found.end == CommandEnd::Exited(0) {
            return true;
        }
        let reason = format!("`{program}` is not in the sandbox");
        test_support::skip(&reason, &format!("apt-get install {program}"));
        false
    }
}
