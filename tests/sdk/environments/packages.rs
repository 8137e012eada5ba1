//! Packages of environments. The index is one of the test, so the sandbox is `local`: jails reach no private address.

use crate::server::{RunningServer, python, run_python, script, serve, with_jails};

#[tokio::test]
async fn the_packages_of_an_environment_are_installed_once_and_survive_a_restart() {
    let Some(python) = python().await else { return };
    let data = tempfile::tempdir().unwrap();
    let index = data.path().join("index");
    // Everything that pip is told comes from its own file in the home directory.
    let start = async || {
        let mut command = serve("local", data.path(), &data.path().join("data"));
        command.arg("--script").arg(script("packages.yaml"));
        RunningServer::spawn(command).await
    };
    let server = start().await;
    let input = [server.url(), data.path().to_str().unwrap(), index.to_str().unwrap()];
    let session = run_python(&python, "packages.py", &input).await;
    server.kill().await;
    let server = start().await;
    run_python(&python, "packages_later.py", &[server.url(), session.trim()]).await;
    server.stop().await;
}

/// Packages of the sandbox's Python are not installed, so this test needs no network.
#[tokio::test]
async fn a_jail_has_the_packages_to_read_and_needs_a_network_that_permits_them() {
    let Some(python) = with_jails(python()).await else { return };
    for (network, told) in [
        (r#"["pypi.org", "files.pythonhosted.org"]"#, "permitted"),
        (r#"["pypi.org"]"#, "refused"),
        ("\"none\"", "refused"),
    ] {
        let data = tempfile::tempdir().unwrap();
        let config = data.path().join("config.toml");
        std::fs::write(&config, format!("network = {network}\n")).unwrap();
        let mut command = serve("jail", data.path(), &data.path().join("data"));
        command.arg("--script").arg(script("packages_jail.yaml")).env("CONJURE_CONFIG", config);
        let server = RunningServer::spawn(command).await;
        run_python(&python, "packages_jail.py", &[server.url(), told]).await;
        server.stop().await;
    }
}
