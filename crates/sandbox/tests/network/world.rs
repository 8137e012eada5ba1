//! A jail whose names are on loopback, servers there, and scripts to run in it.

use std::ffi::OsString;
use std::sync::{Arc, Mutex};

use base64::Engine;
use conjure_base::SystemClock;
use conjure_egress::{Egress, Observe, Policy, Refusal, Target, WebPorts};
use conjure_sandbox::{
    Command, CommandEnd, CommandOutcome, ExecutionContext, Executor, Jail, NetworkPolicy, Sandbox,
    SandboxError,
};
use tempfile::TempDir;

use crate::outside::{Server, authority, egress, tls_server};
use crate::support::{options, soon, text};

/// What is asked of every server that answers at once.
const HELLO: &str = "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello, all";

/// What was refused.
#[derive(Debug, Default)]
pub(crate) struct Notes(Mutex<Vec<String>>);

impl Notes {
    pub(crate) fn refusals(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }
}

impl Observe for Notes {
    fn refused(&self, refusal: &Refusal) {
        self.0.lock().unwrap().push(refusal.to_string());
    }

    fn connected(&self, _: &Target, _: std::net::SocketAddr) {}
}

pub(crate) struct World {
    pub(crate) sandbox: Sandbox,
    pub(crate) notes: Arc<Notes>,
    _workspace: TempDir,
}

/// A jail under this policy. `root.pem` in its workspace is the authority that `certificate` names.
pub(crate) async fn jail(network: NetworkPolicy, ports: WebPorts, certificate: &[u8]) -> World {
    let notes = Arc::new(Notes::default());
    let pattern: Egress =
        egress(Policy::None).with_observer(Arc::clone(&notes) as Arc<dyn Observe>).with_web_ports(ports);
    let workspace = tempfile::tempdir().unwrap();
    std::fs::write(workspace.path().join("root.pem"), pem(certificate)).unwrap();
    let context = ExecutionContext { network, ..ExecutionContext::new(workspace.path()) };
    let path = OsString::from("/usr/local/bin:/usr/bin:/bin");
    let jail = Jail::new([("PATH".into(), path)]).with_egress(pattern);
    let sandbox = Sandbox::open(&jail, &context, Arc::new(SystemClock), soon(30)).await.unwrap();
    World { sandbox, notes, _workspace: workspace }
}

/// A jail under this policy, with nothing to reach.
pub(crate) async fn plain_jail(network: NetworkPolicy) -> World {
    jail(network, WebPorts::default(), &[]).await
}

/// A server of HTTP and one of HTTPS, and a jail that may reach them as `good.example` and below.
pub(crate) async fn web() -> (World, Server, Server) {
    let (root, acceptor) = authority(&["good.example", "*.good.example", "other.example"]);
    let secure = tls_server(acceptor).await;
    let (plain, _) = Server::saying(HELLO, "\r\n\r\n").await;
    let ports = WebPorts { http: vec![plain.port], https: vec![secure.port] };
    let hosts = ["good.example", "*.good.example"];
    let world = jail(allowing(&hosts, &[plain.port, secure.port]), ports, &root).await;
    (world, plain, secure)
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

impl World {
    pub(crate) async fn run(&self, argv: &[&str]) -> Result<CommandOutcome, SandboxError> {
        self.sandbox.run(Command::new(argv.iter().copied()), options()).await
    }

    /// What a script says, which must end well.
    pub(crate) async fn bash(&self, script: &str) -> String {
        let outcome = self.run(&["bash", "-c", script]).await.unwrap();
        let said = text(&outcome);
        assert_eq!(outcome.end, CommandEnd::Exited(0), "{said}");
        said
    }

    /// What Python says. Nothing but its standard library.
    pub(crate) async fn python(&self, program: &str, arguments: &[&str]) -> String {
        let outcome = self.run(&[&["python3", "-c", program], arguments].concat()).await.unwrap();
        let said = text(&outcome);
        assert_eq!(outcome.end, CommandEnd::Exited(0), "{said}");
        said
    }

    /// Whether the jail has this program.
    #[expect(clippy::disallowed_methods, reason = "the test's own setting, declared in `main.rs`")]
    pub(crate) async fn has(&self, program: &str) -> bool {
        let found = self.run(&["bash", "-c", &format!("command -v {program}")]).await.unwrap();
        if found.end == CommandEnd::Exited(0) {
            return true;
        }
        let message = format!("`{program}` is not in the jail: install it");
        assert!(std::env::var("CONJURE_REQUIRE_ORACLES").as_deref() != Ok("1"), "{message}");
        eprintln!("SKIPPED: {message}");
        false
    }
}
