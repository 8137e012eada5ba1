//! `conjure serve` under a manager of services: it is told of the server's state, gives the socket, and has the configuration reloaded.

use std::fs;
use std::os::fd::OwnedFd;
use std::process::Stdio;
use std::time::Duration;

use tokio::net::UnixDatagram;

use crate::server::{RunningServer, python, run_python, script, serve_at};
use crate::tls::Authority;

/// How long the server may take to tell of its state.
const PATIENCE: Duration = Duration::from_secs(60);

/// The socket of the manager.
struct Manager(UnixDatagram);

impl Manager {
    /// The next state that it is told of must be this.
    async fn expect(&self, state: &str) {
        let mut buffer = [0; 256];
        let length = tokio::time::timeout(PATIENCE, self.0.recv(&mut buffer)).await.expect(state).unwrap();
        assert_eq!(std::str::from_utf8(&buffer[..length]).unwrap(), state);
    }
}

#[tokio::test]
async fn a_signal_reloads_changeable_settings_and_errors_change_nothing() {
    let Some(python) = python().await else { return };
    let home = tempfile::tempdir().unwrap();
    let path = |name: &str| home.path().join(name);
    let (config, root, socket) = (path("config.toml"), path("root.pem"), path("notify"));
    let authority = Authority::new(&root);
    let certify = |name: &str| authority.certify(name, &path("cert.pem"), &path("key.pem"));
    let configure = |more: &str| {
        let tls = "certificate = \"cert.pem\"\nprivate_key = \"key.pem\"\n";
        fs::write(&config, format!("[serve]\n{tls}{more}")).unwrap();
    };
    certify("first");
    configure("[serve.models]\none = \"ollama:one\"\n");
    let manager = Manager(UnixDatagram::bind(&socket).unwrap());
    let mut command = serve_at("127.0.0.1:0", "local", home.path(), &path("data"));
    command.arg("--config").arg(&config).env("NOTIFY_SOCKET", &socket);
    let server = RunningServer::spawn(command).await;
    manager.expect("READY=1").await;
    let check = async |name: &str, there: &str, not_there: &str, skill: &str| {
        let root = root.to_str().unwrap();
        run_python(&python, "reload.py", &[server.url(), root, name, there, not_there, skill]).await;
    };
    let reload = async || {
        server.signal("-HUP").await;
        manager.expect("RELOADING=1").await;
        manager.expect("READY=1").await;
    };
    check("first", "one", "two", "none").await;

    certify("second");
    fs::create_dir(path("greeter")).unwrap();
    fs::write(path("greeter/SKILL.md"), "---\nname: greeter\ndescription: Greets\n---\nSay hello.\n")
        .unwrap();
    let valid = "[serve.models]\ntwo = \"ollama:two\"\n[serve.skills]\ngreeter = \"greeter\"\n";
    configure(valid);
    reload().await;
    check("second", "two", "one", "skill").await;

    certify("third");
    for mistake in [
        "[serve.models]\none = 1\n",
        "[serve.models]\none = \"ollama:one\"\ntwo = \"unknown-vendor:two\"\n",
        "[serve.models]\none = \"ollama:one\"\n[serve.skills]\nother = \"no-such-directory\"\n",
        "no TOML",
    ] {
        configure(mistake);
        reload().await;
    }
    fs::write(&config, "[serve.models]\none = \"ollama:one\"\n").unwrap();
    reload().await;
    configure(&valid.replace("two", "one"));
    fs::write(path("cert.pem"), "no certificate").unwrap();
    reload().await;
    check("second", "two", "one", "skill").await;

    certify("fourth");
    reload().await;
    check("fourth", "one", "two", "skill").await;
    server.signal("-TERM").await;
    manager.expect("STOPPING=1").await;
}

#[tokio::test]
async fn the_socket_may_come_from_systemd() {
    let Some(python) = python().await else { return };
    let home = tempfile::tempdir().unwrap();
    let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap();
    let command = |input: Stdio| {
        let mut command = serve_at("-", "local", home.path(), &home.path().join("data"));
        command.arg("--script").arg(script("echo.yaml")).stdin(input);
        command
    };
    let server = RunningServer::spawn(command(OwnedFd::from(socket).into())).await;
    assert_eq!(server.url(), format!("http://{address}"));
    run_python(&python, "quickstart.py", &[server.url()]).await;
    server.stop().await;
    let output = command(Stdio::null()).output().await.unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(2) && stderr.contains("is no socket that listens"), "{stderr}");
}
